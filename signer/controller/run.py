"""Composes the controller and runs it as one coroutine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from random import Random, SystemRandom
from typing import Final

from attestors.contract import observing_cloud_calls
from attestors.registry import Registry
from signer.audit.log import AuditLog, NoAuditLog
from signer.configuration import Configuration, Sharding
from signer.controller.access_wing import (
    AccessWing,
    access_of_cluster,
    access_revocations,
    access_tasks,
    access_wing,
)
from signer.controller.audit_heads import AuditHeadPublisher, HeadResult, NoAuditHeads, audit_heads
from signer.controller.authorities_at_start import AuthoritiesAtStart
from signer.controller.auto_approval.reconciler import CHECK_SECONDS, CHECKS_AT_ONCE, AutoApprovalReconciler
from signer.controller.auto_approval.restoration import Restoration
from signer.controller.canary.service import CanaryService
from signer.controller.cluster.control_plane_names import ControlPlaneNames
from signer.controller.cluster.fleet import Fleet
from signer.controller.cluster.kubeconfig_change import KubeconfigChange
from signer.controller.cluster.service import OptionalPart, OptionalPartContext, OptionalPartFactory
from signer.controller.cluster.service_networks import ServiceNetworks
from signer.controller.cluster.signers_granted import SignersGranted
from signer.controller.cluster.workload_cluster import CONNECT_SECONDS, CONNECTS_AT_ONCE, WorkloadCluster
from signer.controller.cluster_api_change import ClusterAPIWatch
from signer.controller.diagnostics.health import Health, State
from signer.controller.requests.auditing import Auditing
from signer.controller.requests.deferral_backoff import DeferralBackoff
from signer.controller.requests.handler import RequestHandler
from signer.controller.requests.informer import RequestInformer
from signer.controller.requests.overflow import OverflowRelist
from signer.controller.requests.pending import PendingRequests
from signer.controller.requests.reachability import Reachability
from signer.controller.requests.reporter import Reporter
from signer.controller.requests.request_budget import SharedRequestMemory
from signer.controller.requests.workers import SharedWorkerPool
from signer.controller.rotation_wing import (
    RotationWing,
    knows_rotation,
    rotation_of_cluster,
    rotation_tasks,
    rotation_wing,
    wake_on_changes,
)
from signer.controller.ssh_wing import (
    SSHWing,
    host_certificates_of,
    ssh_of_cluster,
    ssh_wing,
    wake_on_ssh_orders,
)
from signer.controller.status.infrastructure_status import InfrastructureStatus
from signer.controller.status.machine_condition import MachineConditions
from signer.controller.status.policy_owner import PolicyOwner
from signer.controller.status.policy_status import PolicyStatus, permitted_in
from signer.controller.status.renewal_coverage import RenewalCoverage
from signer.controller.status.status_reconciler import StatusReconciler
from signer.controller.status.unserved_policies import UnservedPolicies
from signer.controller.telemetry.metrics import Metrics
from signer.controller.telemetry.metrics_collector import ProcessGauges
from signer.controller.telemetry.recorder import Recorder
from signer.controller.wait_for_api import cluster_api
from signer.controller.workload_access import WorkloadConnector
from signer.decision.attestor_set import AttestorTimings
from signer.decision.authority_sharing import AuthoritySharing, hashes_of
from signer.decision.authority_source import AuthoritySource, ChosenSecrets
from signer.decision.clocks import ClusterClocks
from signer.decision.decider import Decider
from signer.decision.keys_for_nodes import KeysForNodes
from signer.decision.lookups import Lookups
from signer.kube.client import Client, TokenSource
from signer.kube.clocks import Clocks, ServerTimes
from signer.kube.connection import ClusterConnection
from signer.kube.resource_limits import ResourceLimits
from signer.kube.scheduling import TimedSemaphore
from signer.kube.supervision import supervised
from signer.model.cluster import ClusterKey
from signer.model.shard import EVERY_SHARD, SomeShards
from signer.store.bootstrap_tokens import BootstrapTokens
from signer.store.cache import InTouch
from signer.store.caches import ALL_PROVIDER_IDS, Caches
from signer.store.garbage_collection import GarbageCollector
from signer.store.records import Records
from signer.store.removed_bindings import RemovedBindings
from signer.store.reservation_rebuild import ReservationRebuild
from signer.store.reservations import Reservations

_LOG = logging.getLogger(__name__)
DRAIN_SECONDS: Final = 8.0
FLUSH_SECONDS: Final = 1.0
"""Draining, flushing and the release of the Lease together stay below Cluster API's usual
terminationGracePeriodSeconds of 10."""
_MANAGEMENT_CONNECTIONS: Final = 64


def by_its_answers(client: Client) -> ServerTimes:
    """The API server's time by the header Date of its answers."""
    return client.clock


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """Dependencies of a controller that are not part of its configuration."""

    registry: Registry = field(default_factory=Registry)
    metrics: Metrics = field(default_factory=Metrics)
    audit_log: AuditLog = field(default_factory=NoAuditLog)
    health: Health = field(default_factory=Health)
    now: Callable[[], datetime] = field(default=partial(datetime.now, UTC))
    monotonic: Callable[[], float] = time.monotonic
    server_clock: Callable[[Client], ServerTimes] = by_its_answers
    """Tells the time of an API server with which ``now`` is compared."""
    optional_parts: tuple[OptionalPartFactory, ...] = ()
    """Called once for each workload cluster."""


