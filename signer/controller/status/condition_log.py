"""Logs what makes a policy unusable: its conditions are where a tenant looks, and the log is where an operator does."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from attestors.net.rate_limiter import TokenBucket
from signer.model.cluster import ClusterKey
from signer.model.condition import ATTESTORS_CONFIGURED, CERTIFICATE_AUTHORITY_AVAILABLE, PolicyCondition

_LOG = logging.getLogger(__name__)
LOG_BURST: Final = 5
LOG_INTERVAL_SECONDS: Final = 60.0
"""Beyond the burst, one log line per interval and cluster: a tenant can change a policy many times a second."""
_TEXTS: Final = {
    ATTESTORS_CONFIGURED: "attestors of a policy cannot be used",
    CERTIFICATE_AUTHORITY_AVAILABLE: "the CA of a cluster cannot be used",
}


class ConditionLog:
    """Logs conditions of one policy when they turn False, and when another reason or message makes them so."""

    def __init__(self, key: ClusterKey, monotonic: Callable[[], float] = time.monotonic) -> None:
        """``monotonic`` is a clock, in seconds."""
        self._key = key
        self._limit = TokenBucket(LOG_BURST, LOG_INTERVAL_SECONDS, monotonic)
        self._logged: dict[str, PolicyCondition] = {}

    def found(self, conditions: Sequence[PolicyCondition]) -> None:
        """The conditions as they are now."""
        for condition in conditions:
            text = _TEXTS.get(condition.type)
            if text is None:
                continue
            if condition.met is not False:
                self._logged.pop(condition.type, None)
            elif condition != self._logged.get(condition.type) and self._limit.take_if_there():
                self._logged[condition.type] = condition
                _LOG.warning(
                    text,
                    extra={"cluster": str(self._key), "reason": condition.reason, "detail": condition.message},
                )
