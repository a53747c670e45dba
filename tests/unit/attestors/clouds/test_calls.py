from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from attestors.clouds.calls import CloudCalls, Deadline
from attestors.clouds.errors import CloudObjectMissing, CloudRefused, CloudThrottled, CloudUnavailable
from attestors.contract import CloudCall, CloudCallOutcome, observing_cloud_calls


@contextmanager
def calls(threads: int = 2, waiting: int = 2, deadline_seconds: float = 10.0) -> Iterator[CloudCalls]:
    running = CloudCalls(threads=threads, waiting=waiting, deadline_seconds=deadline_seconds)
    try:
        yield running
    finally:
        running.close()


async def test_the_answer_and_the_error_come_back() -> None:
    def fail(deadline: Deadline) -> None:
        raise KeyError(deadline.service)

    with calls() as running:
        assert await running.run("cloud", "ask", lambda deadline: deadline.service) == "cloud"
        with pytest.raises(KeyError, match="cloud"):
            await running.run("cloud", "ask", fail)


async def test_calls_run_beside_the_event_loop() -> None:
    with calls() as running:
        assert (
            await running.run("cloud", "ask", lambda deadline: threading.current_thread())
            is not threading.current_thread()
        )


async def test_what_finds_no_place_is_refused_at_once_and_places_are_given_back() -> None:
    gate = threading.Event()
    with calls() as running:
        held = [asyncio.create_task(running.run("cloud", "ask", lambda deadline: gate.wait(10))) for _ in range(4)]
        await asyncio.sleep(0)
        with pytest.raises(CloudUnavailable, match=r"^cloud: not called: too many calls"):
            await running.run("cloud", "ask", lambda deadline: True)
        gate.set()
        assert await asyncio.gather(*held) == [True] * 4
        assert await running.run("cloud", "ask", lambda deadline: True)


async def test_a_call_that_no_thread_takes_gives_its_place_back() -> None:
    with calls(threads=1, waiting=0) as running:
        assert await running.run("cloud", "ask", lambda deadline: True)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="after shutdown"):
            await running.run("cloud", "ask", lambda deadline: True)


async def test_a_service_that_hangs_keeps_no_other_waiting() -> None:
    """One cluster's nodes can have a slow one asked as often as they like: the others' clouds answer all the same."""
    gate = threading.Event()
    with calls(threads=1, waiting=0) as running:
        held = asyncio.create_task(running.run("slow cloud", "ask", lambda deadline: gate.wait(10)))
        await asyncio.sleep(0)
        assert await running.run("other cloud", "ask", lambda deadline: True)
        gate.set()
        assert await held


async def test_a_site_that_hangs_keeps_no_other_site_waiting() -> None:
    """A node may choose which Region's STS is asked, also one that cannot be reached from here."""
    gate = threading.Event()
    with calls(threads=1, waiting=0) as running:
        held = asyncio.create_task(running.run("cloud", "ask", lambda deadline: gate.wait(10), site="far"))
        await asyncio.sleep(0)
        with pytest.raises(CloudUnavailable, match="too many calls"):
            await running.run("cloud", "ask", lambda deadline: True, site="far")
        assert await running.run("cloud", "ask", lambda deadline: deadline.service, site="near") == "cloud"
        gate.set()
        assert await held


async def test_no_more_threads_than_allowed() -> None:
    gate, lock = threading.Event(), threading.Lock()
    seen: set[int] = set()

    def note(deadline: Deadline) -> None:
        with lock:
            seen.add(threading.get_ident())
        gate.wait(10)

    with calls(threads=2, waiting=8) as running:
        held = [asyncio.create_task(running.run("cloud", "ask", note)) for _ in range(8)]
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(*held)
    assert len(seen) <= 2


async def test_the_caller_returns_at_the_deadline_and_the_place_stays_taken_until_the_thread_ends() -> None:
    gate = threading.Event()
    with calls(threads=1, waiting=0, deadline_seconds=0.02) as running:
        with pytest.raises(CloudUnavailable, match=r"^slow cloud: did not answer in time$"):
            await running.run("slow cloud", "ask", lambda deadline: gate.wait(10))
        with pytest.raises(CloudUnavailable, match="too many calls"):
            await running.run("slow cloud", "ask", lambda deadline: True)
        gate.set()


