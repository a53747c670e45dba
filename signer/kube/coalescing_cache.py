"""A coalescing cache of API server responses, so that a flood of requests costs few calls.

Concurrent requests for one key share one call. Its result, value or error, is returned to every request within
``FRESH_SECONDS`` after it arrived, and no longer: a change at the server takes effect a second later. The number and
size of results are bounded; beyond that the server is called again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar
from weakref import WeakValueDictionary

from signer.kube.errors import ApiError

FRESH_SECONDS: Final = 1.0
MAXIMUM_RESULTS: Final = 4096
MAXIMUM_BYTES: Final = 16 * 1024 * 1024
"""For all results together."""
CALLS_AT_ONCE: Final = 8
"""For calls to one server: a hanging server behind the API server, such as a conversion webhook, must neither occupy
every connection nor delay the results of others."""

Value = TypeVar("Value")


@dataclass(slots=True)
class _Asking:
    """The requests for one key that are waiting now."""

    count: int = 0
    one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True)
class _Kept(Generic[Value]):
    answer: Value | ApiError = field(repr=False)
    size: int
    at: float


class CoalescingCache(Generic[Value]):
    """Results of calls, by key."""

    def __init__(self, monotonic: Callable[[], float], size_of: Callable[[Value], int]) -> None:
        """``monotonic`` is a clock, in seconds; ``size_of`` returns the size of a result in bytes."""
        self._monotonic = monotonic
        self._size_of = size_of
        self._slots: WeakValueDictionary[Hashable, asyncio.Semaphore] = WeakValueDictionary()
        """By server, while requests wait for it."""
        self._asking: dict[Hashable, _Asking] = {}
        self._kept: OrderedDict[Hashable, _Kept[Value]] = OrderedDict()
        """In the order of arrival."""
        self._kept_bytes = 0

    async def ask(self, key: Hashable, server: Hashable, call: Callable[[], Awaitable[Value]]) -> Value:
        """The result of ``call``, shared with other requests for ``key`` or at most ``FRESH_SECONDS`` old.

        ``server`` identifies the server that answers: the API server, or one behind it.

        Raises:
            ApiError: from ``call``.
        """
        asking = self._asking.setdefault(key, _Asking())
        asking.count += 1
        try:
            async with asking.one_at_a_time:
                self._drop_expired()
                kept = self._kept.get(key) or await self._call(key, server, call)
        finally:
            asking.count -= 1
            if not asking.count:
                del self._asking[key]
        if isinstance(kept.answer, ApiError):
            raise kept.answer.with_traceback(None)  # the traceback of an error that is raised again would grow
        return kept.answer

    async def _call(self, key: Hashable, server: Hashable, call: Callable[[], Awaitable[Value]]) -> _Kept[Value]:
        slots = self._slots.setdefault(server, asyncio.Semaphore(CALLS_AT_ONCE))
        answer: Value | ApiError
        try:
            async with slots:
                answer = await call()
            size = self._size_of(answer)
        except ApiError as error:
            answer, size = error, 0
        kept = _Kept(answer, size, self._monotonic())
        self._kept[key] = kept
        self._kept_bytes += size
        while len(self._kept) > MAXIMUM_RESULTS or self._kept_bytes > MAXIMUM_BYTES:
            self._drop_oldest()
        return kept

    def _drop_expired(self) -> None:
        now = self._monotonic()
        while self._kept and now - next(iter(self._kept.values())).at > FRESH_SECONDS:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        _, kept = self._kept.popitem(last=False)
        self._kept_bytes -= kept.size
