"""Time, in one place, so that tests can say what it is."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


def _jitter() -> float:
    return random.random()  # noqa: S311 - it spreads load, it protects nothing


@dataclass(frozen=True, slots=True)
class Clock:
    """The wall clock for what is stored, the monotonic one for waiting."""

    wall: Callable[[], float] = time.time
    """Unix time."""
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    jitter: Callable[[], float] = _jitter
    """Between 0 and 1."""

    def now(self) -> int:
        """Unix time, whole seconds."""
        return int(self.wall())

    def today(self) -> datetime:
        """The wall clock as a datetime in UTC."""
        return datetime.fromtimestamp(self.wall(), UTC)
