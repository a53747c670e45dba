"""Bounds what each client address may cost in a time, by a token bucket for each."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

MAXIMUM_SOURCES: Final = 1024
"""Addresses that are remembered; the one that was quiet for longest is forgotten first."""


class TooMuch(Exception):
    """The address has used up what it may cost for now."""


@dataclass(frozen=True, slots=True)
class Rate:
    """What one address may cost."""

    per_second: float
    burst: float


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


class SourceRates:
    """The buckets of all addresses. A cost above the burst empties a full bucket, so it is never refused for good."""

    def __init__(self, rate: Rate, monotonic: Callable[[], float]) -> None:
        self._rate = rate
        self._monotonic = monotonic
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def charge(self, source: str, cost: float) -> None:
        """Take ``cost`` from the bucket of that address.

        Raises:
            TooMuch: there is not so much in it. Nothing is taken.
        """
        now = self._monotonic()
        bucket = self._buckets.pop(source, None) or _Bucket(self._rate.burst, now)
        bucket.left = min(self._rate.burst, bucket.left + (now - bucket.at) * self._rate.per_second)
        bucket.at = now
        self._buckets[source] = bucket
        if len(self._buckets) > MAXIMUM_SOURCES:
            self._buckets.popitem(last=False)
        if bucket.left < min(cost, self._rate.burst):
            raise TooMuch
        bucket.left = max(0.0, bucket.left - cost)
