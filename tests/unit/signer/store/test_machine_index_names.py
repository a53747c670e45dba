"""Names and addresses of Machines and of recorded nodes, as far as they belong to others."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from signer.model.addresses import canonical
from signer.model.cluster import MACHINE_POOL_KIND, ClusterKey, InfrastructureReference, MachineAddress, MachineView
from signer.model.machine_pool import MachinePoolView
from signer.store.machine_index import MOST_OTHERS, NameIndex
from tests.unit.signer.builders import CLUSTER, machine_view


def machine(name: str, *addresses: str, **changes: Any) -> MachineView:
    listed = tuple(MachineAddress("InternalIP", address) for address in addresses)
    return machine_view(name=name, infrastructure_name=f"{name}-infra", addresses=listed, **changes)


def index_of(*machines: MachineView) -> NameIndex:
    index = NameIndex()
    for one in machines:
        index.changed((one.cluster.namespace, one.name), None, one)
    return index


ASKING = machine("asking", "10.0.0.1")


@pytest.mark.parametrize("held", ["other", "other-infra", "10.0.0.2", "2001:db8::1", "192.0.2.9", "node.example"])
def test_of_another(held: str) -> None:
    index = index_of(ASKING, machine("other", "10.0.0.2", "2001:DB8:0::1", "::ffff:192.0.2.9", "Node.Example."))
    assert index.conflicting_names(ASKING, {held, "x"}) == {held}


def test_the_end_of_another_provider_id_is_a_possible_node_name() -> None:
    index = index_of(ASKING, machine("other", provider_id="aws:///eu-west-1a/i-0123"))
    assert index.conflicting_names(ASKING, {"i-0123", "aws:///eu-west-1a/i-0123"}) == {"i-0123"}


def test_name_of_another_bare_metal_server() -> None:
    reference = InfrastructureReference("infrastructure.cluster.x-k8s.io", "", "HetznerBareMetalMachine", "md-0")
    other = machine("other", provider_id="hrobot://1357111", infrastructure=reference)
    names = {"bm-md-0", f"bm-{CLUSTER.name}-1357111"}
    assert index_of(ASKING, other).conflicting_names(ASKING, names | {"bm-md-1"}) == names


def test_own() -> None:
    index = index_of(ASKING)
    assert index.conflicting_names(ASKING, {"asking", "asking-infra", "10.0.0.1"}) == frozenset()
    shared = index_of(ASKING, machine("other", "10.0.0.1"))
    assert shared.conflicting_names(ASKING, {"10.0.0.1"}) == {"10.0.0.1"}


@pytest.mark.parametrize("cluster", [ClusterKey("team-a", "lab"), ClusterKey("team-b", "prod")])
def test_of_another_cluster(cluster: ClusterKey) -> None:
    index = index_of(ASKING, machine("other", "10.0.0.2", cluster=cluster))
    assert index.conflicting_names(ASKING, {"other", "10.0.0.2"}) == frozenset()


def test_an_instance_has_no_name_of_its_own() -> None:
    """A Machine with the pool's name is another object."""
    instance = machine("pool", kind=MACHINE_POOL_KIND)
    assert index_of(machine("pool", "10.0.0.3")).conflicting_names(instance, {"10.0.0.3", "pool"}) == {
        "10.0.0.3",
        "pool",
    }


def test_machines_with_the_node_come_before_machines_with_the_name() -> None:
    index = index_of(ASKING, machine("b", "node"), machine("c", "x", node_ref="node"), machine("a", "node"))
    assert [name for _, name in index.other_machines_named(ASKING, "node")] == ["c", "a", "b"]
    both = machine("b", "node", node_ref="node")
    index.changed(("team-a", "b"), machine("b", "node"), both)
    assert [name for _, name in index.other_machines_named(ASKING, "node")] == ["b", "c", "a"]
    assert [name for _, name in index.other_machines_named(both, "node")] == ["c", "a"]


def test_a_node_ref_is_what_a_kubelet_chose() -> None:
    assert index_of(machine("other", node_ref="victim")).conflicting_names(ASKING, {"victim"}) == frozenset()


def test_changes() -> None:
    index = index_of(ASKING)
    key = ("team-a", "other")
    before, after = machine("other", "10.0.0.2", "10.0.0.3"), machine("other", "10.0.0.3", "10.0.0.4")
    asked = {"10.0.0.2", "10.0.0.3", "10.0.0.4", "other"}
    index.changed(key, None, before)
    index.changed(key, before, after)
    index.changed(key, after, after)
    assert index.conflicting_names(ASKING, asked) == {"10.0.0.3", "10.0.0.4", "other"}
    elsewhere = replace(after, cluster=ClusterKey("team-a", "lab"))
    index.changed(key, after, elsewhere)
    assert index.conflicting_names(ASKING, asked) == frozenset()
    index.changed(key, elsewhere, None)
    assert index.conflicting_names(replace(ASKING, cluster=ClusterKey("team-a", "lab")), asked) == frozenset()


