"""The shutdown of a controller, which remaining Events must not delay."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from signer.controller import run
from signer.controller.audit_heads import NoAuditHeads
from signer.controller.replicas import leadership
from signer.controller.telemetry.recorder import Occurrence, Recorder, Subject
from tests.unit.signer.controller.support import Clock

SUBJECT = Subject("cluster.x-k8s.io/v1beta2", "Machine", "team-a", "m1", "uid-1")


class Calls:
    """A management cluster that responds or hangs."""

    def __init__(self, *, answers: bool, seconds_for_the_first: float = 0.0) -> None:
        self.arrived = 0
        self.answers = answers
        self.seconds = seconds_for_the_first

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        seconds, self.seconds = self.seconds, 0.0
        if seconds:
            await asyncio.sleep(seconds)
        self.arrived += 1
        if not self.answers:
            await asyncio.Event().wait()
        return body


def recorder(calls: Calls) -> Recorder:
    clock = Clock()
    recorder = Recorder(calls, now=clock.now, monotonic=clock.monotonic, identity="pod-1")
    for number in range(3):
        recorder.record(Occurrence(SUBJECT, "Normal", "Attested", f"it is so {number}"))
    return recorder


async def test_remaining_events_are_written() -> None:
    calls = Calls(answers=True)
    await run._flush(recorder(calls), NoAuditHeads())
    assert calls.arrived == 3


async def test_the_event_being_written_is_awaited() -> None:
    """The Event of the last decision is being written when the drain ends."""
    calls = Calls(answers=True, seconds_for_the_first=0.05)
    events = recorder(calls)
    writing = asyncio.create_task(events.run())
    await asyncio.sleep(0)
    await run._flush(events, NoAuditHeads())
    writing.cancel()
    assert calls.arrived == 3


async def test_a_hanging_management_cluster_does_not_delay_the_shutdown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "FLUSH_SECONDS", 0.01)
    calls = Calls(answers=False)
    async with asyncio.timeout(30):
        await run._flush(recorder(calls), NoAuditHeads())
    assert calls.arrived == 1


def test_drain_flush_and_release_end_within_the_usual_grace_period() -> None:
    assert run.DRAIN_SECONDS + run.FLUSH_SECONDS + leadership.RELEASE_SECONDS < 10
