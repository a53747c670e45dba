"""Answers of an API server that are handed on for a moment, so that a flood of requests costs a few calls.

Whoever asks while a call about the same thing is under way gets that call's answer; whoever asks within
``FRESH_SECONDS`` after it came, too. An error counts as an answer. Nothing is handed on for longer: what changes at the
server counts a second later. What is kept is bounded in number and size; beyond that the server is asked again.
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
KEPT_ANSWERS: Final = 4096
KEPT_BYTES: Final = 16 * 1024 * 1024
"""Of all answers together."""
CALLS_AT_ONCE: Final = 8
"""Of those that the same server answers: one behind the API server that hangs, such as a conversion webhook, must
neither take every connection nor keep the others' answers back."""

Value = TypeVar("Value")


@dataclass(slots=True)
class _Asking:
    """Those who ask about one thing now."""

    count: int = 0
    one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True)
class _Kept(Generic[Value]):
    answer: Value | ApiError = field(repr=False)
    size: int
    at: float


class CoalescingCache(Generic[Value]):
    """Answers by what they are about."""

    def __init__(self, monotonic: Callable[[], float], size_of: Callable[[Value], int]) -> None:
        """``monotonic`` is a clock, in seconds; ``size_of`` says what an answer takes, in bytes."""
        self._monotonic = monotonic
        self._size_of = size_of
        self._slots: WeakValueDictionary[Hashable, asyncio.Semaphore] = WeakValueDictionary()
        """By who answers; as long as somebody asks there."""
        self._asking: dict[Hashable, _Asking] = {}
        self._kept: OrderedDict[Hashable, _Kept[Value]] = OrderedDict()
        """In the order in which they came."""
        self._kept_bytes = 0

    async def ask(self, about: Hashable, answers: Hashable, look: Callable[[], Awaitable[Value]]) -> Value:
        """What ``look`` returns, or returned for somebody else a moment ago.

        ``answers`` is who does: the API server, or one behind it.

        Raises:
            ApiError: from ``look``.
        """
        asking = self._asking.setdefault(about, _Asking())
        asking.count += 1
        try:
            async with asking.one_at_a_time:
                self._drop_expired()
                kept = self._kept.get(about) or await self._asked(about, answers, look)
        finally:
            asking.count -= 1
            if not asking.count:
                del self._asking[about]
        if isinstance(kept.answer, ApiError):
            raise kept.answer.with_traceback(None)  # of an error that is raised more than once it would grow
        return kept.answer

    async def _asked(self, about: Hashable, answers: Hashable, look: Callable[[], Awaitable[Value]]) -> _Kept[Value]:
        slots = self._slots.setdefault(answers, asyncio.Semaphore(CALLS_AT_ONCE))
        answer: Value | ApiError
        try:
            async with slots:
                answer = await look()
            size = self._size_of(answer)
        except ApiError as error:
            answer, size = error, 0
        kept = _Kept(answer, size, self._monotonic())
        self._kept[about] = kept
        self._kept_bytes += size
        while len(self._kept) > KEPT_ANSWERS or self._kept_bytes > KEPT_BYTES:
            self._drop_the_oldest()
        return kept

    def _drop_expired(self) -> None:
        now = self._monotonic()
        while self._kept and now - next(iter(self._kept.values())).at > FRESH_SECONDS:
            self._drop_the_oldest()

    def _drop_the_oldest(self) -> None:
        _, kept = self._kept.popitem(last=False)
        self._kept_bytes -= kept.size