async def run_controller(
    connection: ClusterConnection,
    configuration: Configuration,
    *,
    stop: asyncio.Event,
    token_source: TokenSource | None = None,
    options: ControllerOptions | None = None,
    started: Callable[[Caches, Fleet], None] = lambda caches, fleet: None,
) -> None:
    """Run until ``stop`` is set, then finish the current requests. The controller may set ``stop`` itself.

    ``connection`` is the management cluster's. ``started`` is called once with the caches and the fleet, when decisions
    can be made. With shards, this replica serves none until
    :meth:`~signer.store.caches.Caches.set_shards` is called.

    Raises:
        ApiError: the management cluster is unreachable at the start, or does not serve Cluster API.
        ClusterAPIChanged: the management cluster now serves another Cluster API version; current requests are finished.
    """
    options = options if options is not None else ControllerOptions()
    with observing_cloud_calls(options.metrics.cloud_called):  # applies to all tasks created within
        await _run(connection, configuration, stop, token_source, options, started)
    _LOG.info("stopped")


@dataclass(frozen=True, slots=True)
class SharedParts:
    """Parts that all workload clusters share; :func:`compose_workload_cluster` passes each part what it uses."""

    management: Client
    management_clocks: Clocks
    caches: Caches
    reservations: Reservations
    records: Records
    bootstrap_tokens: BootstrapTokens
    removed_bindings: RemovedBindings
    lookups: Lookups
    attestor_timings: AttestorTimings
    machine_conditions: MachineConditions
    infrastructure_status: InfrastructureStatus
    recorder: Recorder
    connector: WorkloadConnector
    request_memory: SharedRequestMemory
    worker_pool: SharedWorkerPool
    auto_approval_checks: TimedSemaphore
    rotation: RotationWing
    ssh: SSHWing
    access: AccessWing
    authorities_at_start: AuthoritiesAtStart


