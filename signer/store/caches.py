"""Everything that decisions read from the management cluster, cached and indexed.

Machines and instances of MachinePools are indexed by provider ID: a match is one look-up, and a change of a Machine,
MachinePool, Cluster or policy wakes exactly the requests that may wait for it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Any, Final, TypeAlias

from signer.kube.calls import List
from signer.kube.client import Client, JsonObject
from signer.kube.errors import Forbidden
from signer.kube.resources import (
    ATTESTED_NODES,
    IDENTITY_RESERVATIONS,
    NODE_ATTESTATION_POLICIES,
    Resource,
)
from signer.model.cluster import (
    DELETE_FOR_MOVE_ANNOTATION,
    EVERY_CLUSTER,
    ClusterKey,
    ClusterView,
    MachineView,
    WatchFilter,
    cluster_view,
    machine_view,
)
from signer.model.decision import Deferred
from signer.model.fields import mapping_of, text_of
from signer.model.floors import Floors
from signer.model.machine_pool import MachinePoolView, machine_pool_view
from signer.model.namespace_limits import DEFAULT_NAMESPACE_LIMITS, NamespaceLimits
from signer.model.object_sizes import (
    MACHINES_COUNT,
    POLICIES_COUNT,
    POOLS_COUNT,
    machine_times,
    policy_times,
    pool_times,
)
from signer.model.policy import InvalidPolicy, Mode, Policy, parse_policy, stated_mode
from signer.model.reasons import Reason
from signer.model.record import AttestedNode, MachineKey, record_of
from signer.model.reservation import Pair, Reservation, ReservationSide, parse_reservation
from signer.model.shard import EVERY_SHARD, Shards
from signer.rules.machine import MachineGone
from signer.rules.nearest_machine import MOST_CANDIDATES, NearMachine, NoneNear, nearest_of, parts_to_look_up
from signer.store.authentic_records import AuthenticRecords, StoredRecord, UnverifiedRecord, stored_record
from signer.store.authentic_reservations import AuthenticReservations
from signer.store.authority_index import AuthorityIndex
from signer.store.cache import Cache, Changed, ObjectKey, OutOfTouch, Value
from signer.store.cache_registry import CacheDeclaration, CacheRegistry, Scope
from signer.store.cluster_api import ClusterAPIVersion, NotServed
from signer.store.controller_key import ControllerKey
from signer.store.machine_index import Concerned, MachineIndex, NameIndex
from signer.store.namespace_bound import OverLimits
from signer.store.node_certificates import CertificateLives
from signer.store.policy_statuses import PolicyStatuses


@dataclass(frozen=True, slots=True, eq=False)
class UnlistedNamespace:
    """Clusters of one namespace that appeared before a list of its records began; later ones wait for another list."""

    namespace: str


@dataclass(frozen=True, slots=True)
class Listed:
    """The cache holds all records that existed when the Cluster appeared."""


class RecordsBarrier:
    """Clusters that came, or were unpaused, while the caches were kept, and whether their records were listed since.

    ``clusterctl move`` creates a Cluster paused, its AttestedNodes after it, and unpauses it at last. Reservations stay
    behind, so that records alone stand in an impostor's way, and each collection has a watch of its own: that of
    records may hang while the others go on. So before anything of such a Cluster is judged the records of its namespace
    are listed, all of them: a Cluster that came with it may have the identity that is asked for.
    """

    def __init__(self) -> None:
        self._unlisted: dict[ClusterKey, UnlistedNamespace] = {}
        self._waiting: dict[str, UnlistedNamespace] = {}
        """By namespace: Clusters whose list has not begun."""
        self._recent: set[ClusterKey] = set()
        """Clusters that appeared since the cache's last list. The cache's next list may have begun before, and undo
        what was listed."""

    def cluster_changed(self, key: ClusterKey, before: ClusterView | None, after: ClusterView | None) -> None:
        """A Cluster was added, changed or deleted."""
        if after is None or after.paused:  # it gets no decisions
            self._forget(key)
        elif before is None or before.paused or before.uid != after.uid:
            self._arrive(key)
            self._recent.add(key)

    def state_of(self, key: ClusterKey) -> RecordsState:
        """What must be listed before a decision for that Cluster."""
        return self._unlisted.get(key, _LISTED)

    def list_begins(self, unlisted: UnlistedNamespace) -> None:
        """A list of the namespace's records begins."""
        if self._waiting.get(unlisted.namespace) is unlisted:
            del self._waiting[unlisted.namespace]

    def list_completed(self, unlisted: UnlistedNamespace) -> None:
        """The list has completed."""
        for key in [key for key, of in self._unlisted.items() if of is unlisted]:
            del self._unlisted[key]

    def cache_begins(self) -> None:
        """The cache begins its first list of all records, and no decision is made before it completes."""
        self._unlisted.clear()
        self._waiting.clear()
        self._recent.clear()

    def cache_listed(self) -> None:
        """The cache has completed a list, which may have begun at any time. Its next list begins after this call."""
        for key in self._recent:
            self._arrive(key)
        self._recent.clear()

    def _arrive(self, key: ClusterKey) -> None:
        self._unlisted[key] = self._waiting.setdefault(key.namespace, UnlistedNamespace(key.namespace))

    def _forget(self, key: ClusterKey) -> None:
        unlisted = self._unlisted.pop(key, None)
        self._recent.discard(key)
        if unlisted is not None and unlisted not in self._unlisted.values():
            self.list_begins(unlisted)


