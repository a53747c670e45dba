"""The caches: Machines by provider ID, and the requests that each change wakes."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from attestors.wire.names import ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION
from signer.kube.client import Client, JsonObject
from signer.kube.errors import Forbidden
from signer.kube.resources import (
    CLUSTERS_V1BETA2,
    MACHINE_POOLS_V1BETA2,
    MACHINES_V1BETA2,
)
from signer.kube.watch import Sink
from signer.model.cluster import ClusterKey, machine_view
from signer.model.decision import Deferred
from signer.model.floors import NO_FLOORS
from signer.model.policy import Policy
from signer.model.record import MachineKey, record_of, unidentified
from signer.model.record_object import record_spec
from signer.model.reservation import Pair, ReservationSide
from signer.model.seal import ControllerKeys, RecordSeals
from signer.rules.machine import MachineGone
from signer.rules.nearest_machine import MOST_CANDIDATES, NearMachine
from signer.store import cache_registry
from signer.store.authentic_records import KeysUnavailable
from signer.store.caches import (
    ALL_PROVIDER_IDS,
    OUT_OF_TOUCH_SECONDS,
    REACHED_AGAIN,
    Caches,
    Listed,
    ProviderIDs,
    UnlistedNamespace,
    UnreadablePolicy,
)
from signer.store.cluster_api import ClusterAPIVersion, NotServed
from signer.store.policy_statuses import NOT_SHOWN, status_digest
from tests.support.reservations import reservation_spec
from tests.unit.signer import builders

KEY = ClusterKey("team-a", "prod")
VERSION = ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2, MACHINE_POOLS_V1BETA2)


def machine(name: str, provider_id: str = "", cluster: str = "prod", **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "team-a", "name": name, "uid": name, **metadata},
        "spec": {"clusterName": cluster, "providerID": provider_id},
    }


def machine_pool(name: str, *provider_ids: str) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "team-a", "name": name, "uid": name},
        "spec": {"clusterName": "prod", "providerIDList": list(provider_ids)},
    }


class World:
    """Caches, and the wake-ups since they were last read."""

    def __init__(self) -> None:
        self.at = 0.0
        self.caches = Caches(VERSION, own_namespace="own", monotonic=lambda: self.at, floors=NO_FLOORS)
        self.caches.authentic.use_keys(ControllerKeys(bytes(32)))
        self.caches.on_change(self._woken)
        self._wakes: list[tuple[ClusterKey, ProviderIDs]] = []

    def _woken(self, cluster: ClusterKey, provider_ids: ProviderIDs) -> None:
        self._wakes.append((cluster, provider_ids))

    def wakes(self) -> list[tuple[ClusterKey, ProviderIDs]]:
        wakes, self._wakes = self._wakes, []
        return wakes

    def found(self, provider_id: str, cluster: ClusterKey = KEY) -> list[str]:
        return sorted(machine.name for machine in self.caches.machines_with(cluster, provider_id))


@pytest.fixture
def world() -> World:
    return World()


def test_machines_are_found_by_cluster_and_provider_id(world: World) -> None:
    for name, provider_id, cluster in (("m1", "p1", "prod"), ("m2", "p1", "prod"), ("m3", "p1", "lab")):
        world.caches.machines.applied(machine(name, provider_id, cluster))
    assert world.found("p1") == ["m1", "m2"]
    assert world.found("p1", ClusterKey("team-a", "lab")) == ["m3"]
    assert world.found("p1", ClusterKey("team-b", "prod")) == []
    assert [found.name for found in world.caches.machines_of(ClusterKey("team-a", "lab"))] == ["m3"]


def test_machine_without_a_provider_id_is_found_by_cluster_only(world: World) -> None:
    world.caches.machines.applied(machine("m1"))
    assert world.found("") == []
    assert [found.name for found in world.caches.machines_of(KEY)] == ["m1"]
    assert world.wakes() == [(KEY, frozenset({unidentified("m1")}))]


def test_parts_hear_only_of_the_changes_that_concern_them(world: World) -> None:
    clusters: list[ClusterKey] = []
    machines: list[tuple[ClusterKey, ProviderIDs]] = []
    world.caches.on_cluster_change(clusters.append)
    world.caches.on_machine_change(lambda cluster, provider_ids: machines.append((cluster, provider_ids)))
    world.caches.machines.applied(machine("m1", "p1"))
    world.caches.machine_pools.applied(machine_pool("pool", "p2"))
    assert (clusters, machines) == ([], [(KEY, frozenset({"p1"})), (KEY, frozenset({"p2"}))])
    world.caches.clusters.applied({"metadata": {"namespace": KEY.namespace, "name": KEY.name, "uid": "c"}})
    assert (clusters, len(machines)) == ([KEY], 2)
    assert len(world.wakes()) == 3


def test_instances_are_found_by_cluster_and_provider_id(world: World) -> None:
    world.caches.machine_pools.applied(machine_pool("pool", "p1", "p2"))
    assert world.found("p1") == ["pool"]
    assert world.found("p1", ClusterKey("team-a", "lab")) == []
    assert [instance.provider_id for instance in world.caches.instances_of(KEY)] in (["p1", "p2"], ["p2", "p1"])
    assert list(world.caches.machines_of(KEY)) == []
    assert world.caches.machine(MachineKey(KEY, "MachinePool", "pool", "p1")) != MachineGone()
    assert world.caches.machine(MachineKey(KEY, "MachinePool", "pool", "p3")) == MachineGone()


def test_only_added_and_removed_instances_wake_requests(world: World) -> None:
    world.caches.machine_pools.applied(machine_pool("pool", "p1", "p2"))
    assert world.wakes() == [(KEY, frozenset({"p1", "p2"}))]
    world.caches.machine_pools.applied(machine_pool("pool", "p2", "p3"))
    assert world.wakes() == [(KEY, frozenset({"p1", "p3"}))]
    world.caches.machine_pools.removed(machine_pool("pool"))
    assert world.wakes() == [(KEY, frozenset({"p2", "p3"}))]


def test_provider_id_arrives(world: World) -> None:
    world.caches.machines.applied(machine("m1"))
    world.wakes()
    world.caches.machines.applied(machine("m1", "p1"))
    assert world.found("p1") == ["m1"]
    assert world.wakes() == [(KEY, frozenset({unidentified("m1"), "p1"}))]


def test_an_attestor_annotation_wakes_requests_that_claim_the_machine(world: World) -> None:
    """A request waits until an operator states which TPM is in the Machine."""
    world.caches.machines.applied(machine("m1", "p1"))
    world.wakes()
    for said in ("sha256:1", "sha256:2", None):
        annotations = {} if said is None else {ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION: said}
        world.caches.machines.applied(machine("m1", "p1", annotations=annotations))
        assert world.wakes() == [(KEY, frozenset({"p1"}))]
    world.caches.machines.applied(machine("m1", "p1", annotations={"example.com/note": "changed"}))
    assert world.wakes() == []


def test_provider_id_changes(world: World) -> None:
    world.caches.machines.applied(machine("m1", "p1"))
    world.wakes()
    world.caches.machines.applied(machine("m1", "p2"))
    assert (world.found("p1"), world.found("p2")) == ([], ["m1"])
    assert world.wakes() == [(KEY, frozenset({"p1", "p2"}))]


def test_machine_changes_cluster(world: World) -> None:
    world.caches.machines.applied(machine("m1", "p1"))
    world.wakes()
    world.caches.machines.applied(machine("m1", "p1", "lab"))
    lab = ClusterKey("team-a", "lab")
    assert (world.found("p1"), world.found("p1", lab)) == ([], ["m1"])
    assert list(world.caches.machines_of(KEY)) == []
    assert sorted(world.wakes(), key=str) == sorted([(KEY, frozenset({"p1"})), (lab, frozenset({"p1"}))], key=str)


def test_machine_is_deleted(world: World) -> None:
    world.caches.machines.applied(machine("m1", "p1"))
    world.wakes()
    world.caches.machines.removed(machine("m1", "p1"))
    assert world.found("p1") == []
    assert list(world.caches.machines_of(KEY)) == []
    assert world.wakes() == [(KEY, frozenset({"p1"}))]


def test_a_change_irrelevant_to_decisions_wakes_no_request(world: World) -> None:
    world.caches.machines.applied(machine("m1", "p1", resourceVersion="1"))
    world.wakes()
    world.caches.machines.applied(machine("m1", "p1", resourceVersion="2", labels={"colour": "blue"}))
    assert world.wakes() == []


def test_a_deleted_record_wakes_requests_for_its_name_and_machine(world: World) -> None:
    """After an operator has deleted it to free the node's name, a request need not wait for minutes."""
    record = builders.record()
    name = record_of(record.node_name)
    manifest = {
        "metadata": {
            "namespace": record.machine.cluster.namespace,
            "name": record.name,
            "uid": "r-1",
            "resourceVersion": "1",
        },
        "spec": {**record_spec(record), "seal": "v1.0.0"},
    }
    world.caches.records.applied(manifest)
    assert world.wakes() == [(record.machine.cluster, frozenset({name}))]
    world.caches.records.removed(manifest)
    assert world.wakes() == [(record.machine.cluster, frozenset({name, record.machine.provider_id}))]


