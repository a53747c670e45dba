"""A policy without a Cluster has a condition that says so."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest

from signer.configuration import Configuration
from signer.controller.status import unserved_policies
from signer.controller.status.unserved_policies import UnservedPolicies
from signer.kube.errors import NotFound
from signer.kube.resources import CLUSTERS_V1BETA2, MACHINES_V1BETA2
from signer.model.cluster import WatchFilter
from signer.model.floors import NO_FLOORS
from signer.model.shard import SomeShards
from signer.store.caches import Caches
from signer.store.cluster_api import ClusterAPIVersion
from tests.unit.signer.controller.support import Clock, registry
from tests.unit.signer.store.over_limit import exceed


class World:
    def __init__(self) -> None:
        self.caches = Caches(
            ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2), own_namespace="system", floors=NO_FLOORS
        )
        self.stored: dict[str, dict[str, Any]] = {}
        self.calls: list[str] = []
        self.patched = asyncio.Event()
        configuration = Configuration(namespace="system")
        self.policies = UnservedPolicies(self, self.caches, registry(), configuration, Clock().now)

    def policy(self, name: str, **spec: Any) -> None:
        manifest = {
            "metadata": {"namespace": "team-a", "name": name, "uid": f"uid-{name}", "generation": 1},
            "spec": {"authorizedAttestors": [{"name": "good"}], **spec},
        }
        self.stored[name] = copy.deepcopy(manifest)
        self.caches.policies.applied(manifest)

    def cluster(self, name: str, namespace: str = "team-a") -> None:
        self.caches.clusters.applied({"metadata": {"namespace": namespace, "name": name, "uid": "c"}, "spec": {}})

    async def get(self, path: str) -> dict[str, Any]:
        self.calls.append("get")
        return copy.deepcopy(self._at(path))

    async def patch(self, path: str, patch: dict[str, Any]) -> dict[str, Any]:
        self.calls.append("patch")
        found = self._at(path.removesuffix("/status"))
        found["status"] = copy.deepcopy(patch["status"])
        self.patched.set()
        return found

    def _at(self, path: str) -> dict[str, Any]:
        name = path.rpartition("/")[2]
        if name not in self.stored:
            raise NotFound(path)
        return self.stored[name]

    def reasons(self, name: str) -> dict[str, tuple[str, str]]:
        conditions = (self.stored[name].get("status") or {}).get("conditions") or []
        return {one["type"]: (one["status"], one["reason"]) for one in conditions}


NOT_FOUND = {"Ready": ("False", "ClusterNotFound"), "WorkloadClusterReachable": ("False", "ClusterNotFound")}


async def test_a_policy_without_a_cluster_is_reported() -> None:
    world = World()
    world.policy("prodd")
    world.cluster("prod")
    world.cluster("prodd", namespace="team-b")
    for _ in range(4):
        await world.policies.check()
    assert world.reasons("prodd") == NOT_FOUND
    assert world.calls == ["get", "patch"]


async def test_a_cluster_that_was_dropped_is_not_missing() -> None:
    world = World()
    world.policy("prod")
    world.cluster("prod")
    exceed(world.caches.clusters, "team-a")
    for _ in range(3):
        await world.policies.check()
    over = ("False", "NamespaceOverLimit")
    assert world.reasons("prod") == {"Ready": over, "NamespaceWithinLimits": over}


async def test_a_cluster_that_is_created_shortly_after_its_policy() -> None:
    world = World()
    world.policy("prod")
    await world.policies.check()
    world.cluster("prod")
    for _ in range(3):
        await world.policies.check()
    assert world.calls == []


async def test_a_policy_with_a_cluster_is_left_to_its_task() -> None:
    world = World()
    world.policy("prod")
    world.policy("typo")
    world.cluster("prod")
    for _ in range(3):
        await world.policies.check()
    assert world.reasons("prod") == {}
    world.cluster("typo")
    world.calls.clear()
    await world.policies.check()
    assert world.calls == []


async def test_an_invalid_policy_is_reported_too() -> None:
    world = World()
    world.policy("typo", mode="Maybe")
    await world.policies.check()
    await world.policies.check()
    assert world.reasons("typo") == NOT_FOUND


async def test_a_policy_that_is_deleted_concurrently() -> None:
    world = World()
    world.policy("typo")
    await world.policies.check()
    world.stored.clear()
    await world.policies.check()
    assert world.calls == ["get"]


async def test_run_reconciles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unserved_policies, "CHECK_SECONDS", 0.001)
    world = World()
    world.policy("typo")
    running = asyncio.create_task(world.policies.run())
    await world.patched.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert world.reasons("typo") == NOT_FOUND


async def test_a_name_without_a_cluster_is_in_a_shard_too() -> None:
    world = World()
    world.caches.set_shards(SomeShards(1))
    world.policy("typo")
    for _ in range(3):
        await world.policies.check()
    assert world.calls == []
    world.caches.set_shards(SomeShards(1, frozenset({0})))
    for _ in range(2):
        await world.policies.check()
    assert world.reasons("typo") == NOT_FOUND


async def test_with_a_watch_filter_nothing_is_written() -> None:
    """It is unknown to which controller a missing Cluster would belong."""
    world = World()
    world.caches.watch_filter = WatchFilter("ours")
    world.policy("prodd")
    for _ in range(4):
        await world.policies.check()
    assert world.calls == []
