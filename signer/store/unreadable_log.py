"""Logs the objects that a cache leaves out because they cannot be read, a bounded number for each namespace."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from attestors.net.rate_limiter import TokenBuckets

_LOG = logging.getLogger(__name__)
LOG_BURST: Final = 20
LOG_INTERVAL_SECONDS: Final = 30.0
"""Beyond the burst, one object per interval, namespace and resource: a tenant can change one many times a second."""


class UnreadableLog:
    """The log lines of one cache."""

    def __init__(self, resource: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        """``resource`` names the collection. ``monotonic`` is a clock, in seconds."""
        self._resource = resource
        self._limits: TokenBuckets[str] = TokenBuckets(LOG_BURST, LOG_INTERVAL_SECONDS, monotonic)
        self._omits: set[str] = set()
        """Namespaces of which the last object was not logged."""

    def left_out(self, namespace: str, name: str, error: str) -> None:
        """Log that the object was left out because of this error, or once that further ones are not logged."""
        if self._limits.of(namespace).take_if_there():
            self._omits.discard(namespace)
            _LOG.warning(
                "ignored an object that cannot be read",
                extra={"resource": self._resource, "namespace": namespace, "object": name, "error": error},
            )
        elif namespace not in self._omits:
            self._omits.add(namespace)
            _LOG.warning(
                "ignored further objects that cannot be read, and does not log each",
                extra={"resource": self._resource, "namespace": namespace},
            )