def test_cluster_wakes_all_of_its_requests(world: World) -> None:
    manifest: dict[str, Any] = {"metadata": {"namespace": "team-a", "name": "prod", "uid": "c"}, "spec": {}}
    world.caches.clusters.applied(manifest)
    assert world.wakes() == [(KEY, ALL_PROVIDER_IDS)]
    world.caches.clusters.applied({**manifest, "status": {"phase": "Provisioned"}})
    assert world.wakes() == []
    world.caches.clusters.applied({**manifest, "spec": {"paused": True}})
    assert world.wakes() == [(KEY, ALL_PROVIDER_IDS)]
    world.caches.clusters.removed(manifest)
    assert world.wakes() == [(KEY, ALL_PROVIDER_IDS)]


def test_policy_wakes_all_of_its_requests(world: World) -> None:
    metadata = {"namespace": "team-a", "name": "prod", "uid": "p", "generation": 3}
    good = {"metadata": metadata, "spec": {"authorizedAttestors": [{"name": "tpm"}]}}
    world.caches.policies.applied(good)
    assert world.wakes() == [(KEY, ALL_PROVIDER_IDS)]
    assert isinstance(world.caches.policies.get("team-a", "prod"), Policy)
    world.caches.policies.applied(good)
    assert world.wakes() == []
    world.caches.policies.removed(good)
    assert world.wakes() == [(KEY, ALL_PROVIDER_IDS)]