@pytest.mark.parametrize("asked", ["vm1", "vm1.corp.example", "VM1.lab.example."])
def test_other_machines_with_the_same_host(asked: str) -> None:
    index = index_of(
        ASKING, machine("a", "vm1.corp.example"), machine("b", "vm1"), machine("vm1.x"), machine("c", "vm2")
    )
    own = machine("asking", "vm1.own.example")
    index.changed(("team-a", "asking"), ASKING, own)
    assert [name for _, name in index.other_machines_with_host(own, asked)] == ["a", "b", "vm1.x"]
    index.changed(("team-a", "a"), machine("a", "vm1.corp.example"), None)
    assert [name for _, name in index.other_machines_with_host(own, asked)] == ["b", "vm1.x"]


@pytest.mark.parametrize(
    "other",
    [
        machine("other", provider_id="docker:////vm1.x"),
        replace(machine("other"), infrastructure_name="vm1.x"),
        machine("other", "vm1.x"),
    ],
    ids=["ProviderID", "InfrastructureMachineName", "MachineAddress"],
)
def test_a_host_by_any_source(other: MachineView) -> None:
    """Otherwise a machine that reports host name vm1 may have the name of the other's node in the policy's domain."""
    assert index_of(ASKING, other).other_machines_with_host(ASKING, "vm1.corp.example") == (("team-a", "other"),)


def possible(index: NameIndex, *names: str, asking: MachineView = ASKING) -> frozenset[str]:
    return index.possibly_conflicting_names(asking, names)


def test_every_reading_of_an_unreadable_address_is_possibly_anothers() -> None:
    """A text that cannot be read must not free an address of its Machine."""
    index = index_of(ASKING, machine("other", "10.0.0.010", "192.0.2.7"))
    asked = ("10.0.0.8", "10.0.0.10", "10.0.0.9", "192.0.2.7", "x")
    assert possible(index, *asked) == {"10.0.0.8", "10.0.0.10"}
    assert index.conflicting_names(ASKING, asked) == {"192.0.2.7"}
    assert index.other_machines_named(ASKING, "10.0.0.8") == (("team-a", "other"),)


def test_a_network_of_another_is_possibly_anothers() -> None:
    index = index_of(ASKING, machine("other", "2001:db8:1::/64"), machine("third", "10.0.0.1-10.0.0.3"))
    asked = ("2001:db8:1::5", "2001:db8:2::5", "10.0.0.3", "10.0.0.4", "not-an-address", "10.0.0.0/31")
    assert possible(index, *asked) == {"2001:db8:1::5", "10.0.0.3"}


def test_own_unreadable_addresses_are_not_anothers() -> None:
    own = machine("asking", "10.0.0.010", "2001:db8:1::/64")
    assert possible(index_of(own), "10.0.0.8", "2001:db8:1::5", asking=own) == frozenset()


def test_unreadable_addresses_that_change() -> None:
    index, key = index_of(ASKING), ("team-a", "other")
    before, after = machine("other", "10.0.0.010", "10.1.0.0/24"), machine("other", "10.1.0.0/24", "10.2.0.0/16")
    index.changed(key, None, before)
    assert index.unreadable(CLUSTER, 3) == (before,)
    index.changed(key, before, after)
    assert possible(index, "10.0.0.8", "10.1.0.1", "10.2.3.4") == {"10.1.0.1", "10.2.3.4"}
    elsewhere = replace(after, cluster=ClusterKey("team-a", "lab"))
    index.changed(key, after, elsewhere)
    assert (index.unreadable(CLUSTER, 3), index.unreadable(elsewhere.cluster, 3)) == ((), (elsewhere,))
    assert possible(index, "10.1.0.1") == frozenset()
    readable = replace(elsewhere, addresses=())
    index.changed(key, elsewhere, readable)
    assert index.unreadable(elsewhere.cluster, 3) == ()
    assert (index._prefixes, index._unreadable, index._possible._held) == ({}, {}, {})


def test_the_readings_of_one_machine_are_bounded() -> None:
    texts = [f"{number}.010.010.010" for number in range(10, 100)]
    index = index_of(ASKING, machine("other", *texts))
    assert len(index._possible._held) == 256