def compose_workload_cluster(
    key: ClusterKey, configuration: Configuration, options: ControllerOptions, shared: SharedParts
) -> WorkloadCluster:
    """Compose the parts that run for one workload cluster."""
    caches, now, monotonic, random = shared.caches, options.now, options.monotonic, SystemRandom()
    status_changed, reconnect = asyncio.Event(), asyncio.Event()
    permits = permitted_in(key.namespace, configuration, options.registry)
    authority_source = shared.authorities_at_start.source(key)
    canary = _compose_canary(key, authority_source, options, shared, random)
    control_plane_names = ControlPlaneNames(
        key, shared.management, caches, status_changed=status_changed, random=random, monotonic=monotonic
    )
    service_networks = ServiceNetworks(key, caches, status_changed=status_changed, random=random)
    signers_granted = SignersGranted(key, caches, status_changed=status_changed, monotonic=monotonic, random=random)
    clocks = ClusterClocks(shared.management_clocks, now=now, monotonic=monotonic, changed=status_changed)
    decider = Decider(
        key,
        configuration=configuration,
        registry=options.registry,
        caches=caches,
        reservations=shared.reservations,
        records=shared.records,
        tokens=shared.bootstrap_tokens,
        lookups=shared.lookups,
        timings=shared.attestor_timings,
        authority_source=authority_source,
        trust=canary,
        services_report=service_networks.report,
        control_plane=control_plane_names.report,
        clocks=clocks,
        now=now,
        monotonic=monotonic,
        host_certificates=host_certificates_of(shared.ssh),
        audited=not isinstance(options.audit_log, NoAuditLog),
    )
    auto_approval = AutoApprovalReconciler(
        key,
        caches=caches,
        renewal_coverage=RenewalCoverage(key, registry=options.registry, caches=caches, permits=permits, now=now),
        authority_source=authority_source,
        removed_bindings=shared.removed_bindings,
        bootstrap_tokens=shared.bootstrap_tokens,
        checks=shared.auto_approval_checks,
        changed=status_changed,
        metrics=options.metrics,
        now=now,
    )
    context = OptionalPartContext(
        key,
        management=shared.management,
        caches=caches,
        authority_source=authority_source,
        status_changed=status_changed,
        now=now,
    )
    rotation = rotation_of_cluster(shared.rotation, context, reconnect.set, random)
    ssh = ssh_of_cluster(shared.ssh, context, random, access_revocations(shared.access))
    parts = (
        OptionalPart(canary),
        OptionalPart(auto_approval, observers=(auto_approval,), listeners=(auto_approval,)),
        OptionalPart(control_plane_names),
        OptionalPart(service_networks),
        OptionalPart(signers_granted),
        OptionalPart(KubeconfigChange(key, shared.management, reconnect=reconnect.set, random=random)),
        *rotation.parts,
        *ssh.parts,
        *access_of_cluster(shared.access, context),
        *(make(context) for make in options.optional_parts),
    )
    services = tuple(part.service for part in parts)
    pending = PendingRequests(
        key, peek=decider.peek, pre_filter=decider.pre_filter, shared_memory=shared.request_memory
    )
    reachability = Reachability(
        key, pending, monotonic=monotonic, random=random, changed=status_changed, reconnect=reconnect
    )
    reporter = Reporter(
        key,
        caches=caches,
        recorder=shared.recorder,
        metrics=options.metrics,
        now=now,
        monotonic=monotonic,
        runs_in=configuration.runs_in,
        listeners=(shared.machine_conditions, *(listener for part in parts for listener in part.listeners)),
    )
    auditing = Auditing(
        key,
        audit_log=options.audit_log,
        registry=options.registry,
        provider_id_oids=configuration.provider_id_oids,
        metrics=options.metrics,
        now=now,
        monotonic=monotonic,
    )
    backoff = DeferralBackoff()
    informer = RequestInformer(pending, reachability, monotonic=monotonic, memories=(reporter, auditing, backoff))
    canary.on_change(status_changed.set, partial(informer.wake, ALL_PROVIDER_IDS))
    control_plane_names.on_change(partial(informer.wake, ALL_PROVIDER_IDS))
    service_networks.on_change(partial(informer.wake, ALL_PROVIDER_IDS))
    signers_granted.on_granted(partial(informer.wake, ALL_PROVIDER_IDS))
    handler = RequestHandler(
        key,
        decider=decider,
        informer=informer,
        reachability=reachability,
        reporter=reporter,
        auditing=auditing,
        backoff=backoff,
        metrics=options.metrics,
        workers_per_cluster=configuration.workers_per_cluster,
        worker_pool=shared.worker_pool,
        monotonic=monotonic,
    )
    status = StatusReconciler(
        key,
        caches=caches,
        authority_source=authority_source,
        sharing=AuthoritySharing(key, caches, configuration.authorities.shared_by),
        decider=decider,
        bootstrap_tokens=shared.bootstrap_tokens,
        policy_owner=PolicyOwner(shared.management, caches.version.clusters),
        policy_status=PolicyStatus(
            shared.management,
            key,
            options.registry,
            now,
            permits,
            partial(caches.policy_statuses.shown, key),
            monotonic,
        ),
        infrastructure_status=shared.infrastructure_status,
        operator_networks=configuration.serving_networks,
        sources=(clocks, reachability, *services, *rotation.sources, *ssh.sources),
        credentials=rotation.credentials,
        ssh=ssh.status,
        now=now,
    )
    return WorkloadCluster(
        key,
        connector=shared.connector,
        control_plane=control_plane_names.report,
        handler=handler,
        clocks=clocks,
        server_clock=options.server_clock,
        reachability=reachability,
        overflow=OverflowRelist(informer, reachability, random=random, monotonic=monotonic),
        status=status,
        services=services,
        observers=tuple(observer for part in parts for observer in part.observers),
        authority_source=authority_source,
        keys_for_nodes=KeysForNodes(key, caches=caches, authority_source=authority_source, now=now),
        caches=caches,
        metrics=options.metrics,
        status_changed=status_changed,
        reconnect=reconnect,
        random=random,
        now=now,
    )