@pytest.mark.parametrize("spec", [{"authorizedAttestors": [{"name": "tpm"}]}, {"mode": "Yes"}])
def test_the_digest_of_a_policy_status(world: World, spec: dict[str, Any]) -> None:
    """It wakes nothing: the status reconciler would wake itself."""
    statuses = world.caches.policy_statuses
    metadata = {"name": "prod", "namespace": "team-a", "uid": "p", "resourceVersion": "1"}
    policy: dict[str, Any] = {"metadata": metadata, "spec": spec}
    assert statuses.shown(KEY) == NOT_SHOWN
    world.caches.policies.applied(policy)
    without = statuses.shown(KEY)
    assert without == status_digest(policy) != NOT_SHOWN
    world.wakes()
    written = {**policy, "metadata": {**metadata, "resourceVersion": "2"}, "status": {"conditions": []}}
    world.caches.policies.applied(written)
    assert statuses.shown(KEY) == status_digest(written) != without
    assert world.wakes() == []
    world.caches.policies.removed(written)
    assert statuses.shown(KEY) == NOT_SHOWN


def test_a_status_that_is_not_json_is_not_shown() -> None:
    assert status_digest({"status": {"conditions": object()}}) == NOT_SHOWN


def test_annotations_of_each_version_of_a_policy(world: World) -> None:
    """Also of one that nothing else of this controller looks at, and of one whose annotations are no map."""
    seen: list[tuple[ClusterKey, dict[str, Any]]] = []
    world.caches.on_policy_annotations(lambda key, annotations: seen.append((key, dict(annotations))))
    for written, spec in (({"a": "1"}, {}), ({"a": "1"}, {"mode": 5}), (None, {}), ([], {})):
        metadata: dict[str, Any] = {"namespace": "team-a", "name": "prod", "uid": "u", "annotations": written}
        world.caches.policies.applied({"metadata": metadata, "spec": spec})
    assert seen == [(KEY, {"a": "1"}), (KEY, {"a": "1"}), (KEY, {}), (KEY, {})]


