"""A management API that keeps objects by path, and one Cluster in it, for the tests of garbage collection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from signer.kube.errors import AlreadyExists, Conflict, NotFound
from signer.kube.resources import (
    ATTESTED_NODES,
    CLUSTERS_V1BETA2,
    IDENTITY_RESERVATIONS,
    MACHINE_POOLS_V1BETA2,
    MACHINES_V1BETA2,
)
from signer.model.cluster import machine_view
from signer.model.floors import NO_FLOORS
from signer.model.record import AttestedNode, MachineKey, new_record
from signer.model.reservation import Pair, ReservationSide
from signer.store.caches import Caches
from signer.store.cluster_api import ClusterAPIVersion
from signer.store.garbage_collection import GarbageCollector
from signer.store.reservation_rebuild import ReservationRebuild
from signer.store.reservations import Reservations
from tests.support.clocks import AnsweredClocks
from tests.support.reservations import reservation_spec
from tests.unit.signer.builders import NOW, attested_identity, journal_entry
from tests.unit.signer.store.test_authentic_records import KEYS, manifest

OWN: Final = "own"
VERSION: Final = ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2, MACHINE_POOLS_V1BETA2)
LATER: Final = NOW + timedelta(days=30)
"""After the expiry of every certificate."""


class API:
    """The management API's objects by path."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.writes: list[str] = []
        self.reads = 0
        self.before: Callable[[str, str], None] = lambda method, path: None
        self._version = 0

    def put(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        self.objects[path] = {
            **body,
            "metadata": {"uid": path, **body["metadata"], "resourceVersion": str(self._version)},
        }
        return self.objects[path]

    async def get(self, path: str) -> dict[str, Any]:
        self.before("get", path)
        self.reads += 1
        await asyncio.sleep(0)
        return self._found(path)

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        path = f"{path}/{body['metadata']['name']}"
        self.before("create", path)
        if path in self.objects:
            raise AlreadyExists(path)
        self.writes.append(f"create {path}")
        return self.put(path, body)

    async def patch(self, path: str, patch: dict[str, Any]) -> dict[str, Any]:
        self.before("patch", path)
        found, metadata = self._found(path), patch["metadata"]
        self._precondition(found, metadata["uid"], metadata["resourceVersion"])
        self.writes.append(f"patch {path}")
        annotations = {key: value for key, value in metadata["annotations"].items() if value is not None}
        return self.put(path, {**found, "metadata": {**found["metadata"], **metadata, "annotations": annotations}})

    async def delete(self, path: str, *, uid: str | None = None, resource_version: str | None = None) -> dict[str, Any]:
        self.before("delete", path)
        assert uid is not None
        assert resource_version is not None
        self._precondition(self._found(path), uid, resource_version)
        self.writes.append(f"delete {path}")
        return self.objects.pop(path)

    def _found(self, path: str) -> dict[str, Any]:
        if path not in self.objects:
            raise NotFound(path)
        return self.objects[path]

    @staticmethod
    def _precondition(found: dict[str, Any], uid: str, resource_version: str) -> None:
        if (found["metadata"]["uid"], found["metadata"]["resourceVersion"]) != (uid, resource_version):
            raise Conflict(found["metadata"]["name"])


class World:
    """One Cluster; every object that a test adds is cached at once."""

    def __init__(self) -> None:
        self.api = API()
        self.now = NOW
        self.clocks = AnsweredClocks()
        self.caches = Caches(VERSION, own_namespace=OWN, floors=NO_FLOORS)
        self.caches.authentic.use_keys(KEYS)
        self.reservations = Reservations(self.api, self.caches)
        self.garbage_collector = GarbageCollector(
            self.api,
            self.caches,
            self.reservations,
            ReservationRebuild(self.caches, self.reservations),
            now=lambda: self.now,
            clocks=self.clocks,
        )
        self.cluster()

    def cluster(self, *, cached: bool = True, **changes: Any) -> None:
        metadata = {"namespace": "team-a", "name": "prod", **changes.get("metadata", {})}
        body = {"metadata": metadata, "spec": changes.get("spec", {})}
        stored = self.api.put(CLUSTERS_V1BETA2.object("prod", "team-a"), body)
        if cached:
            self.caches.clusters.applied(stored)

    def no_cluster(self) -> None:
        self.caches.clusters.removed(self.api.objects.pop(CLUSTERS_V1BETA2.object("prod", "team-a")))

    def machine(self, name: str, *, cached: bool = True) -> None:
        body = _machine(name)
        stored = self.api.put(MACHINES_V1BETA2.object(name, "team-a"), body)
        if cached:
            self.caches.machines.applied(stored)

    def no_machine(self, name: str, *, cached: bool = True) -> None:
        gone = self.api.objects.pop(MACHINES_V1BETA2.object(name, "team-a"))
        if cached:
            self.caches.machines.removed(gone)

    def record(self, name: str = "m1", identity: str = "a", *, cached: bool = True) -> AttestedNode:
        view = machine_view(_machine(name))
        made = new_record(view, f"node-{name}", attested_identity(identity), journal_entry())
        path = ATTESTED_NODES.object(made.name, "team-a")
        stored = self.api.put(path, manifest(made))
        if cached:
            self.caches.records.applied(stored)
        return made

    def reserve(self, pair: Pair, *sides: ReservationSide) -> None:
        for side in sides or ReservationSide:
            name = pair.name(side)
            body = {"metadata": {"namespace": OWN, "name": name}, "spec": reservation_spec(side, pair)}
            self.caches.reservations.applied(self.api.put(IDENTITY_RESERVATIONS.object(name, OWN), body))

    def reserved(self) -> set[str]:
        prefix = IDENTITY_RESERVATIONS.collection(OWN)
        return {path.rpartition("/")[2] for path in self.api.objects if path.startswith(prefix)}

    def recorded(self) -> set[str]:
        return {path.rpartition("/")[2] for path in self.api.objects if "/attestednodes/" in path}


def _machine(name: str) -> dict[str, Any]:
    spec = {"clusterName": "prod", "providerID": f"test:///{name}"}
    return {"metadata": {"namespace": "team-a", "name": name, "uid": f"{name}-uid"}, "spec": spec}


def pair_for(name: str = "m1", identity: str = "a") -> Pair:
    return Pair(MachineKey.of(machine_view(_machine(name))), attested_identity(identity))


def names(*pairs: Pair) -> set[str]:
    return {pair.name(side) for pair in pairs for side in ReservationSide}
