"""Keeps whether the controller may decide the requests of every attestor that the cluster's policy authorizes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from attestors.net.rate_limiter import TokenBucket
from signer.controller.signer_rights import MissingSignerRights, missing_rights_message, missing_signer_rights
from signer.controller.telemetry.metrics_collector import ServiceGauge
from signer.kube.backoff import Backoff
from signer.kube.client import Client
from signer.kube.errors import ApiError
from signer.model.cluster import ClusterKey
from signer.model.condition import SIGNERS_GRANTED, PolicyCondition
from signer.model.policy import Policy
from signer.model.reasons import Reason
from signer.store.caches import Caches

REVIEW_SECONDS: Final = 3600.0
"""How often the rights are reviewed without a change of the connection or the policy: grants are seldom revoked."""
MISSING_SECONDS: Final = 180.0
"""The same while a right is missing: somebody grants it soon."""
REVIEWS_AT_ONCE: Final = 3
RETRY: Final = Backoff(base_seconds=5.0, maximum_seconds=MISSING_SECONDS, jitter=0.3)
"""After a review without an answer. The workload cluster's reachability is reported elsewhere."""


class SignersGranted:
    """A :class:`~signer.controller.cluster.service.ClusterService` of one cluster."""

    name = "signer rights"

    def __init__(
        self,
        key: ClusterKey,
        caches: Caches,
        *,
        status_changed: asyncio.Event,
        monotonic: Callable[[], float],
        random: Random,
    ) -> None:
        self._key = key
        self._caches = caches
        self._status_changed = status_changed
        self._random = random
        self._granted: Callable[[], None] = lambda: None
        self._missing: tuple[MissingSignerRights, ...] = ()
        self._reviewed: frozenset[str] = frozenset()
        self._failures = 0
        self._wanted = asyncio.Event()
        # One for all connections: an API server that flaps must not cause reviews each time.
        self._bucket = TokenBucket(REVIEWS_AT_ONCE, MISSING_SECONDS, monotonic)

    def on_granted(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` when no right is missing any more: requests may wait for it."""
        self._granted = wake

    @property
    def conditions(self) -> Sequence[PolicyCondition]:
        """One condition, if a right is missing for an attestor that the policy authorizes now."""
        authorized = self._authorized()
        missing = [one for one in self._missing if one.provider in authorized]
        if not missing:
            return ()
        message = missing_rights_message(self._key, missing)
        return (PolicyCondition(SIGNERS_GRANTED, False, str(Reason.WORKLOAD_GRANT_MISSING), message),)

    def gauges(self) -> Sequence[ServiceGauge]:
        """None: the condition has a metric already."""
        return ()

    def wake(self) -> None:
        """Review again if the policy authorizes other attestors."""
        if self._authorized() != self._reviewed:
            self._wanted.set()

    async def run(self, client: Client) -> None:
        """Review at each connection, and again from time to time."""
        while True:
            await asyncio.sleep(self._bucket.wait_seconds())
            self._bucket.take()
            self._wanted.clear()
            await self._until_wanted(await self._review(client))

    async def _review(self, client: Client) -> float:
        """Returns the seconds until the next review."""
        authorized = self._authorized()
        try:
            missing = await missing_signer_rights(client, authorized)
        except ApiError:
            self._failures += 1
            return RETRY.delay(self._failures - 1, self._random)
        self._failures, self._reviewed = 0, authorized
        before, self._missing = self._missing, missing
        if missing != before:
            self._status_changed.set()
            if not missing:
                self._granted()
        return MISSING_SECONDS if missing else REVIEW_SECONDS

    async def _until_wanted(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wanted.wait()

    def _authorized(self) -> frozenset[str]:
        policy = self._caches.policies.get(self._key.namespace, self._key.name)
        if not isinstance(policy, Policy):
            return frozenset()
        return frozenset(one.provider for one in policy.authorized_attestors)


__all__ = ["SignersGranted"]