def test_an_annotation_alone_wakes_no_request(world: World) -> None:
    metadata = {"namespace": "team-a", "name": "prod", "uid": "u"}
    world.caches.policies.applied({"metadata": metadata, "spec": {"authorizedAttestors": [{"name": "tpm"}]}})
    world.wakes()
    annotated = {**metadata, "annotations": {"attestation.cluster.x-k8s.io/operation": "start-ca-rotation"}}
    world.caches.policies.applied({"metadata": annotated, "spec": {"authorizedAttestors": [{"name": "tpm"}]}})
    assert world.wakes() == []


def test_unreadable_policy_is_kept_as_such(world: World) -> None:
    """A cluster with an invalid policy still has one: its requests wait."""
    metadata = {"namespace": "team-a", "name": "prod", "uid": "p", "generation": 3}
    world.caches.policies.applied({"metadata": metadata, "spec": {"mode": "Yes"}})
    policy = world.caches.policies.get("team-a", "prod")
    assert isinstance(policy, UnreadablePolicy)
    assert (policy.cluster, policy.uid, policy.generation) == (KEY, "p", 3)
    assert "spec.mode" in policy.message
    assert policy.mode is None
    assert world.wakes() == [(KEY, ALL_PROVIDER_IDS)]


async def test_nothing_is_decided_before_every_cache_has_its_first_list(world: World) -> None:
    caches = world.caches
    filled = asyncio.ensure_future(caches.filled())
    for cache in (
        caches.clusters,
        caches.machines,
        caches.machine_pools,
        caches.policies,
        caches.records,
    ):
        cache.replaced([])
        await asyncio.sleep(0)
        assert not filled.done()
    caches.reservations.replaced([])
    await asyncio.sleep(0)
    assert not filled.done(), "the controller key was not looked at"
    caches.controller_key.attempted.set()
    await asyncio.wait_for(filled, 5)