def _compose_authority_source(
    key: ClusterKey,
    management: Client,
    caches: Caches,
    configuration: Configuration,
    options: ControllerOptions,
    rotation: RotationWing,
) -> AuthoritySource:
    """Compose the source of one workload cluster's CAs, which tells the index of CAs."""
    source = AuthoritySource(
        management,
        key,
        choose=ChosenSecrets(key, caches, configuration.authorities, knows_rotation(rotation)),
        now=options.now,
        monotonic=options.monotonic,
    )
    source.on_change(partial(_note_authorities, key, source, caches))
    return source


def _compose_canary(
    key: ClusterKey, source: AuthoritySource, options: ControllerOptions, shared: SharedParts, random: Random
) -> CanaryService:
    """Compose the canary that proves the API server's trust in the CAs."""
    return CanaryService(
        key,
        source=source,
        caches=shared.caches,
        resource_limits=shared.connector.resource_limits.of_namespace(key.namespace),
        audit_log=options.audit_log,
        now=partial(datetime.now, UTC),  # the API server compares it with its own clock, whatever clock decides
        monotonic=options.monotonic,
        random=random,
    )


def _note_authorities(key: ClusterKey, source: AuthoritySource, caches: Caches) -> None:
    """Tell the index of all Clusters' CAs. What cannot be read now stays as it was."""
    for found in source.last_read():
        caches.authorities.loaded(key, hashes_of(found))


