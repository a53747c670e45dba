"""The caches of grants, approvals and Bastions, and whom their changes wake."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from signer.access.facts import ApprovalsUnknown
from signer.access.owed import GrantsOwed
from signer.access.store import StoredBastion, StoredGrant, stored_bastion, stored_grant
from signer.kube.resources import ACCESS_APPROVALS, ACCESS_GRANTS, BASTIONS
from signer.model.access import AccessApproval, GrantReference, parse_access_approval
from signer.model.cluster import ClusterKey
from signer.store.cache import Cache, ObjectKey
from signer.store.cache_registry import CacheDeclaration, Scope
from signer.store.caches import Caches
from signer.store.namespace_bound import OverLimits


class Woken(Protocol):
    """Is told what concerns grants."""

    def grant_changed(self, key: ObjectKey, before: StoredGrant | None, after: StoredGrant | None) -> None:
        """A grant was added, changed or deleted."""
        ...

    def approval_changed(self, reference: GrantReference, namespace: str) -> None:
        """An approval of that grant was added, changed or deleted."""
        ...

    def bastion_changed(self, key: ObjectKey, before: StoredBastion | None, after: StoredBastion | None) -> None:
        """A Bastion was added, changed or deleted."""
        ...

    def cluster_changed(self, cluster: ClusterKey) -> None:
        """A Cluster, its policy or its Machines have changed."""
        ...

    def has_known_record(self, uid: str) -> bool:
        """Whether an authentic record of the grant with that UID was seen."""
        ...


class Approvals:
    """AccessApprovals by the grant that they name."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], dict[ObjectKey, AccessApproval]] = {}

    def of(self, namespace: str, grant: str) -> Iterable[AccessApproval]:
        """Those that name a grant of that name."""
        return tuple(self._of.get((namespace, grant), {}).values())

    def changed(self, key: ObjectKey, before: AccessApproval | None, after: AccessApproval | None) -> None:
        """Told by the cache."""
        if before is not None:
            place = (key[0], before.grant.name)
            held = self._of.get(place, {})
            held.pop(key, None)
            if not held:
                self._of.pop(place, None)
        if after is not None:
            self._of.setdefault((key[0], after.grant.name), {})[key] = after


@dataclass(slots=True)
class GrantCaches:
    """The three caches."""

    grants: Cache[StoredGrant] = field(init=False)
    bastions: Cache[StoredBastion] = field(init=False)
    approval_cache: Cache[AccessApproval] = field(init=False)
    approvals: Approvals = field(default_factory=Approvals)
    _over_limits: OverLimits = field(default_factory=OverLimits)
    _woken: list[Woken] = field(default_factory=list)

    @classmethod
    def register(cls, caches: Caches) -> GrantCaches:
        """Register them, before the caches run. No decision about a node's request needs them."""
        over, limits = caches.access_over_limits, caches.limits
        made = cls(_over_limits=over)
        made.grants = caches.registry.register(
            CacheDeclaration(
                ACCESS_GRANTS,
                stored_grant,
                Scope.WATCHED,
                False,
                made._grant_changed,
                limit=limits.access_grants,
                owes=GrantsOwed(lambda: caches.authentic.keys(), made._has_known_record),
                consequence="no access grant is believed there that was not before",
                over_limits=over,
            )
        )
        made.approval_cache = caches.registry.register(
            CacheDeclaration(
                ACCESS_APPROVALS,
                parse_access_approval,
                Scope.WATCHED,
                False,
                made._approval_changed,
                limit=limits.access_approvals,
                consequence="no access grant gets certificates there",
                over_limits=over,
            )
        )
        made.bastions = caches.registry.register(
            CacheDeclaration(
                BASTIONS,
                stored_bastion,
                Scope.WATCHED,
                False,
                made._bastion_changed,
                limit=limits.bastions,
                consequence="the controller reads each of them when it looks at its grant",
                over_limits=over,
            )
        )
        return made

    def on_change(self, woken: Woken, caches: Caches) -> None:
        """From now on, tell ``woken`` of every change that concerns grants."""
        self._woken.append(woken)
        caches.on_cluster_change(woken.cluster_changed)
        caches.on_machine_change(lambda cluster, provider_ids: woken.cluster_changed(cluster))

    def approvals_of(self, namespace: str, grant: str) -> Iterable[AccessApproval] | ApprovalsUnknown:
        """The approvals that name a grant of that name."""
        if not self.approval_cache.drops(namespace):
            return self.approvals.of(namespace, grant)
        over = (one for one in self._over_limits.of(namespace) if one.resource == self.approval_cache.name)
        return ApprovalsUnknown("; ".join(map(str, over)))

    def _has_known_record(self, uid: str) -> bool:
        return any(woken.has_known_record(uid) for woken in self._woken)

    def _grant_changed(self, key: ObjectKey, before: StoredGrant | None, after: StoredGrant | None) -> None:
        for woken in self._woken:
            woken.grant_changed(key, before, after)

    def _approval_changed(self, key: ObjectKey, before: AccessApproval | None, after: AccessApproval | None) -> None:
        self.approvals.changed(key, before, after)
        for reference in {one.grant for one in (before, after) if one is not None}:
            for woken in self._woken:
                woken.approval_changed(reference, key[0])

    def _bastion_changed(self, key: ObjectKey, before: StoredBastion | None, after: StoredBastion | None) -> None:
        for woken in self._woken:
            woken.bastion_changed(key, before, after)

    async def filled(self) -> None:
        """Wait for the first list of each."""
        for cache in (self.grants, self.approval_cache, self.bastions):
            await cache.filled.wait()


__all__ = ["Approvals", "GrantCaches", "Woken"]
