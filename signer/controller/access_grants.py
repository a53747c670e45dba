"""Adapts access grants (:mod:`signer.access`, a wing) to the controller: metrics, Events, a part of each cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from signer.access.certificates import CertificateReason
from signer.access.conditions import GrantReason
from signer.access.containers.nodes import ContainerNodes
from signer.access.parts import Publication
from signer.access.reconciler import REVOCATION_LIST_FULL, REVOCATIONS_UNKNOWN, GrantReconciler
from signer.access.record import Cause
from signer.access.store import StoredGrant
from signer.controller.telemetry.metrics import OTHER, Metrics
from signer.controller.telemetry.metrics_collector import ACCESS_GRANTS, ServiceGauge
from signer.controller.telemetry.recorder import Occurrence, Recorder, Subject
from signer.kube.client import Client
from signer.kube.resources import ACCESS_GRANTS as GRANTS
from signer.model.cluster import ClusterKey
from signer.model.condition import PolicyCondition
from signer.ssh.revocations import PublishedRevocations

STATES: Final = ("Pending", "Live", "Ending", "Ended")
REASONS: Final = frozenset(
    {
        *(one.value for one in GrantReason),
        *(one.value for one in Cause),
        *(one.value for one in CertificateReason),
        REVOCATIONS_UNKNOWN,
        REVOCATION_LIST_FULL,
        "AuthorityChanged",
        "SigningFailed",
    }
)
"""All that the condition Ready of a grant may have."""


class GrantMetrics:
    """Implements :class:`~signer.access.reconciler.Observer` by the controller's metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def issued(self, cluster: ClusterKey, hop: str) -> None:
        """See Observer."""
        self._metrics.access_issued(str(cluster), hop)

    def ended(self, cluster: ClusterKey, cause: str) -> None:
        """See Observer."""
        self._metrics.access_ended(str(cluster), cause)

    def held(self, cluster: ClusterKey, reason: str) -> None:
        """See Observer."""
        self._metrics.access_refused(str(cluster), reason if reason in REASONS else OTHER)

    def late(self, seconds: float) -> None:
        """See Observer."""
        self._metrics.access_expired_late(seconds)


class GrantEvents:
    """Implements :class:`~signer.access.reconciler.Tell` by Events."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __call__(self, grant: StoredGrant, kind: str, reason: str, message: str) -> None:
        """See Tell."""
        metadata = grant.metadata
        subject = Subject(GRANTS.api_version, "AccessGrant", metadata.namespace, metadata.name, metadata.uid)
        self._recorder.record(Occurrence(subject, kind, reason, message))


class BundlePublications:
    """Implements :class:`~signer.access.parts.Publications` by what the trust bundles revoke. Of one out of reach
    nothing is known, and its certificates end by themselves.
    """

    def __init__(self, published: PublishedRevocations) -> None:
        self._published = published

    def of(self, cluster: ClusterKey, key_id: str) -> Publication:
        """See Publications."""
        return Publication.PUBLISHED if self._published.has(cluster, key_id) else Publication.PENDING


class GrantsOfCluster:
    """Implements :class:`~signer.controller.cluster.service.ClusterService`: the gauges of one cluster's grants, and
    its API server, which is asked where Pods run. One reconciler looks after the grants of all clusters.
    """

    name: Final = "access grants of the cluster"

    def __init__(self, key: ClusterKey, reconciler: GrantReconciler, nodes: ContainerNodes) -> None:
        self._key = key
        self._reconciler = reconciler
        self._nodes = nodes

    @property
    def conditions(self) -> Sequence[PolicyCondition]:
        """See ClusterService. Grants have their own."""
        return ()

    def gauges(self) -> Sequence[ServiceGauge]:
        """See ClusterService."""
        counts = self._reconciler.counts(self._key)
        return tuple(ServiceGauge(ACCESS_GRANTS, counts[state], (state,)) for state in STATES)

    def wake(self) -> None:
        """See ClusterService."""
        self._reconciler.cluster_changed(self._key)

    async def run(self, client: Client) -> None:
        """See ClusterService."""
        with self._nodes.connected(self._key, client):
            await asyncio.Event().wait()


__all__ = ["REASONS", "STATES", "BundlePublications", "GrantEvents", "GrantMetrics", "GrantsOfCluster"]
