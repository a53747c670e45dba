"""Which requests of a controller meet which fault: by chance, from a seed, as often as the weather says."""

from __future__ import annotations

import enum
from collections import Counter
from random import Random
from typing import Final

CALM: Final = 0.02
"""Of all requests, so many meet a fault at all times."""
STORM: Final = 0.3


class Fault(enum.Enum):
    """What happens to one request between a controller and an API server."""

    NONE = "none"
    CONFLICT = "409 to a write"
    TOO_MANY_REQUESTS = "429, try again in a second"
    INTERNAL_ERROR = "500"
    UNAVAILABLE = "503"
    GATEWAY_TIMEOUT = "504"
    DELAY = "answered late"
    STALL = "never answered"
    CUT_BEFORE = "cut before it is carried out"
    CUT_AFTER = "carried out, and cut before the answer"
    CUT_WITHIN = "cut within the answer"
    EXPIRED = "410 to a list or a watch"
    WATCH_EXPIRED = "410 within a watch"
    WATCH_CUT = "watch cut after a while"
    WATCH_SILENT = "watch that falls silent"


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
"""A watch is one request for minutes: it meets a fault so many times as often as a call."""


class Weather:
    """Decides for one API server. Every decision comes from the seed and from the order of the requests."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self.severity = 0.0
        """How many of the requests meet a fault, between 0 and 1."""
        self.spares_watches = False
        """A list that follows a broken watch brings back whatever was forgotten: it would hide that it was."""
        self.met: Counter[Fault] = Counter()

    def fault(self, method: str, *, watches: bool, lists: bool) -> Fault:
        """What happens to this request."""
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
        """How long something lasts."""
        return self._chance.uniform(0.0, most)
