"""AttestedNodes: created once, changed at exactly the version that was read, with preserved metadata."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pytest

from signer.kube.errors import AlreadyExists, Conflict, NotFound, ResourceNotServed, ServerError, UnexpectedAnswer
from signer.kube.resources import ATTESTED_NODES, CLUSTERS_V1BETA2, MACHINES_V1BETA2
from signer.model.cluster import ClusterKey
from signer.model.decision import Deferred
from signer.model.floors import NO_FLOORS
from signer.model.record import AttestedNode, record_name
from signer.model.record_object import parse_record, record_spec
from signer.model.seal import ControllerKeys, RecordSeals
from signer.rules.machine import NoRecord
from signer.store.authentic_records import KeysUnavailable
from signer.store.caches import Caches
from signer.store.cluster_api import ClusterAPIVersion
from signer.store.records import LEAST_COUNT, LIST_AGAIN_SECONDS, LISTS_AT_ONCE, RecordChanged, Records
from tests.unit.signer.builders import (
    CLUSTER,
    NODE,
    attested_identity,
    cluster_view,
    journal_entry,
    machine_view,
    record,
)

COLLECTION = "/apis/attestation.cluster.x-k8s.io/v1alpha1/namespaces/team-a/attestednodes"
KEYS: Final = ControllerKeys(bytes(range(32)))
OTHER: Final = ControllerKeys(b"o" * 32)
ROTATED: Final = ControllerKeys(b"n" * 32, KEYS.current)
PATH = f"{COLLECTION}/{record_name(CLUSTER, NODE)}"


class API:
    """AttestedNodes of one namespace, with resourceVersions."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self._version = 0
        self.calls: list[tuple[str, str]] = []
        self.before_write: Callable[[], None] = lambda: None
        self.before_page: Callable[[], Awaitable[None]] = partial(asyncio.sleep, 0)

    async def get(self, path: str) -> dict[str, Any]:
        self.calls.append(("get", path))
        if path not in self.objects:
            raise NotFound(path)
        return self.objects[path]

    async def list_pages(self, path: str, *arguments: Any, **options: Any) -> AsyncGenerator[dict[str, Any], None]:
        self.calls.append(("list", path))
        found = [copy.deepcopy(item) for name, item in self.objects.items() if name.startswith(f"{path}/")]
        for item in found:
            await self.before_page()
            yield {"items": [item]}

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.calls.append(("create", path))
        assert (body["apiVersion"], body["kind"]) == (ATTESTED_NODES.api_version, "AttestedNode")
        self.before_write()
        path = f"{path}/{body['metadata']['name']}"
        if path in self.objects:
            raise AlreadyExists(path)
        return self.put(path, body, uid=f"uid-{self._version}")

    async def replace(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.calls.append(("replace", path))
        self.before_write()
        self.require_same(path, body["metadata"])
        assert set(body) == {"apiVersion", "kind", "metadata", "spec"}
        assert (body["apiVersion"], body["kind"]) == (ATTESTED_NODES.api_version, "AttestedNode")
        assert body["metadata"]["managedFields"] == [{}], "what makes the API server keep none"
        return self.put(path, body, uid=body["metadata"]["uid"])

    def require_same(self, path: str, metadata: dict[str, Any]) -> None:
        if path not in self.objects:
            raise NotFound(path)
        found = self.objects[path]["metadata"]
        if any(metadata[key] != found[key] for key in ("uid", "resourceVersion")):
            raise Conflict(path)

    def put(self, path: str, body: dict[str, Any], uid: str) -> dict[str, Any]:
        self._version += 1
        metadata = {**body["metadata"], "uid": uid, "resourceVersion": str(self._version)}
        self.objects[path] = {**body, "metadata": metadata}
        return self.objects[path]


class World:
    def __init__(self) -> None:
        self.api = API()
        self.caches = Caches(
            ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2), own_namespace="own", floors=NO_FLOORS
        )
        self.caches.authentic.use_keys(KEYS)
        self.now = 0.0
        self.records = Records(self.api, self.caches, lambda: self.now)

    async def write(self, value: AttestedNode) -> AttestedNode:
        return await self.records.write(value, cluster_view())

    def recorded(self) -> AttestedNode:
        found = self.records.recorded(CLUSTER, NODE)
        assert isinstance(found, AttestedNode)
        return found

    def by_somebody_else(self, number: int) -> None:
        """Another controller adds a journal entry."""
        manifest = self.api.objects[PATH]
        parsed = parse_record(manifest)
        parsed = replace(parsed, journal=(*parsed.journal, replace(parsed.journal[0], csr_uid=f"uid-{number}")))
        self.api.put(PATH, sealed(parsed, KEYS, manifest), manifest["metadata"]["uid"])

    def forge(self, **spec: Any) -> dict[str, Any]:
        """Another client changes the record, or writes one of its own."""
        metadata = {"name": record_name(CLUSTER, NODE), "namespace": CLUSTER.namespace, "annotations": {"by": "tenant"}}
        found = self.api.objects.get(PATH) or sealed(record(), OTHER, {"metadata": metadata})
        forged = {**found, "spec": {**found["spec"], **spec}}
        return self.api.put(PATH, forged, str(found["metadata"].get("uid", "forged")))


