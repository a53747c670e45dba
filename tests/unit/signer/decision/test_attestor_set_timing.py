"""What an attestor does without waiting is timed, and a wait is not; awaiting it is what it was."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterator
from typing import Any

import pytest

from signer.decision.attestor_set import LONG_SECONDS, SAY_AGAIN_SECONDS, AttestorTimings, TimedAwaitable
from tests.unit.signer.builders import CLUSTER


class TimedSemaphore:
    """With a clock that only the attestor moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.held: list[tuple[str, float]] = []
        self._timings = AttestorTimings(
            lambda provider, seconds: self.held.append((provider, seconds)), lambda: self.now
        )

    def blocks(self, seconds: float) -> None:
        self.now += seconds

    async def timed(self, judging: Awaitable[Any], provider: str = "tpm") -> Any:
        return await TimedAwaitable(judging, self._timings.of(provider, CLUSTER))


@pytest.fixture
def timings() -> TimedSemaphore:
    return TimedSemaphore()


async def test_each_turn_counts_by_itself_and_no_wait(timings: TimedSemaphore) -> None:
    async def verify() -> str:
        timings.blocks(LONG_SECONDS)
        await asyncio.sleep(0)
        timings.blocks(LONG_SECONDS / 2)
        asyncio.get_running_loop().call_soon(timings.blocks, 60.0)  # what others do, or a cloud's answer takes
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        timings.blocks(LONG_SECONDS / 2)
        await asyncio.sleep(0)
        timings.blocks(5.0)
        return "outcome"

    assert await timings.timed(verify()) == "outcome"
    assert timings.held == [("tpm", LONG_SECONDS), ("tpm", pytest.approx(5.0))]


async def test_one_that_fails_after_a_long_time_is_told_of_too(timings: TimedSemaphore) -> None:
    async def verify() -> None:
        timings.blocks(3.0)
        raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        await timings.timed(verify())
    assert timings.held == [("tpm", 3.0)]


async def test_each_attestor_is_named_once_in_a_while(
    timings: TimedSemaphore, caplog: pytest.LogCaptureFixture
) -> None:
    async def verify() -> None:
        timings.blocks(2.0)

    caplog.set_level(logging.WARNING)
    for provider in ("tpm", "aws", "tpm", "tpm"):
        await timings.timed(verify(), provider)
    assert [record.__dict__["provider"] for record in caplog.records] == ["tpm", "aws"]
    assert {record.__dict__["cluster"] for record in caplog.records} == {str(CLUSTER)}
    assert {record.__dict__["seconds"] for record in caplog.records} == {2.0}
    assert len(timings.held) == 4
    timings.now += SAY_AGAIN_SECONDS
    await timings.timed(verify())
    assert len(caplog.records) == 3


async def test_it_is_cancelled_as_without(timings: TimedSemaphore) -> None:
    seen: list[str] = []

    async def verify() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # it may clean up, and wait for that
            seen.append("cleaned up")
            raise

    task = asyncio.create_task(timings.timed(verify()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cleaned up"]


async def test_it_may_go_on_after_a_time_limit_of_its_own(timings: TimedSemaphore) -> None:
    async def verify() -> str:
        try:
            async with asyncio.timeout(0):
                await asyncio.get_running_loop().create_future()
        except TimeoutError:
            return "after all"
        raise AssertionError("nobody answers")

    assert await timings.timed(verify()) == "after all"


async def test_a_future_can_be_awaited(timings: TimedSemaphore) -> None:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, "outcome")
    assert await timings.timed(future) == "outcome"


class Plain:
    """Awaitable, through an iterator that nothing can be thrown into."""

    def __init__(self, waits_for: asyncio.Future[None]) -> None:
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, Any]:
        return iter_of(self._waits_for)  # type: ignore[return-value]


def iter_of(waits_for: asyncio.Future[None]) -> Iterator[Any]:
    waits_for._asyncio_future_blocking = True
    return iter([waits_for])


@pytest.mark.parametrize("end", [asyncio.Future.cancel, lambda future: future.set_result(None)])
async def test_an_iterator_that_is_no_generator_ends_too(
    end: Callable[[asyncio.Future[None]], Any], timings: TimedSemaphore
) -> None:
    task = asyncio.create_task(timings.timed(Plain(asyncio.get_running_loop().create_future())))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(end, future)
    if end is asyncio.Future.cancel:
        with pytest.raises(asyncio.CancelledError):
            await timings.timed(Plain(future))
    else:
        assert await timings.timed(Plain(future)) is None
