"""Whoever appends goes on once the line is on the disk."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from signer.audit.chain import MAXIMUM_LINE_BYTES
from signer.audit.lines import FileLines
from signer.audit.log import AuditLogUnavailable, GroupedAuditLog, open_audit_log
from tests.unit.signer.audit.found import numbers


async def test_what_cannot_be_flushed_is_not_written(tmp_path: Path) -> None:
    failing = True

    def flush(descriptor: int) -> None:
        if failing and descriptor in flushed:
            raise OSError(errno.EIO, "Input/output error")
        flushed.append(descriptor)

    flushed: list[int] = []
    log = GroupedAuditLog(FileLines(tmp_path / "audit.log", 0, 0, flush=flush))
    with pytest.raises(AuditLogUnavailable, match="Input/output error"):
        await log.append(b'{"number":0}')
    failing = False
    await log.append(b'{"number":1}')
    await log.close()


async def test_many_at_once_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = open_audit_log(str(path), maximum_mebibytes=1, maximum_backups=0)
    await asyncio.gather(*(log.append(b'{"number":%d}' % number) for number in range(200)))
    await log.close()
    assert numbers(path) == list(range(200))


async def test_a_batch_is_flushed_once(tmp_path: Path) -> None:
    flushes: list[int] = []
    log = GroupedAuditLog(FileLines(tmp_path / "audit.log", 0, 0, flush=flushes.append))
    before = len(flushes)
    await asyncio.gather(*(log.append(b'{"number":1}') for _ in range(100)))
    await log.close()
    assert len(flushes) - before <= 2


async def test_who_gave_up_does_not_hold_up_others(tmp_path: Path) -> None:
    log = open_audit_log(str(tmp_path / "audit.log"), maximum_mebibytes=1, maximum_backups=0)
    given_up = asyncio.ensure_future(log.append(b'{"number":0}'))
    await asyncio.sleep(0)
    given_up.cancel()
    await log.append(b'{"number":1}')
    await log.close()


async def test_lines_are_bounded(tmp_path: Path) -> None:
    log = open_audit_log(str(tmp_path / "audit.log"), maximum_mebibytes=1, maximum_backups=0)
    with pytest.raises(AuditLogUnavailable, match="larger"):
        await log.append(b"{" + b"x" * MAXIMUM_LINE_BYTES)
    await log.close()
