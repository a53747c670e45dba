"""Retries with exponential backoff until a deadline."""

from __future__ import annotations

import time
from collections.abc import Iterator


def attempts(seconds: float, *, first_delay: float, longest_delay: float) -> Iterator[bool]:
    """Yield once per attempt: True if another attempt follows. Sleeps between attempts, twice as long each time."""
    deadline = time.monotonic() + seconds
    delay = first_delay
    while time.monotonic() + delay < deadline:
        yield True
        time.sleep(delay)
        delay = min(2 * delay, longest_delay)
    yield False
