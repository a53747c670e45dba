"""Adapts the node-client authority (:mod:`signer.rotation.node_client`, a wing) to a workload cluster's services."""

from __future__ import annotations

from collections.abc import Sequence

from signer.controller.telemetry.metrics_collector import (
    NODE_CLIENT_FORMER_NODES,
    NODE_CLIENT_NODES,
    ServiceGauge,
)
from signer.kube.client import Client
from signer.model.cluster import ClusterKey
from signer.model.condition import PolicyCondition
from signer.model.policy import NodeClientAuthority, Policy
from signer.rotation.facts import Absent
from signer.rotation.node_client.plan import Reason
from signer.rotation.node_client.reconciler import NODE_CLIENT_SIGNS, NodeClientReconciler
from signer.store.caches import Caches


class NodeClientService:
    """Implements :class:`~signer.controller.cluster.service.ClusterService` by a reconciler."""

    name = NodeClientReconciler.name

    def __init__(self, reconciler: NodeClientReconciler) -> None:
        self._reconciler = reconciler

    @property
    def conditions(self) -> Sequence[PolicyCondition]:
        """See ClusterService."""
        return self._reconciler.conditions

    def gauges(self) -> Sequence[ServiceGauge]:
        """See ClusterService."""
        found = ((NODE_CLIENT_NODES, self._reconciler.users), (NODE_CLIENT_FORMER_NODES, self._reconciler.former_users))
        return tuple(ServiceGauge(family, len(users)) for family, users in found if not isinstance(users, Absent))

    def wake(self) -> None:
        """See ClusterService."""
        self._reconciler.wake()

    async def run(self, client: Client) -> None:
        """See ClusterService."""
        await self._reconciler.run(client)


class NodeClientOff:
    """Implements :class:`~signer.controller.status.status_reconciler.ConditionSource` where the rotation of CAs is
    switched off: a policy that chooses what the controller has no right to make is told so.
    """

    def __init__(self, key: ClusterKey, caches: Caches) -> None:
        self._key = key
        self._caches = caches

    @property
    def conditions(self) -> Sequence[PolicyCondition]:
        """See ConditionSource."""
        policy = self._caches.policies.get(self._key.namespace, self._key.name)
        if not isinstance(policy, Policy) or policy.node_client_authority is NodeClientAuthority.SHARED:
            return ()
        message = (
            "the cluster's CA signs the nodes' client certificates: this controller runs without --rotate-authorities"
        )
        return (PolicyCondition(NODE_CLIENT_SIGNS, False, Reason.NOT_ALLOWED.value, message),)


__all__ = ["NodeClientOff", "NodeClientService"]
