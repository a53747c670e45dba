"""Warns before a cluster's CA ends: a condition on the policy, and one Event at each threshold.

Nothing is started by it: only a person orders a rotation.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, Protocol

from signer.controller.telemetry.metrics_collector import ServiceGauge
from signer.decision.authority_secrets import AuthorityUnavailable
from signer.kube.client import Client
from signer.model.cluster import ClusterKey
from signer.model.condition import PolicyCondition
from signer.model.decision import Deferred
from signer.rotation.condition_types import AUTHORITY_EXPIRY
from signer.rotation.conditions import expiry_condition
from signer.rotation.reconciler import Tell
from signer.rotation.rotations import Known, Verified
from signer.store.caches import Caches

LOOK_SECONDS: Final = 600.0
"""Between looks at the CA's end; the first threshold is a year away from it, the last one 30 days."""
EVENT_REASON: Final = "CertificateAuthorityExpiry"


class ReadsAuthority(Protocol):
    """The part of :class:`~signer.decision.authority_source.AuthoritySource` that is used here."""

    def expiry(self) -> tuple[datetime, ...]:
        """See AuthoritySource."""
        ...

    async def authority(self) -> object:
        """See AuthoritySource."""
        ...


class ExpiryService:
    """Implements :class:`~signer.controller.cluster.service.ClusterService`. The condition needs no connection to the
    workload cluster; Events come while there is one.

    What the policy's status shows is the memory of a former controller: a restart repeats no Event.
    """

    name: Final = "certificate authority expiry"

    def __init__(
        self,
        key: ClusterKey,
        *,
        source: ReadsAuthority,
        rotation: Callable[[ClusterKey], Known],
        caches: Caches,
        tell: Tell,
        now: Callable[[], datetime],
    ) -> None:
        self._key = key
        self._source = source
        self._rotation = rotation
        self._caches = caches
        self._tell = tell
        self._now = now
        # Read here, before this controller writes a status of its own.
        self._told = caches.policy_statuses.reason(key, AUTHORITY_EXPIRY)

    @property
    def conditions(self) -> Sequence[PolicyCondition]:
        """See ClusterService. None while the CA cannot be read, which is a condition of its own."""
        return tuple(expiry_condition(end, self._now(), under_way=self._under_way()) for end in self._source.expiry())

    def _under_way(self) -> bool:
        try:
            known = self._rotation(self._key)
        except Deferred:
            return False
        return isinstance(known, Verified) and not known.record.phase.is_over

    def gauges(self) -> Sequence[ServiceGauge]:
        """See ClusterService: the core has a gauge of the CA's end."""
        return ()

    def wake(self) -> None:
        """See ClusterService: a look more or less does not matter."""

    async def run(self, client: Client) -> None:
        """See ClusterService."""
        while True:
            with contextlib.suppress(AuthorityUnavailable):
                await self._source.authority()
            self.look()
            await asyncio.sleep(LOOK_SECONDS)

    def look(self) -> None:
        """Record an Event if the CA's end has come closer by a threshold since the last one."""
        if self._caches.policies.get(self._key.namespace, self._key.name) is None:
            return  # an Event has nowhere to go, and must not count as told
        for condition in self.conditions:
            if condition.met is False and condition.reason != self._told:
                self._tell("Warning", EVENT_REASON, condition.message)
            self._told = condition.reason


__all__ = ["EVENT_REASON", "LOOK_SECONDS", "ExpiryService"]
