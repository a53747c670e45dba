"""How often something may be done because a workload cluster, which may be hostile, gives cause for it."""

from __future__ import annotations

from collections.abc import Callable


class TokenBucket:
    """``at_once`` times, and once more each ``seconds``, which may be saved up."""

    def __init__(self, at_once: int, seconds: float, clock: Callable[[], float]) -> None:
        """``clock``: seconds, monotonic."""
        self._at_once = at_once
        self._seconds = seconds
        self._clock = clock
        self._used_up_until = float("-inf")
        """When all of it is there again."""

    @property
    def wait_seconds(self) -> float:
        """How long until it may be done; 0 where it may be now."""
        missing = self._used_up_until - self._clock()
        return max(0.0, missing - (self._at_once - 1) * self._seconds)

    def take(self) -> None:
        """It is done, or will be when it may."""
        self._used_up_until = max(self._used_up_until, self._clock()) + self._seconds
