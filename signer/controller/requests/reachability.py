"""Whether one cluster's API server is reached, as its watch says: the condition, and when to connect anew."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import Random
from typing import Final

from attestors.net.rate_limiter import TokenBucket
from signer.controller.requests.pending import PendingRequests
from signer.kube.backoff import Backoff
from signer.kube.errors import ApiError, Unauthorized
from signer.model import condition as condition_types
from signer.model.cluster import ClusterKey
from signer.model.condition import PolicyCondition

_LOG = logging.getLogger(__name__)
RECONNECT: Final = Backoff(base_seconds=0.5, maximum_seconds=30.0, jitter=0.5)
"""Pauses between connections. A server that answers 401 to everything costs one connection each half minute."""
PROVEN_SECONDS: Final = 30.0
"""A connection whose watch was well for this long proves that the next one need not wait."""
FAILURES_BEFORE_RECONNECT: Final = 5
"""Failed lists or watches in a row after which the kubeconfig Secret is read again."""
FAILING_SECONDS: Final = 30.0
"""The same after failures for so long: a server that hangs takes its time for each."""
LINES_AT_ONCE: Final = 20
LINE_SECONDS: Final = 30.0
"""For each line in the log beyond those: a server may be reached and lost again many times a second."""
_REQUESTS_OVERFLOWED: Final = "RequestsOverflowed"


class Reachability:
    """What list and watch say, over one connection after the other."""

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
        self._lines = TokenBucket(LINES_AT_ONCE, LINE_SECONDS, monotonic)
        self._attempts = 0
        self._failures = 0
        self._failing_since: float | None = None
        self._well_since: float | None = None

    @property
    def conditions(self) -> tuple[PolicyCondition, ...]:
        """The one condition, for the policy's status."""
        return (self.condition,)

    def connects(self) -> None:
        """Another connection begins."""
        self._failing_since = None

    def pause_seconds(self) -> float:
        """How long to wait before the next connection: longer each time, until one has proved itself."""
        seconds = RECONNECT.delay(self._attempts, self._random)
        self._attempts += 1
        return seconds

    def cannot_connect(self, reason: str, message: str) -> None:
        """There is nothing to connect with."""
        self._set(PolicyCondition(condition_types.WORKLOAD_CLUSTER_REACHABLE, False, reason, message))

    def well(self) -> None:
        """List or watch is well."""
        self._failures, self._failing_since = 0, None
        now = self._monotonic()
        if self._well_since is None:
            self._well_since = now
        elif now - self._well_since >= PROVEN_SECONDS:
            self._attempts = 0
        self._set(self._watching())

    def overflow_changed(self) -> None:
        """Requests were left out, or are no longer: that is said while the watch is well."""
        if self.condition.met:  # else whoever says that it is reachable says this, too
            self._set(self._watching())

    def failed(self, error: ApiError) -> None:
        """List or watch failed; they are tried again by themselves, but new credentials need a new connection."""
        self._failures += 1
        self._well_since = None
        now = self._monotonic()
        failing_since = self._failing_since = now if self._failing_since is None else self._failing_since
        self._set(PolicyCondition(condition_types.WORKLOAD_CLUSTER_REACHABLE, False, type(error).__name__, f"{error}"))
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
        if self._lines.take_if_there():
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
