"""Fair use of one process by many clusters: a semaphore for expensive work, and cooperative yields in long work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, asynccontextmanager
from typing import Final


class TimedSemaphore:
    """Slots for work that costs CPU time, or calls to the management cluster, when many clusters do it at once.

    After ``seconds`` a holder's slot passes on while its work continues: work that takes so long waits for an API
    server, which may be hostile. So hanging servers block no other work for long.
    """

    def __init__(self, at_once: int, seconds: float) -> None:
        self._places = asyncio.Semaphore(at_once)
        self._seconds = seconds

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[Callable[[], None], None]:
        """Wait for a slot; calling the yielded function releases it before the end of the block."""
        await self._places.acquire()
        with ExitStack() as place:
            place.callback(self._places.release)
            timer = asyncio.get_running_loop().call_later(self._seconds, place.close)
            try:
                yield place.close
            finally:
                timer.cancel()


SLICE_SECONDS: Final = 0.01
"""CPU time between two yields: a hostile server's list delays other work by at most this at a time."""


class CooperativeYield:
    """Divides long work on the event loop into slices, between which other tasks run. The first slice begins now."""

    def __init__(self) -> None:
        self._began = time.thread_time()

    async def leave_turn(self) -> None:
        """Call this after each step: yields to other tasks if the slice is over."""
        if time.thread_time() - self._began > SLICE_SECONDS:
            await asyncio.sleep(0)
            self._began = time.thread_time()
