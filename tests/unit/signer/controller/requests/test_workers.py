from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar

import pytest

from signer.controller.requests.workers import OWN_WORKERS, SHARED_WORKERS, SharedWorkerPool, Workers

_WHERE: ContextVar[str] = ContextVar("where", default="nowhere")


class Bench:
    """Work that waits until a test ends it."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.seen: list[str] = []
        self.cancelled = 0

    async def work(self) -> None:
        self.seen.append(_WHERE.get())
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


async def test_no_more_than_the_limit() -> None:
    bench = Bench()
    workers = Workers(bench.work, limit=3, name="one")
    workers.start(2)
    assert len(workers) == 2
    for _ in range(5):
        workers.start()
    assert len(workers) == 3
    await workers.end()
    assert (bench.cancelled, len(workers)) == (0, 0)  # none had begun


async def test_an_ended_worker_frees_its_slot() -> None:
    bench = Bench()
    workers = Workers(bench.work, limit=1, name="one")
    workers.start()
    bench.may_end.set()
    await workers.finished()
    assert len(workers) == 0
    workers.start()
    assert len(workers) == 1
    await workers.finished()
    assert len(bench.seen) == 2


async def test_end_cancels_workers_and_starts_no_more() -> None:
    bench = Bench()
    workers = Workers(bench.work, limit=4, name="one")
    workers.start(4)
    await asyncio.sleep(0)
    await workers.end()
    assert bench.cancelled == 4
    workers.start()
    assert len(workers) == 0


async def test_workers_run_in_the_context_of_their_creator() -> None:
    """A change in the management cluster wakes requests from a task with another context."""
    bench = Bench()
    token = _WHERE.set("cluster one")
    workers = Workers(bench.work, limit=2, name="one")
    _WHERE.reset(token)
    workers.start(2)
    bench.may_end.set()
    await workers.finished()
    assert bench.seen == ["cluster one", "cluster one"]
    assert _WHERE.get() == "nowhere"


async def test_a_start_during_another_workers_end_is_made_up_for() -> None:
    """An ended task holds its slot for one more iteration of the event loop."""
    waiting = ["a"]
    taken: list[str] = []

    async def work() -> None:
        if waiting:
            taken.append(waiting.pop())
        asyncio.get_running_loop().call_soon(call_once_more)

    def call_once_more() -> None:
        if taken == ["a"] and not waiting:
            waiting.append("b")
            workers.start()

    workers = Workers(work, limit=1, name="one", needs_worker=lambda: bool(waiting))
    workers.start()
    await workers.finished()
    assert taken == ["a", "b"]


async def test_a_failed_worker_is_logged_and_replaced(caplog: pytest.LogCaptureFixture) -> None:
    waiting = ["a", "b"]

    async def work() -> None:
        waiting.pop()
        raise RuntimeError("a defect")

    workers = Workers(work, limit=1, name="team-a/one worker", needs_worker=lambda: bool(waiting))
    with caplog.at_level(logging.ERROR):
        workers.start()
        await workers.finished()
    assert not waiting
    assert [record.message for record in caplog.records] == ["a worker failed"] * 2


async def test_cancelled_workers_are_not_replaced() -> None:
    bench = Bench()
    workers = Workers(bench.work, limit=2, name="one", needs_worker=lambda: True)
    workers.start(2)
    await asyncio.sleep(0)
    await workers.end()
    await asyncio.sleep(0)
    assert (bench.cancelled, len(workers)) == (2, 0)


async def test_clusters_share_the_worker_pool() -> None:
    bench, worker_pool = Bench(), SharedWorkerPool(3)
    one, other = (
        Workers(bench.work, limit=OWN_WORKERS + 2, name=name, worker_pool=worker_pool) for name in ("one", "other")
    )
    one.start(100)
    other.start(100)
    assert (len(one), len(other), worker_pool.available) == (OWN_WORKERS + 2, OWN_WORKERS + 1, 0)
    await one.end()
    await asyncio.sleep(0)
    assert worker_pool.available == 2
    other.start(100)
    assert (len(other), worker_pool.available) == (OWN_WORKERS + 2, 1)
    await other.end()
    await asyncio.sleep(0)
    assert worker_pool.available == 3


def test_one_cluster_may_reach_the_operators_limit() -> None:
    assert SharedWorkerPool.for_limit(1).available == SHARED_WORKERS
    assert SharedWorkerPool.for_limit(1000).available == 1000 - OWN_WORKERS