async def test_records_are_listed_after_clusters(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters that exist at the start need no list of their own: the cache's list of records is newer."""
    begun: list[str] = []

    async def list_once(client: Client, path: str, *, sink: Sink, **options: object) -> None:
        begun.append(path)
        if path.endswith("/clusters"):
            await asyncio.sleep(0)
            sink.replaced([{"metadata": {"namespace": KEY.namespace, "name": KEY.name, "uid": "c"}}])
            assert isinstance(world.caches.records_barrier.state_of(KEY), UnlistedNamespace)

    async def no_key(client: Client) -> None:
        """The controller key has tests of its own."""

    monkeypatch.setattr(cache_registry, "list_and_watch", list_once)
    monkeypatch.setattr(world.caches.controller_key, "run", no_key)
    await world.caches.run(cast("Client", None))
    assert begun[-1].endswith("/attestednodes")
    assert world.caches.records_barrier.state_of(KEY) == Listed()


async def test_filling_once_lists_records_after_clusters(world: World) -> None:
    class Source:
        async def list_pages(self, path: str, *arguments: Any, **options: Any) -> AsyncGenerator[dict[str, Any], None]:
            found = {"metadata": {"namespace": KEY.namespace, "name": KEY.name, "uid": "c"}}
            yield {"items": [found] if path.endswith("/clusters") else []}

    await world.caches.fill(Source())
    assert world.caches.clusters.get(KEY.namespace, KEY.name) is not None
    assert world.caches.records_barrier.state_of(KEY) == Listed()


def test_a_cluster_that_appears_later_has_its_records_listed(world: World) -> None:
    world.caches.clusters.applied({"metadata": {"namespace": KEY.namespace, "name": KEY.name, "uid": "c"}})
    assert isinstance(world.caches.records_barrier.state_of(KEY), UnlistedNamespace)
    world.caches.clusters.removed({"metadata": {"namespace": KEY.namespace, "name": KEY.name, "uid": "c"}})
    assert world.caches.records_barrier.state_of(KEY) == Listed()


async def test_no_collection_is_held_whole_while_it_is_listed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tenants write most of them, and an object may have a megabyte."""
    item = {"metadata": {"namespace": "team-a", "name": "a", "resourceVersion": "1"}, "status": "large"}
    held: list[JsonObject] = []

    async def list_once(
        client: Client, path: str, *, sink: Sink, keep: Callable[[JsonObject], bool], **options: object
    ) -> None:
        listed = copy.deepcopy(item)
        assert keep(listed)
        held.append(listed)
        sink.replaced([listed])

    async def no_key(client: Client) -> None:
        """The controller key has tests of its own."""

    monkeypatch.setattr(cache_registry, "list_and_watch", list_once)
    monkeypatch.setattr(world.caches.controller_key, "run", no_key)
    await world.caches.run(cast("Client", None))
    assert len(held) == 6
    assert "large" not in repr(held)


# How long list and watch may fail


@pytest.mark.parametrize("name", ["clusters", "machines", "machine_pools", "policies", "records", "reservations"])
def test_nothing_is_decided_while_any_collection_cannot_be_watched(world: World, name: str) -> None:
    cache = getattr(world.caches, name)
    world.caches.require_in_touch()
    cache.failed(Forbidden("403: may not watch", status=403), 1.0)
    world.at = OUT_OF_TOUCH_SECONDS
    world.caches.require_in_touch()
    world.at += 0.1
    with pytest.raises(Deferred) as raised:
        world.caches.require_in_touch()
    defer = raised.value.defer
    assert defer.reason == "ManagementClusterUnreachable"
    assert cache.name in defer.message
    assert "403: may not watch" in defer.message
    assert defer.retry_after is not None
    cache.synced()
    world.caches.require_in_touch()


@pytest.mark.parametrize("name", ["clusters", "machines", "machine_pools", "policies", "records", "reservations"])
def test_every_cluster_is_woken_when_a_collection_is_watched_again(world: World, name: str) -> None:
    for cluster in ("prod", "lab"):
        world.caches.clusters.applied({"metadata": {"namespace": "team-a", "name": cluster, "uid": cluster}})
    cache = getattr(world.caches, name)
    cache.synced()
    cache.failed(Forbidden("403: may not watch", status=403), 1.0)
    world.wakes()
    cache.synced()
    assert world.wakes() == [(ClusterKey("team-a", cluster), REACHED_AGAIN) for cluster in ("prod", "lab")]
    cache.synced()
    assert world.wakes() == []


async def test_machine_pools_that_are_not_served_are_not_waited_for() -> None:
    caches = Caches(
        ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2, NotServed()), own_namespace="own", floors=NO_FLOORS
    )
    caches.authentic.use_keys(ControllerKeys(bytes(32)))
    caches.controller_key.attempted.set()
    for cache in (
        caches.clusters,
        caches.machines,
        caches.policies,
        caches.records,
        caches.reservations,
    ):
        cache.replaced([])
    await asyncio.wait_for(caches.filled(), 5)
    caches.require_in_touch()


def test_nothing_is_decided_without_the_controller_key(world: World) -> None:
    world.caches.authentic.use_no_keys(KeysUnavailable("Secret x/y is malformed"))
    with pytest.raises(Deferred, match="Secret x/y is malformed"):
        world.caches.require_in_touch()


def test_only_watched_namespaces_are_cached(world: World) -> None:
    assert world.caches.watches("team-b")
    limited = Caches(VERSION, own_namespace="own", watch_namespace="team-a", floors=NO_FLOORS)
    assert limited.watches("team-a")
    assert not limited.watches("team-b")


def test_a_quiet_world_is_in_touch(world: World) -> None:
    world.caches.machines.replaced([])
    world.at = 100 * OUT_OF_TOUCH_SECONDS
    world.caches.require_in_touch()


class TestNearest:
    """The Machine that a claimed provider ID nearly names."""

    def near(self, world: World, provider_id: str, cluster: ClusterKey = KEY) -> str:
        found = world.caches.nearest(cluster, provider_id)
        return found.machine.name if isinstance(found, NearMachine) else ""

    def test_a_machine(self, world: World) -> None:
        world.caches.machines.applied(machine("m1", "openstack://RegionOne/u1"))
        world.caches.machines.applied(machine("m2", "openstack://RegionOne/u2"))
        assert self.near(world, "openstack:///u2") == "m2"
        assert self.near(world, "openstack:///u2/") == "m2"
        assert self.near(world, "openstack://RegionOne/U2") == "m2"
        assert self.near(world, "openstack://RegionOne/u2/more") == "m2"
        assert self.near(world, "openstack:///u3") == ""
        world.caches.machines.removed(machine("m2"))
        assert self.near(world, "openstack:///u2") == ""

    def test_a_machine_whose_id_ends_in_a_slash(self, world: World) -> None:
        world.caches.machines.applied(machine("m1", "test:///zone/m/"))
        assert self.near(world, "test:///m") == "m1"

    def test_an_instance(self, world: World) -> None:
        world.caches.machine_pools.applied(machine_pool("pool", "test:///zone/i1", "test:///zone/i2"))
        assert self.near(world, "test:///i2") == "pool"

    def test_no_machine_of_another_cluster_or_namespace(self, world: World) -> None:
        world.caches.machines.applied(machine("m1", "openstack://RegionOne/u1", cluster="lab"))
        assert self.near(world, "openstack:///u1") == ""
        assert self.near(world, "openstack:///u1", ClusterKey("team-b", "lab")) == ""
        assert self.near(world, "openstack:///u1", ClusterKey("team-a", "lab")) == "m1"

    def test_a_name_is_no_provider_id(self, world: World) -> None:
        world.caches.machines.applied(machine("u1", "openstack://RegionOne/other"))
        world.caches.machines.applied(machine("u2"))
        assert self.near(world, "openstack:///u1") == ""
        assert self.near(world, "openstack:///u2") == ""

    def test_where_thousands_end_alike_few_are_looked_at(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """A hostile token invents IDs by the thousand: none may cost a scan."""
        for number in range(500):
            world.caches.machines.applied(machine(f"m{number}", f"test://{number}/0"))
        looked_at: list[str] = []
        monkeypatch.setattr(world.caches.machines, "get", lambda *key: looked_at.append(key[1]))
        assert self.near(world, "test://x/0") == ""
        assert 0 < len(looked_at) <= 2 * (MOST_CANDIDATES + 1)

    def test_of_more_than_are_compared_none_is_the_nearest(self, world: World) -> None:
        for number in range(MOST_CANDIDATES + 1):
            world.caches.machines.applied(machine(f"m{number}", f"test://{number}/x/y/0"))
        world.caches.machines.applied(machine("near", "test://zone/0"))
        assert self.near(world, "test:///0") == ""


class TestClaims:
    """Records of Machines that showed no provider ID when their nodes were attested."""

    @staticmethod
    def claim(world: World, name: str, provider_id: str, node_name: str, cluster: str = "prod") -> None:
        view = machine_view(machine(name, cluster=cluster)).claiming(provider_id)
        made = replace(builders.record(view), node_name=node_name)
        metadata = {"namespace": KEY.namespace, "name": made.name, "uid": "u", "resourceVersion": "1"}
        spec = {**record_spec(made), "seal": RecordSeals(ControllerKeys(bytes(32))).seal(made)}
        world.caches.records.applied({"metadata": metadata, "spec": spec})

    def test_provider_id_that_is_the_uid_of_a_machine(self, world: World) -> None:
        """A node chooses what it claims: no record of another Machine becomes one of this Machine."""
        for name in ("m1", "m2"):
            world.caches.machines.applied(machine(name))
        self.claim(world, "m1", "m2", "node-1")
        first, second = (world.caches.machines.get(KEY.namespace, name) for name in ("m1", "m2"))
        assert first is not None
        assert second is not None
        assert [one.node_name for one in world.caches.records_of(first)] == ["node-1"]
        assert world.caches.records_of(second) == ()
        assert world.caches.holders("m1", second) == ()

    def test_records_of_a_machine_that_a_request_claims(self, world: World) -> None:
        """Those with the claimed provider ID, also from before a move, and those with any other claim."""
        self.claim(world, "m1", "p1", "before-the-move")
        moved = machine_view(machine("m1", uid="moved"))
        assert world.caches.records_of(moved) == ()
        assert [one.node_name for one in world.caches.records_of(moved.claiming("p1"))] == ["before-the-move"]
        first = machine_view(machine("m1"))
        for view in (first, first.claiming("p2"), replace(first, provider_id="p2")):
            assert [one.node_name for one in world.caches.records_of(view)] == ["before-the-move"]

    def test_holders_are_of_the_namespace(self, world: World) -> None:
        shows, elsewhere = machine("m2", "p1", "lab"), machine("m3", "p1", namespace="team-b")
        for one in (machine("m1"), shows, elsewhere):
            world.caches.machines.applied(one)
        first = machine_view(machine("m1"))
        assert world.caches.holders("p1", first) == ("Machine team-a/m2",)
        world.caches.machines.removed(shows)
        assert world.caches.holders("p1", first) == ()
        self.claim(world, "m1", "p1", "node-1")
        assert world.caches.holders("p1", first) == ()
        assert world.caches.holders("p1", machine_view(machine("m4"))) == ("Machine team-a/m1",)
        assert world.caches.holders("p1", machine_view(elsewhere)) == ()

    def test_disproven_claims_are_of_the_cluster(self, world: World) -> None:
        for name, cluster, claimed in (("m1", "prod", "p1"), ("m2", "prod", "p2"), ("m3", "lab", "p3")):
            world.caches.machines.applied(machine(name, cluster=cluster))
            self.claim(world, name, claimed, f"node-{name}", cluster)
        assert world.caches.disproven_claims_of(KEY) == ()
        for name, cluster, shown in (("m1", "prod", "p1"), ("m2", "prod", "p9"), ("m3", "lab", "p9")):
            world.caches.machines.applied(machine(name, shown, cluster))
        assert [record.node_name for record in world.caches.disproven_claims_of(KEY)] == ["node-m2"]

    def test_holders_before_their_record_is_written(self, world: World) -> None:
        world.caches.machines.applied(machine("m1"))
        pair = Pair(MachineKey.of(machine_view(machine("m1")).claiming("p1")), builders.attested_identity())
        name = pair.name(ReservationSide.MACHINE)
        metadata = {"namespace": "own", "name": name, "uid": "u", "resourceVersion": "1"}
        reservation = {
            "metadata": metadata,
            "spec": reservation_spec(ReservationSide.MACHINE, pair, keys=ControllerKeys(bytes(32))),
        }
        world.caches.reservations.applied(reservation)
        other = machine_view(machine("m2"))
        assert world.caches.holders("p1", other) == ("Machine team-a/m1",)
        world.caches.reservations.removed(reservation)
        assert world.caches.holders("p1", other) == ()

    def test_a_forged_reservation_claims_nothing(self, world: World) -> None:
        world.caches.machines.applied(machine("m1"))
        pair = Pair(MachineKey.of(machine_view(machine("m1")).claiming("p1")), builders.attested_identity())
        spec = reservation_spec(ReservationSide.MACHINE, pair, keys=ControllerKeys(b"f" * 32))
        metadata = {"namespace": "own", "name": pair.name(ReservationSide.MACHINE), "uid": "u", "resourceVersion": "1"}
        world.caches.reservations.applied({"metadata": metadata, "spec": spec})
        assert world.caches.holders("p1", machine_view(machine("m2"))) == ()
