"""Timeouts for the metadata service, which may come up after the machine or be throttled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from attestors.net.rate_limiter import attempts as backoff

REQUEST_SECONDS: Final = 2.0
"""Timeout of one request. The service is local; if the hop limit is too small, no answer ever comes."""
TIMEOUT_SECONDS: Final = 10.0
"""How long one request is retried."""
FIRST_DELAY_SECONDS: Final = 0.1
LONGEST_DELAY_SECONDS: Final = 2.0


def attempts() -> Iterator[bool]:
    """Yield once per attempt: True if another attempt follows."""
    return backoff(TIMEOUT_SECONDS, first_delay=FIRST_DELAY_SECONDS, longest_delay=LONGEST_DELAY_SECONDS)
