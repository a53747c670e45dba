"""Namespaces where the operator allows no grants, and the controller may not even write why into their status.

Nothing is at stake there: a grant without record has no certificates, and gets none. So the fault is said once, and
tried again ever more rarely, for all grants of the namespace together. A changed configuration restarts the controller.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from signer.kube.backoff import Backoff
from signer.kube.errors import Forbidden
from signer.model.decision import printable

_LOG = logging.getLogger(__name__)
UNWRITABLE_BACKOFF: Final = Backoff(base_seconds=60.0, maximum_seconds=3600.0, jitter=0.2)


@dataclass(frozen=True, slots=True)
class _Known:
    attempts: int
    until: float
    """When it is tried again (monotonic)."""


class UnwritableNamespaces:
    """Those that this process has met."""

    def __init__(self, monotonic: Callable[[], float], random: Random) -> None:
        self._monotonic = monotonic
        self._random = random
        self._known: dict[str, _Known] = {}

    def seconds_left(self, namespace: str) -> float:
        """How long the namespace is still left alone; 0 if it is not."""
        known = self._known.get(namespace)
        return max(0.0, known.until - self._monotonic()) if known is not None else 0.0

    def refused(self, namespace: str, error: Forbidden) -> float:
        """The API server refused a write there. Returns the seconds until the next attempt."""
        left = self.seconds_left(namespace)
        if left:  # by another worker, at the same time
            return left
        attempts = self._known[namespace].attempts if namespace in self._known else 0
        seconds = UNWRITABLE_BACKOFF.delay(attempts, self._random)
        self._known[namespace] = _Known(attempts + 1, self._monotonic() + seconds)
        if not attempts:
            _LOG.warning(
                "access grants of a namespace are left alone: the operator allows none there, and the controller may "
                "not write that into their status",
                extra={"namespace": namespace, "error": printable(str(error)), "retryInSeconds": round(seconds, 1)},
            )
        return seconds
