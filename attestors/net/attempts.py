"""Asks again what does not answer yet, less and less often, for a while."""

from __future__ import annotations

import time
from collections.abc import Iterator


def attempts(seconds: float, *, first_delay: float, longest_delay: float) -> Iterator[bool]:
    """One item for each attempt: whether there will be another. Sleeps in between, twice as long each time."""
    deadline = time.monotonic() + seconds
    delay = first_delay
    while time.monotonic() + delay < deadline:
        yield True
        time.sleep(delay)
        delay = min(2 * delay, longest_delay)
    yield False
