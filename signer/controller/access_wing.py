"""The switch of the wing for access grants: what it adds to the controller, or nothing.

``run.py`` knows the wing by this module alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from random import SystemRandom
from typing import TypeAlias

from signer.access import bastion_objects
from signer.access.admission.messages import NOT_YOUR_NAME
from signer.access.admission.policies import APPROVALS_POLICY, GRANTS_POLICY
from signer.access.carrying_out import Tools
from signer.access.certificates import GrantCertificates
from signer.access.containers.connections import ConnectionSecrets
from signer.access.containers.creators import Creators, NoGateway
from signer.access.containers.nodes import ContainerNodes
from signer.access.containers.reconciler import LOOK_SECONDS, LOOKS_AT_ONCE, ContainerAccessReconciler
from signer.access.creator_lock import CreatorLock, GuardNames
from signer.access.gathering import Sources
from signer.access.reconciler import GrantReconciler
from signer.access.revocation_list import RevocationList
from signer.access.rights import Rights
from signer.access.targets import GrantTargets
from signer.access.waking import GrantCaches
from signer.audit.log import AuditLog
from signer.configuration import (
    AccessPermission,
    AccessSwitchedOff,
    Configuration,
    ContainersSwitchedOff,
    CreatorVerification,
    SSHSwitchedOff,
)
from signer.controller.access_grants import BundlePublications, GrantEvents, GrantMetrics, GrantsOfCluster
from signer.controller.cluster.service import OptionalPart, OptionalPartContext
from signer.controller.container_access import ContainerAccessService
from signer.controller.ssh_wing import NO_REVOCATION_LIST, NoRevocationList, SSHParts, SSHWing, revocations_of
from signer.controller.telemetry.metrics import Metrics
from signer.controller.telemetry.recorder import Recorder
from signer.kube.client import Client
from signer.kube.clocks import Clocks
from signer.kube.scheduling import TimedSemaphore
from signer.model.tools_image import NamedToolsImage
from signer.store.caches import Caches

WEBHOOK_CONFIGURATION = "node-access"
GUARDS = GuardNames((GRANTS_POLICY, APPROVALS_POLICY), WEBHOOK_CONFIGURATION, NOT_YOUR_NAME)


@dataclass(frozen=True, slots=True)
class ContainerParts:
    """What the clusters share to give the gateway a way into them."""

    connections: ConnectionSecrets
    creators: Creators
    slots: TimedSemaphore
    tools: NamedToolsImage


@dataclass(frozen=True, slots=True)
class AccessParts:
    """What the clusters share."""

    reconciler: GrantReconciler
    revocation_list: RevocationList
    nodes: ContainerNodes
    containers: ContainerParts | ContainersSwitchedOff


AccessWing: TypeAlias = AccessParts | AccessSwitchedOff


def access_wing(
    configuration: Configuration,
    client: Client,
    caches: Caches,
    recorder: Recorder,
    ssh: SSHWing,
    metrics: Metrics,
    audit_log: AuditLog,
    monotonic: Callable[[], float],
) -> AccessWing:
    """The wing, or nothing; nothing without SSH. Call it before the caches run: it registers its own with them."""
    permission = configuration.access
    if isinstance(permission, AccessSwitchedOff) or isinstance(ssh, SSHSwitchedOff):
        return AccessSwitchedOff()
    now = partial(datetime.now, UTC)  # nodes compare certificates with their own clocks, whatever clock decides
    stores = GrantCaches.register(caches)
    clocks = Clocks(client, client.clock, now)
    revocation_list = RevocationList(
        management=client, caches=caches, published=ssh.published, now=now, clock=clocks.answer
    )
    targets = GrantTargets(caches=caches, authorities_of=ssh.authorities_of)
    sources = Sources(
        caches=caches,
        grants=stores.grants,
        bastions=stores.bastions,
        approvals_of=stores.approvals_of,
        management=client,
        permission=permission,
        lock=CreatorLock(
            client,
            GUARDS,
            is_required=permission.creator_verification is CreatorVerification.REQUIRED,
            now=now,
            monotonic=monotonic,
        ),
        rights=Rights(client, monotonic),
        targets=targets,
        bastion_objects=bastion_objects,
        publications=BundlePublications(ssh.published),
        authorities_of=ssh.authorities_of,
        now=now,
        clocks=clocks,
    )
    creators = Creators(keys=lambda: caches.authentic.keys(), grants=stores.grants, now=now, monotonic=monotonic)
    nodes = ContainerNodes(monotonic)
    tools = Tools(
        management=client,
        caches=caches,
        grants=stores.grants,
        bastions=stores.bastions,
        targets=targets,
        revocation_list=revocation_list,
        authorities_of=ssh.authorities_of,
        audit_log=audit_log,
        gateway_users=NoGateway() if isinstance(permission.containers, ContainersSwitchedOff) else creators,
        gateway=permission.gateway,
        node_hints=nodes,
    )
    certificates = GrantCertificates(
        caches=caches,
        authorities_of=ssh.authorities_of,
        revocations_of=revocations_of(ssh, caches, revocation_list),
        revocation_list=revocation_list,
        now=now,
    )
    reconciler = GrantReconciler(
        sources=sources,
        tools=tools,
        certificates=certificates,
        observer=GrantMetrics(metrics),
        tell=GrantEvents(recorder),
        monotonic=monotonic,
        random=SystemRandom(),
        filled=stores.filled,
    )
    stores.on_change(reconciler, caches)
    ssh.published.on_publication(reconciler.cluster_changed)
    creators.on_written(reconciler.cluster_changed)
    return AccessParts(reconciler, revocation_list, nodes, _container_parts(permission, client, caches, ssh, creators))


def _container_parts(
    permission: AccessPermission, client: Client, caches: Caches, ssh: SSHParts, creators: Creators
) -> ContainerParts | ContainersSwitchedOff:
    if isinstance(permission.containers, ContainersSwitchedOff):
        return permission.containers
    connections = ConnectionSecrets(
        client,
        namespace=permission.gateway_namespace,
        caches=caches,
        permission=permission,
        authorities_of=ssh.authorities_of,
        random=SystemRandom(),
    )
    caches.on_cluster_change(connections.changed)
    caches.on_shards_changed(connections.shards_changed)
    ssh.authorities.on_change(connections.changed)
    return ContainerParts(connections, creators, TimedSemaphore(LOOKS_AT_ONCE, LOOK_SECONDS), permission.tools)


def access_revocations(wing: AccessWing) -> RevocationList | NoRevocationList:
    """The key ids of ended grants, for the trust bundles."""
    return NO_REVOCATION_LIST if isinstance(wing, AccessSwitchedOff) else wing.revocation_list


def access_of_cluster(wing: AccessWing, context: OptionalPartContext) -> tuple[OptionalPart, ...]:
    """What the wing adds to one workload cluster."""
    if isinstance(wing, AccessSwitchedOff):
        return ()
    parts = (OptionalPart(GrantsOfCluster(context.key, wing.reconciler, wing.nodes)),)
    if isinstance(wing.containers, ContainersSwitchedOff):
        return parts
    containers = ContainerAccessReconciler(
        context.key,
        connections=wing.containers.connections,
        creators=wing.containers.creators,
        tools=wing.containers.tools,
        slots=wing.containers.slots,
        changed=context.status_changed.set,
        now=partial(datetime.now, UTC),  # API servers let tokens end by their own clocks
        random=SystemRandom(),
    )
    return (*parts, OptionalPart(ContainerAccessService(containers)))


def access_tasks(wing: AccessWing) -> tuple[tuple[str, Callable[[], Awaitable[None]]], ...]:
    """Tasks of the whole controller, by name."""
    if isinstance(wing, AccessSwitchedOff):
        return ()
    tasks: tuple[tuple[str, Callable[[], Awaitable[None]]], ...] = ((wing.reconciler.name, wing.reconciler.run),)
    if isinstance(wing.containers, ContainersSwitchedOff):
        return tasks
    connections = wing.containers.connections
    return (*tasks, (connections.name, connections.run))


__all__ = ["AccessWing", "access_of_cluster", "access_revocations", "access_tasks", "access_wing"]
