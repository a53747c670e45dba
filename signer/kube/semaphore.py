"""So many at once, of all clusters together; a slow one does not keep the others waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, asynccontextmanager


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
