"""The switch of the wing that rotates certificate authorities: what it adds to the controller, or nothing.

``run.py`` knows the wing by this module alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from random import Random, SystemRandom
from typing import Any, TypeAlias

from signer.audit.log import AuditLog
from signer.configuration import Configuration, RotationOff, SSHSwitchedOff
from signer.controller.cluster.service import OptionalPart, OptionalPartContext
from signer.controller.node_client import NodeClientOff, NodeClientService
from signer.controller.rotation import RotationParts, compose_expiry, compose_node_client, compose_rotation
from signer.controller.status.status_reconciler import ConditionSource
from signer.controller.telemetry.recorder import Recorder
from signer.decision.authority_source import KnowsRotation, no_rotation
from signer.kube.client import Client
from signer.kube.resource_limits import ResourceLimits
from signer.model.cluster import ClusterKey
from signer.rotation.condition_types import AUTHORITY_EXPIRY
from signer.rotation.node_client.signing import NodeClientSigning
from signer.rotation.operations import OPERATION_ANNOTATION, SSH_OPERATIONS
from signer.rotation.operations_guard import OperationsGuard
from signer.rotation.rotations import Rotations
from signer.store.caches import ALL_PROVIDER_IDS, Caches, Wake

RotationWing: TypeAlias = RotationParts | RotationOff


def rotation_wing(
    configuration: Configuration,
    client: Client,
    caches: Caches,
    recorder: Recorder,
    audit_log: AuditLog,
    resource_limits: ResourceLimits,
) -> RotationWing:
    """What rotations share. Call it before the caches run: it registers the records with them."""
    if isinstance(configuration.rotation, RotationOff):
        return configuration.rotation
    caches.policy_statuses.follow(AUTHORITY_EXPIRY)
    rotations = Rotations(client, caches, caches.authentic.keys)
    return RotationParts(
        management=client,
        caches=caches,
        rotations=rotations,
        node_clients=NodeClientSigning(rotations.authorities),
        guard=OperationsGuard(client, caches, configuration.rotation, SystemRandom()),
        recorder=recorder,
        settings=configuration.rotation,
        audit_log=audit_log,
        resource_limits=resource_limits,
        elsewhere=frozenset() if isinstance(configuration.ssh, SSHSwitchedOff) else SSH_OPERATIONS,
    )


def knows_rotation(wing: RotationWing) -> KnowsRotation:
    """Which CAs a Cluster's rotation, or its node-client authority, has sign."""
    return no_rotation if isinstance(wing, RotationOff) else wing.node_clients.authorities


@dataclass(frozen=True, slots=True)
class RotationOfCluster:
    """What the wing adds to one workload cluster."""

    parts: tuple[OptionalPart, ...] = ()
    credentials: Callable[[], dict[str, Any]] = dict
    """``status.credentials`` of the policy."""
    sources: tuple[ConditionSource, ...] = ()
    """Conditions that need no service."""


def rotation_of_cluster(
    wing: RotationWing, context: OptionalPartContext, reconnect: Callable[[], None], random: Random
) -> RotationOfCluster:
    """The rotation of one workload cluster's CAs, its node-client authority, and the warning before its CA ends.

    ``reconnect`` has the controller connect with the kubeconfig as it is now.
    """
    if isinstance(wing, RotationOff):
        return RotationOfCluster(sources=(NodeClientOff(context.key, context.caches),))
    wall_clock = partial(datetime.now, UTC)  # API servers compare certificates with theirs, whatever clock decides
    changed = context.status_changed.set
    node_client = compose_node_client(context.key, wing, changed=changed, now=wall_clock, random=random)
    rotation = compose_rotation(
        context.key,
        wing,
        node_client=node_client,
        changed=changed,
        reconnect=reconnect,
        now=wall_clock,
        random=random,
    )
    expiry = compose_expiry(context.key, wing, context.authority_source, context.now)
    parts = (OptionalPart(rotation), OptionalPart(NodeClientService(node_client)), OptionalPart(expiry))
    return RotationOfCluster(parts, rotation.credentials)


def rotation_tasks(wing: RotationWing) -> tuple[tuple[str, Callable[[], Awaitable[None]]], ...]:
    """Tasks of the whole controller, by name."""
    return () if isinstance(wing, RotationOff) else (("admission policy for rotations", wing.guard.run),)


def wake_on_changes(wing: RotationWing, wake: Wake) -> None:
    """Have ``wake`` called when the record of a Cluster has changed, or its policy has an order. Once per process.

    A record says which CAs sign and which are accepted, so requests may wait for it, too.
    """
    if isinstance(wing, RotationOff):
        return

    def annotated(key: ClusterKey, annotations: Mapping[str, Any]) -> None:
        if OPERATION_ANNOTATION in annotations:
            wake(key, ALL_PROVIDER_IDS)

    wing.rotations.on_change(lambda key: wake(key, ALL_PROVIDER_IDS))
    wing.caches.on_policy_annotations(annotated)


__all__ = [
    "RotationOfCluster",
    "RotationWing",
    "knows_rotation",
    "rotation_of_cluster",
    "rotation_tasks",
    "rotation_wing",
    "wake_on_changes",
]