async def _run(
    connection: ClusterConnection,
    configuration: Configuration,
    stop: asyncio.Event,
    token_source: TokenSource | None,
    options: ControllerOptions,
    started: Callable[[Caches, Fleet], None],
) -> None:
    failed = options.metrics.task_failed
    sharing = configuration.leader_election
    async with Client(connection, token_source=token_source, connection_limit=_MANAGEMENT_CONNECTIONS) as client:
        version = await cluster_api(client, stop)
        if version is None:
            return
        caches = Caches(
            version,
            own_namespace=configuration.namespace,
            floors=configuration.floors,
            limits=configuration.namespace_limits,
            watch_namespace=configuration.watch_namespace,
            watch_filter=configuration.watch_filter,
            shards=SomeShards(sharing.count) if isinstance(sharing, Sharding) else EVERY_SHARD,
            monotonic=options.monotonic,
        )
        reservations = Reservations(client, caches)
        bootstrap_tokens = BootstrapTokens(
            client, caches, watch_namespace=configuration.watch_namespace, monotonic=options.monotonic
        )
        removed_bindings = RemovedBindings(client, configuration.namespace, caches.authentic.keys)
        machine_conditions = MachineConditions(
            client, caches, caches.records_of, now=options.now, monotonic=options.monotonic
        )
        recorder = Recorder(client, now=options.now, monotonic=options.monotonic, identity=socket.gethostname()[:100])
        resource_limits = ResourceLimits()
        connector = WorkloadConnector(
            client,
            configuration.workers_per_cluster,
            resource_limits,
            TimedSemaphore(CONNECTS_AT_ONCE, CONNECT_SECONDS),
        )
        management_clocks = Clocks(client, options.server_clock(client), options.now, monotonic=options.monotonic)
        ssh = ssh_wing(configuration, recorder)
        rotation = rotation_wing(configuration, client, caches, recorder, options.audit_log, resource_limits)
        at_start = AuthoritiesAtStart(
            caches,
            lambda key: _compose_authority_source(key, client, caches, configuration, options, rotation),
            monotonic=options.monotonic,
        )
        shared = SharedParts(
            management=client,
            management_clocks=management_clocks,
            caches=caches,
            reservations=reservations,
            records=Records(client, caches),
            bootstrap_tokens=bootstrap_tokens,
            removed_bindings=removed_bindings,
            lookups=Lookups(client, options.monotonic),
            attestor_timings=AttestorTimings(options.metrics.attestor_blocking, time.monotonic),
            machine_conditions=machine_conditions,
            infrastructure_status=InfrastructureStatus(client, options.registry, configuration, options.monotonic),
            recorder=recorder,
            connector=connector,
            request_memory=SharedRequestMemory(),
            worker_pool=SharedWorkerPool.for_limit(configuration.workers_per_cluster),
            auto_approval_checks=TimedSemaphore(CHECKS_AT_ONCE, CHECK_SECONDS),
            rotation=rotation,
            ssh=ssh,
            access=access_wing(
                configuration, client, caches, recorder, ssh, options.metrics, options.audit_log, options.monotonic
            ),
            authorities_at_start=at_start,
        )
        fleet = Fleet(caches, lambda key: compose_workload_cluster(key, configuration, options, shared), failed)
        options.health.watch(caches, fleet.busy_seconds)
        options.metrics.serve_process(partial(_process_gauges, options.health, caches, recorder))
        bootstrap_tokens.on_change(fleet.wake)
        wake_on_changes(shared.rotation, fleet.wake)
        wake_on_ssh_orders(shared.ssh, caches, fleet.wake)
        garbage_collector = GarbageCollector(
            client,
            caches,
            reservations,
            ReservationRebuild(caches, reservations),
            now=options.now,
            clocks=management_clocks,
        )
        unserved = UnservedPolicies(client, caches, options.registry, configuration, options.now)
        restoration = Restoration(
            caches,
            client,
            removed_bindings,
            resource_limits=resource_limits,
            now=options.now,
            monotonic=options.monotonic,
        )
        served = ClusterAPIWatch(client, caches.version, stop)
        count_head = options.metrics.audit_head_published
        heads = audit_heads(
            options.audit_log,
            client,
            configuration.namespace,
            caches.authentic.keys,
            caches.authentic.require_looked_for,
            options.now,
            count_head,
        )
        if isinstance(heads, AuditHeadPublisher):
            options.metrics.publishes_audit_heads(HeadResult)
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(caches.run(client), name="caches"),
                tasks.create_task(
                    supervised("bootstrap tokens", bootstrap_tokens.run, failed), name="bootstrap tokens"
                ),
                tasks.create_task(supervised("events", recorder.run, failed), name="events"),
                tasks.create_task(supervised("Cluster API", served.run, failed), name="Cluster API"),
            ]
            try:
                if await _filled_or_stopped(caches, bootstrap_tokens, stop):
                    await heads.publish()
                    at_start.begin()
                    running.append(tasks.create_task(fleet.run(), name="fleet"))
                    running += [
                        tasks.create_task(supervised(name, run, failed), name=name)
                        for name, run in (
                            ("CAs at the start", at_start.run),
                            ("machine conditions", machine_conditions.run),
                            ("garbage collection", garbage_collector.run),
                            ("restoration", restoration.run),
                            ("unserved policies", unserved.run),
                            ("audit heads", heads.run),
                            *rotation_tasks(shared.rotation),
                            *access_tasks(shared.access),
                        )
                    ]
                    options.health.started()
                    started(caches, fleet)
                    _LOG.info("started", extra={"attestors": sorted(configuration.attestors)})
                    await stop.wait()
                    _LOG.info("draining")
                    await fleet.drain(DRAIN_SECONDS)
                    await _flush(recorder, heads)
            finally:
                for task in running:
                    task.cancel()
        served.require_unchanged()


def _process_gauges(health: Health, caches: Caches, recorder: Recorder) -> ProcessGauges:
    key = caches.controller_key
    return ProcessGauges(
        ready=health.state() is State.READY,
        watched={cache.name: isinstance(cache.touch(), InTouch) for cache in caches.watched()},
        controller_key_readable=(key.readable,) if key.attempted.is_set() else (),
        ignored_records=caches.authentic.ignored,
        dropped_events=recorder.dropped,
        over_limits=(*caches.over_limits.all(), *caches.access_over_limits.all()),
    )


async def _flush(recorder: Recorder, heads: AuditHeadPublisher | NoAuditHeads) -> None:
    """Write the remaining Events and publish the end of the audit log, for a bounded time, so that a slow management
    cluster does not delay the shutdown.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FLUSH_SECONDS):
            await asyncio.gather(recorder.flush(), heads.publish())


async def _filled_or_stopped(caches: Caches, tokens: BootstrapTokens, stop: asyncio.Event) -> bool:
    async def filled() -> None:
        await caches.filled()
        await tokens.answered.wait()

    waiting = {asyncio.ensure_future(filled()), asyncio.ensure_future(stop.wait())}
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        return not stop.is_set()
    finally:
        for future in waiting:
            future.cancel()
