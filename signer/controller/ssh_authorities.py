"""Adapts the SSH authorities (:mod:`signer.ssh`, a wing) to a workload cluster's services."""

from __future__ import annotations

from collections.abc import Sequence

from signer.controller.telemetry.metrics_collector import SSH_AUTHORITIES, ServiceGauge
from signer.kube.client import Client
from signer.model.cluster import ClusterKey
from signer.model.condition import PolicyCondition
from signer.model.policy import Policy
from signer.model.ssh_access import SSHSettings
from signer.ssh.available import Reason
from signer.ssh.reconciler import SSHReconciler
from signer.ssh.secrets import Absent
from signer.ssh.status import SSH_AUTHORITIES_AVAILABLE
from signer.ssh.ways_in.watch import WaysInWatch
from signer.store.caches import Caches


class SSHAuthoritiesService:
    """Implements :class:`~signer.controller.cluster.service.ClusterService` by a reconciler."""

    name = SSHReconciler.name

    def __init__(self, reconciler: SSHReconciler) -> None:
        self._reconciler = reconciler

    @property
    def conditions(self) -> Sequence[PolicyCondition]:
        """See ClusterService."""
        return self._reconciler.conditions

    def gauges(self) -> Sequence[ServiceGauge]:
        """See ClusterService."""
        available = self._reconciler.available
        return () if isinstance(available, Absent) else (ServiceGauge(SSH_AUTHORITIES, float(available)),)

    def wake(self) -> None:
        """See ClusterService."""
        self._reconciler.wake()

    async def run(self, client: Client) -> None:
        """See ClusterService. The workload cluster itself is not asked."""
        del client
        await self._reconciler.run()


class WaysInService:
    """Implements :class:`~signer.controller.cluster.service.ClusterService` by a watch over other ways in."""

    name = WaysInWatch.name

    def __init__(self, watch: WaysInWatch) -> None:
        self._watch = watch

    @property
    def conditions(self) -> Sequence[PolicyCondition]:
        """See ClusterService."""
        return self._watch.conditions

    def gauges(self) -> Sequence[ServiceGauge]:
        """See ClusterService."""
        return ()

    def wake(self) -> None:
        """See ClusterService."""
        self._watch.wake()

    async def run(self, client: Client) -> None:
        """See ClusterService. The workload cluster itself is not asked."""
        del client
        await self._watch.run()


class SSHSwitchedOffConditions:
    """Implements :class:`~signer.controller.status.status_reconciler.ConditionSource` where SSH is switched off: a
    policy that turns it on is told so.
    """

    def __init__(self, key: ClusterKey, caches: Caches) -> None:
        self._key = key
        self._caches = caches

    @property
    def conditions(self) -> Sequence[PolicyCondition]:
        """See ConditionSource."""
        policy = self._caches.policies.get(self._key.namespace, self._key.name)
        if not isinstance(policy, Policy) or not isinstance(policy.ssh, SSHSettings):
            return ()
        message = "this controller runs without --ssh"
        return (PolicyCondition(SSH_AUTHORITIES_AVAILABLE, False, Reason.NOT_ALLOWED.value, message),)


__all__ = ["SSHAuthoritiesService", "SSHSwitchedOffConditions", "WaysInService"]
