"""Events: deduplicated, rate-limited, and never delaying a decision."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from signer.controller.telemetry.recorder import (
    BURST,
    NORMAL_BURST,
    NORMAL_PER_SECOND,
    QUEUED_OF_ONE_NAMESPACE,
    REFILL_SECONDS,
    REPEAT_SECONDS,
    Occurrence,
    Recorder,
    Subject,
)
from signer.kube.errors import ApiError, Forbidden, ServerError
from tests.unit.signer.controller.support import Clock

MACHINE = Subject("cluster.x-k8s.io/v1beta2", "Machine", "team-a", "m1", "uid-1")


def machine(number: int) -> Subject:
    return Subject("cluster.x-k8s.io/v1beta2", "Machine", "team-a", f"m{number}", f"uid-{number}")


def occurrence(message: str = "it is so", subject: Subject = MACHINE) -> Occurrence:
    return Occurrence(subject, "Warning", "NodeNameMismatch", message)


class World:
    def __init__(self) -> None:
        self.clock = Clock()
        self.events: list[dict[str, Any]] = []
        self.failure: ApiError | None = None
        self.written = asyncio.Event()
        self.recorder = Recorder(self, now=self.clock.now, monotonic=self.clock.monotonic, identity="pod-1")

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if self.failure is not None:
            raise self.failure
        assert path == f"/api/v1/namespaces/{body['metadata']['namespace']}/events"
        self.events.append(body)
        self.written.set()
        return body

    async def record(self, *occurrences: Occurrence) -> None:
        for one in occurrences:
            self.recorder.record(one)
        await self.recorder.flush()


async def test_an_event_has_its_subject_and_message() -> None:
    world = World()
    await world.record(occurrence())
    (event,) = world.events
    about = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "namespace": "team-a", "name": "m1"}
    assert event["involvedObject"] == {**about, "uid": "uid-1"}
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "NodeNameMismatch", "it is so")
    assert (event["count"], event["reportingInstance"]) == (1, "pod-1")
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2026-03-01T12:00:00Z"
    assert event["metadata"]["name"].startswith("m1.")


async def test_repeats_are_counted_and_written_after_an_interval() -> None:
    world = World()
    await world.record(occurrence())
    await world.record(occurrence(), occurrence())
    assert [event["count"] for event in world.events] == [1]
    world.clock.pass_by(REPEAT_SECONDS + 1)
    await world.record(occurrence())
    assert [event["count"] for event in world.events] == [1, 4]
    assert world.events[1]["firstTimestamp"] == "2026-03-01T12:00:00Z"
    assert world.events[1]["lastTimestamp"] == "2026-03-01T12:05:01Z"
    assert world.events[0]["metadata"]["name"] != world.events[1]["metadata"]["name"]


async def test_another_message_or_object_is_not_a_repeat() -> None:
    world = World()
    other = Subject("cluster.x-k8s.io/v1beta2", "Machine", "team-a", "m2", "uid-2")
    await world.record(occurrence(), occurrence("another"), occurrence(subject=other))
    assert len(world.events) == 3


async def test_queue_is_bounded_and_recording_never_waits() -> None:
    world = World()
    for number in range(1000):
        world.recorder.record(occurrence(subject=machine(number)))
    assert world.recorder.dropped == 1000 - 256
    await world.recorder.flush()
    assert len(world.events) == 256


async def test_memory_is_bounded() -> None:
    """The first Event is forgotten after 4096 others, and so written again."""
    world = World()
    for number in range(4097):
        await world.record(occurrence(subject=machine(number)))
    await world.record(occurrence(subject=machine(0)))
    assert len(world.events) == 4098


async def test_varying_messages_cannot_flood_the_management_cluster() -> None:
    world = World()
    for number in range(1000):
        await world.record(occurrence(f"the request is for node x{number}"))
    assert len(world.events) == BURST
    assert world.recorder.dropped == 1000 - BURST
    await world.record(occurrence(subject=machine(2)))
    assert len(world.events) == BURST + 1
    world.clock.pass_by(REFILL_SECONDS + 1)
    await world.record(occurrence("one more"), occurrence("and another"))
    assert len(world.events) == BURST + 2


async def test_each_reason_has_its_own_bucket() -> None:
    """Forged requests that claim a Machine must not hide why its own node does not join."""
    world = World()
    await world.record(*(occurrence(f"forged {number}") for number in range(2 * BURST)))
    await world.record(Occurrence(MACHINE, "Warning", "MachineNotReady", "it has no bootstrap data yet"))
    assert [event["reason"] for event in world.events] == [*["NodeNameMismatch"] * BURST, "MachineNotReady"]


async def test_a_wave_of_joins_writes_few_events_and_hides_no_warning() -> None:
    world = World()
    for number in range(1000):
        await world.record(Occurrence(machine(number), "Normal", "Attested", "it is who it says"))
    assert len(world.events) == NORMAL_BURST
    assert world.recorder.dropped == 1000 - NORMAL_BURST
    await world.record(*(occurrence(subject=machine(number)) for number in range(200)))
    assert len(world.events) == NORMAL_BURST + 200
    world.clock.pass_by(2.0)
    for number in range(2000, 3000):
        await world.record(Occurrence(machine(number), "Normal", "Attested", "it is who it says"))
    assert len(world.events) == NORMAL_BURST + 200 + 2 * NORMAL_PER_SECOND


async def test_events_beyond_an_objects_bucket_take_nothing_from_the_shared_one() -> None:
    world = World()
    for number in range(1000):
        await world.record(Occurrence(MACHINE, "Normal", "Attested", f"again {number}"))
    await world.record(Occurrence(machine(2), "Normal", "Attested", "it is who it says"))
    assert len(world.events) == BURST + 1


async def test_repeats_cost_nothing() -> None:
    world = World()
    await world.record(*(occurrence() for _ in range(10 * BURST)))
    await world.record(occurrence("another"))
    assert [event["message"] for event in world.events] == ["it is so", "another"]
    assert world.recorder.dropped == 0


async def test_long_names_fit() -> None:
    world = World()
    await world.record(occurrence(subject=Subject("v1", "Machine", "team-a", "m" * 253, "u")))
    assert len(world.events[0]["metadata"]["name"]) <= 253
    assert world.events[0]["involvedObject"]["name"] == "m" * 253


@pytest.mark.parametrize("failure", [Forbidden("no", status=403), ServerError("etcd", status=500)])
async def test_api_error_is_logged_and_the_next_event_is_written(
    failure: ApiError, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    world.failure = failure
    with caplog.at_level(logging.INFO):
        await world.record(occurrence())
    assert [record.getMessage() for record in caplog.records] == ["cannot write an Event"]
    world.failure = None
    await world.record(occurrence("next"))
    assert [event["message"] for event in world.events] == ["next"]


async def test_it_runs_until_cancelled() -> None:
    world = World()
    running = asyncio.create_task(world.recorder.run())
    world.recorder.record(occurrence())
    await asyncio.wait_for(world.written.wait(), 5)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_tenants_flood_loses_no_event_of_another() -> None:
    world = World()
    for number in range(2000):
        world.recorder.record(occurrence(subject=machine(number)))
    other = Subject("cluster.x-k8s.io/v1beta2", "Machine", "team-b", "m1", "uid-b")
    await world.record(occurrence(subject=other))
    assert world.events[-1]["involvedObject"]["namespace"] == "team-b"
    assert len(world.events) == QUEUED_OF_ONE_NAMESPACE + 1
    await world.record(*(occurrence("again", machine(number)) for number in range(10)))
    assert len(world.events) == QUEUED_OF_ONE_NAMESPACE + 11
