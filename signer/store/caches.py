"""Everything that decisions read from the management cluster, cached and indexed.

Machines and instances of MachinePools are indexed by provider ID, so that a match is one look-up, and a change of a
Machine, MachinePool, Cluster or policy wakes exactly the requests that may wait for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeAlias

from signer.kube.calls import List
from signer.kube.client import Client, JsonObject
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
from signer.model.fields import mapping_of
from signer.model.machine_pool import MachinePoolView, machine_pool_view
from signer.model.policy import InvalidPolicy, Mode, Policy, parse_policy, stated_mode
from signer.model.reasons import Reason
from signer.model.record import MachineKey
from signer.model.reservation import Reservation, parse_reservation
from signer.model.shard import EVERY_SHARD, Shards
from signer.rules.builtin_serving import record_of
from signer.rules.machine import MachineGone
from signer.store.authentic_records import AuthenticRecords, StoredRecord, UnverifiedRecord, stored_record
from signer.store.cache import Cache, Changed, ObjectKey, OutOfTouch, Value
from signer.store.cache_registry import CacheDeclaration, CacheRegistry, Scope
from signer.store.cluster_api import ClusterAPIVersion, NotServed
from signer.store.controller_key import ControllerKey
from signer.store.machine_index import Concerned, MachineIndex
from signer.store.name_index import NameIndex
from signer.store.node_certificates import CertificateLives
from signer.store.policy_statuses import PolicyStatuses
from signer.store.records_barrier import RecordsBarrier

ProviderIDs: TypeAlias = frozenset[str]
ALL_PROVIDER_IDS: Final[ProviderIDs] = frozenset({"*"})
"""In a wake-up: every request of the cluster may be affected."""
REACHED_AGAIN: Final[ProviderIDs] = frozenset({"the management cluster"})
"""In a wake-up, and among what requests wait for, which is provider IDs otherwise: the management cluster did not do
what it was asked to, and can be watched again."""

OUT_OF_TOUCH_SECONDS: Final = 60.0
"""For as long as this, list and watch may fail before what they last said is no ground for a decision.

