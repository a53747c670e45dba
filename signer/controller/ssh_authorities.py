"""Adapts the SSH authorities (:mod:`signer.ssh`, a wing) to a workload cluster's services."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from signer.controller.telemetry.metrics_collector import SSH_AUTHORITIES, SSH_ROTATION_NODES, ServiceGauge
from signer.controller.telemetry.recorder import Occurrence, Recorder, Subject
from signer.kube.client import Client
from signer.kube.resources import NODE_ATTESTATION_POLICIES
from signer.model.cluster import ClusterKey
from signer.model.condition import PolicyCondition
from signer.model.policy import Policy
from signer.model.ssh_access import SSHSettings
from signer.ssh.available import Reason
from signer.ssh.condition_types import SSH_AUTHORITIES_AVAILABLE
from signer.ssh.reconciler import SSHReconciler
from signer.ssh.secrets import Absent
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
        available, lagging = self._reconciler.available, self._reconciler.lagging
        found = () if isinstance(available, Absent) else (ServiceGauge(SSH_AUTHORITIES, float(available)),)
        return found if isinstance(lagging, Absent) else (*found, ServiceGauge(SSH_ROTATION_NODES, len(lagging)))

    def wake(self) -> None:
        """See ClusterService."""
        self._reconciler.wake()

    async def run(self, client: Client) -> None:
        """See ClusterService. The workload cluster itself is not asked."""
        del client
        await self._reconciler.run()


def tell_of_policy(key: ClusterKey, recorder: Recorder, caches: Caches, kind: str, reason: str, message: str) -> None:
    """Record an Event on the Cluster's policy; implements :class:`~signer.ssh.reconciler.Tell`."""
    policy = caches.policies.get(key.namespace, key.name)
    if policy is None:
        return
    version = NODE_ATTESTATION_POLICIES.api_version
    subject = Subject(version, "NodeAttestationPolicy", key.namespace, key.name, policy.uid)
    recorder.record(Occurrence(subject, kind, reason, message))


class Watch(Protocol):
    """Looks at something of the management cluster, and says what it sees in conditions."""

    @property
    def name(self) -> str:
        """For the log."""
        ...

    @property
    def conditions(self) -> Sequence[PolicyCondition]:
        """What the last look has shown."""
        ...

    def wake(self) -> None:
        """Look again soon."""
        ...

    async def run(self) -> None:
        """Look until cancelled."""
        ...


class WatchService:
    """Implements :class:`~signer.controller.cluster.service.ClusterService` by a watch: over other ways in, or over
    nodes without host certificates.
    """

    def __init__(self, watch: Watch) -> None:
        self.name = watch.name
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


__all__ = [
    "SSHAuthoritiesService",
    "SSHSwitchedOffConditions",
    "WatchService",
    "tell_of_policy",
]
