"""The one token bucket: how often, or how much of it, something may be done."""

from __future__ import annotations

from collections.abc import Callable


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