async def test_a_call_that_waits_too_long_is_never_made() -> None:
    gate = threading.Event()
    made: list[Deadline] = []
    with calls(threads=1, waiting=1, deadline_seconds=0.02) as running:
        held = asyncio.create_task(running.run("cloud", "ask", lambda deadline: gate.wait(10)))
        await asyncio.sleep(0)
        with pytest.raises(CloudUnavailable, match="in time"):
            await running.run("cloud", "ask", made.append)
        with pytest.raises(CloudUnavailable, match="in time"):
            await held
        gate.set()
    assert made == []


async def test_the_message_names_the_site() -> None:
    gate = threading.Event()
    with calls(threads=1, waiting=0, deadline_seconds=0.02) as running:
        with pytest.raises(CloudUnavailable, match=r"^cloud: did not answer in time \(far\)$"):
            await running.run("cloud", "ask", lambda deadline: gate.wait(10), site="far")
        gate.set()
    with pytest.raises(CloudUnavailable, match=r"^cloud: did not answer in time \(far\)$"):
        Deadline("cloud", 0.0, site="far").remaining()


def test_a_deadline_passes() -> None:
    now = [5.0]
    deadline = Deadline("cloud", 2.0, lambda: now[0])
    now[0] = 6.5
    assert deadline.remaining() == 0.5
    now[0] = 7.0
    with pytest.raises(CloudUnavailable, match=r"^cloud: did not answer in time$"):
        deadline.remaining()


async def test_a_call_without_a_caller_frees_its_place() -> None:
    gate = threading.Event()
    with calls(threads=1, waiting=0) as running:
        held = asyncio.create_task(running.run("cloud", "ask", lambda deadline: gate.wait(10)))
        await asyncio.sleep(0)
        held.cancel()
        await asyncio.wait([held])
        gate.set()
        for _ in range(200):
            try:
                assert await running.run("cloud", "ask", lambda deadline: True)
            except CloudUnavailable:
                await asyncio.sleep(0.01)
            else:
                break
        else:
            pytest.fail("the place was never given back")


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (CloudUnavailable("cloud", "down"), CloudCallOutcome.ERROR),
        (CloudThrottled("cloud", "slower"), CloudCallOutcome.THROTTLED),
        (CloudRefused("cloud", "no"), CloudCallOutcome.REFUSED),
        (CloudObjectMissing("cloud", "none"), CloudCallOutcome.OK),
        (KeyError("a defect"), CloudCallOutcome.ERROR),
    ],
    ids=lambda value: value.value if isinstance(value, CloudCallOutcome) else type(value).__name__,
)
async def test_each_call_is_counted_with_its_outcome(error: Exception, outcome: CloudCallOutcome) -> None:
    def fail(deadline: Deadline) -> None:
        raise error

    seen: list[CloudCall] = []
    with calls() as running, observing_cloud_calls(seen.append):
        await running.run("cloud", "ask", lambda deadline: True)
        with pytest.raises(type(error)):
            await running.run("cloud", "look", fail)
        await running.run("cloud", "ask", lambda deadline: 500, outcome_of=lambda answer: CloudCallOutcome.ERROR)
    assert [(call.service, call.operation, call.outcome) for call in seen] == [
        ("cloud", "ask", CloudCallOutcome.OK),
        ("cloud", "look", outcome),
        ("cloud", "ask", CloudCallOutcome.ERROR),
    ]
    assert all(call.seconds >= 0 for call in seen)


async def test_a_call_that_is_too_slow_and_one_without_a_place_are_counted() -> None:
    gate, seen = threading.Event(), list[CloudCall]()
    with calls(threads=1, waiting=0, deadline_seconds=0.1) as running, observing_cloud_calls(seen.append):
        slow = asyncio.create_task(running.run("cloud", "ask", lambda deadline: gate.wait(10)))
        await asyncio.sleep(0)
        with pytest.raises(CloudThrottled):
            await running.run("cloud", "ask", lambda deadline: True)
        with pytest.raises(CloudUnavailable, match="in time"):
            await slow
        gate.set()
    assert [call.outcome for call in seen] == [CloudCallOutcome.THROTTLED, CloudCallOutcome.TIMEOUT]


async def test_observers_of_other_contexts_receive_nothing() -> None:
    seen: list[CloudCall] = []
    with calls() as running:
        with observing_cloud_calls(seen.append):
            pass
        await running.run("cloud", "ask", lambda deadline: True)
    assert seen == []
