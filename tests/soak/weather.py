"""Chooses random faults for a controller's requests, from a seed, at an adjustable rate."""

from __future__ import annotations

import enum
from collections import Counter
from random import Random
from typing import Final

CALM: Final = 0.02
"""Share of requests with a fault outside storms."""
STORM: Final = 0.3


class Fault(enum.Enum):
    """A fault of one request between a controller and an API server."""

    NONE = "none"
    CONFLICT = "409 to a write"
    TOO_MANY_REQUESTS = "429, retry after a second"
    INTERNAL_ERROR = "500"
    UNAVAILABLE = "503"
    GATEWAY_TIMEOUT = "504"
    DELAY = "answered late"
    STALL = "never answered"
    CUT_BEFORE = "connection reset before processing"
    CUT_AFTER = "processed, connection reset before the response"
    CUT_WITHIN = "connection reset within the response"
    EXPIRED = "410 to a list or a watch"
    WATCH_EXPIRED = "410 within a watch"
    WATCH_CUT = "watch reset after a while"
    WATCH_SILENT = "watch goes silent"


_ANY: Final = (
    Fault.TOO_MANY_REQUESTS,
    Fault.INTERNAL_ERROR,
    Fault.UNAVAILABLE,
    Fault.GATEWAY_TIMEOUT,
    Fault.DELAY,
    Fault.STALL,
    Fault.CUT_BEFORE,
    Fault.CUT_AFTER,
    Fault.CUT_WITHIN,
)
_WRITE: Final = (*_ANY, Fault.CONFLICT, Fault.CONFLICT, Fault.CUT_AFTER)
_LIST: Final = (*_ANY, Fault.EXPIRED)
_WATCH: Final = (
    Fault.TOO_MANY_REQUESTS,
    Fault.INTERNAL_ERROR,
    Fault.CUT_BEFORE,
    Fault.EXPIRED,
    Fault.WATCH_EXPIRED,
    Fault.WATCH_CUT,
    Fault.WATCH_SILENT,
)
_WATCH_TIMES: Final = 20
"""Factor of the fault rate of watches, because one watch lasts for minutes."""


class Weather:
    """Chooses the faults of one API server; they depend only on the seed and the order of requests."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self.severity = 0.0
        """Share of requests with a fault, between 0 and 1."""
        self.spares_watches = False
        """Inject no faults into watches: the relist after a broken watch would hide lost objects."""
        self.met: Counter[Fault] = Counter()

    def fault(self, method: str, *, watches: bool, lists: bool) -> Fault:
        """The fault of this request."""
        severity = self.severity
        if watches:
            severity = 0.0 if self.spares_watches else min(0.5, severity * _WATCH_TIMES)
        if self._chance.random() >= severity:
            return Fault.NONE
        if watches:
            fault = self._chance.choice(_WATCH)
        elif method in ("PUT", "PATCH", "DELETE"):
            fault = self._chance.choice(_WRITE)
        else:
            fault = self._chance.choice(_LIST if lists else _ANY)
        self.met[fault] += 1
        return fault

    def seconds(self, most: float) -> float:
        """A random duration."""
        return self._chance.uniform(0.0, most)
