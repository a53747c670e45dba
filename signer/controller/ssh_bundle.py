"""Adapts the SSH trust bundle (:mod:`signer.ssh.bundle`, of a wing) to a workload cluster's services."""

from __future__ import annotations

from collections.abc import Sequence

from signer.authority import CertificateAuthority
from signer.controller.telemetry.metrics_collector import SSH_TRUST, ServiceGauge
from signer.decision.authority_secrets import AuthorityUnavailable
from signer.decision.authority_source import AuthoritySource
from signer.kube.client import Client
from signer.model.condition import PolicyCondition
from signer.ssh.bundle.reconciler import BundleReconciler, SignersUnavailable
from signer.ssh.secrets import Absent


class SignersOfStatements:
    """Implements :data:`~signer.ssh.bundle.reconciler.Signers` by the CAs that the decisions use."""

    def __init__(self, authority_source: AuthoritySource) -> None:
        self._authority_source = authority_source

    async def __call__(self) -> tuple[CertificateAuthority, ...]:
        """See Signers."""
        try:
            return (await self._authority_source.authority()).known_to_nodes
        except AuthorityUnavailable as error:
            raise SignersUnavailable(f"{error.reason}: {error}") from error


class SSHBundleService:
    """Implements :class:`~signer.controller.cluster.service.ClusterService` by a reconciler."""

    name = BundleReconciler.name

    def __init__(self, reconciler: BundleReconciler) -> None:
        self._reconciler = reconciler

    @property
    def conditions(self) -> Sequence[PolicyCondition]:
        """See ClusterService."""
        return self._reconciler.conditions

    def gauges(self) -> Sequence[ServiceGauge]:
        """See ClusterService."""
        published = self._reconciler.is_published
        return () if isinstance(published, Absent) else (ServiceGauge(SSH_TRUST, float(published)),)

    def wake(self) -> None:
        """See ClusterService."""
        self._reconciler.wake()

    async def run(self, client: Client) -> None:
        """See ClusterService."""
        await self._reconciler.run(client)


__all__ = ["SSHBundleService", "SignersOfStatements"]
