"""Cancels a task at exactly its n-th wait, to test what it leaves behind."""

from __future__ import annotations

import asyncio
import enum
import types
from collections.abc import Coroutine, Generator
from typing import Any


class End(enum.Enum):
    """The outcome of a cancelled task."""

    CANCELLED = enum.auto()
    WENT_ON = enum.auto()
    """The task swallowed the cancellation."""
    CAME_FIRST = enum.auto()
    """The task waited fewer times."""


class _Waits:
    """Counts the waits of one coroutine, and cancels its task at one of them."""

    def __init__(self, number: int, *, late: bool) -> None:
        self._number = number
        self._late = late
        self._count = 0

    @property
    def came(self) -> bool:
        """Whether the coroutine reached that wait."""
        return self._count >= self._number

    @types.coroutine
    def through(self, coroutine: Coroutine[Any, Any, object]) -> Generator[Any, Any, None]:
        """Drive the coroutine."""
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
            awaited.add_done_callback(lambda _: task.cancel())  # runs before the callback that wakes the task
        else:
            asyncio.get_running_loop().call_soon(task.cancel)


async def cancelled_at(number: int, coroutine: Coroutine[Any, Any, object], *, late: bool) -> End:
    """Run the coroutine in a task, and cancel the task at its ``number``-th wait, counted from 1.

    With ``late``, cancel when the awaited result is there but the task has not seen it. Raises the coroutine's errors.
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
