"""The audit log, to which decisions are appended: whoever appends waits until its line is on the disk.

Lines are written in a thread, one batch after the other (:mod:`signer.audit.lines`).
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final, Protocol

from signer.audit.chain import MAXIMUM_LINE_BYTES
from signer.audit.lines import HEADER_ROOM, FileLines, Lines, StreamLines

STANDARD_OUTPUT: Final = "-"
DEFAULT_MAXIMUM_MEBIBYTES: Final = 100


class AuditLogUnavailable(Exception):
    """The line is not in the log, or it is not sure that it is; the message says why."""


class AuditLog(Protocol):
    """Where decisions are written to."""

    async def append(self, content: bytes) -> None:
        """Return once the line is on the disk.

        Raises:
            AuditLogUnavailable: it is not.
        """
        ...


class NoAuditLog:
    """Nobody asked for one."""

    async def append(self, content: bytes) -> None:
        """Forget it."""


class GroupedAuditLog:
    """Implements :class:`AuditLog`: what arrives while a batch is written goes into the next one."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def append(self, content: bytes) -> None:
        """See :class:`AuditLog`."""
        if len(content) + HEADER_ROOM > MAXIMUM_LINE_BYTES:
            raise AuditLogUnavailable(f"the line would be larger than {MAXIMUM_LINE_BYTES} bytes")
        written = asyncio.get_running_loop().create_future()
        self._waiting.append((content, written))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_all(), name="audit log")
        await written

    async def _write_all(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            failure: AuditLogUnavailable | None = None
            try:
                await asyncio.to_thread(self._lines.write, [content for content, _ in batch])
            except Exception as error:  # noqa: BLE001 - whatever it is, those who wait must hear that it failed
                failure = AuditLogUnavailable(f"the audit log cannot be written: {_cause(error)}")
            for _, written in batch:
                if written.done():
                    continue
                if failure is None:
                    written.set_result(None)
                else:
                    written.set_exception(AuditLogUnavailable(str(failure)))

    async def close(self) -> None:
        """Write what waits, and give the file back."""
        if self._writing is not None:
            await asyncio.wait({self._writing})
        await asyncio.to_thread(self._lines.close)


def _cause(error: Exception) -> str:
    return (error.strerror or type(error).__name__) if isinstance(error, OSError) else type(error).__name__


def open_audit_log(path: str, *, maximum_mebibytes: int, maximum_backups: int) -> GroupedAuditLog:
    """The log at that path, or on standard output.

    Raises:
        AuditLogInUse: another process writes there.
        OSError: it cannot be opened or written.
    """
    if path == STANDARD_OUTPUT:
        return GroupedAuditLog(StreamLines(1))
    return GroupedAuditLog(FileLines(Path(path), maximum_mebibytes * 1024 * 1024, maximum_backups))
