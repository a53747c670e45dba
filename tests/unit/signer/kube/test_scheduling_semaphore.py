"""Slots for work that many clusters do at once."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from signer.kube.scheduling import TimedSemaphore
from tests.unit.signer.kube.support import run_in_virtual_time


async def _begins(turns: TimedSemaphore) -> AsyncExitStack:
    stack = AsyncExitStack()
    await stack.enter_async_context(turns.turn())
    return stack


def test_the_number_of_holders_is_bounded() -> None:
    async def main() -> None:
        turns = TimedSemaphore(2, seconds=1000)
        first, _ = await _begins(turns), await _begins(turns)
        third = asyncio.create_task(_begins(turns))
        await asyncio.sleep(999)
        assert not third.done()
        await first.aclose()
        await third

    run_in_virtual_time(main())


def test_a_slow_holder_passes_its_slot_on_and_continues() -> None:
    async def main() -> None:
        turns = TimedSemaphore(1, seconds=2)
        slow = await _begins(turns)
        began = asyncio.get_running_loop().time()
        second = await _begins(turns)
        assert asyncio.get_running_loop().time() - began == pytest.approx(2, abs=0.1)
        await slow.aclose()
        third = asyncio.create_task(_begins(turns))
        await asyncio.sleep(1)
        assert not third.done(), "who had lost its place gives none back at its end"
        await second.aclose()
        await third

    run_in_virtual_time(main())


def test_a_slot_is_released_early_and_once() -> None:
    async def main() -> None:
        turns = TimedSemaphore(1, seconds=1000)
        async with turns.turn() as leave:
            leave()
            leave()
            async with turns.turn():
                third = asyncio.create_task(_begins(turns))
                await asyncio.sleep(1)
                assert not third.done()
        await third

    run_in_virtual_time(main())
