"""A cache of answers for seconds: at most one call in progress per key, bounded, on a monotonic clock."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")

MAXIMUM_ENTRIES: Final = 4096


@dataclass(frozen=True, slots=True)
class _Kept(Generic[_Value]):
    value: _Value
    until: float


@dataclass(frozen=True, slots=True)
class _Failed:
    error: Exception = field(repr=False)
    until: float


class SingleFlightCache(Generic[_Key, _Value]):
    """Answers by key.

    Callers for a key with a call in progress wait for that call; a caller that stops waiting does not affect the
    others. The age of an answer counts from the start of its call, so that its content is never older than the
    lifetime.

    Args:
        lifetime_seconds: how long an answer is kept.
        failure_seconds: how long an exception is kept, so that an outage does not cause a call per request; 0 for not.
        maximum_entries: the oldest entries are dropped first.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        *,
        lifetime_seconds: float,
        failure_seconds: float,
        maximum_entries: int = MAXIMUM_ENTRIES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lifetime = lifetime_seconds
        self._failure_lifetime = failure_seconds
        self._maximum = maximum_entries
        self._clock = clock
        self._entries: OrderedDict[_Key, _Kept[_Value] | _Failed] = OrderedDict()
        self._under_way: dict[_Key, asyncio.Task[_Value]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    async def get(self, key: _Key, ask: Callable[[], Awaitable[_Value]]) -> _Value:
        """The cached answer, or that of ``ask``.

        Raises:
            Exception: the exception of ``ask``, now or shortly before.
        """
        entry = self._entries.get(key)
        if entry is not None and self._clock() < entry.until:
            if isinstance(entry, _Failed):
                # Without the traceback of earlier callers, which would grow with each one.
                raise entry.error.with_traceback(None)
            return entry.value
        task = self._under_way.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(_answer(ask))
            self._under_way[key] = task
            # Before the callers' own callbacks: a caller that goes on finds the answer here.
            task.add_done_callback(partial(self._ended, key, self._clock()))
        return await asyncio.shield(task)

    def _ended(self, key: _Key, asked: float, task: asyncio.Task[_Value]) -> None:
        del self._under_way[key]
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._keep(key, _Kept(task.result(), asked + self._lifetime))
        elif isinstance(error, Exception):
            self._keep(key, _Failed(error, asked + self._failure_lifetime))

    def _keep(self, key: _Key, entry: _Kept[_Value] | _Failed) -> None:
        now = self._clock()
        self._entries.pop(key, None)
        self._entries[key] = entry
        # Oldest first: expired entries, and as many more as exceed the maximum.
        while self._entries:
            oldest = next(iter(self._entries))
            if len(self._entries) <= self._maximum and now < self._entries[oldest].until:
                break
            del self._entries[oldest]


async def _answer(ask: Callable[[], Awaitable[_Value]]) -> _Value:
    return await ask()