A watch that is accepted and says nothing fails after ``client.WATCH_IDLE_SECONDS`` only, and is listed anew then.
"""
OUT_OF_TOUCH_RETRY_SECONDS: Final = 10.0
"""At the latest: a collection that is watched again wakes who waits for it."""

MOST_MATCHING: Final = 8
"""Machines with one provider ID that a decision looks at, and that its line in the audit log holds."""

Wake: TypeAlias = Callable[[ClusterKey, ProviderIDs], None]


@dataclass(frozen=True, slots=True)
class UnreadablePolicy:
    """A policy that cannot be followed; every request of its cluster waits."""

    cluster: ClusterKey
    uid: str
    generation: int
    message: str
    deleting_for_move: bool = False
    """See :class:`~signer.model.policy.Policy`."""
    mode: Mode | None = None
    """What it names, for those who watch: nothing is done by it."""


class Caches:
    """The caches, the index over Machines and MachinePools, and who is told of changes."""

    def __init__(
        self,
        version: ClusterAPIVersion,
        *,
        own_namespace: str,
        watch_namespace: str | None = None,
        watch_filter: WatchFilter = EVERY_CLUSTER,
        shards: Shards = EVERY_SHARD,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``watch_namespace`` limits Clusters, Machines, MachinePools, policies and records to one namespace.

        ``watch_filter`` and ``shards`` limit nothing here: reservations are one to one over all Clusters, so all of
        them must be seen. ``monotonic`` is a clock, in seconds.
        """
        self.version = version
        self.own_namespace = own_namespace
        self.watch_filter = watch_filter
        """Which of the Clusters are served; the others are left alone."""
        self.shards = shards
        """Which of them are this replica's to serve."""
        self._shard_wakes: list[Callable[[], None]] = []
        self._watch_namespace = watch_namespace
        self._wakes: list[Wake] = []
        self._index = MachineIndex()
        self.names = NameIndex()
        self.records_barrier = RecordsBarrier()
        """Clusters whose records the cache may not have yet: see ``Records.require_listed``."""
        self.registry = CacheRegistry(
            {Scope.WATCHED: watch_namespace, Scope.OWN: own_namespace},
            in_touch_again=self._reached_again,
            monotonic=monotonic,
        )
        """Other parts register here what they need cached."""
        self.policy_statuses = PolicyStatuses()
        self.certificate_lives = CertificateLives(self.machine)
        self.authentic = AuthenticRecords(self.certificate_lives.record_changed, self._keys_changed)
        """Of the cached records those that are ours; nothing else of ``records`` is ever used."""
        self.controller_key = ControllerKey(own_namespace, self.authentic)
        self.clusters: Cache[ClusterView] = self._register(version.clusters, cluster_view, self._cluster_changed)
        self.machines: Cache[MachineView] = self._register(version.machines, machine_view, self._machine_changed)
        self.machine_pools: Cache[MachinePoolView] = self._register(
            version.machine_pools, machine_pool_view, self._machine_pool_changed
        )
        """Stays empty where the management cluster has none."""
        self.policies: Cache[Policy | UnreadablePolicy] = self._register(
            NODE_ATTESTATION_POLICIES, self._policy, self._policy_changed
        )
        self.records: Cache[StoredRecord] = self._register(
            ATTESTED_NODES,
            stored_record,
            self._record_changed,
            listed=self.records_barrier.cache_listed,
            after=self.clusters,  # so that nothing is listed twice at the start
            begins=self.records_barrier.all_are_listed,
        )
        self.reservations: Cache[Reservation] = self._register(
            IDENTITY_RESERVATIONS, parse_reservation, scope=Scope.OWN
        )

    def _register(
        self,
        resource: Resource | NotServed,
        parse: Callable[[JsonObject], Value],
        changed: Changed[Value] | None = None,
        *,
        scope: Scope = Scope.WATCHED,
        **more: Any,
    ) -> Cache[Value]:
        """A cache that decisions need."""
        return self.registry.register(
            CacheDeclaration(resource, parse, scope, needed_by_decisions=True, changed=changed, **more)
        )

    def on_change(self, wake: Wake) -> None:
        """Call ``wake`` with the cluster and the provider IDs that a change concerns."""
        self._wakes.append(wake)

    def serves(self, cluster: ClusterView) -> bool:
        """Whether the Cluster is this controller's, and this replica's: nothing is written for any other."""
        return self.watch_filter.selects(cluster) and self.shards.own(cluster.key)

    def own_shards(self, shards: Shards) -> None:
        """These Clusters are this replica's from now on."""
        self.shards = shards
        for wake in self._shard_wakes:
            wake()

    def on_shards(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` when other Clusters than before are this replica's."""
        self._shard_wakes.append(wake)

    def machines_with(self, cluster: ClusterKey, provider_id: str) -> tuple[MachineView, ...]:
        """The cluster's Machines with that provider ID, and instances of MachinePools that no Machine stands for."""
        return self._index.machines_with(cluster, provider_id)

    def matching(self, cluster: ClusterKey, provider_id: str) -> tuple[MachineView, ...]:
        """Those of :meth:`machines_with` that a request is judged by: of several, a few say as much as all."""
        return self._index.some_with(cluster, provider_id, MOST_MATCHING)

    def machine_objects_with(self, cluster: ClusterKey, provider_ids: ProviderIDs) -> Iterator[MachineView]:
        """The cluster's Machines with one of these provider IDs, without instances of MachinePools."""
        return self._index.machine_objects_with(cluster, provider_ids)

    def machine(self, key: MachineKey) -> MachineView | MachineGone:
        """The Machine or instance of that key, as it is now."""
        return self._index.machine(key)

    def machines_of(self, cluster: ClusterKey) -> Iterator[MachineView]:
        """All Machines of the cluster, those of MachinePools included; instances, which have no addresses, are not."""
        return self._index.machines_of(cluster)

    def instances_of(self, cluster: ClusterKey) -> Iterator[MachineView]:
        """All instances of the cluster's MachinePools that no Machine stands for."""
        return self._index.instances_of(cluster)

    def watches(self, namespace: str) -> bool:
        """Whether Clusters, Machines and records of that namespace are cached."""
        return self._watch_namespace in (None, namespace)

    def watched(self) -> Iterator[Cache[Any]]:
        """Every cache that is kept."""
        return self.registry.watched()

    async def run(self, client: Client) -> None:
        """Keep the caches, and the key that tells our records from others, up to date until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.controller_key.run(client), name="controller key")
            self.registry.start(tasks, client)

    async def fill(self, source: List) -> None:
        """List everything once, for who looks and does not stay; the controller key is read apart from it.

        Raises:
            ApiError: a collection cannot be listed.
        """
        await self.registry.fill(source)

    async def filled(self) -> None:
        """Wait until every cache that decisions need has had its first list, and the key was looked at."""
        await self.controller_key.settled.wait()
        await self.registry.filled()

    def require_in_touch(self) -> None:
        """To be called before anything is judged: a Machine, Cluster or policy may have gone unseen.

        Raises:
            Deferred: a collection has not been watched for longer than ``OUT_OF_TOUCH_SECONDS``, or the controller key
                is not available.
        """
        self.authentic.require_keys()
        for cache in self.registry.needed_by_decisions():
            touch = cache.touch()
            if isinstance(touch, OutOfTouch) and touch.seconds > OUT_OF_TOUCH_SECONDS:
                raise Deferred(
                    Reason.MANAGEMENT_CLUSTER_UNREACHABLE,
                    f"{cache.name} of the management cluster cannot be watched: {touch.error}",
                    timedelta(seconds=OUT_OF_TOUCH_RETRY_SECONDS),
                )

    def _tell(self, cluster: ClusterKey, provider_ids: ProviderIDs) -> None:
        for wake in self._wakes:
            wake(cluster, provider_ids)

    def _reached_again(self) -> None:
        """Nothing else says that a call would work by now; those that failed may be due in minutes only."""
        for cluster in self.clusters.values():
            self._tell(cluster.key, REACHED_AGAIN)

    def _keys_changed(self) -> None:
        """Answers to challenges may wait for a key, and everything does while there is none."""
        for cluster in self.clusters.values():
            self._tell(cluster.key, ALL_PROVIDER_IDS)

    def _cluster_changed(self, key: ObjectKey, before: ClusterView | None, after: ClusterView | None) -> None:
        self.records_barrier.cluster_changed(ClusterKey(*key), before, after)
        if before != after:
            self._tell(ClusterKey(*key), ALL_PROVIDER_IDS)

    def _policy(self, manifest: Mapping[str, Any]) -> Policy | UnreadablePolicy:
        policy = _policy(manifest)
        self.policy_statuses.shows(policy.cluster, manifest)
        return policy

    def _policy_changed(
        self, key: ObjectKey, before: Policy | UnreadablePolicy | None, after: Policy | UnreadablePolicy | None
    ) -> None:
        if after is None:
            self.policy_statuses.forget(ClusterKey(*key))
        if before != after:  # a status alone wakes nobody: else who writes it would wake itself
            self._tell(ClusterKey(*key), ALL_PROVIDER_IDS)

    def _machine_changed(self, key: ObjectKey, before: MachineView | None, after: MachineView | None) -> None:
        self.names.changed(key, before, after)
        self._tell_concerned(self._index.machine_changed(key, before, after))

    def _record_changed(self, key: ObjectKey, before: StoredRecord | None, after: StoredRecord | None) -> None:
        self.authentic.changed(key, before, after)
        if isinstance(after, UnverifiedRecord):
            self._tell(after.claimed.machine.cluster, frozenset({record_of(after.claimed.node_name)}))
        elif isinstance(before, UnverifiedRecord):
            # People delete the record of a former node, or of replaced hardware, so that another may have the name.
            gone = before.claimed
            self._tell(gone.machine.cluster, frozenset({record_of(gone.node_name), gone.machine.provider_id}))

    def _machine_pool_changed(
        self, key: ObjectKey, before: MachinePoolView | None, after: MachinePoolView | None
    ) -> None:
        self.names.pool_changed(before, after)
        self._tell_concerned(self._index.pool_changed(key, before, after))

    def _tell_concerned(self, concerned: Concerned) -> None:
        self.certificate_lives.machines_changed(concerned)
        for cluster, provider_ids in concerned.items():
            self._tell(cluster, provider_ids)


def _policy(manifest: Mapping[str, Any]) -> Policy | UnreadablePolicy:
    try:
        return parse_policy(manifest)
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
