"""One Machine at an API server, for tests of its condition."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from typing import Any

from signer.controller.status.machine_condition import MachineConditions
from signer.kube.errors import ApiError, Conflict
from signer.kube.resources import CLUSTERS_V1BETA1, CLUSTERS_V1BETA2, MACHINES_V1BETA1, MACHINES_V1BETA2
from signer.model.cluster import MachineView, machine_view
from signer.model.decision import Approve, Deny
from signer.model.floors import NO_FLOORS
from signer.model.reasons import Reason
from signer.model.record import AttestedNode, MachineKey, new_record
from signer.store.caches import Caches
from signer.store.cluster_api import ClusterAPIVersion
from tests.unit.signer import builders
from tests.unit.signer.controller.support import NOW, Clock
from tests.unit.signer.queues import idle

NAMESPACE = builders.CLUSTER.namespace
GATES = [{"conditionType": "NodeAttested"}]
OTHERS = [{"type": "BootstrapConfigReady", "status": "True", "lastTransitionTime": "2026-03-01T11:00:00Z"}]
RESOURCES = {
    "v1beta1": ClusterAPIVersion(CLUSTERS_V1BETA1, MACHINES_V1BETA1),
    "v1beta2": ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2),
}
DENIED = Deny("NodeNameMismatch", "the machine is another one")
APPROVED = Approve(builders.NODE, Reason.ATTESTED, "attested", builders.journal_entry(), b"")


def record(*, hours: float = 24) -> AttestedNode:
    entry = builders.journal_entry(not_after=NOW + timedelta(hours=hours))
    return new_record(builders.machine_view(), builders.NODE, builders.attested_identity(), entry)


class World:
    """One cached Machine at an API server; calls are counted, and may fail or conflict."""

    def __init__(self, version: str = "v1beta2", *, gates: list[Any] | None = None, **metadata: Any) -> None:
        self.clock = Clock()
        self.calls: list[str] = []
        self.failure: dict[str, ApiError] = {}
        self.keeps = True
        self.patched = asyncio.Event()
        self.meanwhile = 0
        self.records: list[AttestedNode] = [record()]
        self.holder = ("status",) if version == "v1beta2" else ("status", "v1beta2")
        self.stored = self._machine(GATES if gates is None else gates, metadata)
        self.caches = Caches(RESOURCES[version], own_namespace="system", floors=NO_FLOORS)
        self.cluster()
        self.policy = {"metadata": {"namespace": NAMESPACE, "name": builders.CLUSTER.name}, "spec": {}}
        self.caches.policies.applied(self.policy)
        self.cache()
        self.conditions = self.restarted()

    def _machine(self, gates: list[Any], metadata: dict[str, Any]) -> dict[str, Any]:
        status: dict[str, Any] = {"conditions": copy.deepcopy(OTHERS)}
        if self.holder != ("status",):
            status = {"conditions": [{"type": "Ready", "status": "True"}], "v1beta2": status}
        return {
            "metadata": {
                "namespace": NAMESPACE,
                "name": builders.machine_view().name,
                "uid": "m-1",
                "resourceVersion": "1",
                "generation": 3,
                **metadata,
            },
            "spec": {
                "clusterName": builders.CLUSTER.name,
                "providerID": builders.PROVIDER_ID,
                "readinessGates": gates,
            },
            "status": status,
        }

    def cluster(self, **metadata: Any) -> None:
        named = {"namespace": NAMESPACE, "name": builders.CLUSTER.name, "uid": "c-1", **metadata}
        self.caches.clusters.applied({"metadata": named, "spec": {}})

    def cache(self) -> MachineView:
        self._bump()
        self.caches.machines.applied(copy.deepcopy(self.stored))
        return machine_view(self.stored)

    def restarted(self) -> MachineConditions:
        return MachineConditions(
            self, self.caches, self._records_of, now=self.clock.now, monotonic=self.clock.monotonic
        )

    def _records_of(self, machine: MachineView) -> Iterable[AttestedNode]:
        assert MachineKey.of(machine) == MachineKey.of(machine_view(self.stored))
        return self.records

    async def get(self, path: str) -> dict[str, Any]:
        self._called("get")
        assert path.endswith(f"/namespaces/{NAMESPACE}/machines/{self.stored['metadata']['name']}")
        found = copy.deepcopy(self.stored)
        if self.meanwhile:
            self.meanwhile -= 1
            self._bump()
        return found

    async def patch(self, path: str, patch: dict[str, Any]) -> dict[str, Any]:
        self._called("patch")
        assert path.endswith("/status")
        assert patch.keys() == {"metadata", "status"}
        if patch["metadata"] != {"resourceVersion": self.stored["metadata"]["resourceVersion"]}:
            raise Conflict("changed", status=409)
        if self.keeps:
            mine, theirs = patch, self.stored
            for part in self.holder:
                mine, theirs = mine[part], theirs[part]
            theirs["conditions"] = copy.deepcopy(mine["conditions"])
        self._bump()
        self.patched.set()
        return copy.deepcopy(self.stored)

    def _bump(self) -> None:
        metadata = self.stored["metadata"]
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)

    def _called(self, call: str) -> None:
        self.calls.append(call)
        if call in self.failure:
            raise self.failure[call]

    def shown(self) -> list[dict[str, Any]]:
        parent = self.stored
        for part in self.holder:
            parent = parent[part]
        return list(parent["conditions"])

    def condition(self) -> dict[str, Any]:
        return next((one for one in self.shown() if one["type"] == "NodeAttested"), {})

    async def settle(self) -> None:
        """Resync once, and process the queue."""
        await self.conditions.resync()
        await self.worked()

    async def worked(self) -> None:
        """Wait until no key is ready."""
        await idle(self.conditions._queue)


@contextlib.asynccontextmanager
async def working(world: World) -> AsyncIterator[World]:
    task = asyncio.create_task(world.conditions._work())
    try:
        yield world
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def settled(world: World) -> World:
    async with working(world):
        await world.settle()
    return world