RecordsState: TypeAlias = UnlistedNamespace | Listed
_LISTED = Listed()


ProviderIDs: TypeAlias = frozenset[str]
ALL_PROVIDER_IDS: Final[ProviderIDs] = frozenset({"*"})
"""In a wake-up: the change may affect every request of the cluster."""
REACHED_AGAIN: Final[ProviderIDs] = frozenset({"the management cluster"})
"""In a wake-up, and among the provider IDs for which a request waits: the management cluster failed a call, and its
watches work again."""

OUT_OF_TOUCH_SECONDS: Final = 60.0
"""Time for which list and watch may fail before decisions no longer rely on the cache.

A watch that is accepted and silent for ``client.WATCH_IDLE_SECONDS`` is no failure; the collection is then listed
again, which fails after ``watch.LIST_AFTER_SILENCE_SECONDS`` at the latest.
"""
OUT_OF_TOUCH_RETRY_SECONDS: Final = 10.0
"""Upper bound: a collection that is watched again wakes the requests that wait for it."""

MOST_MATCHING: Final = 8
"""Maximum number of Machines with one provider ID that a decision reads and its audit line lists."""

Wake: TypeAlias = Callable[[ClusterKey, ProviderIDs], None]


@dataclass(frozen=True, slots=True)
class UnreadablePolicy:
    """A policy that does not parse; every request of its cluster waits."""

    cluster: ClusterKey
    uid: str
    generation: int
    message: str
    deleting_for_move: bool = False
    """See :class:`~signer.model.policy.Policy`."""
    mode: Mode | None = None
    """The mode that it names, for display only: the controller does not act on it."""