def sealed(made: AttestedNode, keys: ControllerKeys, manifest: dict[str, Any]) -> dict[str, Any]:
    """``manifest`` with that record in it, sealed."""
    return {**manifest, "spec": {**record_spec(made), "seal": RecordSeals(keys).seal(made)}}


@pytest.fixture
def world() -> World:
    return World()


def next_version(of: AttestedNode, number: int = 2) -> AttestedNode:
    return of.with_entry(journal_entry(number), machine=machine_view(), identity=attested_identity())


async def test_first_record_is_created_under_its_cluster(world: World) -> None:
    written = await world.write(record())
    stored = world.api.objects[PATH]
    assert stored["kind"] == "AttestedNode"
    assert stored["metadata"]["labels"] == {"cluster.x-k8s.io/cluster-name": CLUSTER.name}
    assert stored["metadata"]["ownerReferences"] == [
        {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": CLUSTER.name, "uid": "c-1"}
    ]
    assert (written.uid, written.resource_version) == (stored["metadata"]["uid"], "1")
    assert world.recorded() == written


async def test_node_without_a_record(world: World) -> None:
    assert world.records.recorded(CLUSTER, NODE) == NoRecord()
    await world.write(record())
    assert world.records.recorded(CLUSTER, "other") == NoRecord()
    assert world.records.recorded(ClusterKey("team-b", CLUSTER.name), NODE) == NoRecord()


@pytest.mark.parametrize(
    ("note", "calls"), [("kept", ["replace"]), ("k" * 2048, ["get", "replace"])], ids=["little", "much"]
)
async def test_change_keeps_foreign_metadata(world: World, note: str, calls: list[str]) -> None:
    written = await world.write(record())
    stored = world.api.objects[PATH]
    owners = [{"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster", "name": "moved", "uid": "elsewhere"}]
    foreign = {
        "ownerReferences": owners,
        "labels": {"team": "a"},
        "annotations": {"note": note},
        "finalizers": ["example.com/keep"],
    }
    world.caches.records.applied(
        world.api.put(PATH, {**stored, "metadata": {**stored["metadata"], **foreign}}, written.uid)
    )
    world.api.calls.clear()
    changed = await world.write(next_version(world.recorded()))
    assert [entry.csr_uid for entry in changed.journal] == ["uid-1", "uid-2"]
    metadata = world.api.objects[PATH]["metadata"]
    assert {key: metadata[key] for key in foreign} == foreign
    assert world.recorded() == changed
    assert world.api.calls == [(call, PATH) for call in calls]


@pytest.mark.parametrize(
    "others",
    [
        [],
        [{"apiVersion": "postgresql.cnpg.io/v1", "kind": "Cluster", "name": "prod", "uid": "db"}],
        [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "name": "workers", "uid": "ms"}],
    ],
)
@pytest.mark.parametrize("note", ["little", "m" * 2048])
async def test_a_record_that_was_restored_without_its_owner_gets_it_again(
    world: World, others: list[dict[str, Any]], note: str
) -> None:
    """Velero omits owners, and a record without one outlives its Cluster."""
    written = await world.write(record())
    stored = world.api.objects[PATH]
    [own] = stored["metadata"]["ownerReferences"]
    metadata = {**stored["metadata"], "ownerReferences": others, "annotations": {"note": note}}
    world.caches.records.applied(world.api.put(PATH, {**stored, "metadata": metadata}, written.uid))
    await world.write(next_version(world.recorded()))
    assert world.api.objects[PATH]["metadata"]["ownerReferences"] == [*others, own]


