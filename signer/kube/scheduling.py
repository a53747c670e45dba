"""Many clusters share one process: so many do costly work at once, and long work leaves the event loop to others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, asynccontextmanager
from typing import Final


class TimedSemaphore:
    """Places for what costs CPU, or the management cluster's attention, when many clusters do it at once.

    Who has a place for longer than ``seconds`` loses it to the next and goes on all the same: what takes that long
    waits for an API server, which may be hostile, and not for us. So hanging servers hold up nobody for long.
    """

    def __init__(self, at_once: int, seconds: float) -> None:
        self._places = asyncio.Semaphore(at_once)
        self._seconds = seconds

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[Callable[[], None], None]:
        """Wait for a place; calling what is given leaves it before the end of the block."""
        await self._places.acquire()
        with ExitStack() as place:
            place.callback(self._places.release)
            timer = asyncio.get_running_loop().call_later(self._seconds, place.close)
            try:
                yield place.close
            finally:
                timer.cancel()


SLICE_SECONDS: Final = 0.01
"""Of CPU. What one server's list costs, which a hostile one makes dear, delays others by so much at a time."""


class CooperativeYield:
    """Long work on the event loop in slices, between which others have it. The first slice begins now."""

    def __init__(self) -> None:
        self._began = time.thread_time()

    async def leave_turn(self) -> None:
        """To be called after each step: lets others have their turn where this slice is over."""
        if time.thread_time() - self._began > SLICE_SECONDS:
            await asyncio.sleep(0)
            self._began = time.thread_time()
