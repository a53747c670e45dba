"""How long this program waits for the metadata service, which may come up after the machine or be throttled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from attestors.net.rate_limiter import attempts as again

REQUEST_SECONDS: Final = 2.0
"""How long an answer may take; it is next door, and where the hop limit is too small, none ever comes."""
TIMEOUT_SECONDS: Final = 10.0
"""How long one question is asked again."""
FIRST_DELAY_SECONDS: Final = 0.1
LONGEST_DELAY_SECONDS: Final = 2.0


def attempts() -> Iterator[bool]:
    """One item for each attempt: whether there will be another."""
    return again(TIMEOUT_SECONDS, first_delay=FIRST_DELAY_SECONDS, longest_delay=LONGEST_DELAY_SECONDS)
