"""What is said of a decision that does not come out the same, by who wrote it."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest

from attestors.registry import Registry
from signer.audit.authenticity import NoControllerKey
from signer.audit.chain import DECISION, NOTHING_BEFORE, START, Link, digest_of_line
from signer.audit.comparison import Differs
from signer.audit.findings import Broken
from signer.audit.replay_attestors import ReplayAttestors
from signer.audit.verification import ReplayedDecision, is_bad, verify
from signer.configuration import operator_settings
from signer.model.program_version import program_version
from tests.unit.signer.audit.test_consistency import Content, logged


def verdict(path: Path, program: str, content: Content) -> ReplayedDecision | Broken:
    """The last finding in a log that a controller of that version began."""
    says = {"time": "now", "torn": "", "program": program}
    start = Link("a" * 32, -1, NOTHING_BEFORE).next_line(START, json.dumps(says).encode())
    line = Link("a" * 32, 0, digest_of_line(start)).next_line(DECISION, json.dumps(content).encode())
    path.write_bytes(start + b"\n" + line + b"\n")

    async def last() -> ReplayedDecision | Broken:
        plugins = ReplayAttestors(Registry(), partial(operator_settings, {}))
        *_, found, _ = [one async for one in verify([path], plugins, NoControllerKey())]
        assert isinstance(found, ReplayedDecision | Broken)
        return found

    return asyncio.run(last())


def forged() -> Content:
    content = logged("Approve")
    content["decision"]["reason"] = "Asserted"
    return content


@pytest.mark.parametrize(("program", "writer"), [("0.0.9", "version 0.0.9"), ("", "an unknown version")])
def test_another_versions_rules_may_have_been_others(tmp_path: Path, program: str, writer: str) -> None:
    """It is bad all the same: whoever forges a line can forge who wrote it."""
    found = verdict(tmp_path / "audit.log", program, forged())
    assert isinstance(found, ReplayedDecision)
    assert isinstance(found.comparison, Differs)
    assert found.comparison.why.startswith("logged is Approve Asserted; the line's facts give ")
    assert found.comparison.why.endswith(
        f"; written by {writer}, replayed by {program_version()}: verify it with the version that wrote it"
    )
    assert is_bad(found)


def test_our_own_have_not_changed(tmp_path: Path) -> None:
    found = verdict(tmp_path / "audit.log", program_version(), forged())
    assert isinstance(found, ReplayedDecision)
    assert isinstance(found.comparison, Differs)
    assert "written by" not in found.comparison.why


@pytest.mark.parametrize("program", ["", "0.0.9"])
def test_what_comes_out_the_same_needs_no_word(tmp_path: Path, program: str) -> None:
    assert not is_bad(verdict(tmp_path / "audit.log", program, logged("Deny")))


def test_what_is_no_decision_is_none_of_any_version(tmp_path: Path) -> None:
    found = verdict(tmp_path / "audit.log", "0.0.9", {**logged("Approve"), "more": 1})
    assert isinstance(found, Broken)
    assert "written by" not in found.why


def test_who_wrote_the_last_start_line_wrote_what_follows(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    verdict(path, "0.0.9", forged())
    *_, last = path.read_bytes().splitlines()
    says = json.dumps({"time": "now", "torn": "", "program": program_version()}).encode()
    start = Link("a" * 32, 1, digest_of_line(last)).next_line(START, says)
    line = Link("a" * 32, 2, digest_of_line(start)).next_line(DECISION, json.dumps(forged()).encode())
    path.write_bytes(path.read_bytes() + start + b"\n" + line + b"\n")

    async def found() -> list[bool]:
        plugins = ReplayAttestors(Registry(), partial(operator_settings, {}))
        judged = [one async for one in verify([path], plugins, NoControllerKey())]
        return [
            "written by" in one.comparison.why
            for one in judged
            if isinstance(one, ReplayedDecision) and is_bad(one) and isinstance(one.comparison, Differs)
        ]

    assert asyncio.run(found()) == [True, False]
