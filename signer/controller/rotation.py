"""Adapts the rotation of certificate authorities (:mod:`signer.rotation`, a wing) to a workload cluster's services."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from random import Random
from typing import Any

from signer.audit.log import AuditLog, AuditLogUnavailable
from signer.authority import CertificateAuthority
from signer.authority.canary_certificate import CanaryCertificate
from signer.configuration import RotationSettings
from signer.controller.canary.journal import journal_canary
from signer.controller.rotation_expiry import ExpiryService
from signer.controller.rotation_gauges import rotation_gauges
from signer.controller.telemetry.metrics_collector import ServiceGauge
from signer.controller.telemetry.recorder import Occurrence, Recorder, Subject
from signer.decision.authority_source import AuthoritySource
from signer.kube.client import Client
from signer.kube.connection import ClusterConnection
from signer.kube.resource_limits import ResourceLimits
from signer.kube.resources import NODE_ATTESTATION_POLICIES
from signer.model.cluster import ClusterKey
from signer.model.condition import PolicyCondition
from signer.model.decision import Deferred
from signer.rotation.controller_manager import asking_controller_manager
from signer.rotation.kubeadm import KubeadmObserver
from signer.rotation.node_client.reconciler import NodeClientReconciler
from signer.rotation.node_client.signing import NodeClientSigning
from signer.rotation.observer import AskServers, WorldObserver, asking, asking_for_key
from signer.rotation.operations import NeverRotated, Operation
from signer.rotation.operations_guard import OperationsGuard
from signer.rotation.reconciler import RotationReconciler
from signer.rotation.rotations import Rotations, Verified
from signer.rotation.servers.observing import CanaryNotJournaled
from signer.rotation.status import rotation_status
from signer.store.caches import Caches


class RotationService:
    """Implements :class:`~signer.controller.cluster.service.ClusterService` by a reconciler."""

    name = RotationReconciler.name

    def __init__(
        self,
        key: ClusterKey,
        reconciler: RotationReconciler,
        rotations: Rotations,
        guard: OperationsGuard,
        changed: Callable[[], None],
    ) -> None:
        """``changed`` is called when conditions have changed."""
        self._key = key
        self._reconciler = reconciler
        self._rotations = rotations
        self._guard = guard
        self._changed = changed

    @property
    def conditions(self) -> Sequence[PolicyCondition]:
        """See ClusterService."""
        return (*self._reconciler.conditions, *self._guarded())

    def _guarded(self) -> tuple[PolicyCondition, ...]:
        """Who may give orders is of interest from the first rotation on."""
        try:
            known = self._rotations.of(self._key)
        except Deferred:
            return ()
        return () if isinstance(known, NeverRotated) else (self._guard.condition,)

    def gauges(self) -> Sequence[ServiceGauge]:
        """See ClusterService. None while there is no rotation."""
        try:
            known = self._rotations.of(self._key)
        except Deferred:
            return ()
        if not isinstance(known, Verified):
            return ()
        last = self._reconciler.last
        return rotation_gauges(known.record, last[0] if last else None)

    def wake(self) -> None:
        """See ClusterService."""
        self._reconciler.wake()

    async def run(self, client: Client) -> None:
        """See ClusterService."""
        with self._guard.telling(self._changed):
            await self._reconciler.run(client)

    def credentials(self) -> dict[str, Any]:
        """``status.credentials`` of the policy; empty while there is no rotation."""
        try:
            known = self._rotations.of(self._key)
        except Deferred:
            return {}
        if not isinstance(known, Verified):
            return {}
        last = self._reconciler.last
        status = rotation_status(known.record, last[0] if last else None)
        return {"rotation": {"certificateAuthorities": status}}


@dataclass(frozen=True, slots=True)
class RotationParts:
    """What a rotation uses of the controller."""

    management: Client
    caches: Caches
    rotations: Rotations
    node_clients: NodeClientSigning
    guard: OperationsGuard
    recorder: Recorder
    settings: RotationSettings
    audit_log: AuditLog
    resource_limits: ResourceLimits
    elsewhere: frozenset[Operation]
    """Operations that another part carries out."""


def compose_rotation(
    key: ClusterKey,
    parts: RotationParts,
    *,
    node_client: NodeClientReconciler,
    changed: Callable[[], None],
    reconnect: Callable[[], None],
    now: Callable[[], datetime],
    random: Random,
) -> RotationService:
    """One cluster's rotation. Orders about its node-client authority go to ``node_client``.

    ``now`` is the wall clock: API servers compare certificates with theirs.
    """
    observer = WorldObserver(
        key,
        management=parts.management,
        caches=parts.caches,
        keys=parts.caches.authentic.keys,
        ask_servers=_ask_servers(key, parts, now),
        ask_controller_manager=asking_controller_manager(now),
        ask_for_key=asking_for_key(parts.resource_limits.of_namespace(key.namespace)),
        control_plane=KubeadmObserver(key, parts.management, parts.caches, parts.settings, now),
        now=now,
    )
    reconciler = RotationReconciler(
        key,
        management=parts.management,
        caches=parts.caches,
        rotations=parts.rotations,
        observer=observer,
        node_client=node_client,
        tell=partial(_tell, key, parts.recorder, parts.caches),
        changed=changed,
        reconnect=reconnect,
        now=now,
        random=random,
        elsewhere=parts.elsewhere,
    )
    return RotationService(key, reconciler, parts.rotations, parts.guard, changed)


def compose_expiry(
    key: ClusterKey, parts: RotationParts, source: AuthoritySource, now: Callable[[], datetime]
) -> ExpiryService:
    """The warning before one cluster's CA ends."""
    return ExpiryService(
        key,
        source=source,
        rotation=parts.rotations.of,
        caches=parts.caches,
        tell=partial(_tell, key, parts.recorder, parts.caches),
        now=now,
    )


def compose_node_client(
    key: ClusterKey,
    parts: RotationParts,
    *,
    changed: Callable[[], None],
    now: Callable[[], datetime],
    random: Random,
) -> NodeClientReconciler:
    """One cluster's node-client authority. ``now`` is the wall clock, as for the rotation."""
    return NodeClientReconciler(
        key,
        management=parts.management,
        caches=parts.caches,
        rotation=parts.rotations.of,
        signing=parts.node_clients,
        ask_servers=_ask_servers(key, parts, now),
        settings=parts.settings,
        tell=partial(_tell, key, parts.recorder, parts.caches),
        changed=changed,
        now=now,
        random=random,
    )


def _ask_servers(key: ClusterKey, parts: RotationParts, now: Callable[[], datetime]) -> AskServers:
    async def journal(canary: CanaryCertificate, authority: CertificateAuthority) -> None:
        server = ClusterConnection(server="every API server", certificate_authority=b"")
        hash_of_ca = authority.certificate.public_key_hash
        try:
            await journal_canary(canary, server, hash_of_ca, key, parts.audit_log, now())
        except AuditLogUnavailable as error:
            raise CanaryNotJournaled(str(error)) from error

    return asking(journal, now, parts.resource_limits.of_namespace(key.namespace))


def _tell(key: ClusterKey, recorder: Recorder, caches: Caches, kind: str, reason: str, message: str) -> None:
    policy = caches.policies.get(key.namespace, key.name)
    if policy is None:
        return
    subject = Subject(
        NODE_ATTESTATION_POLICIES.api_version, "NodeAttestationPolicy", key.namespace, key.name, policy.uid
    )
    recorder.record(Occurrence(subject, kind, reason, message))


__all__ = ["RotationParts", "RotationService", "compose_expiry", "compose_node_client", "compose_rotation"]
