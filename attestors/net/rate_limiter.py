"""How often something is done: the one token bucket, one for each key, and attempts that come less and less often."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import Final, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
_MANY_KEYS: Final = 1024


class TokenBucket:
    """``at_once`` tokens, and one more each ``seconds``, which may be saved up to that number again."""

    def __init__(self, at_once: float, seconds: float, clock: Callable[[], float]) -> None:
        """It begins full. ``clock``: seconds, monotonic."""
        self._at_once = at_once
        self._seconds = seconds
        self._clock = clock
        self._left = float(at_once)
        """Below zero where tokens were taken beforehand."""
        self._at = clock()

    @property
    def is_full(self) -> bool:
        """Whether it is as a new one is."""
        return self._refilled() >= self._at_once

    def wait_seconds(self, tokens: float = 1) -> float:
        """How long until so many tokens are there; 0 where they are there now."""
        return max(0.0, (tokens - self._refilled()) * self._seconds)

    def take(self, tokens: float = 1) -> float:
        """Take them, also beforehand; how many seconds to wait until those taken beforehand have come."""
        self._left = self._refilled() - tokens
        return max(0.0, -self._left * self._seconds)

    def take_if_there(self, tokens: float = 1) -> bool:
        """Take them only if they are there; whether they were."""
        if self._refilled() < tokens:
            return False
        self._left -= tokens
        return True

    def _refilled(self) -> float:
        now = self._clock()
        self._left = min(self._at_once, self._left + (now - self._at) / self._seconds)
        self._at = now
        return self._left


class TokenBuckets(Generic[Key]):
    """A token bucket for each key. Of many keys, the full buckets are forgotten: others choose the keys."""

    def __init__(self, at_once: float, seconds: float, clock: Callable[[], float]) -> None:
        """See :class:`TokenBucket`."""
        self._make = partial(TokenBucket, at_once, seconds, clock)
        self._buckets: dict[Key, TokenBucket] = {}
        self._many = _MANY_KEYS

    def of(self, key: Key) -> TokenBucket:
        """The bucket of that key."""
        found = self._buckets.get(key)
        if found is None:
            if len(self._buckets) >= self._many:
                self._buckets = {one: bucket for one, bucket in self._buckets.items() if not bucket.is_full}
                self._many = max(_MANY_KEYS, 2 * len(self._buckets))  # so that few look through all
            found = self._buckets[key] = self._make()
        return found


def attempts(seconds: float, *, first_delay: float, longest_delay: float) -> Iterator[bool]:
    """One item for each attempt: whether there will be another. Sleeps in between, twice as long each time."""
    deadline = time.monotonic() + seconds
    delay = first_delay
    while time.monotonic() + delay < deadline:
        yield True
        time.sleep(delay)
        delay = min(2 * delay, longest_delay)
    yield False
