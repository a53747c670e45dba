"""Canaries in the audit log: a line for each, and no other certificate passes as one."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from attestors.registry import Registry
from signer.audit.authenticity import NoControllerKey
from signer.audit.canary_line import CanaryLine, read_canary_line
from signer.audit.errors import Inconsistent
from signer.audit.findings import Broken, MacsNotChecked
from signer.audit.lines import CanaryContent, FileLines
from signer.audit.replay_attestors import ReplayAttestors
from signer.audit.values import InvalidValue
from signer.audit.verification import Finding, decisions, verify
from tests.unit.signer.builders import CA_CERT_HASH, NOW

LINE = CanaryLine(
    cluster="team-a/prod",
    time=NOW,
    server="https://api.example:6443",
    user="node-attestation:ca-canary:0123456789abcdef",
    serial_number="4f",
    not_after=NOW + timedelta(minutes=10),
    ca_cert_hash=CA_CERT_HASH,
    certificate_digest="0" * 64,
)


def content(line: CanaryLine = LINE, **changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(line.encode())
    return fields | changes


def test_it_is_read_back() -> None:
    assert read_canary_line(content()) == LINE


def test_a_node_is_no_canary() -> None:
    with pytest.raises(Inconsistent, match="user"):
        read_canary_line(content(user="system:node:worker-1"))


def test_a_canary_is_short_lived() -> None:
    with pytest.raises(Inconsistent, match="longer"):
        read_canary_line(content(replace(LINE, not_after=NOW + timedelta(hours=1))))


@pytest.mark.parametrize("changes", [{"more": 1}, {"time": "now"}, {"user": 7}])
def test_other_fields(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        read_canary_line(content(**changes))


async def found(path: Path) -> list[Finding]:
    plugins = ReplayAttestors(Registry([]), lambda provider, namespace: {})
    found = [finding async for finding in verify([path], plugins, NoControllerKey())]
    return [finding for finding in found if not isinstance(finding, MacsNotChecked)]


async def test_a_log_with_canaries_verifies(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    lines = FileLines(path, 0, 0)
    lines.write([CanaryContent(LINE.encode()), CanaryContent(LINE.encode())])
    lines.close()
    assert await found(path) == []
    assert list(decisions([path])) == []


async def test_a_changed_canary_is_found(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    lines = FileLines(path, 0, 0)
    lines.write([CanaryContent(json.dumps(content(user="system:node:worker-1")).encode())])
    lines.close()
    (finding,) = await found(path)
    assert isinstance(finding, Broken)
    assert "not a valid canary" in finding.why
