"""Large objects count several times, so that a limit of objects bounds memory, too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from signer.kube.resources import MACHINE_POOLS_V1BETA2
from signer.model.cluster import machine_view
from signer.model.decision import Deferred
from signer.model.floors import NO_FLOORS
from signer.model.namespace_limits import NamespaceLimits
from signer.model.object_sizes import ADDRESSES, SETTINGS_BYTES, machine_times
from signer.model.possible_addresses import MAXIMUM_READINGS
from signer.model.seal import ControllerKeys
from signer.store.caches import Caches
from tests.unit.signer.store.test_caches import VERSION
from tests.unit.signer.store.test_namespace_bound import LIMIT, Bounded, machine, manifest


class Weighed(Bounded):
    """An object counts as often as its content says."""

    def __init__(self) -> None:
        super().__init__()
        self.cache._weigh = lambda value: value

    @property
    def counted(self) -> int:
        return self.bound._counts.get("many", 0)


def heavy(name: str, times: int, version: str = "1") -> dict[str, Any]:
    return {**manifest(name, version=version), "spec": times}


def test_large_objects_count_several_times() -> None:
    weighed = Weighed()
    weighed.list(heavy("a", 3), heavy("b", LIMIT - 3))
    assert (len(weighed.cache), weighed.counted) == (2, LIMIT)
    weighed.list(heavy("a", 3), heavy("b", LIMIT - 2, "2"))
    assert (len(weighed.cache), weighed.counted) == (0, LIMIT + 1)


def test_an_object_that_grows_takes_its_namespace_over_the_limit() -> None:
    weighed = Weighed()
    weighed.list(heavy("a", 3), heavy("b", 3))
    weighed.add(heavy("c", 3))
    assert weighed.counted == 9
    weighed.cache.applied(heavy("c", 1, "2"))
    assert weighed.counted == 7
    weighed.cache.applied(heavy("c", 1, "3"))
    weighed.cache.applied(heavy("c", 4, "4"))
    assert (len(weighed.cache), weighed.counted) == (3, LIMIT)
    weighed.cache.applied(heavy("c", 5, "5"))
    assert len(weighed.cache) == 0
    assert weighed.told == [("many", True)]


def test_own_writes_are_counted_once() -> None:
    weighed = Weighed()
    weighed.list(heavy("a", 3))
    weighed.cache.written(heavy("a", 4, "2"))
    weighed.cache.applied(heavy("a", 4, "2"))
    assert weighed.counted == 4
    weighed.cache.written(heavy("b", 2, "3"))
    weighed.add(heavy("b", 2, "3"))
    assert weighed.counted == 6
    weighed.cache.forget("many", "b")
    weighed.cache.removed(heavy("b", 2, "4"))
    assert weighed.counted == 4
    weighed.cache.removed(heavy("a", 4, "5"))
    assert weighed.counted == 0


def test_deletions_of_large_objects_end_it() -> None:
    weighed = Weighed()
    weighed.list(heavy("a", LIMIT - 2), heavy("b", 1), heavy("c", 2))
    assert not weighed.cache.needs_list()
    weighed.cache.removed(heavy("a", LIMIT - 2, "2"))
    assert weighed.cache.needs_list()
    weighed.list(heavy("b", 1), heavy("c", 2))
    assert (len(weighed.cache), weighed.counted) == (2, 3)


def test_an_object_that_may_be_smaller_has_the_collection_listed_again() -> None:
    """Only a list shows how often the objects count that the cache dropped."""
    weighed = Weighed()
    weighed.list(heavy("a", LIMIT + 1))
    assert not weighed.cache.needs_list()
    weighed.cache.applied(heavy("a", 1, "2"))
    assert weighed.cache.needs_list()
    weighed.list(heavy("a", 1, "2"))
    assert not weighed.cache.needs_list()
    assert len(weighed.cache) == 1


def test_too_many_small_objects_are_not_listed_again_at_each_change() -> None:
    weighed = Weighed()
    weighed.list(*(heavy(f"a{number}", 1) for number in range(LIMIT + 1)))
    weighed.cache.applied(heavy("a0", 1, "2"))
    assert not weighed.cache.needs_list()


def pool(name: str, instances: int) -> dict[str, Any]:
    metadata = {"namespace": "team-a", "name": name, "uid": name, "resourceVersion": f"1{instances}"}
    listed = [f"test:///{name}/{number}" for number in range(instances)]
    return {"metadata": metadata, "spec": {"clusterName": "prod", "providerIDList": listed}}


def test_instances_of_pools_count() -> None:
    version = replace(VERSION, machine_pools=MACHINE_POOLS_V1BETA2)
    caches = Caches(version, own_namespace="own", floors=NO_FLOORS, limits=NamespaceLimits(machine_pools=10))
    caches.authentic.use_keys(ControllerKeys(bytes(32)))
    caches.machine_pools.replaced([pool("a", 499), pool("b", 499)])
    caches.require_current("team-a")
    caches.machine_pools.replaced([pool("a", 499), pool("b", 500)])
    with pytest.raises(Deferred) as waits:
        caches.require_current("team-a")
    assert "counts once more for each 100" in waits.value.defer.message


def test_long_addresses_of_machines_count() -> None:
    def times(*addresses: str) -> int:
        listed = [{"type": "InternalIP", "address": one} for one in addresses]
        return machine_times(machine_view({**machine("a", "team-a"), "status": {"addresses": listed}}))

    assert times() == times("10.0.0.1", "fd00::1") == 1
    assert times(*(f"10.0.0.{number}" for number in range(ADDRESSES))) == 2
    assert times(*("a" * 500 for _ in range(9))) >= 2
    assert times("10.0.0.1 or 10.0.0.2") == 1 + MAXIMUM_READINGS // ADDRESSES


def test_long_annotations_of_machines_count() -> None:
    found = machine("a", "team-a")
    found["metadata"]["annotations"] = {f"attestation.cluster.x-k8s.io/{number}": "x" * 2048 for number in range(2)}
    assert machine_times(machine_view(found)) == 2


def test_large_settings_of_policies_count() -> None:
    caches = Caches(VERSION, own_namespace="own", floors=NO_FLOORS, limits=NamespaceLimits(policies=3))
    caches.authentic.use_keys(ControllerKeys(bytes(32)))

    def policies(size: int) -> list[dict[str, Any]]:
        metadata = {"namespace": "team-a", "name": "prod", "uid": "u", "generation": 1, "resourceVersion": f"1{size}"}
        attestors = [{"name": "keyed-mac", "settings": {"texts": ["x" * size]}}]
        return [{"metadata": metadata, "spec": {"authorizedAttestors": attestors}}]

    caches.policies.replaced(policies(2 * SETTINGS_BYTES))
    caches.require_current("team-a")
    caches.policies.replaced(policies(3 * SETTINGS_BYTES))
    with pytest.raises(Deferred) as waits:
        caches.require_current("team-a")
    assert "large settings" in waits.value.defer.message
