from __future__ import annotations

import asyncio
from contextvars import ContextVar

from signer.controller.workers import Workers

_WHERE: ContextVar[str] = ContextVar("where", default="nowhere")


class Bench:
    """Work that waits until it may end."""

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
    workers.call(2)
    assert len(workers) == 2
    for _ in range(5):
        workers.call()
    assert len(workers) == 3
    await workers.end()
    assert (bench.cancelled, len(workers)) == (0, 0)  # none had begun


async def test_who_ends_makes_room() -> None:
    bench = Bench()
    workers = Workers(bench.work, limit=1, name="one")
    workers.call()
    bench.may_end.set()
    await workers.finished()
    assert len(workers) == 0
    workers.call()
    assert len(workers) == 1
    await workers.finished()
    assert len(bench.seen) == 2


async def test_end_cancels_and_waits_and_nobody_is_called_any_more() -> None:
    bench = Bench()
    workers = Workers(bench.work, limit=4, name="one")
    workers.call(4)
    await asyncio.sleep(0)
    await workers.end()
    assert bench.cancelled == 4
    workers.call()
    assert len(workers) == 0


async def test_each_sees_the_context_of_whoever_made_them() -> None:
    """A change in the management cluster wakes requests from a task of another context."""
    bench = Bench()
    token = _WHERE.set("cluster one")
    workers = Workers(bench.work, limit=2, name="one")
    _WHERE.reset(token)
    workers.call(2)
    bench.may_end.set()
    await workers.finished()
    assert bench.seen == ["cluster one", "cluster one"]
    assert _WHERE.get() == "nowhere"
