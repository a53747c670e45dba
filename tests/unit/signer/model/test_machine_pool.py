"""MachinePools of either version, and what is not read of those that no schema has seen."""

from __future__ import annotations

from typing import Any

import pytest

from signer.model.cluster import MAXIMUM_PROVIDER_ID_CHARACTERS, ClusterKey, MachineView
from signer.model.machine_pool import MAXIMUM_PROVIDER_IDS, MachinePoolView, machine_pool_view
from signer.model.record import MachineKey
from tests.unit.signer.builders import machine_view

KEY = ClusterKey("team-a", "prod")
V1BETA1: dict[str, Any] = {
    "apiVersion": "cluster.x-k8s.io/v1beta1",
    "metadata": {"namespace": "team-a", "name": "pool", "uid": "p-1"},
    "spec": {"clusterName": "prod", "providerIDList": ["aws:///a/i-1", "aws:///a/i-2"]},
    "status": {
        "bootstrapReady": True,
        "nodeRefs": [{"name": "n1"}],
        "conditions": [{"type": "BootstrapReady", "status": "True"}],
    },
}
V1BETA2: dict[str, Any] = V1BETA1 | {
    "apiVersion": "cluster.x-k8s.io/v1beta2",
    "status": {"initialization": {"bootstrapDataSecretCreated": True}, "nodeRefs": [{"name": "n1"}]},
}
POOL = MachinePoolView(KEY, "pool", "p-1", frozenset({"aws:///a/i-1", "aws:///a/i-2"}), True, False, False, 1)


@pytest.mark.parametrize("manifest", [V1BETA1, V1BETA2])
def test_either_version(manifest: dict[str, Any]) -> None:
    assert machine_pool_view(manifest) == POOL
    assert str(POOL) == "MachinePool team-a/pool"


@pytest.mark.parametrize("manifest", [{}, {"metadata": None, "spec": [], "status": "x"}])
def test_nothing(manifest: dict[str, Any]) -> None:
    nothing = MachinePoolView(ClusterKey("", ""), "", "", frozenset(), False, False, False, 1)
    assert machine_pool_view(manifest) == nothing


@pytest.mark.parametrize(
    ("spec", "status", "replicas"),
    [
        ({"replicas": 3}, {}, 3),
        ({"replicas": 3}, {"replicas": 5}, 5),
        ({"replicas": 0}, {}, 0),
        ({"replicas": True}, {}, 1),
    ],
)
def test_how_many_instances_there_are(spec: dict[str, Any], status: dict[str, Any], replicas: int) -> None:
    """Scaling down takes a while: those that are still there count."""
    assert machine_pool_view({"spec": spec, "status": status}).replicas == replicas


@pytest.mark.parametrize(
    ("status", "ready"),
    [
        ({"conditions": [{"type": "BootstrapReady", "status": "False"}], "bootstrapReady": True}, False),
        ({"deprecated": {"v1beta1": {"conditions": [{"type": "BootstrapReady", "status": "True"}]}}}, True),
        ({"initialization": {"bootstrapDataSecretCreated": False}}, False),
        ({}, False),
    ],
)
def test_bootstrap_ready(status: dict[str, Any], ready: bool) -> None:
    assert machine_pool_view({**V1BETA2, "status": status}).bootstrap_ready is ready


def test_paused_and_deleting() -> None:
    metadata = {
        **V1BETA2["metadata"],
        "annotations": {"cluster.x-k8s.io/paused": ""},
        "deletionTimestamp": "2026-03-01",
    }
    view = machine_pool_view({**V1BETA2, "metadata": metadata})
    assert (view.paused, view.deleting) == (True, True)
    instance = view.instance("aws:///a/i-1")
    assert (instance.paused, instance.deleting) == (True, True)


def listed(provider_ids: Any) -> frozenset[str]:
    return machine_pool_view({"spec": {"providerIDList": provider_ids}}).provider_ids


def test_no_more_entries_are_read_than_cluster_api_allows() -> None:
    entries = [f"x:///{number}" for number in range(MAXIMUM_PROVIDER_IDS + 1)]
    assert listed(entries) == frozenset(entries[:-1])


def test_entries_that_no_provider_writes_are_not_read() -> None:
    longest = "x" * MAXIMUM_PROVIDER_ID_CHARACTERS
    assert listed(["", longest, longest + "x", 5, None, ["x"], {"x": "y"}]) == {longest}


@pytest.mark.parametrize("value", [None, "x:///1", {"x:///1": ""}, 5])
def test_ill_typed_list(value: Any) -> None:
    assert listed(value) == frozenset()


def test_instance() -> None:
    assert POOL.instance("aws:///a/i-1") == MachineView(
        cluster=KEY,
        kind="MachinePool",
        name="pool",
        uid="p-1",
        provider_id="aws:///a/i-1",
        addresses=(),
        infrastructure_name="",
        node_ref="",
        bootstrap_ready=True,
        paused=False,
        deleting=False,
    )


def test_no_instance_that_is_not_listed() -> None:
    with pytest.raises(KeyError):
        POOL.instance("aws:///a/i-3")


def test_machine_of_a_pool_has_the_key_of_its_instance() -> None:
    """Else a second identity could reserve the same hardware under the other key."""
    machine = machine_view(cluster=KEY, name="m1", provider_id="aws:///a/i-1", owner_pool="pool")
    assert MachineKey.of(machine) == MachineKey.of(POOL.instance("aws:///a/i-1"))
    assert str(MachineKey.of(machine)) == "instance aws:///a/i-1 of MachinePool team-a/pool"
    assert MachineKey.of(machine_view(owner_pool="")).kind == "Machine"
