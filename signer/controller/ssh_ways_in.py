"""Adapts the search for other ways in (:mod:`signer.ssh.ways_in`) to a workload cluster's services."""

from __future__ import annotations

from collections.abc import Sequence

from signer.controller.telemetry.metrics_collector import ServiceGauge
from signer.kube.client import Client
from signer.model.condition import PolicyCondition
from signer.ssh.ways_in.reconciler import WaysInReconciler


class SSHWaysInService:
    """Implements :class:`~signer.controller.cluster.service.ClusterService` by a reconciler."""

    name = WaysInReconciler.name

    def __init__(self, reconciler: WaysInReconciler) -> None:
        self._reconciler = reconciler

    @property
    def conditions(self) -> Sequence[PolicyCondition]:
        """See ClusterService."""
        return self._reconciler.conditions

    def gauges(self) -> Sequence[ServiceGauge]:
        """See ClusterService."""
        return ()

    def wake(self) -> None:
        """See ClusterService."""
        self._reconciler.wake()

    async def run(self, client: Client) -> None:
        """See ClusterService. The workload cluster itself is not asked."""
        del client
        await self._reconciler.run()


__all__ = ["SSHWaysInService"]
