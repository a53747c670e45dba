"""The workers of one cluster: as many as there is work for, up to a limit."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any


class Workers:
    """Tasks that do the same work, over one connection.

    One that ends by itself found nothing to do, or no more work to come. All see the context variables of whoever made
    this object, whoever calls for them: what is logged and counted names their cluster.
    """

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]], *, limit: int, name: str) -> None:
        """``limit``: how many there are at most. ``name``: of each task."""
        self._work = work
        self._limit = limit
        self._name = name
        self._context = contextvars.copy_context()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = False

    def __len__(self) -> int:
        """How many there are now."""
        return len(self._tasks)

    def call(self, count: int = 1) -> None:
        """There is work for so many more of them; beyond the limit it waits for those that there are."""
        while count > 0 and len(self._tasks) < self._limit and not self._ended:
            task = asyncio.create_task(self._work(), name=self._name, context=self._context.copy())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            count -= 1

    async def finished(self) -> None:
        """Wait until each has ended by itself: there is no more work to come."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def end(self) -> None:
        """End all of them, wherever they are, and wait for that. None is called any more."""
        self._ended = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
