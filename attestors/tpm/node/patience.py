"""How long this program waits for a TPM that is busy."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

BUSY_SECONDS: Final = 10.0
"""How long one command, or the connection, is tried again; a self-test of a slow TPM takes a few seconds."""
FIRST_DELAY_SECONDS: Final = 0.02
LONGEST_DELAY_SECONDS: Final = 0.5


def attempts() -> Iterator[bool]:
    """One item for each attempt: whether there will be another. Sleeps in between, twice as long each time."""
    deadline = time.monotonic() + BUSY_SECONDS
    delay = FIRST_DELAY_SECONDS
    while time.monotonic() + delay < deadline:
        yield True
        time.sleep(delay)
        delay = min(2 * delay, LONGEST_DELAY_SECONDS)
    yield False
