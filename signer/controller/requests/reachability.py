"""Condition ``WorkloadClusterReachable`` of one cluster, and when to reconnect."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import Random
from typing import Final

from attestors.net.rate_limiter import TokenBucket
from signer.controller.requests.pending import PendingRequests
from signer.controller.workload_access import remedy_in_workload
from signer.kube.backoff import Backoff
from signer.kube.errors import ApiError, Unauthorized
from signer.model import condition as condition_types
from signer.model.cluster import ClusterKey
from signer.model.condition import PolicyCondition

_LOG = logging.getLogger(__name__)
RECONNECT: Final = Backoff(base_seconds=0.5, maximum_seconds=30.0, jitter=0.5)
"""Pauses between connections. A server that answers 401 to everything costs one connection every 30 seconds."""
STABLE_SECONDS: Final = 30.0
"""After a watch has worked for this long, the backoff of the connection starts again."""
FAILURES_BEFORE_RECONNECT: Final = 5
"""After this many failed lists or watches in a row, the controller reads the kubeconfig Secret again."""
FAILING_SECONDS: Final = 30.0
"""The same after failures for this long: each call to a server that hangs takes until its timeout."""
LOG_BURST: Final = 20
LOG_INTERVAL_SECONDS: Final = 30.0
"""Beyond the burst, one log line per interval: a hostile server can flap many times a second."""
_REQUESTS_OVERFLOWED: Final = "RequestsOverflowed"


class Reachability:
    """Tracks list and watch across connections."""

    def __init__(
        self,
        key: ClusterKey,
        pending: PendingRequests,
        *,
        monotonic: Callable[[], float],
        random: Random,
        changed: asyncio.Event,
        reconnect: asyncio.Event,
    ) -> None:
        """``changed`` is set when the condition has changed, and ``reconnect`` when a new connection is needed.

        ``monotonic`` is a clock, in seconds.
        """
        self._key = key
        self._pending = pending
        self._monotonic = monotonic
        self._random = random
        self._changed = changed
        self._reconnect = reconnect
        self.condition = PolicyCondition(
            condition_types.WORKLOAD_CLUSTER_REACHABLE, None, "Connecting", "not tried yet"
        )
        self._log_limit = TokenBucket(LOG_BURST, LOG_INTERVAL_SECONDS, monotonic)
        self._attempts = 0
        self._failures = 0
        self._failing_since: float | None = None
        self._healthy_since: float | None = None

    @property
    def conditions(self) -> tuple[PolicyCondition, ...]:
        """The one condition, for the policy's status."""
        return (self.condition,)

    def connecting(self) -> None:
        """A new connection begins."""
        self._failing_since = None

    def pause_seconds(self) -> float:
        """Backoff before the next connection; it grows until a connection has been stable."""
        seconds = RECONNECT.delay(self._attempts, self._random)
        self._attempts += 1
        return seconds

    def cannot_connect(self, reason: str, message: str) -> None:
        """The kubeconfig Secret gives no usable connection."""
        self._set(PolicyCondition(condition_types.WORKLOAD_CLUSTER_REACHABLE, False, reason, message))

    def succeeded(self) -> None:
        """A list or watch succeeded."""
        self._failures, self._failing_since = 0, None
        now = self._monotonic()
        if self._healthy_since is None:
            self._healthy_since = now
        elif now - self._healthy_since >= STABLE_SECONDS:
            self._attempts = 0
        self._set(self._watching())

    def overflow_changed(self) -> None:
        """Requests overflowed, or no longer do. The condition shows it while the cluster is reachable."""
        if self.condition.met:  # otherwise the next success reports the overflow too
            self._set(self._watching())

    def failed(self, error: ApiError) -> None:
        """A list or watch failed. The watch retries by itself; new credentials need a new connection."""
        self._failures += 1
        self._healthy_since = None
        now = self._monotonic()
        failing_since = self._failing_since = now if self._failing_since is None else self._failing_since
        message = f"{error}{remedy_in_workload(error, self._key)}"
        self._set(PolicyCondition(condition_types.WORKLOAD_CLUSTER_REACHABLE, False, type(error).__name__, message))
        too_long = self._failures >= FAILURES_BEFORE_RECONNECT or now - failing_since >= FAILING_SECONDS
        if isinstance(error, Unauthorized) or too_long:
            self._failures, self._failing_since = 0, None
            self._reconnect.set()

    def _watching(self) -> PolicyCondition:
        kind = condition_types.WORKLOAD_CLUSTER_REACHABLE
        if self._pending.overflow:
            return PolicyCondition(
                kind, True, _REQUESTS_OVERFLOWED, "more requests wait than are kept; they are listed again later"
            )
        return PolicyCondition(kind, True, "Watching", "its requests are watched")

    def _set(self, condition: PolicyCondition) -> None:
        if condition == self.condition:
            return
        if self._log_limit.take_if_there():
            self._log(condition)
        self.condition = condition
        self._changed.set()

    def _log(self, condition: PolicyCondition) -> None:
        level, text = logging.WARNING, "workload cluster cannot be reached"
        if condition.reason == _REQUESTS_OVERFLOWED:
            text = "workload cluster has more requests than are kept"
        elif condition.met:
            level, text = logging.INFO, "workload cluster is reachable"
        _LOG.log(
            level,
            text,
            extra={"cluster": str(self._key), "reason": condition.reason, "detail": condition.message},
        )
