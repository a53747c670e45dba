"""How long the node's program waits for a busy TPM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from attestors.net.rate_limiter import attempts as backoff

BUSY_SECONDS: Final = 10.0
"""Retry time for one command or the connection; a self-test of a slow TPM takes a few seconds."""
FIRST_DELAY_SECONDS: Final = 0.02
LONGEST_DELAY_SECONDS: Final = 0.5


def attempts() -> Iterator[bool]:
    """Yield once per attempt: True if another attempt follows."""
    return backoff(BUSY_SECONDS, first_delay=FIRST_DELAY_SECONDS, longest_delay=LONGEST_DELAY_SECONDS)