async def test_a_change_without_cached_metadata_keeps_it_too(world: World) -> None:
    """The version that a record was derived from need not be the one that the cache has now."""
    mine = next_version(await world.write(record()))
    stored = world.api.objects[PATH]
    world.api.put(PATH, {**stored, "metadata": {**stored["metadata"], "labels": {"team": "a"}}}, mine.uid)
    world.caches.records.applied(world.api.objects[PATH])
    with pytest.raises(RecordChanged):
        await world.write(mine)
    assert ("replace", PATH) not in world.api.calls
    await world.write(next_version(world.recorded()))
    assert world.api.objects[PATH]["metadata"]["labels"] == {"team": "a"}


async def test_record_that_appeared_meanwhile(world: World) -> None:
    other = World()
    other.api = world.api
    other.records = Records(world.api, other.caches)
    theirs = await other.write(record())
    with pytest.raises(RecordChanged):
        await world.write(record(identity="ek:2"))
    assert world.recorded() == theirs


async def test_record_that_changed_meanwhile(world: World) -> None:
    mine = next_version(await world.write(record()))
    world.by_somebody_else(9)
    with pytest.raises(RecordChanged):
        await world.write(mine)
    assert [entry.csr_uid for entry in world.recorded().journal] == ["uid-1", "uid-9"]
    await world.write(next_version(world.recorded()))
    assert [entry.csr_uid for entry in world.recorded().journal] == ["uid-1", "uid-9", "uid-2"]


async def test_record_that_was_deleted_meanwhile(world: World) -> None:
    mine = next_version(await world.write(record()))
    del world.api.objects[PATH]
    with pytest.raises(RecordChanged):
        await world.write(mine)
    assert world.records.recorded(CLUSTER, NODE) == NoRecord()


async def test_record_that_was_re_created_meanwhile(world: World) -> None:
    mine = next_version(await world.write(record()))
    world.api.put(PATH, world.api.objects[PATH], uid="another")
    with pytest.raises(RecordChanged):
        await world.write(mine)
    assert world.recorded().uid == "another"


async def test_a_written_record_is_sealed_with_the_current_key(world: World) -> None:
    written = await world.write(record())
    assert written.seal == world.api.objects[PATH]["spec"]["seal"] == RecordSeals(KEYS).seal(record())
    assert world.recorded() == written


async def test_a_record_of_the_previous_key_is_sealed_again_when_written(world: World) -> None:
    await world.write(record())
    world.caches.authentic.use_keys(ROTATED)
    before = world.recorded()
    again = await world.write(next_version(before))
    assert again.seal.split(".")[1] != before.seal.split(".")[1]
    world.caches.authentic.use_keys(ControllerKeys(ROTATED.current))
    assert world.recorded() == again


# What is not ours


FORGERIES: Final[dict[str, dict[str, Any]]] = {
    "unreadable": {"certificates": "secret garbage"},
    "in another form": {"certificates": None, "journalLines": record_spec(record())["certificates"]},
    "unsealed": {"seal": ""},
    "wrong seal": {"seal": f"v2.{RecordSeals(KEYS).seal(record()).split('.')[1]}.{'0' * 64}"},
    "changed": {"identity": "ek:impostor"},
}


