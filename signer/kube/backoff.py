"""Delays between retries."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with jitter.

    The delay after ``attempt`` failures (the first is 0) lies between ``(1 - jitter)`` and 1 times ``base_seconds * 2
    ** attempt``, at most ``maximum_seconds``. A jitter of 1 ("full jitter") spreads best. With a jitter below 1 no
    delay is near zero, which a loop against a hostile server needs.
    """

    base_seconds: float
    maximum_seconds: float
    jitter: float

    def __post_init__(self) -> None:
        if not 0 < self.base_seconds <= self.maximum_seconds or not 0 <= self.jitter <= 1:
            raise ValueError("0 < base_seconds <= maximum_seconds and 0 <= jitter <= 1")

    def delay(self, attempt: int, random: Random) -> float:
        """Seconds to wait."""
        # 2**63 is beyond any maximum; a larger exponent would overflow a float.
        ceiling: float = min(self.base_seconds * 2.0 ** min(attempt, 63), self.maximum_seconds)
        return ceiling * (1.0 - self.jitter * random.random())
