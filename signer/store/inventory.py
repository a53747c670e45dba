"""Everything that decisions read from the management cluster, mirrored and indexed.

Machines are indexed by provider ID, so that a match is one look-up, and a change of a Machine, Cluster or policy wakes
exactly the requests that may wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeAlias

from signer.kube.client import Client
from signer.kube.errors import NotFound
from signer.kube.resources import (
    ATTESTED_NODES,
    CLUSTERS_V1BETA1,
    CLUSTERS_V1BETA2,
    IDENTITY_RESERVATIONS,
    MACHINES_V1BETA1,
    MACHINES_V1BETA2,
    NODE_ATTESTATION_POLICIES,
    Resource,
)
from signer.kube.watch import list_and_watch
from signer.model.cluster import ClusterKey, ClusterView, MachineView, cluster_view, machine_view
from signer.model.decision import Deferred
from signer.model.policy import InvalidPolicy, Policy, parse_policy
from signer.model.reasons import Reason
from signer.model.record import AttestedNode, parse_record
from signer.model.reservation import Reservation, parse_reservation
from signer.store.mirror import Mirror, ObjectKey, OutOfTouch

ProviderIDs: TypeAlias = frozenset[str]
ALL_PROVIDER_IDS: Final[ProviderIDs] = frozenset({"*"})
"""In a wake-up: every request of the cluster may be affected."""

OUT_OF_TOUCH_SECONDS: Final = 60.0
"""For as long as this, list and watch may fail before what they last said is no ground for a decision."""
OUT_OF_TOUCH_RETRY_SECONDS: Final = 10.0
"""Nobody is woken by a collection that is watched again and has not changed."""

Wake: TypeAlias = Callable[[ClusterKey, ProviderIDs], None]


@dataclass(frozen=True, slots=True)
class UnreadablePolicy:
    """A policy that cannot be followed; every request of its cluster waits."""

    cluster: ClusterKey
    uid: str
    generation: int
    message: str


@dataclass(frozen=True, slots=True)
class ClusterAPIVersion:
    """The one Cluster API version that is read; v1beta2 where it is served."""

    clusters: Resource
    machines: Resource


async def discover_cluster_api(client: Client) -> ClusterAPIVersion:
    """Ask the API server once which version it serves (v1beta1 only in Cluster API up to v1.10).

    Raises:
        ApiError: it cannot be asked, or serves neither (NotFound).
    """
    try:
        await client.get(f"/apis/{CLUSTERS_V1BETA2.group}/{CLUSTERS_V1BETA2.version}")
    except NotFound:
        await client.get(f"/apis/{CLUSTERS_V1BETA1.group}/{CLUSTERS_V1BETA1.version}")
        return ClusterAPIVersion(CLUSTERS_V1BETA1, MACHINES_V1BETA1)
    return ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2)


class Inventory:
    """The mirrors, the index over Machines, and who is told of changes."""

    def __init__(
        self,
        version: ClusterAPIVersion,
        *,
        own_namespace: str,
        watch_namespace: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``watch_namespace`` limits Clusters, Machines, policies and records to one namespace.

        ``monotonic`` is a clock, in seconds.
        """
        self.version = version
        self.own_namespace = own_namespace
        self._watch_namespace = watch_namespace
        self._wakes: list[Wake] = []
        self._machines_by_provider_id: dict[tuple[ClusterKey, str], dict[ObjectKey, MachineView]] = {}
        self._machines_by_cluster: dict[ClusterKey, dict[ObjectKey, MachineView]] = {}
        self.clusters: Mirror[ClusterView] = Mirror(
            "clusters", cluster_view, self._cluster_changed, monotonic=monotonic
        )
        self.policies: Mirror[Policy | UnreadablePolicy] = Mirror(
            "policies", _policy, self._policy_changed, monotonic=monotonic
        )
        self.machines: Mirror[MachineView] = Mirror(
            "machines", machine_view, self._machine_changed, monotonic=monotonic
        )
        self.records: Mirror[AttestedNode] = Mirror("attestednodes", parse_record, monotonic=monotonic)
        self.reservations: Mirror[Reservation] = Mirror("identityreservations", parse_reservation, monotonic=monotonic)

    def on_change(self, wake: Wake) -> None:
        """Call ``wake`` with the cluster and the provider IDs that a change concerns."""
        self._wakes.append(wake)

    def machines_with(self, cluster: ClusterKey, provider_id: str) -> tuple[MachineView, ...]:
        """The cluster's Machines with that provider ID."""
        return tuple(self._machines_by_provider_id.get((cluster, provider_id), {}).values())

    def machines_of(self, cluster: ClusterKey) -> Iterator[MachineView]:
        """All Machines of the cluster."""
        return iter(self._machines_by_cluster.get(cluster, {}).values())

    async def run(self, client: Client) -> None:
        """Keep the mirrors up to date until cancelled."""
        namespace = self._watch_namespace
        async with asyncio.TaskGroup() as tasks:
            for mirror, path in (
                (self.clusters, self.version.clusters.collection(namespace)),
                (self.machines, self.version.machines.collection(namespace)),
                (self.policies, NODE_ATTESTATION_POLICIES.collection(namespace)),
                (self.records, ATTESTED_NODES.collection(namespace)),
                (self.reservations, IDENTITY_RESERVATIONS.collection(self.own_namespace)),
            ):
                watching = list_and_watch(client, path, sink=mirror, standing=mirror.standing)
                tasks.create_task(watching, name=f"watch {mirror.name}")

    async def filled(self) -> None:
        """Wait until every mirror has had its first list: nothing may be decided before."""
        for mirror in (self.clusters, self.machines, self.policies, self.records, self.reservations):
            await mirror.filled.wait()

    def require_in_touch(self) -> None:
        """To be called before anything is judged: a Machine, Cluster or policy may have gone unseen.

        Raises:
            Deferred: a collection has not been watched for longer than ``OUT_OF_TOUCH_SECONDS``.
        """
        for mirror in (self.clusters, self.machines, self.policies, self.records, self.reservations):
            touch = mirror.touch()
            if isinstance(touch, OutOfTouch) and touch.seconds > OUT_OF_TOUCH_SECONDS:
                raise Deferred(
                    Reason.MANAGEMENT_CLUSTER_UNREACHABLE,
                    f"{mirror.name} of the management cluster cannot be watched: {touch.error}",
                    timedelta(seconds=OUT_OF_TOUCH_RETRY_SECONDS),
                )

    def _tell(self, cluster: ClusterKey, provider_ids: ProviderIDs) -> None:
        for wake in self._wakes:
            wake(cluster, provider_ids)

    def _cluster_changed(self, key: ObjectKey, before: ClusterView | None, after: ClusterView | None) -> None:
        if before != after:
            self._tell(ClusterKey(*key), ALL_PROVIDER_IDS)

    def _policy_changed(
        self, key: ObjectKey, before: Policy | UnreadablePolicy | None, after: Policy | UnreadablePolicy | None
    ) -> None:
        if before != after:
            self._tell(ClusterKey(*key), ALL_PROVIDER_IDS)

    def _machine_changed(self, key: ObjectKey, before: MachineView | None, after: MachineView | None) -> None:
        if before == after:
            return
        if before is not None:
            _drop(self._machines_by_provider_id, (before.cluster, before.provider_id), key)
            _drop(self._machines_by_cluster, before.cluster, key)
        if after is not None:
            self._machines_by_cluster.setdefault(after.cluster, {})[key] = after
            if after.provider_id:
                self._machines_by_provider_id.setdefault((after.cluster, after.provider_id), {})[key] = after
        changed: dict[ClusterKey, set[str]] = {}
        for machine in (before, after):
            if machine is not None and machine.provider_id:
                changed.setdefault(machine.cluster, set()).add(machine.provider_id)
        for cluster, provider_ids in changed.items():
            self._tell(cluster, frozenset(provider_ids))


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
        )


_Index: TypeAlias = dict[Any, dict[ObjectKey, MachineView]]


def _drop(index: _Index, index_key: Any, key: ObjectKey) -> None:
    with contextlib.suppress(KeyError):
        del index[index_key][key]
        if not index[index_key]:
            del index[index_key]