@pytest.mark.parametrize("seen", [True, False], ids=["cached", "not cached yet"])
@pytest.mark.parametrize("name", FORGERIES)
async def test_an_unauthentic_object_is_no_record_and_is_replaced(world: World, name: str, seen: bool) -> None:
    forged = world.forge(seal=RecordSeals(KEYS).seal(record()))
    forged = world.forge(**FORGERIES[name])
    if seen:
        world.caches.records.applied(forged)
        assert world.records.recorded(CLUSTER, NODE) == NoRecord()
    else:
        with pytest.raises(RecordChanged):
            await world.write(record())
        assert world.records.recorded(CLUSTER, NODE) == NoRecord()
    written = await world.write(record(identity="ek:2"))
    stored = world.api.objects[PATH]
    assert world.recorded() == written
    assert written.identity.identity == "ek:2"
    assert [entry.csr_uid for entry in written.journal] == ["uid-1"]
    assert stored["metadata"]["ownerReferences"][0]["uid"] == "c-1"
    assert stored["metadata"]["labels"] == {"cluster.x-k8s.io/cluster-name": CLUSTER.name}
    assert stored["metadata"]["annotations"] == {"by": "tenant"}


async def test_exactly_the_version_that_was_read_is_replaced(world: World) -> None:
    """Another replica wrote an authentic record between the read and the write."""
    world.caches.records.applied(world.forge(seal=""))
    ours = sealed(record(), KEYS, world.api.objects[PATH])

    def first() -> None:
        world.api.put(PATH, ours, "forged")

    world.api.before_write = first
    with pytest.raises(RecordChanged):
        await world.write(record(identity="ek:2"))
    assert world.recorded().identity.identity == "ek:1"


async def test_an_authentic_record_is_never_replaced_by_a_first_one(world: World) -> None:
    await world.write(record())
    with pytest.raises(RecordChanged):
        await world.write(record(identity="ek:2"))
    assert [method for method, _ in world.api.calls] == ["create"]


async def test_a_record_that_another_client_changed(world: World) -> None:
    """It gains nothing: a record derived from the earlier version can no longer be written, and this one does not
    count.
    """
    written = await world.write(record())
    world.forge(nodeName=written.node_name, identity="ek:impostor")
    with pytest.raises(RecordChanged):
        await world.write(next_version(written))
    assert world.records.recorded(CLUSTER, NODE) == NoRecord()


async def test_a_restored_older_version_is_valid(world: World) -> None:
    """A rollback loses later entries, and changes nothing else."""
    older = await world.write(record())
    spec = world.api.objects[PATH]["spec"]
    await world.write(next_version(older))
    world.caches.records.applied(world.forge(**spec))
    assert world.recorded().journal == older.journal
    written = await world.write(next_version(world.recorded(), 3))
    assert [entry.csr_uid for entry in written.journal] == ["uid-1", "uid-3"]


async def test_without_the_controller_key_nothing_is_written(world: World) -> None:
    world.caches.authentic.use_no_keys(KeysUnavailable("Secret own/key cannot be read"))
    with pytest.raises(Deferred, match="cannot be read"):
        await world.write(record())
    with pytest.raises(Deferred, match="cannot be read"):
        world.records.recorded(CLUSTER, NODE)
    assert world.api.calls == []


async def test_a_record_under_a_newer_key_is_not_replaced(world: World) -> None:
    metadata = {"name": record_name(CLUSTER, NODE), "namespace": CLUSTER.namespace}
    theirs = world.api.put(PATH, sealed(record(), ROTATED, {"metadata": metadata}), "u")
    with pytest.raises(RecordChanged):
        await world.write(record(identity="ek:2"))
    with pytest.raises(Deferred, match="was not read yet"):
        await world.write(record(identity="ek:2"))
    assert world.api.objects[PATH] == theirs


