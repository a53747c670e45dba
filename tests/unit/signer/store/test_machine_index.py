"""The index over Machines and MachinePools, and what its changes cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer.model.cluster import ClusterKey, MachineView
from signer.model.machine_pool import MachinePoolView
from signer.model.record import MachineKey
from signer.rules.machine import MachineGone
from signer.store.cache import ObjectKey
from signer.store.machine_index import Concerned, MachineIndex
from tests.unit.signer.builders import CLUSTER, machine_view

LAB = ClusterKey(CLUSTER.namespace, "lab")


def machine(name: str, provider_id: str, pool: str = "", **changes: Any) -> MachineView:
    return machine_view(name=name, uid=name, provider_id=provider_id, owner_pool=pool, **changes)


def machine_pool(name: str, *provider_ids: str, **changes: Any) -> MachinePoolView:
    return replace(MachinePoolView(CLUSTER, name, name, frozenset(provider_ids), True, False, False), **changes)


class Followed:
    """An index, and the objects that it holds."""

    def __init__(self) -> None:
        self.index = MachineIndex()
        self._machines: dict[ObjectKey, MachineView] = {}
        self._pools: dict[ObjectKey, MachinePoolView] = {}

    def put(self, view: MachineView | MachinePoolView) -> Concerned:
        key = (view.cluster.namespace, view.name)
        if isinstance(view, MachineView):
            before, self._machines[key] = self._machines.get(key), view
            return self.index.machine_changed(key, before, view)
        pool, self._pools[key] = self._pools.get(key), view
        return self.index.pool_changed(key, pool, view)

    def remove(self, view: MachineView | MachinePoolView) -> Concerned:
        key = (view.cluster.namespace, view.name)
        if isinstance(view, MachineView):
            return self.index.machine_changed(key, self._machines.pop(key, None), None)
        return self.index.pool_changed(key, self._pools.pop(key, None), None)

    def found(self, provider_id: str, cluster: ClusterKey = CLUSTER) -> list[tuple[str, str]]:
        return [(one.kind, one.name) for one in self.index.machines_with(cluster, provider_id)]

    # The same by a full scan

    def expected(self, provider_id: str, cluster: ClusterKey) -> set[tuple[str, str]]:
        machines = [one for one in self._machines.values() if (one.cluster, one.provider_id) == (cluster, provider_id)]
        pools = [
            pool.name
            for pool in self._pools.values()
            if pool.cluster == cluster
            and provider_id in pool.provider_ids
            and pool.name not in {one.owner_pool for one in machines}
        ]
        return {("Machine", one.name) for one in machines} | {("MachinePool", name) for name in pools}

    def instances(self, cluster: ClusterKey, provider_ids: Iterable[str]) -> set[tuple[str, str]]:
        return {
            (name, provider_id)
            for provider_id in provider_ids
            for kind, name in self.expected(provider_id, cluster)
            if kind == "MachinePool"
        }


@pytest.fixture
def followed() -> Followed:
    return Followed()


def test_machine_of_the_pool_replaces_the_instance(followed: Followed) -> None:
    followed.put(machine_pool("pool", "p1", "p2"))
    assert followed.put(machine("m1", "p1", "pool")) == {CLUSTER: {"p1"}}
    assert followed.found("p1") == [("Machine", "m1")]
    assert followed.found("p2") == [("MachinePool", "pool")]
    assert [one.provider_id for one in followed.index.instances_of(CLUSTER)] == ["p2"]
    assert followed.remove(machine("m1", "p1")) == {CLUSTER: {"p1"}}
    assert followed.found("p1") == [("MachinePool", "pool")]


@pytest.mark.parametrize("pool", ["", "other"])
def test_machine_that_is_not_the_pools_makes_an_instance_ambiguous(followed: Followed, pool: str) -> None:
    followed.put(machine_pool("pool", "p1"))
    followed.put(machine("m1", "p1", pool))
    assert followed.found("p1") == [("Machine", "m1"), ("MachinePool", "pool")]


def test_two_pools_that_list_the_same_make_it_ambiguous(followed: Followed) -> None:
    followed.put(machine_pool("one", "p1"))
    followed.put(machine_pool("two", "p1"))
    followed.put(machine("m1", "p1", "one"))
    assert followed.found("p1") == [("Machine", "m1"), ("MachinePool", "two")]


def test_machine_of_the_pool_before_the_pool_lists_it(followed: Followed) -> None:
    followed.put(machine("m1", "p1", "pool"))
    assert followed.found("p1") == [("Machine", "m1")]
    assert followed.put(machine_pool("pool", "p1")) == {CLUSTER: {"p1"}}
    assert followed.found("p1") == [("Machine", "m1")]


def test_pool_changes_cluster(followed: Followed) -> None:
    followed.put(machine_pool("pool", "p1"))
    assert followed.put(machine_pool("pool", "p1", cluster=LAB)) == {CLUSTER: {"p1"}, LAB: {"p1"}}
    assert (followed.found("p1"), followed.found("p1", LAB)) == ([], [("MachinePool", "pool")])
    assert list(followed.index.instances_of(CLUSTER)) == []


@pytest.mark.parametrize("change", [{"paused": True}, {"deleting": True}, {"bootstrap_ready": False}, {"uid": "new"}])
def test_change_of_the_pool_concerns_all_its_instances(followed: Followed, change: dict[str, Any]) -> None:
    followed.put(machine_pool("pool", "p1", "p2"))
    assert followed.put(machine_pool("pool", "p2", "p3", **change)) == {CLUSTER: {"p1", "p2", "p3"}}
    assert followed.put(machine_pool("pool", "p2", "p3", **change)) == {}


def test_change_of_a_large_pool_costs_what_changed(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [f"p{number}" for number in range(10_000)]
    followed.put(machine_pool("pool", *many))
    touched: list[str] = []
    for method in ("_list", "_unlist"):
        real = getattr(followed.index, method)

        def spied(
            cluster: ClusterKey, pool: ObjectKey, provider_ids: frozenset[str], real: Callable[..., None] = real
        ) -> None:
            touched.extend(provider_ids)
            real(cluster, pool, provider_ids)

        monkeypatch.setattr(followed.index, method, spied)
    assert followed.put(machine_pool("pool", *many[1:], "new")) == {CLUSTER: {"p0", "new"}}
    assert sorted(touched) == ["new", "p0"]


def test_the_number_of_replicas_concerns_no_instance(followed: Followed) -> None:
    """Otherwise each step of an autoscaler, or of a tenant, would wake ten thousand requests."""
    followed.put(machine_pool("pool", "p1", "p2", replicas=2))
    assert followed.put(machine_pool("pool", "p1", "p2", replicas=3)) == {}
    assert followed.put(machine_pool("pool", "p1", "p3", replicas=4)) == {CLUSTER: {"p2", "p3"}}


def test_of_many_machines_with_one_provider_id_a_few_are_read(followed: Followed) -> None:
    for number in range(5):
        followed.put(machine(f"m{number}", "p1"))
        followed.put(machine_pool(f"pool{number}", "p1", "p2"))
    every = followed.index.machines_with(CLUSTER, "p1")
    assert len(every) == 10
    for most in (1, 5, 7, 10, 11):
        assert followed.index.first_with(CLUSTER, "p1", most) == every[:most]
    assert len(followed.index.first_with(CLUSTER, "p2", 3)) == 3
    assert followed.index.first_with(LAB, "p1", 3) == ()


def test_machines_alone(followed: Followed) -> None:
    followed.put(machine_pool("pool", "p1", "p2"))
    followed.put(machine("m1", "p1"))
    followed.put(machine("m2", "p1"))
    followed.put(machine("m3", "p3"))
    followed.put(machine("m4", "p1", cluster=LAB))
    found = followed.index.machine_objects_with(CLUSTER, ["p1", "p2", "p3"])
    assert [one.name for one in found] == ["m1", "m2", "m3"]


class TestByKey:
    def test_machine(self, followed: Followed) -> None:
        view = machine("m1", "p1")
        followed.put(view)
        key = MachineKey.of(view)
        assert followed.index.machine(key) == view
        for other in (
            replace(key, name="m2"),
            replace(key, provider_id="p2"),
            replace(key, cluster=LAB),
            replace(key, kind="MachinePool"),
        ):
            assert followed.index.machine(other) == MachineGone()
        followed.remove(view)
        assert followed.index.machine(key) == MachineGone()

    def test_instance_goes_on_as_its_machine(self, followed: Followed) -> None:
        """A record of the instance counts for the Machine, and the reverse."""
        pool, view = machine_pool("pool", "p1"), machine("m1", "p1", "pool")
        key = MachineKey(CLUSTER, "MachinePool", "pool", "p1")
        steps: tuple[tuple[Callable[[], object], MachineView | MachineGone], ...] = (
            (lambda: followed.put(pool), pool.instance("p1")),
            (lambda: followed.put(view), view),
            (lambda: followed.put(machine_pool("pool")), view),
            (lambda: followed.remove(view), MachineGone()),
            (lambda: followed.put(pool), pool.instance("p1")),
            (lambda: followed.put(machine("foreign", "p1")), pool.instance("p1")),
            (lambda: followed.remove(pool), MachineGone()),
        )
        for step, expected in steps:
            step()
            assert followed.index.machine(key) == expected


# Against going through everything

_CLUSTERS = st.sampled_from([CLUSTER, LAB])
_IDS = ["p1", "p2", "p3"]
_MACHINES = st.builds(
    lambda name, provider_id, pool, cluster: machine(name, provider_id, pool, cluster=cluster),
    st.sampled_from(["m1", "m2", "m3"]),
    st.sampled_from(["", *_IDS]),
    st.sampled_from(["", "a", "b"]),
    _CLUSTERS,
)
_POOLS = st.builds(
    lambda name, provider_ids, cluster, paused: machine_pool(name, *provider_ids, cluster=cluster, paused=paused),
    st.sampled_from(["a", "b"]),
    st.sets(st.sampled_from(_IDS)),
    _CLUSTERS,
    st.booleans(),
)


@given(st.lists(st.tuples(st.booleans(), st.one_of(_MACHINES, _POOLS)), max_size=20))
def test_equals_a_full_scan(steps: list[tuple[bool, MachineView | MachinePoolView]]) -> None:
    followed = Followed()
    for removes, view in steps:
        before = {
            (cluster, one): followed.index.machines_with(cluster, one) for cluster in (CLUSTER, LAB) for one in _IDS
        }
        concerned = followed.remove(view) if removes else followed.put(view)
        for (cluster, provider_id), found in before.items():
            after = followed.index.machines_with(cluster, provider_id)
            assert {(one.kind, one.name) for one in after} == followed.expected(provider_id, cluster)
            assert set(found) == set(after) or provider_id in concerned.get(cluster, frozenset())
        for cluster in (CLUSTER, LAB):
            instances = {(one.name, one.provider_id) for one in followed.index.instances_of(cluster)}
            assert instances == followed.instances(cluster, _IDS)
