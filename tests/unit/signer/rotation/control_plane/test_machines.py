"""The Machines of a cluster, sorted for a rotation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from signer.model.cluster import LONG_AGO, ClusterKey, MachineView, machine_view
from signer.model.machine_pool import machine_pool_view
from signer.rotation.control_plane.machines import WorkerGroups, cluster_machines, worker_groups

CREATED = datetime(2026, 10, 1, 8, tzinfo=UTC)


def machine(name: str, *, labels: dict[str, str] | None = None, node: str = "", **metadata: Any) -> MachineView:
    return machine_view(
        {
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "Machine",
            "metadata": {
                "name": name,
                "namespace": "fleet",
                "uid": name,
                "creationTimestamp": "2026-10-01T08:00:00Z",
                "labels": labels or {},
                **metadata,
            },
            "spec": {"clusterName": "edge"},
            "status": {"nodeRef": {"name": node}} if node else {},
        }
    )


CONTROL_PLANE = {"cluster.x-k8s.io/control-plane": ""}


def test_creation_time_and_deployment_are_read() -> None:
    found = machine("w", labels={"cluster.x-k8s.io/deployment-name": "workers"})
    assert (found.created, found.deployment) == (CREATED, "workers")


def test_an_unknown_creation_time_is_long_ago() -> None:
    found = machine("cp-0", labels=CONTROL_PLANE, creationTimestamp="yesterday")
    assert found.created == LONG_AGO
    assert cluster_machines([found]).control_plane.created_before(CREATED) == ("cp-0",)


def test_the_control_plane_is_sorted_out() -> None:
    found = cluster_machines(
        [
            machine("cp-1", labels=CONTROL_PLANE, node="cp-1"),
            machine("cp-0", labels=CONTROL_PLANE, deletionTimestamp="2026-10-02T08:00:00Z"),
            machine("w-0", labels={"cluster.x-k8s.io/deployment-name": "workers"}),
        ]
    ).control_plane
    assert found.names == ("cp-0", "cp-1")
    assert found.deleting == ("cp-0",)
    assert found.without_node == ("cp-0",)
    assert found.created_before(CREATED) == ()
    assert found.created_before(CREATED + timedelta(seconds=1)) == ("cp-0", "cp-1")


def test_workers_are_named_by_what_makes_them() -> None:
    pool = machine_pool_view(
        {
            "metadata": {"name": "spot", "namespace": "fleet", "uid": "p"},
            "spec": {"clusterName": "edge", "providerIDList": ["aws:///a/i-1", "aws:///a/i-2"]},
        }
    )
    owner = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachinePool", "name": "pool", "uid": "q"}
    found = cluster_machines(
        [
            *(machine(f"b-{i}", labels={"cluster.x-k8s.io/deployment-name": "b"}) for i in range(2)),
            machine("a-0", labels={"cluster.x-k8s.io/deployment-name": "a"}),
            machine("pool-0", ownerReferences=[owner]),
            pool.instance("aws:///a/i-1"),
            pool.instance("aws:///a/i-2"),
            machine("single"),
        ]
    )
    assert found.workers == WorkerGroups(("a", "b"), ("pool", "spot"), ("single",))
    assert found.control_plane.machines == ()


def test_of_a_machine_no_owner_is_believed_that_a_view_has_not() -> None:
    view = machine("w")
    assert view.cluster == ClusterKey("fleet", "edge")
    assert view.deployment == ""


def test_the_group_of_each_worker() -> None:
    pool = machine_pool_view(
        {
            "metadata": {"name": "spot", "namespace": "fleet", "uid": "p"},
            "spec": {"clusterName": "edge", "providerIDList": ["aws:///a/i-1"]},
        }
    )
    owner = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachinePool", "name": "pool", "uid": "q"}
    deployment = {"cluster.x-k8s.io/deployment-name": "b"}
    assert worker_groups(
        [
            machine("cp-0", labels={**CONTROL_PLANE, **deployment}),
            machine("b-0", labels=deployment),
            machine("pool-0", ownerReferences=[owner]),
            pool.instance("aws:///a/i-1"),
            machine("single"),
        ]
    ) == {"b-0": "b", "pool-0": "pool", "spot": "spot"}
