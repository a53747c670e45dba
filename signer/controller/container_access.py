"""Adapts container access (:mod:`signer.access.containers`, of a wing) to a workload cluster's services."""

from __future__ import annotations

from collections.abc import Sequence

from signer.access.containers.conditions import NoProblem, Problem
from signer.access.containers.reconciler import ContainerAccessReconciler
from signer.controller.telemetry.metrics_collector import CONTAINER_ACCESS, ServiceGauge
from signer.kube.client import Client
from signer.model.condition import PolicyCondition


class ContainerAccessService:
    """Implements :class:`~signer.controller.cluster.service.ClusterService` by a reconciler."""

    name = ContainerAccessReconciler.name

    def __init__(self, reconciler: ContainerAccessReconciler) -> None:
        self._reconciler = reconciler

    @property
    def conditions(self) -> Sequence[PolicyCondition]:
        """See ClusterService."""
        return self._reconciler.conditions

    def gauges(self) -> Sequence[ServiceGauge]:
        """See ClusterService."""
        state = self._reconciler.state
        return (
            ()
            if isinstance(state, NoProblem)
            else (ServiceGauge(CONTAINER_ACCESS, float(not isinstance(state, Problem))),)
        )

    def wake(self) -> None:
        """See ClusterService."""
        self._reconciler.wake()

    async def run(self, client: Client) -> None:
        """See ClusterService."""
        await self._reconciler.run(client)


__all__ = ["ContainerAccessService"]
