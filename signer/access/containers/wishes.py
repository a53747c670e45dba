"""Whether the gateway is to have a way into a workload cluster."""

from __future__ import annotations

import enum

from signer.configuration import AccessPermission
from signer.model.access_policy import NoAccess
from signer.model.cluster import ClusterKey
from signer.model.ssh_access import SSHOff
from signer.ssh.available import NotAvailable, Reason, SSHAuthoritiesOf
from signer.store.caches import Caches, UnreadablePolicy

_NOT_WANTED: frozenset[Reason] = frozenset({Reason.NOT_CHOSEN, Reason.NOT_ALLOWED})


class Wish(enum.Enum):
    """What is to become of a Cluster's connection."""

    WANTED = "Wanted"
    WITHDRAWN = "Withdrawn"
    """Cluster, policy or the operator's permission are gone."""
    UNDECIDED = "Undecided"
    """Everything stays as it is: the policy cannot be read, the namespace is over a limit, or the Cluster is paused,
    and may be moving."""


def wish_of(key: ClusterKey, caches: Caches, permission: AccessPermission, authorities_of: SSHAuthoritiesOf) -> Wish:
    """What is to become of it now.

    Raises:
        Deferred: the caches may lack a change of Cluster or policy.
    """
    caches.require_in_touch()
    if caches.over_limits.of(key.namespace):
        return Wish.UNDECIDED
    cluster = caches.clusters.get(key.namespace, key.name)
    if cluster is None:
        return Wish.WITHDRAWN
    if cluster.paused or cluster.deleting_for_move:
        return Wish.UNDECIDED
    policy = caches.policies.get(key.namespace, key.name)
    if isinstance(policy, UnreadablePolicy) and not cluster.deleting:
        return Wish.UNDECIDED
    if cluster.deleting or policy is None or isinstance(policy, UnreadablePolicy):
        return Wish.WITHDRAWN
    if (
        not permission.allows(key.namespace)
        or isinstance(policy.ssh, SSHOff)
        or isinstance(policy.ssh.access, NoAccess)
    ):
        return Wish.WITHDRAWN
    authorities = authorities_of(key)
    if isinstance(authorities, NotAvailable) and authorities.reason in _NOT_WANTED:
        return Wish.WITHDRAWN
    return Wish.WANTED


__all__ = ["Wish", "wish_of"]
