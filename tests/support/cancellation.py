"""A task that is cancelled exactly where it waits for the n-th time: what it leaves behind is to be looked at."""

from __future__ import annotations

import asyncio
import enum
import types
from collections.abc import Coroutine, Generator
from typing import Any


class End(enum.Enum):
    """What became of a task that was to be cancelled."""

    CANCELLED = enum.auto()
    WENT_ON = enum.auto()
    """It was told to end, and somebody kept that to himself."""
    CAME_FIRST = enum.auto()
    """It did not wait so often."""


class _Waits:
    """Counts the waits of one coroutine, and cancels its task at one of them."""

    def __init__(self, number: int, *, late: bool) -> None:
        self._number = number
        self._late = late
        self._count = 0

    @property
    def came(self) -> bool:
        """Whether it waited so often."""
        return self._count >= self._number

    @types.coroutine
    def through(self, coroutine: Coroutine[Any, Any, object]) -> Generator[Any, Any, None]:
        """Run it."""
        resume, value = coroutine.send, None
        while True:
            try:
                awaited = resume(value)
            except StopIteration:
                return
            self._count += 1
            if self._count == self._number:
                self._cancel(awaited)
            resume, value = coroutine.send, None
            try:
                yield awaited
            except BaseException as error:  # noqa: BLE001 - handed on to the coroutine
                resume, value = coroutine.throw, error

    def _cancel(self, awaited: asyncio.Future[Any] | None) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._late and awaited is not None:
            awaited.add_done_callback(lambda _: task.cancel())  # it runs before the one that wakes the task
        else:
            asyncio.get_running_loop().call_soon(task.cancel)


async def cancelled_at(number: int, coroutine: Coroutine[Any, Any, object], *, late: bool) -> End:
    """Run it in a task of its own, and cancel that at its ``number``-th wait, counted from 1.

    ``late``: just when what it waits for has come, and it has not seen that yet. Raises what the coroutine raises.
    """
    waits = _Waits(number, late=late)

    async def whole() -> None:
        await waits.through(coroutine)

    task = asyncio.create_task(whole())
    await asyncio.wait({task})
    if task.cancelled():
        return End.CANCELLED
    task.result()
    return End.WENT_ON if waits.came else End.CAME_FIRST
