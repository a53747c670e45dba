"""The time of an API server, by the header Date of its answers (RFC 9110 section 6.6.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TypeAlias


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
        except (TypeError, ValueError, IndexError, OverflowError):
            return
        if moment.tzinfo is not None:
            self._last = (moment.astimezone(UTC), self._monotonic())

    def now(self) -> ServerTimeAnswer:
        """The server's time."""
        if self._last is None:
            return NoServerTime()
        moment, came = self._last
        age = self._monotonic() - came
        return ServerTime(moment + timedelta(seconds=age), age)


__all__ = ["NoServerTime", "ServerClock", "ServerTime", "ServerTimeAnswer"]