async def test_other_errors_are_raised_and_change_nothing(world: World) -> None:
    written = await world.write(record())

    def fail() -> None:
        raise ServerError("etcd", status=500)

    world.api.before_write = fail
    with pytest.raises(ServerError):
        await world.write(next_version(written))
    assert world.recorded() == written


async def test_an_api_server_that_starts_removes_no_record_from_the_cache(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = await world.write(record())

    async def starting(path: str) -> dict[str, Any]:
        raise ResourceNotServed("404 page not found", status=404)

    monkeypatch.setattr(world.api, "get", starting)
    with pytest.raises(ResourceNotServed):
        await world.records.refresh(CLUSTER, written.name)
    assert world.recorded() == written


# A Cluster that came from another management cluster


async def moved(world: World) -> AttestedNode:
    """Its records exist, and the cache has not received them."""
    theirs = World()
    theirs.api = world.api
    theirs.records = Records(world.api, theirs.caches)
    written = await theirs.write(record())
    world.caches.clusters.applied(cluster())
    world.api.calls.clear()
    return written


def cluster(key: ClusterKey = CLUSTER, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": key.namespace, "name": key.name, "uid": "c-1"}, "spec": spec}


async def test_records_of_a_new_cluster_are_listed_once_for_all_callers(world: World) -> None:
    written = await moved(world)
    assert world.records.recorded(CLUSTER, NODE) == NoRecord()
    with pytest.raises(Deferred, match="listed again"):
        world.records.require_still_listed(CLUSTER)
    await asyncio.gather(*(world.records.require_listed(CLUSTER) for _ in range(20)))
    assert world.recorded() == written
    assert world.api.calls == [("list", COLLECTION)]
    world.records.require_still_listed(CLUSTER)
    await world.records.require_listed(CLUSTER)
    assert world.api.calls == [("list", COLLECTION)]


async def test_clusters_that_appear_together_share_a_list_and_a_later_one_needs_another(world: World) -> None:
    await moved(world)
    second, late = ClusterKey(CLUSTER.namespace, "second"), ClusterKey(CLUSTER.namespace, "late")
    elsewhere = ClusterKey("team-b", CLUSTER.name)
    world.caches.clusters.applied(cluster(second))
    world.caches.clusters.applied(cluster(elsewhere))

    async def come_once() -> None:
        world.api.before_page = partial(asyncio.sleep, 0)
        world.caches.clusters.applied(cluster(late))

    world.api.before_page = come_once
    await asyncio.gather(world.records.require_listed(CLUSTER), world.records.require_listed(second))
    assert world.api.calls == [("list", COLLECTION)]
    for key in (late, elsewhere):
        with pytest.raises(Deferred, match="listed again"):
            world.records.require_still_listed(key)
    await world.records.require_listed(late)
    assert world.api.calls == [("list", COLLECTION)] * 2


@pytest.mark.parametrize(("seconds", "counts"), [(0.0, LEAST_COUNT), (0.4, 0.4), (1.0, 1.0), (3.0, 1.0)])
@pytest.mark.parametrize("fails", [False, True])
async def test_a_cluster_that_is_unpaused_all_the_time_causes_a_bounded_number_of_lists(
    world: World, seconds: float, counts: float, fails: bool
) -> None:
    """Each list reads all records of its namespace, and takes so many seconds."""

    async def pages(path: str) -> AsyncGenerator[dict[str, Any], None]:
        world.api.calls.append(("list", path))
        world.now += seconds
        yield {"items": [None] if fails else []}

    world.api.list_pages = pages  # type: ignore[method-assign]

    async def unpaused(key: ClusterKey) -> float:
        world.caches.clusters.applied(cluster(key, paused=True))
        world.caches.clusters.applied(cluster(key))
        return await seconds_to_wait(world, key)

    waited = 0
    while world.now < 100.0 and len(world.api.calls) < 5000:
        waits = await unpaused(CLUSTER)
        world.now += waits + 1e-6 if waits else 0.0
        waited += bool(waits)
    assert waited > 0
    left = LISTS_AT_ONCE + world.now / LIST_AGAIN_SECONDS - len(world.api.calls) * counts
    assert -1.0 <= left < 1.0
    assert await unpaused(ClusterKey("team-b", CLUSTER.name)) == 0, "another namespace"


async def test_lists_count_while_they_last(world: World) -> None:
    """A Cluster may be unpaused again while its namespace is listed, and another request needs the next list."""
    held = asyncio.Event()

    async def pages(path: str) -> AsyncGenerator[dict[str, Any], None]:
        world.api.calls.append(("list", path))
        await held.wait()
        yield {"items": []}

    world.api.list_pages = pages  # type: ignore[method-assign]
    tasks = []
    for _ in range(3 * LISTS_AT_ONCE):
        world.caches.clusters.applied(cluster(paused=True))
        world.caches.clusters.applied(cluster())
        tasks.append(asyncio.create_task(seconds_to_wait(world, CLUSTER)))
        for _ in range(10):
            await asyncio.sleep(0)
    assert 1 < len(world.api.calls) <= LISTS_AT_ONCE
    held.set()
    await asyncio.gather(*tasks)


async def seconds_to_wait(world: World, key: ClusterKey) -> float:
    """What is asked for; 0 where the records were listed, or could not be."""
    try:
        await world.records.require_listed(key)
    except UnexpectedAnswer:
        return 0.0
    except Deferred as waits:
        return retry_of(waits)
    return 0.0


def retry_of(waits: Deferred) -> float:
    assert "too often" in waits.defer.message
    assert waits.defer.retry_after is not None
    return waits.defer.retry_after.total_seconds()


async def test_one_that_is_unpaused_while_it_is_listed_is_listed_again(world: World) -> None:
    """Objects written before need not be in the list."""
    await moved(world)

    async def pause_once() -> None:
        world.api.before_page = partial(asyncio.sleep, 0)
        world.caches.clusters.applied(cluster(paused=True))
        world.caches.clusters.applied(cluster())

    world.api.before_page = pause_once
    await world.records.require_listed(CLUSTER)
    assert world.api.calls == [("list", COLLECTION)] * 2


async def test_without_a_list_no_decision_is_made(world: World) -> None:
    await moved(world)

    async def fail() -> None:
        raise ServerError("500", status=500)

    world.api.before_page = fail
    for failed in await asyncio.gather(
        *(world.records.require_listed(CLUSTER) for _ in range(3)), return_exceptions=True
    ):
        assert isinstance(failed, ServerError)
    assert world.api.calls == [("list", COLLECTION)]
    with pytest.raises(Deferred, match="listed again"):
        world.records.require_still_listed(CLUSTER)


async def test_a_list_with_other_items_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def pages(path: str) -> AsyncGenerator[dict[str, Any], None]:
        yield {"items": ["no object"]}

    await moved(world)
    monkeypatch.setattr(world.api, "list_pages", pages)
    with pytest.raises(UnexpectedAnswer, match="no object"):
        await world.records.require_listed(CLUSTER)


async def test_cached_records_are_newer_than_the_list(world: World) -> None:
    await moved(world)

    async def change() -> None:
        world.by_somebody_else(9)
        world.caches.records.applied(world.api.objects[PATH])

    world.api.before_page = change
    await world.records.require_listed(CLUSTER)
    assert [entry.csr_uid for entry in world.recorded().journal] == ["uid-1", "uid-9"]


async def test_an_earlier_list_of_the_cache_removes_nothing_for_long(world: World) -> None:
    written = await moved(world)
    await world.records.require_listed(CLUSTER)
    world.caches.records.replaced([])
    assert world.records.recorded(CLUSTER, NODE) == NoRecord()
    with pytest.raises(Deferred, match="listed again"):
        world.records.require_still_listed(CLUSTER)
    await world.records.require_listed(CLUSTER)
    assert world.recorded() == written
