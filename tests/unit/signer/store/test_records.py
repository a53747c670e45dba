"""AttestedNodes: created once, changed at exactly the version that was judged, foreign metadata kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from signer.kube.errors import AlreadyExists, Conflict, NotFound, ServerError
from signer.kube.resources import CLUSTERS_V1BETA2, MACHINES_V1BETA2
from signer.model.cluster import ClusterKey
from signer.model.decision import Deferred
from signer.model.record import AttestedNode, record_name
from signer.rules.machine import NoRecord
from signer.store.inventory import ClusterAPIVersion, Inventory
from signer.store.records import RecordChanged, Records
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
PATH = f"{COLLECTION}/{record_name(CLUSTER, NODE)}"


class API:
    """AttestedNodes of one namespace, with resourceVersions."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self._version = 0
        self.calls: list[tuple[str, str]] = []
        self.before_write: Callable[[], None] = lambda: None

    async def get(self, path: str) -> dict[str, Any]:
        self.calls.append(("get", path))
        if path not in self.objects:
            raise NotFound(path)
        return self.objects[path]

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.calls.append(("create", path))
        self.before_write()
        path = f"{path}/{body['metadata']['name']}"
        if path in self.objects:
            raise AlreadyExists(path)
        return self.put(path, body, uid=f"uid-{self._version}")

    async def patch(self, path: str, patch: dict[str, Any]) -> dict[str, Any]:
        self.calls.append(("patch", path))
        self.before_write()
        if path not in self.objects:
            raise NotFound(path)
        found, metadata = self.objects[path], patch["metadata"]
        if any(metadata[key] != found["metadata"][key] for key in ("uid", "resourceVersion")):
            raise Conflict(path)
        assert set(patch) == {"metadata", "spec"}
        assert set(metadata) == {"uid", "resourceVersion"}
        return self.put(path, {**found, "spec": patch["spec"]}, uid=metadata["uid"])

    def put(self, path: str, body: dict[str, Any], uid: str) -> dict[str, Any]:
        self._version += 1
        metadata = {**body["metadata"], "uid": uid, "resourceVersion": str(self._version)}
        self.objects[path] = {**body, "metadata": metadata}
        return self.objects[path]


class World:
    def __init__(self) -> None:
        self.api = API()
        self.inventory = Inventory(ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2), own_namespace="own")
        self.records = Records(self.api, self.inventory)

    async def write(self, value: AttestedNode) -> AttestedNode:
        return await self.records.write(value, cluster_view())

    def recorded(self) -> AttestedNode:
        found = self.records.recorded(CLUSTER, NODE)
        assert isinstance(found, AttestedNode)
        return found

    def by_somebody_else(self, number: int) -> None:
        """Another controller adds a journal entry."""
        manifest = self.api.objects[PATH]
        journal = manifest["spec"]["journal"]
        changed = {**manifest["spec"], "journal": [*journal, {**journal[0], "csrUID": f"uid-{number}"}]}
        self.api.put(PATH, {**manifest, "spec": changed}, manifest["metadata"]["uid"])


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


async def test_change_keeps_foreign_metadata(world: World) -> None:
    written = await world.write(record())
    stored = world.api.objects[PATH]
    owners = [{"apiVersion": "x", "kind": "Cluster", "name": "moved", "uid": "elsewhere"}]
    foreign = {"ownerReferences": owners, "labels": {"team": "a"}, "annotations": {"note": "kept"}}
    world.inventory.records.applied(
        world.api.put(PATH, {**stored, "metadata": {**stored["metadata"], **foreign}}, written.uid)
    )
    changed = await world.write(next_version(world.recorded()))
    assert [entry.csr_uid for entry in changed.journal] == ["uid-1", "uid-2"]
    metadata = world.api.objects[PATH]["metadata"]
    assert {key: metadata[key] for key in foreign} == foreign
    assert world.recorded() == changed


async def test_record_that_appeared_meanwhile(world: World) -> None:
    other = World()
    other.api = world.api
    other.records = Records(world.api, other.inventory)
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


async def test_record_that_went_meanwhile(world: World) -> None:
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


async def test_unreadable_record_in_the_way_is_waited_for(world: World) -> None:
    metadata = {"name": record_name(CLUSTER, NODE), "namespace": CLUSTER.namespace}
    world.api.put(PATH, {"metadata": metadata, "spec": {"journal": "secret garbage"}}, "u")
    with pytest.raises(Deferred) as deferred:
        await world.write(record())
    assert deferred.value.defer.reason == "ReservationPending"
    assert record_name(CLUSTER, NODE) in deferred.value.defer.message
    assert "secret" not in deferred.value.defer.message


async def test_other_faults_are_told_and_change_nothing(world: World) -> None:
    written = await world.write(record())

    def fail() -> None:
        raise ServerError("etcd", status=500)

    world.api.before_write = fail
    with pytest.raises(ServerError):
        await world.write(next_version(written))
    assert world.recorded() == written
