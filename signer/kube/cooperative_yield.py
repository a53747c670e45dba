"""Long work on the event loop in slices, between which others have it."""

from __future__ import annotations

import asyncio
import time
from typing import Final

SLICE_SECONDS: Final = 0.01
"""Of CPU. What one server's list costs, which a hostile one makes dear, delays others by so much at a time."""


class CooperativeYield:
    """The slices of one piece of work, the first of which begins now."""

    def __init__(self) -> None:
        self._began = time.thread_time()

    async def leave_turn(self) -> None:
        """To be called after each step: lets others have their turn where this slice is over."""
        if time.thread_time() - self._began > SLICE_SECONDS:
            await asyncio.sleep(0)
            self._began = time.thread_time()
