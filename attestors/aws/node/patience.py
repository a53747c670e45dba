"""How long this program waits for the metadata service, which may come up after the machine or be throttled."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

REQUEST_SECONDS: Final = 2.0
"""How long an answer may take; it is next door, and where the hop limit is too small, none ever comes."""
PATIENCE_SECONDS: Final = 10.0
"""How long one question is asked again."""
FIRST_DELAY_SECONDS: Final = 0.1
LONGEST_DELAY_SECONDS: Final = 2.0


def attempts() -> Iterator[bool]:
    """One item for each attempt: whether there will be another. Sleeps in between, twice as long each time."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    delay = FIRST_DELAY_SECONDS
    while time.monotonic() + delay < deadline:
        yield True
        time.sleep(delay)
        delay = min(2 * delay, LONGEST_DELAY_SECONDS)
    yield False