class Caches:
    """The caches, the index over Machines and MachinePools, and the callbacks for changes."""

    def __init__(
        self,
        version: ClusterAPIVersion,
        *,
        own_namespace: str,
        floors: Floors,
        watch_namespace: str | None = None,
        watch_filter: WatchFilter = EVERY_CLUSTER,
        shards: Shards = EVERY_SHARD,
        limits: NamespaceLimits = DEFAULT_NAMESPACE_LIMITS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Policies are raised to ``floors`` when they are read, so nothing else of them is ever cached.

        ``watch_namespace`` limits Clusters, Machines, MachinePools, policies and records to one namespace.

        ``watch_filter`` and ``shards`` do not limit the caches: reservations are one to one over all Clusters, so the
        controller must see all of them. Of a namespace over one of ``limits``, no objects of that kind are kept.
        ``monotonic`` is a clock, in seconds.
        """
        self.version = version
        self.own_namespace = own_namespace
        self.floors = floors
        """What no policy falls below, by namespace."""
        self.watch_filter = watch_filter
        """Selects the Clusters that are served; the controller ignores the others."""
        self.shards = shards
        """The shards of Clusters that this replica serves."""
        self._shard_wakes: list[Callable[[], None]] = []
        self.limits = limits
        self.over_limits = OverLimits()
        """The namespaces in which nothing is decided."""
        self.access_over_limits = OverLimits()
        """Those with too many access grants, approvals or bastions, which nodes need not wait for."""
        self._watch_namespace = watch_namespace
        self._wakes: list[Wake] = []
        self._cluster_wakes: list[Callable[[ClusterKey], None]] = []
        self._annotation_looks: list[Callable[[ClusterKey, Mapping[str, Any]], None]] = []
        self._machine_wakes: list[Wake] = []
        self._index = MachineIndex()
        self.names = NameIndex()
        self.records_barrier = RecordsBarrier()
        """Clusters whose records the cache may lack: see ``Records.require_listed``."""
        self.registry = CacheRegistry(
            {Scope.WATCHED: watch_namespace, Scope.OWN: own_namespace},
            in_touch_again=self._reached_again,
            over_limits=self.over_limits,
            bound_changed=self.bound_changed,
            monotonic=monotonic,
        )
        """Other components register the collections that they need here."""
        self.policy_statuses = PolicyStatuses()
        self.certificate_lives = CertificateLives(self.machine)
        self.authentic = AuthenticRecords(self.certificate_lives.record_changed, self._keys_changed)
        """The cached records that are authentic; nothing else of ``records`` is ever used."""
        self.controller_key = ControllerKey(own_namespace, self.authentic)
        self.authorities = AuthorityIndex(
            self.authentic.keys, self._has_policy, self._serves_named, wake=self._wake_cluster, monotonic=monotonic
        )
        """The CAs of all Clusters."""
        self.clusters: Cache[ClusterView] = self._register(
            version.clusters, cluster_view, self._cluster_changed, limit=limits.clusters
        )
        self.machines: Cache[MachineView] = self._register(
            version.machines,
            machine_view,
            self._machine_changed,
            limit=limits.machines,
            weigh=machine_times,
            counting=MACHINES_COUNT,
        )
        self.machine_pools: Cache[MachinePoolView] = self._register(
            version.machine_pools,
            machine_pool_view,
            self._machine_pool_changed,
            limit=limits.machine_pools,
            weigh=pool_times,
            counting=POOLS_COUNT,
        )
        """Empty if the management cluster serves none."""
        self.policies: Cache[Policy | UnreadablePolicy] = self._register(
            NODE_ATTESTATION_POLICIES,
            self._policy,
            self._policy_changed,
            limit=limits.policies,
            weigh=policy_times,
            counting=POLICIES_COUNT,
        )
        self.records: Cache[StoredRecord] = self._register(
            ATTESTED_NODES,
            stored_record,
            self._record_changed,
            limit=limits.attested_nodes,
            listed=self.records_barrier.cache_listed,
            after=self.clusters,  # so that nothing is listed twice at the start
            begins=self.records_barrier.cache_begins,
        )
        self._claimed_reservations: dict[str, dict[ObjectKey, Reservation]] = {}
        """Reservations for Machines that showed no provider ID, by the claimed one."""
        self._reserved_machines: Counter[str] = Counter()
        """Machines that are reserved for an identity, by namespace, gone ones included."""
        self.reservations: Cache[Reservation] = self._register(
            IDENTITY_RESERVATIONS, parse_reservation, self._reservation_changed, scope=Scope.OWN
        )
        """Untrusted: a reservation is used only by :attr:`authentic_reservations`, or after it was verified."""
        self.authentic_reservations = AuthenticReservations(self.reservations, self.authentic, own_namespace)

    def _register(
        self,
        resource: Resource | NotServed,
        parse: Callable[[JsonObject], Value],
        changed: Changed[Value] | None = None,
        *,
        scope: Scope = Scope.WATCHED,
        **more: Any,
    ) -> Cache[Value]:
        """Register a cache that decisions need."""
        return self.registry.register(
            CacheDeclaration(resource, parse, scope, needed_by_decisions=True, changed=changed, **more)
        )

    def on_change(self, wake: Wake) -> None:
        """Call ``wake`` with the cluster and the provider IDs that a change concerns, whatever it is a change of."""
        self._wakes.append(wake)

    def on_cluster_change(self, wake: Callable[[ClusterKey], None]) -> None:
        """Call ``wake`` when a Cluster or its policy has changed, or the controller key."""
        self._cluster_wakes.append(wake)

    def on_machine_change(self, wake: Wake) -> None:
        """Call ``wake`` when Machines or MachinePools have changed, or a record of a Machine is gone."""
        self._machine_wakes.append(wake)

    def on_policy_annotations(self, look: Callable[[ClusterKey, Mapping[str, Any]], None]) -> None:
        """Call ``look`` with the annotations of each version of a policy that arrives. They are no part of the cached
        policy, because no decision depends on them.
        """
        self._annotation_looks.append(look)

    def serves(self, cluster: ClusterView) -> bool:
        """Whether this controller and this replica serve the Cluster: they write nothing for any other."""
        return self.watch_filter.selects(cluster) and self.shards.own(cluster.key)

    def _serves_named(self, key: ClusterKey) -> bool:
        cluster = self.clusters.get(key.namespace, key.name)
        if cluster is None:
            return self.clusters.drops(key.namespace) and self.shards.own(key)
        return self.serves(cluster)

    def _has_policy(self, key: ClusterKey) -> bool:
        """Whether some controller may serve a Cluster of that name. A dropped Cluster or policy may be there."""
        return all(
            cache.get(key.namespace, key.name) is not None or cache.drops(key.namespace)
            for cache in (self.clusters, self.policies)
        )

    def set_shards(self, shards: Shards) -> None:
        """Set the shards that this replica serves from now on."""
        self.shards = shards
        for wake in self._shard_wakes:
            wake()

    def on_shards_changed(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` when the shards that this replica serves change."""
        self._shard_wakes.append(wake)

    def machines_with(self, cluster: ClusterKey, provider_id: str) -> tuple[MachineView, ...]:
        """The cluster's Machines with that provider ID, and the instances of MachinePools without a Machine of their
        own.
        """
        return self._index.machines_with(cluster, provider_id)

    def matching(self, cluster: ClusterKey, provider_id: str) -> tuple[MachineView, ...]:
        """At most ``MOST_MATCHING`` of :meth:`machines_with`, for a decision: if several match, a few show it as well
        as all.
        """
        return self._index.first_with(cluster, provider_id, MOST_MATCHING)

    def nearest(self, cluster: ClusterKey, provider_id: str) -> NearMachine | NoneNear:
        """The cluster's Machine or instance that nearly has that provider ID, for a message when none has it.

        A requester may invent thousands of IDs: each costs a few look-ups and comparisons, however large the cluster.
        """
        found: dict[ObjectKey | str, MachineView] = {}
        for part in parts_to_look_up(provider_id):
            for key in islice(self.names.ending_in(cluster, part), MOST_CANDIDATES + 1):
                if isinstance(key, str):
                    found.update((key, instance) for instance in self._index.first_with(cluster, key, 1))
                elif (machine := self.machines.get(*key)) is not None:
                    found[key] = machine
        return NoneNear() if len(found) > MOST_CANDIDATES else nearest_of(provider_id, found.values())

    def machine_objects_with(self, cluster: ClusterKey, provider_ids: ProviderIDs) -> Iterator[MachineView]:
        """The cluster's Machines with one of these provider IDs, without instances of MachinePools."""
        return self._index.machine_objects_with(cluster, provider_ids)

    def machine(self, key: MachineKey) -> MachineView | MachineGone:
        """The Machine or instance of that key, in its current state."""
        return self._index.machine(key)

    def holders(self, provider_id: str, machine: MachineView) -> tuple[str, ...]:
        """Other Machines of the namespace that show that provider ID, or for which it is claimed and not disproven.

        Those of other namespaces do not count: a tenant could write a Machine with the provider IDs of another tenant's
        nodes, which would get no more certificates. Sorted.

        Raises:
            Deferred: the controller key is not available.
        """
        namespace = machine.cluster.namespace
        found = list(self._index.of_namespace_with(namespace, provider_id))
        reserved = self.authentic_reservations.authentic(self._claimed_reservations.get(provider_id, {}).values())
        claiming = (record.machine for record in self.authentic.claiming(provider_id))
        for key in (*claiming, *(reservation.pair.machine for reservation in reserved)):
            holder = self.machine(key) if key.cluster.namespace == namespace else MachineGone()
            if isinstance(holder, MachineView):
                found.append(holder)
        own = machine.cluster, machine.kind, machine.name
        return tuple(sorted({str(holder) for holder in found if (holder.cluster, holder.kind, holder.name) != own}))

    def records_of(self, machine: MachineView) -> tuple[AttestedNode, ...]:
        """The authentic records that name that Machine, and those that claim a provider ID for it.

        Raises:
            Deferred: the controller key is not available.
        """
        claimed = self.authentic.of_claims_by(machine.uid)
        if not (machine.provider_id or machine.claimed_provider_id):
            return claimed
        named = self.authentic.of_machine(MachineKey.of(machine))
        return (*named, *(record for record in claimed if record not in named))

    def disproven_claims_of(self, cluster: ClusterKey) -> tuple[AttestedNode, ...]:
        """The authentic records that claim another provider ID for a Machine of the cluster than it shows, sorted by
        node name.

        Raises:
            Deferred: the controller key is not available.
        """
        found = [
            record
            for record in self.authentic.claims_of(cluster)
            if isinstance(gone := self.machine(record.machine), MachineGone) and gone.shows
        ]
        return tuple(sorted(found, key=lambda record: record.node_name))

    def machines_of(self, cluster: ClusterKey) -> Iterator[MachineView]:
        """All Machines of the cluster, including MachinePool Machines, but no instances, which have no addresses."""
        return self._index.machines_of(cluster)

    def instances_of(self, cluster: ClusterKey) -> Iterator[MachineView]:
        """All instances of the cluster's MachinePools without a Machine of their own."""
        return self._index.instances_of(cluster)

    def watches(self, namespace: str) -> bool:
        """Whether Clusters, Machines and records of that namespace are cached."""
        return self._watch_namespace in (None, namespace)

    def watched(self) -> Iterator[Cache[Any]]:
        """Every registered cache."""
        return self.registry.watched()

    async def run(self, client: Client) -> None:
        """Keep the caches and the controller key up to date until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.controller_key.run(client), name="controller key")
            self.registry.start(tasks, client)

    async def fill(self, source: List) -> None:
        """List everything once, for a command that does not keep watching. The controller key is read separately.

        Raises:
            ApiError: a collection cannot be listed.
        """
        await self.registry.fill(source)

    async def fill_readable(self, source: List) -> Mapping[str, Forbidden]:
        """As :meth:`fill`, for a user that may not list everything; returns the refusals by the cache's name.

        Raises:
            ApiError: another error.
        """
        return await self.registry.fill_readable(source)

    async def filled(self) -> None:
        """Wait for the first list of every cache that decisions need, and for the first read of the controller key."""
        await self.controller_key.attempted.wait()
        await self.registry.filled()

    def require_in_touch(self) -> None:
        """Call this before a decision: the caches may lack a change of a Machine, Cluster or policy.

        Raises:
            Deferred: the watch of a collection has failed for longer than ``OUT_OF_TOUCH_SECONDS``, or the controller
                key is not available.
        """
        self.authentic.require_keys()
        for cache in self.registry.needed_by_decisions:
            touch = cache.touch()
            if isinstance(touch, OutOfTouch) and touch.seconds > OUT_OF_TOUCH_SECONDS:
                raise Deferred(
                    Reason.MANAGEMENT_CLUSTER_UNREACHABLE,
                    f"{cache.name} of the management cluster cannot be watched: {touch.error}",
                    timedelta(seconds=OUT_OF_TOUCH_RETRY_SECONDS),
                )

    def require_current(self, namespace: str) -> None:
        """Call this before a decision on a Cluster of the namespace: the caches may lack anything of it.

        Raises:
            Deferred: see :meth:`require_in_touch`, or the namespace is over a limit.
        """
        self.require_in_touch()
        if over := self.over_limits.of(namespace):
            raise Deferred(Reason.NAMESPACE_OVER_LIMIT, "; ".join(map(str, over)))

    def require_all_kept(self, namespace: str) -> None:
        """Call this before acting on the absence of an object of the namespace, for a decision on any Cluster: the
        object may have been dropped. The message names no namespace, because it may be another tenant's.

        Raises:
            Deferred: the namespace is over a limit.
        """
        if self.over_limits.of(namespace):
            raise Deferred(
                Reason.NAMESPACE_OVER_LIMIT,
                "whether the Machine that holds the identity is gone is not known, because its namespace has more "
                "objects than the operator's limit: the controller's log names the namespace",
            )

    def bound_changed(self, namespace: str) -> None:
        """A namespace is over a limit, or within it again."""
        for key in self.authorities.of_namespace(namespace):
            # What was deleted while the namespace was over its limit was never reported.
            if not self.clusters.drops(namespace) and self.clusters.get(namespace, key.name) is None:
                self.authorities.cluster_gone(key)
            if not self.policies.drops(namespace) and self.policies.get(namespace, key.name) is None:
                self.authorities.policy_gone(key)
        for cluster in [cluster.key for cluster in self.clusters.values() if cluster.key.namespace == namespace]:
            self._wake_cluster(cluster)

    def _wake(self, cluster: ClusterKey, provider_ids: ProviderIDs) -> None:
        for wake in self._wakes:
            wake(cluster, provider_ids)

    def _wake_cluster(self, cluster: ClusterKey) -> None:
        self._wake(cluster, ALL_PROVIDER_IDS)
        for wake in self._cluster_wakes:
            wake(cluster)

    def _wake_machines(self, cluster: ClusterKey, provider_ids: ProviderIDs) -> None:
        self._wake(cluster, provider_ids)
        for wake in self._machine_wakes:
            wake(cluster, provider_ids)

    def _reached_again(self) -> None:
        """Wake requests whose calls failed: otherwise they may wait for minutes, since nothing else reports that calls
        work.
        """
        for cluster in self.clusters.values():
            self._wake(cluster.key, REACHED_AGAIN)

    def _keys_changed(self) -> None:
        """Wake every request: answers to challenges may wait for a key, and without a key everything waits."""
        self.authorities.keys_changed()
        for cluster in self.clusters.values():
            self._wake_cluster(cluster.key)

    def _cluster_changed(self, key: ObjectKey, before: ClusterView | None, after: ClusterView | None) -> None:
        self.records_barrier.cluster_changed(ClusterKey(*key), before, after)
        if after is None and not self.clusters.drops(key[0]):
            self.authorities.cluster_gone(ClusterKey(*key))
        if before != after:
            self._wake_cluster(ClusterKey(*key))

    def _policy(self, manifest: Mapping[str, Any]) -> Policy | UnreadablePolicy:
        policy = _policy(manifest, self.floors)
        self.policy_statuses.shows(policy.cluster, manifest)
        self.authorities.shows(policy.cluster, manifest)
        for look in self._annotation_looks:
            look(policy.cluster, mapping_of(mapping_of(manifest, "metadata"), "annotations"))
        return policy

    def _policy_changed(
        self, key: ObjectKey, before: Policy | UnreadablePolicy | None, after: Policy | UnreadablePolicy | None
    ) -> None:
        if after is None:
            self.policy_statuses.forget(ClusterKey(*key))
            if not self.policies.drops(key[0]):
                self.authorities.policy_gone(ClusterKey(*key))
        if before != after:  # a change of status wakes nothing: the status reconciler would wake itself
            self._wake_cluster(ClusterKey(*key))

    def _machine_changed(self, key: ObjectKey, before: MachineView | None, after: MachineView | None) -> None:
        self.names.changed(key, before, after)
        self._wake_concerned(self._index.machine_changed(key, before, after))

    def _record_changed(self, key: ObjectKey, before: StoredRecord | None, after: StoredRecord | None) -> None:
        self.authentic.changed(key, before, after)
        if isinstance(after, UnverifiedRecord):
            self._wake(after.claimed.machine.cluster, frozenset({record_of(after.claimed.node_name)}))
        elif isinstance(before, UnverifiedRecord):
            # An operator deletes the record of a former node, or of replaced hardware, to free the name.
            gone = before.claimed
            provider_ids = frozenset({record_of(gone.node_name), gone.machine.provider_id})
            self._wake_machines(gone.machine.cluster, provider_ids)

    def require_room(self, pair: Pair) -> None:
        """Call this before a Machine is reserved that was not: a tenant may have Machines attested and delete them, and
        their records with its Cluster, faster than their reservations are released.

        Raises:
            Deferred: as many Machines of the namespace are reserved as it may have AttestedNodes.
        """
        namespace, limit = pair.machine.cluster.namespace, self.limits.attested_nodes
        reserved = self._reserved_machines[namespace]
        if reserved < limit or pair.is_of_hardware:  # a Machine's hardware is reserved after the Machine
            return
        if self.reservations.get(self.own_namespace, pair.name(ReservationSide.MACHINE)) is not None:
            return
        raise Deferred(
            Reason.NAMESPACE_OVER_LIMIT,
            f"{reserved} Machines of namespace {namespace} are reserved, and the operator's limit of AttestedNodes is "
            f"{limit}: Machines that are gone are released with time",
        )

    def _reservation_changed(self, key: ObjectKey, before: Reservation | None, after: Reservation | None) -> None:
        for reservation, change in ((before, -1), (after, 1)):
            if reservation is not None and reservation.reserves_a_machine:
                namespace = reservation.pair.machine.cluster.namespace
                self._reserved_machines[namespace] += change
                if not self._reserved_machines[namespace]:
                    del self._reserved_machines[namespace]
        if before is not None and before.pair.machine.is_claimed:
            reserved = self._claimed_reservations[before.pair.machine.provider_id]
            del reserved[key]
            if not reserved:
                del self._claimed_reservations[before.pair.machine.provider_id]
        if after is not None and after.pair.machine.is_claimed:
            self._claimed_reservations.setdefault(after.pair.machine.provider_id, {})[key] = after

    def _machine_pool_changed(
        self, key: ObjectKey, before: MachinePoolView | None, after: MachinePoolView | None
    ) -> None:
        self.names.pool_changed(before, after)
        self._wake_concerned(self._index.pool_changed(key, before, after))

    def _wake_concerned(self, concerned: Concerned) -> None:
        self.certificate_lives.machines_changed(concerned)
        for cluster, provider_ids in concerned.items():
            self._wake_machines(cluster, provider_ids)


def _policy(manifest: Mapping[str, Any], floors: Floors) -> Policy | UnreadablePolicy:
    try:
        return parse_policy(manifest, floors.of(text_of(mapping_of(manifest, "metadata"), "namespace")))
    except InvalidPolicy as error:
        metadata = manifest.get("metadata") or {}
        return UnreadablePolicy(
            ClusterKey(str(metadata.get("namespace", "")), str(metadata.get("name", ""))),
            str(metadata.get("uid", "")),
            int(metadata.get("generation") or 0),
            str(error),
            DELETE_FOR_MOVE_ANNOTATION in mapping_of(metadata, "annotations"),
            stated_mode(manifest),
        )
