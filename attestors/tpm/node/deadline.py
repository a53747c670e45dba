"""How long this program waits for a TPM that is busy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from attestors.net.rate_limiter import attempts as again

BUSY_SECONDS: Final = 10.0
"""How long one command, or the connection, is tried again; a self-test of a slow TPM takes a few seconds."""
FIRST_DELAY_SECONDS: Final = 0.02
LONGEST_DELAY_SECONDS: Final = 0.5


def attempts() -> Iterator[bool]:
    """One item for each attempt: whether there will be another."""
    return again(BUSY_SECONDS, first_delay=FIRST_DELAY_SECONDS, longest_delay=LONGEST_DELAY_SECONDS)
