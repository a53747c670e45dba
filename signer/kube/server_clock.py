"""The time of an API server, by the header Date of its answers (RFC 9110 section 6.6.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final, TypeAlias

CARRIED_FORWARD: Final = timedelta(days=366)
"""The longest time for which an answer's Date is carried forward. A Date so near the end of the calendar that it could
not be is none: a hostile server sends any."""
_LATEST: Final = datetime.max.replace(tzinfo=UTC) - CARRIED_FORWARD


@dataclass(frozen=True, slots=True)
class ServerTime:
    """The server's time now."""

    moment: datetime
    """Of the last answer, carried forward by the monotonic clock. Exact to a second and the answer's way."""
    age_seconds: float
    """How long ago that answer came."""


@dataclass(frozen=True, slots=True)
class NoServerTime:
    """No answer with a readable Date has come."""


ServerTimeAnswer: TypeAlias = ServerTime | NoServerTime


class ServerClock:
    """Keeps the last answer's Date. The process's own wall clock takes no part, so it can be compared with this one."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._last: tuple[datetime, float] | None = None

    def answered(self, date: str) -> None:
        """An answer came, with that header Date; empty for none. One that cannot be read changes nothing."""
        try:
            moment = parsedate_to_datetime(date)
            if moment.tzinfo is None or moment.astimezone(UTC) > _LATEST:
                return
        except (TypeError, ValueError, IndexError, OverflowError):
            return
        self._last = (moment.astimezone(UTC), self._monotonic())

    def now(self) -> ServerTimeAnswer:
        """The server's time."""
        if self._last is None:
            return NoServerTime()
        moment, came = self._last
        age = self._monotonic() - came
        return ServerTime(moment + min(timedelta(seconds=age), CARRIED_FORWARD), age)


__all__ = ["NoServerTime", "ServerClock", "ServerTime", "ServerTimeAnswer"]