ADDRESSES = st.lists(st.sampled_from(["10.0.0.1", "10.0.0.2/8", "::ffff:10.0.0.1", "A.", "a", "m1"]), max_size=3)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["m1", "m2", "m3"]), st.none() | ADDRESSES), max_size=12))
def test_equals_a_scan_of_all_machines(changes: list[tuple[str, list[str] | None]]) -> None:
    index, machines = NameIndex(), dict[str, MachineView]()
    for name, addresses in changes:
        before = machines.pop(name, None)
        after = None if addresses is None else machine(name, *addresses)
        if after is not None:
            machines[name] = after
        index.changed((CLUSTER.namespace, name), before, after)
    asked = {"10.0.0.1", "10.0.0.2", "a", "m1", "m2", "m3-infra", str(ip_address("::1"))}
    for asking in machines.values():
        expected = {
            canonical(text)
            for other in machines.values()
            if other.name != asking.name
            for text in (other.name, other.infrastructure_name, *(one.address for one in other.addresses))
        }
        assert index.conflicting_names(asking, asked) == expected & asked


def test_a_machine_of_a_scale_set_has_its_azure_names() -> None:
    other = machine("other", provider_id=SCALE_SET)
    index = index_of(ASKING, other)
    assert index.conflicting_names(ASKING, {"x00000a"}) == {"x00000a"}
    assert index.other_machines_named(ASKING, "x00000a") == (("team-a", "other"),)


def test_a_machine_of_byoh_has_the_name_of_its_host() -> None:
    index = index_of(ASKING, machine("other", provider_id="byoh://host-1/x7mz5a"))
    assert index.conflicting_names(ASKING, {"host-1"}) == {"host-1"}


# By either name of one of its instances.
SCALE_SET = "azure:///s/virtualMachineScaleSets/x/virtualMachines/10"
POOL_CHANGES = st.tuples(
    st.sampled_from(["p1", "p2", "p3"]),
    st.none()
    | st.tuples(st.sampled_from(["prod", "lab"]), st.frozensets(st.sampled_from(["a/x", "b/x", "b/y", SCALE_SET]))),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(POOL_CHANGES, max_size=12))
def test_instances_equal_a_scan_of_all_pools(
    changes: list[tuple[str, tuple[str, frozenset[str]] | None]],
) -> None:
    """Several pools may list the same instance, and each may drop it; a fault here would end the controller."""
    index, pools = NameIndex(), dict[str, MachinePoolView]()
    for name, content in [*changes, *((name, None) for name in ("p1", "p2", "p3"))]:
        before = pools.pop(name, None)
        if content is not None:
            cluster, provider_ids = content
            pools[name] = MachinePoolView(ClusterKey("team-a", cluster), name, name, provider_ids, True, False, False)
        index.pool_changed(before, pools.get(name))
        for asking in (
            ASKING,
            replace(ASKING, provider_id="b/x"),
            replace(ASKING, cluster=ClusterKey("team-a", "lab")),
        ):
            listed = {one for pool in pools.values() if pool.cluster == asking.cluster for one in pool.provider_ids}
            for name in ("x", "y", "z", "10", "x00000a"):
                expected = {
                    one for one in listed if one.endswith(f"/{name}") or (one, name) == (SCALE_SET, "x00000a")
                } - {asking.provider_id}
                assert index.other_instances_named(asking, name) == expected
    assert index._by_contained_name == {}


def test_of_a_name_that_all_machines_have_a_look_up_returns_a_few() -> None:
    """Fifty thousand Machines of one name would take the event loop for 30 milliseconds, for each request."""
    nodes = [machine(f"runs-{number:02}", node_ref="same") for number in range(20)]
    named = [machine(f"named-{number:02}", "10.9.9.9") for number in range(20)]
    called_so = [replace(one, infrastructure_name="same") for one in named]
    index = index_of(ASKING, *nodes, *called_so)
    found = index.other_machines_named(ASKING, "same")
    assert len(found) == 2 * MOST_OTHERS
    assert {name[:4] for _, name in found[:MOST_OTHERS]} == {"runs"}
    assert len(index.other_machines_with_host(ASKING, "same.example")) == MOST_OTHERS
    assert index.conflicting_names(ASKING, {"same"}) == {"same"}


def test_of_a_name_that_all_instances_have_a_look_up_returns_a_few() -> None:
    index = NameIndex()
    provider_ids = frozenset(f"x://{number}/same" for number in range(20))
    index.pool_changed(None, MachinePoolView(CLUSTER, "pool", "u", provider_ids, True, False, False))
    assert len(index.other_instances_named(ASKING, "same")) == MOST_OTHERS


def test_of_many_machines_with_unreadable_addresses_the_first_are_shown() -> None:
    index = index_of(*(machine(f"m{number:02}", "10.0.0.010") for number in reversed(range(20))))
    assert [one.name for one in index.unreadable(CLUSTER, 3)] == ["m00", "m01", "m02"]
    assert index.count_unreadable(CLUSTER) == 20
    assert index.unreadable(ClusterKey("team-b", "prod"), 3) == ()
