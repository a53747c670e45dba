"""An object that a cache dropped is not one that was deleted: nothing acts on its absence."""

from __future__ import annotations

import ast
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

import signer
from signer.kube.errors import NotFound
from signer.kube.resources import (
    CLUSTERS_V1BETA2,
    MACHINE_POOLS_V1BETA2,
    MACHINES_V1BETA2,
)
from signer.model.authority_sharing import NO_SHARING, NOT_SHARED
from signer.model.cluster import MACHINE_POOL_KIND, ClusterKey
from signer.model.decision import Deferred
from signer.model.floors import NO_FLOORS
from signer.model.reasons import Reason
from signer.model.record import MachineKey
from signer.store.caches import Caches
from signer.store.cluster_api import ClusterAPIVersion
from signer.store.garbage_collection import Done
from signer.store.live_reads import LiveReads
from tests.unit.signer.store.garbage_collection_fixtures import LATER, World, names, pair_for
from tests.unit.signer.store.over_limit import exceed, relist
from tests.unit.signer.store.test_caches_authorities import MINE, OTHER, SHARED, metadata, shared_keys
from tests.unit.signer.store.test_caches_authorities import world as authorities
from tests.unit.signer.store.test_reservations_rebuild import (
    OURS,
    Restarted,
    in_another_namespace,
    record_of,
)

__all__ = ["authorities"]

POOL_MACHINE: Final[dict[str, Any]] = {
    "metadata": {
        "namespace": "team-a",
        "name": "machine-of-the-pool",
        "uid": "1",
        "ownerReferences": [
            {"apiVersion": MACHINE_POOLS_V1BETA2.api_version, "kind": "MachinePool", "name": "pool", "uid": "2"}
        ],
    },
    "spec": {"clusterName": "prod", "providerID": "test:///m"},
}
INSTANCE: Final = MachineKey(ClusterKey("team-a", "prod"), MACHINE_POOL_KIND, "pool", "test:///m")


class Machines:
    """An API server with one Machine, of a pool that no longer lists it."""

    async def get(self, path: str) -> dict[str, Any]:
        if path != MACHINES_V1BETA2.object("machine-of-the-pool", "team-a"):
            raise NotFound(path)
        return POOL_MACHINE


async def test_a_machine_of_a_pool_that_was_dropped_is_not_gone() -> None:
    """Only the cache knows the name of the Machine that replaces an instance. Were it gone, the instance's identity
    would be another's.
    """
    version = ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2, MACHINE_POOLS_V1BETA2)
    caches = Caches(version, own_namespace="own", floors=NO_FLOORS)
    caches.machines.applied(POOL_MACHINE)
    reads = LiveReads(Machines(), caches)
    assert not await reads.is_gone(INSTANCE)
    exceed(caches.machines, "team-a")
    with pytest.raises(Deferred) as waits:
        await reads.is_gone(INSTANCE)
    assert waits.value.defer.reason is Reason.NAMESPACE_OVER_LIMIT


@pytest.mark.parametrize("what", ["clusters", "machines", "machine_pools", "policies", "records"])
async def test_nothing_of_it_is_collected(what: str) -> None:
    """Neither its records nor its reservations, and none is made again."""
    world = World()
    world.record("m1")
    world.reserve(pair_for("m1"))
    world.machine("m2")
    world.record("m2", "b")
    world.now = LATER + timedelta(days=1000)
    exceed(getattr(world.caches, what), "team-a")
    recorded, reserved = world.recorded(), world.reserved()
    assert await world.garbage_collector.round() == Done()
    assert (world.recorded(), world.reserved()) == (recorded, reserved)
    assert (world.api.reads, world.api.writes) == (0, [])


async def test_once_it_is_listed_garbage_is_collected() -> None:
    world = World()
    world.record("m1")
    world.reserve(pair_for("m1"))
    world.now = LATER + timedelta(days=1000)
    exceed(world.caches.machines, "team-a")
    await world.garbage_collector.round()
    assert world.reserved() == names(pair_for("m1"))
    relist(world.caches.machines)
    done = await world.garbage_collector.round()
    assert (done.deleted, done.released) == (1, 1)


def test_hardware_that_a_dropped_machine_has_goes_to_no_other_namespace() -> None:
    """After a move, records stand alone in an impostor's way, and count while their Machine exists."""
    record = record_of(in_another_namespace(OURS))
    restarted = Restarted(record)
    restarted.show_machine(record)
    exceed(restarted.caches.machines, record.machine.cluster.namespace)
    with pytest.raises(Deferred) as waits:
        restarted.join(OURS)
    assert waits.value.defer.reason is Reason.NAMESPACE_OVER_LIMIT
    assert restarted.pairs == set()


@pytest.mark.parametrize("what", ["clusters", "policies"])
def test_a_dropped_cluster_still_shares_its_authority(authorities: Any, what: str) -> None:
    """A tenant with a copy of another's CA must not hide it by many objects."""
    cache = getattr(authorities.caches, what)
    exceed(cache, OTHER.namespace)
    assert shared_keys(authorities) == SHARED.keys
    relist(cache, {"metadata": metadata(OTHER), "spec": {"authorizedAttestors": [{"name": "tpm"}]}})
    assert shared_keys(authorities) == SHARED.keys


@pytest.mark.parametrize("what", ["clusters", "policies"])
def test_a_cluster_that_was_deleted_meanwhile_shares_nothing(authorities: Any, what: str) -> None:
    """Nothing reports that deletion, and nothing of the Cluster may be kept for ever."""
    cache = getattr(authorities.caches, what)
    exceed(cache, OTHER.namespace)
    relist(cache)
    assert authorities.caches.authorities.shared(MINE, SHARED, NO_SHARING) == NOT_SHARED
    assert OTHER not in authorities.caches.authorities.of_namespace(OTHER.namespace)


ASKS_FOR_ALL_NAMESPACES: Final = {
    "access/containers/connections.py": "a sweep; wish_of answers for each Cluster",
    "access/containers/wishes.py": "asks about the namespace itself",
    "access/gathering.py": "what ends a grant must not wait; targets and certificates ask about the namespace",
    "access/targets.py": "asks about the namespace itself",
    "controller/diagnostics/health.py": "of the process",
    "store/caches.py": "defines it",
    "store/garbage_collection.py": "asks about each object's namespace",
}
"""Modules that may call ``require_in_touch`` of the caches, with the reason."""


def test_what_decides_on_one_cluster_asks_about_its_namespace() -> None:
    """By ``require_current``."""
    folder = Path(signer.__file__).parent
    asking = {
        str(path.relative_to(folder))
        for path in folder.rglob("*.py")
        if "gateway" not in path.parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "require_in_touch"
    }
    assert asking == ASKS_FOR_ALL_NAMESPACES.keys()
