from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from signer.kube.backoff import Backoff
from signer.kube.workqueue import CROWD, QueueClosed, WorkQueue
from signer.model.flow import Flow, PriorityLevel
from tests.unit.signer.kube.support import run_in_virtual_time
from tests.unit.signer.queues import idle

FIXED = Backoff(base_seconds=1.0, maximum_seconds=8.0, jitter=0.0)


def virtual_time(test: Callable[[WorkQueue[str]], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run an async test with a fresh queue, where a day passes in no time and a deadlock is an error."""

    def run() -> None:
        async def main() -> None:
            await test(WorkQueue(backoff=FIXED))

        run_in_virtual_time(main())

    run.__name__ = test.__name__
    return run


def now() -> float:
    return asyncio.get_running_loop().time()


async def _is_waiting(getter: asyncio.Task[str], seconds: float) -> bool:
    await asyncio.sleep(seconds)
    return not getter.done()


@virtual_time
async def test_keys_come_in_order_and_once(queue: WorkQueue[str]) -> None:
    for key in ("a", "b", "a", "c"):
        queue.add(key)
    assert len(queue) == 3
    assert [await queue.get() for _ in range(3)] == ["a", "b", "c"]


@virtual_time
async def test_a_key_that_is_added_while_processed_comes_again_and_only_afterwards(queue: WorkQueue[str]) -> None:
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add("a")
    other = asyncio.create_task(queue.get())
    assert await _is_waiting(other, 60)
    queue.done("a")
    assert await other == "a"
    queue.done("a")
    assert len(queue) == 0
    assert queue.processing == 0


@virtual_time
async def test_delayed_keys_come_at_their_time(queue: WorkQueue[str]) -> None:
    queue.add_after("late", 20)
    queue.add_after("early", 10)
    assert queue.delayed == 2
    assert await queue.get() == "early"
    assert now() == pytest.approx(10)
    assert await queue.get() == "late"
    assert now() == pytest.approx(20)


@virtual_time
async def test_the_earlier_of_two_delays_wins(queue: WorkQueue[str]) -> None:
    queue.add_after("a", 20)
    queue.add_after("a", 10)
    queue.add_after("a", 30)
    assert queue.delayed == 1
    await queue.get()
    assert now() == pytest.approx(10)
    queue.done("a")
    assert await _is_waiting(asyncio.create_task(queue.get()), 100)
    queue.shutdown()


@virtual_time
async def test_add_beats_a_pending_delay(queue: WorkQueue[str]) -> None:
    queue.add_after("a", 10)
    queue.add("a")
    assert await queue.get() == "a"
    assert queue.delayed == 0
    queue.done("a")
    getter = asyncio.create_task(queue.get())
    assert await _is_waiting(getter, 60)
    getter.cancel()


@virtual_time
async def test_a_delay_changes_nothing_for_a_key_that_is_ready(queue: WorkQueue[str]) -> None:
    queue.add("a")
    queue.add_after("a", 10)
    assert queue.delayed == 0


@virtual_time
async def test_a_delay_that_ends_while_the_key_is_processed(queue: WorkQueue[str]) -> None:
    queue.add("a")
    await queue.get()
    queue.add_after("a", 5)
    await asyncio.sleep(10)
    assert queue.processing == 1
    assert len(queue) == 1
    queue.done("a")
    assert await queue.get() == "a"


@virtual_time
async def test_no_delay_means_now(queue: WorkQueue[str]) -> None:
    queue.add_after("a", 0)
    queue.add_after("b", -1)
    assert len(queue) == 2


@virtual_time
async def test_retries_back_off_per_key_until_forgotten(queue: WorkQueue[str]) -> None:
    assert [queue.retry("a") for _ in range(5)] == [1, 2, 4, 8, 8]
    assert queue.retry("b") == 1
    assert queue.failing == 2
    queue.forget("a")
    assert queue.failing == 1
    assert queue.retry("a") == 1


@virtual_time
async def test_retry_waits_its_backoff(queue: WorkQueue[str]) -> None:
    for expected in (1.0, 2.0, 4.0):
        queue.add("a")
        await queue.get()
        queue.retry("a")
        queue.done("a")
        before = now()
        await queue.get()
        assert now() - before == pytest.approx(expected)
        queue.done("a")


def test_jitter_spreads_retries() -> None:
    async def main() -> None:
        queue: WorkQueue[int] = WorkQueue(backoff=Backoff(10.0, 10.0, 1.0), random=Random(1))
        delays = [queue.retry(key) for key in range(200)]
        assert min(delays) < 1 < 9 < max(delays) <= 10

    run_in_virtual_time(main())


@virtual_time
async def test_discard_drops_a_key_wherever_it_waits(queue: WorkQueue[str]) -> None:
    queue.add("ready")
    queue.retry("delayed")
    queue.discard("ready")
    queue.discard("delayed")
    queue.discard("unknown")
    assert (len(queue), queue.delayed, queue.failing) == (0, 0, 0)
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.discard("a")
    queue.done("a")
    getter = asyncio.create_task(queue.get())
    assert await _is_waiting(getter, 100)
    getter.cancel()


@virtual_time
async def test_dropped_and_moved_delays_do_not_pile_up(queue: WorkQueue[str]) -> None:
    for n in range(10_000):
        queue.add_after(f"k{n}", 1000)
        queue.discard(f"k{n}")
        queue.add_after("same", 100_000 - n)
    assert queue.delayed == 1
    assert len(queue._heap) < 200


@virtual_time
async def test_done_without_get_is_an_error(queue: WorkQueue[str]) -> None:
    queue.add("a")
    with pytest.raises(KeyError):
        queue.done("a")


@virtual_time
async def test_shutdown_ends_all_getters(queue: WorkQueue[str]) -> None:
    getters = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(1)
    queue.add_after("later", 10)
    queue.shutdown()
    for getter in getters:
        with pytest.raises(QueueClosed):
            await getter
    queue.add("a")
    queue.add_after("a", 1)
    with pytest.raises(QueueClosed):
        await queue.get()
    assert (len(queue), queue.delayed) == (0, 0)


@virtual_time
async def test_shutdown_drops_what_is_ready(queue: WorkQueue[str]) -> None:
    queue.add("a")
    queue.shutdown()
    with pytest.raises(QueueClosed):
        await queue.get()


@virtual_time
async def test_a_key_handed_to_a_cancelled_getter_goes_to_the_next(queue: WorkQueue[str]) -> None:
    first, second = (asyncio.create_task(queue.get()) for _ in range(2))
    await asyncio.sleep(1)
    queue.add("a")
    first.cancel()
    assert await second == "a"
    with pytest.raises(asyncio.CancelledError):
        await first


@virtual_time
async def test_ages(queue: WorkQueue[str]) -> None:
    assert queue.oldest_seconds() == queue.longest_processing_seconds() == 0
    queue.add("a")
    await asyncio.sleep(5)
    queue.add("b")
    await asyncio.sleep(2)
    assert queue.oldest_seconds() == pytest.approx(7)
    await queue.get()
    assert queue.oldest_seconds() == pytest.approx(2)
    await asyncio.sleep(3)
    assert queue.longest_processing_seconds() == pytest.approx(3)


def test_flows_take_turns_whatever_way_their_keys_become_ready() -> None:
    flows = {
        "thief": Flow(PriorityLevel.UNFILTERED, "thief"),
        "node": Flow(PriorityLevel.UNFILTERED, "node"),
        "seen": Flow(PriorityLevel.REFUSED, "thief", "a"),
    }

    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue(backoff=FIXED, flow_of=lambda key: flows[key.partition("-")[0]])
        for number in range(CROWD + 1):
            queue.add(f"thief-{number}")
        assert queue.is_crowded("thief")
        assert not queue.is_crowded("node")
        queue.add("node-added")
        assert {await queue.get(), await queue.get()} >= {"node-added"}
        queue.retry("node-retried")
        queue.add_after("node-later", 1)
        await asyncio.sleep(2)
        turns = [await queue.get() for _ in range(4)]
        assert {"node-retried", "node-later"} <= set(turns)
        # One that is with a worker goes back into the flow that was found meanwhile.
        thiefs = next(key for key in turns if key.startswith("thief"))
        queue.add(thiefs)
        flows["thief"] = flows["seen"]
        queue.done(thiefs)
        ready = len(queue)
        assert thiefs not in [await queue.get() for _ in range(ready - 1)][:30]
        queue.shutdown()

    run_in_virtual_time(main())


def test_a_ready_key_changes_to_its_present_flow() -> None:
    flows = {key: Flow(PriorityLevel.UNFILTERED, "token") for key in ("a", "b", "c")}

    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue(flow_of=flows.__getitem__)
        for key in flows:
            queue.add(key)
        flows["b"] = Flow(PriorityLevel.PLAUSIBLE, "token", "machine")
        queue.add("b")
        assert len(queue) == 3
        assert [await queue.get() for _ in range(3)] == ["b", "a", "c"]

    run_in_virtual_time(main())


@virtual_time
async def test_what_was_dropped_by_shutdown_is_not_given_out(queue: WorkQueue[str]) -> None:
    queue.add("a")
    await queue.get()
    queue.add("b")
    queue.shutdown()
    queue.done("a")
    assert not queue.is_crowded("")
    with pytest.raises(QueueClosed):
        await queue.get()


def test_workers_never_share_a_key_and_lose_none() -> None:
    async def main() -> None:
        queue: WorkQueue[int] = WorkQueue(backoff=FIXED)
        random = Random(3)
        held: set[int] = set()
        last_added: dict[int, float] = {}
        last_started: dict[int, float] = {}

        async def worker() -> None:
            while True:
                key = await queue.get()
                assert key not in held
                held.add(key)
                last_started[key] = now()
                await asyncio.sleep(random.random())
                held.remove(key)
                queue.done(key)

        workers = [asyncio.create_task(worker()) for _ in range(5)]
        for _ in range(2000):
            key = random.randrange(20)
            last_added[key] = now()
            queue.add(key)
            await asyncio.sleep(random.random() / 20)
        await idle(queue)
        assert all(last_started[key] >= added for key, added in last_added.items())
        queue.shutdown()
        results = await asyncio.gather(*workers, return_exceptions=True)
        assert all(isinstance(result, QueueClosed) for result in results)

    run_in_virtual_time(main())


class Unattended:
    """Counts calls for workers."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1


def test_a_worker_is_called_for_where_none_waits() -> None:
    async def main() -> None:
        unattended = Unattended()
        queue: WorkQueue[str] = WorkQueue(backoff=FIXED)
        queue.call_when_unattended(unattended)
        queue.add("a")
        queue.add("a")
        assert unattended.calls == 1  # once for each key
        assert await queue.get() == "a"
        waiting = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        queue.add("b")
        assert unattended.calls == 1  # somebody waited
        queue.add("c")
        assert unattended.calls == 2  # who waited has been woken for the other one
        assert await waiting == "b"
        queue.add("a")  # while it is with a worker
        assert unattended.calls == 2
        queue.done("a")
        assert unattended.calls == 3

    run_in_virtual_time(main())


def test_a_worker_is_called_for_when_the_one_that_was_woken_goes_away() -> None:
    async def main() -> None:
        unattended = Unattended()
        queue: WorkQueue[str] = WorkQueue(backoff=FIXED)
        queue.call_when_unattended(unattended)
        waiting = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        queue.add("a")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert unattended.calls == 1

    run_in_virtual_time(main())


@virtual_time
async def test_attended(queue: WorkQueue[str]) -> None:
    assert not queue.is_attended()
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    assert queue.is_attended()
    queue.add("a")
    assert not queue.is_attended()  # it is woken, and waits no more
    assert await waiting == "a"
    leaving = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    assert not queue.is_attended()
    queue.add("b")
    another = asyncio.create_task(queue.get())
    queue.add("c")
    assert not queue.is_attended()  # something is ready
    assert await another == "b"


@virtual_time
async def test_unattended(queue: WorkQueue[str]) -> None:
    assert not queue.is_unattended()  # there is nothing
    queue.add("a")
    assert queue.is_unattended()
    assert await queue.get() == "a"
    assert not queue.is_unattended()
    waiting = [asyncio.create_task(queue.get()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.add("b")
    assert not queue.is_unattended()  # another waits who will do
    queue.add("c")
    assert sorted(await asyncio.gather(*waiting)) == ["b", "c"]
