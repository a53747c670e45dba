from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest

from signer.model.cluster import (
    CLUSTER_NAME_LABEL,
    CONTROL_PLANE_LABEL,
    PAUSED_ANNOTATION,
    ClusterKey,
    ClusterView,
    MachineAddress,
    MachineView,
    cluster_view,
    machine_view,
)

CLUSTER = {
    "metadata": {"namespace": "team-a", "name": "prod", "uid": "c-1"},
    "spec": {
        "controlPlaneEndpoint": {"host": "api.example.com", "port": 6443},
        "clusterNetwork": {"services": {"cidrBlocks": ["10.96.0.0/12", "fd00::/108"]}},
    },
}
V1BETA1_CLUSTER = CLUSTER | {"apiVersion": "cluster.x-k8s.io/v1beta1"}
V1BETA2_CLUSTER = CLUSTER | {"apiVersion": "cluster.x-k8s.io/v1beta2"}

ADDRESSES = [{"type": "InternalDNS", "address": "n1"}, {"type": "InternalIP", "address": "10.0.0.1"}]
V1BETA1_MACHINE: dict[str, Any] = {
    "apiVersion": "cluster.x-k8s.io/v1beta1",
    "metadata": {"namespace": "team-a", "name": "m1", "uid": "m-1"},
    "spec": {
        "clusterName": "prod",
        "providerID": "aws:///a/i-1",
        "infrastructureRef": {"apiVersion": "x/v1", "kind": "AWSMachine", "namespace": "team-a", "name": "infra1"},
    },
    "status": {
        "addresses": ADDRESSES,
        "nodeRef": {"kind": "Node", "name": "n1", "uid": "u"},
        "bootstrapReady": True,
        "conditions": [{"type": "BootstrapReady", "status": "True", "severity": ""}],
        "v1beta2": {"conditions": [{"type": "BootstrapConfigReady", "status": "False"}]},
    },
}
V1BETA2_MACHINE: dict[str, Any] = V1BETA1_MACHINE | {
    "apiVersion": "cluster.x-k8s.io/v1beta2",
    "spec": {
        "clusterName": "prod",
        "providerID": "aws:///a/i-1",
        "infrastructureRef": {"apiGroup": "x", "kind": "AWSMachine", "name": "infra1"},
    },
    "status": {
        "addresses": ADDRESSES,
        "nodeRef": {"name": "n1"},
        "initialization": {"bootstrapDataSecretCreated": True},
        "conditions": [
            {"type": "InfrastructureReady", "status": "False"},
            {"type": "BootstrapConfigReady", "status": "True", "reason": "DataSecretProvided"},
        ],
        "deprecated": {"v1beta1": {"conditions": [{"type": "BootstrapReady", "status": "False"}]}},
    },
}
MACHINES = [V1BETA1_MACHINE, V1BETA2_MACHINE]


def test_labels_and_annotations_of_cluster_api() -> None:
    assert CLUSTER_NAME_LABEL == "cluster.x-k8s.io/cluster-name"
    assert CONTROL_PLANE_LABEL == "cluster.x-k8s.io/control-plane"
    assert PAUSED_ANNOTATION == "cluster.x-k8s.io/paused"


class TestCluster:
    @pytest.mark.parametrize("manifest", [V1BETA1_CLUSTER, V1BETA2_CLUSTER])
    def test_either_version(self, manifest: dict[str, Any]) -> None:
        assert cluster_view(manifest) == ClusterView(
            key=ClusterKey("team-a", "prod"),
            uid="c-1",
            paused=False,
            deleting=False,
            control_plane_host="api.example.com",
            service_networks=(ip_network("10.96.0.0/12"), ip_network("fd00::/108")),
        )

    def test_nothing(self) -> None:
        assert cluster_view({}) == ClusterView(ClusterKey("", ""), "", False, False, "", ())

    @pytest.mark.parametrize(
        ("blocks", "networks"),
        [
            (["10.96.0.1/12"], ["10.96.0.0/12"]),
            (["nonsense", 5, None, "10.0.0.0/8"], ["0.0.0.5/32", "10.0.0.0/8"]),
            ("10.0.0.0/8", []),
            (None, []),
            ({"a": "b"}, []),
            (5, []),
        ],
    )
    def test_service_networks(self, blocks: Any, networks: list[str]) -> None:
        view = cluster_view({"spec": {"clusterNetwork": {"services": {"cidrBlocks": blocks}}}})
        assert [str(network) for network in view.service_networks if str(network) != "0.0.0.5/32"] == [
            text for text in networks if text != "0.0.0.5/32"
        ]

    def test_key_as_text(self) -> None:
        assert str(ClusterKey("team-a", "prod")) == "team-a/prod"


@pytest.mark.parametrize("view", [cluster_view, machine_view])
class TestPausedAndDeleting:
    @pytest.mark.parametrize("value", ["", "true", "false", None])
    def test_paused_by_annotation_with_any_value(self, view: Any, value: Any) -> None:
        assert view({"metadata": {"annotations": {PAUSED_ANNOTATION: value}}}).paused
        assert view({"metadata": {"annotations": {PAUSED_ANNOTATION: value}}, "spec": {"paused": False}}).paused

    def test_paused_by_spec(self, view: Any) -> None:
        assert view({"spec": {"paused": True}}).paused

    @pytest.mark.parametrize("value", [False, None, "true", 1, "", []])
    def test_not_paused(self, view: Any, value: Any) -> None:
        assert not view({"spec": {"paused": value}, "metadata": {"annotations": {"other/paused": "true"}}}).paused
        assert not view({"metadata": {"annotations": None}}).paused
        assert not view({"metadata": {"annotations": [PAUSED_ANNOTATION]}}).paused

    def test_deleting(self, view: Any) -> None:
        assert view({"metadata": {"deletionTimestamp": "2026-03-01T12:00:00Z"}}).deleting
        assert view({"metadata": {"deletionTimestamp": ""}}).deleting
        assert not view({"metadata": {"deletionTimestamp": None}}).deleting
        assert not view({"metadata": {}}).deleting


class TestMachine:
    @pytest.mark.parametrize("manifest", MACHINES)
    def test_either_version(self, manifest: dict[str, Any]) -> None:
        view = machine_view(manifest)
        assert view == MachineView(
            cluster=ClusterKey("team-a", "prod"),
            kind="Machine",
            name="m1",
            uid="m-1",
            provider_id="aws:///a/i-1",
            addresses=(MachineAddress("InternalDNS", "n1"), MachineAddress("InternalIP", "10.0.0.1")),
            infrastructure_name="infra1",
            node_ref="n1",
            bootstrap_ready=True,
            paused=False,
            deleting=False,
        )
        assert str(view) == "Machine team-a/m1"

    def test_nothing(self) -> None:
        expected = MachineView(ClusterKey("", ""), "Machine", "", "", "", (), "", "", False, False, False)
        assert machine_view({}) == expected
        assert machine_view({"metadata": None, "spec": [], "status": "x"}) == expected

    @pytest.mark.parametrize("value", [None, 5, "x", {"a": 1}, [None, 5, "x"]])
    def test_ill_typed_lists(self, value: Any) -> None:
        view = machine_view({"status": {"addresses": value, "conditions": value}})
        assert (view.addresses, view.bootstrap_ready) == ((), False)

    def test_ill_typed_addresses(self) -> None:
        view = machine_view({"status": {"addresses": [{"type": 5, "address": ["x"]}]}})
        assert view.addresses == (MachineAddress("", ""),)

    def test_addresses_are_kept_as_written(self) -> None:
        view = machine_view({"status": {"addresses": [{"type": "Hostname", "address": "UPPER."}]}})
        assert view.addresses == (MachineAddress("Hostname", "UPPER."),)


def condition(kind: Any, status: Any) -> dict[str, Any]:
    return {"type": kind, "status": status}


class TestBootstrapReady:
    @pytest.mark.parametrize(
        ("status", "ready"),
        [
            ({}, False),
            ({"conditions": [condition("BootstrapConfigReady", "True")]}, True),
            ({"conditions": [condition("BootstrapReady", "True")]}, True),
            ({"conditions": [condition("BootstrapConfigReady", "False")], "bootstrapReady": True}, False),
            ({"conditions": [condition("BootstrapConfigReady", "Unknown")]}, False),
            ({"conditions": [condition("BootstrapReady", "False")], "bootstrapReady": True}, False),
            ({"conditions": [condition("BootstrapConfigReady", True)], "bootstrapReady": True}, False),
            ({"conditions": [condition("BootstrapConfigReady", "True"), condition("BootstrapReady", "False")]}, True),
            ({"conditions": [condition("BootstrapReady", "True"), condition("BootstrapConfigReady", "False")]}, False),
            ({"conditions": [condition("Ready", "True")]}, False),
            ({"conditions": [condition("Ready", "False")], "bootstrapReady": True}, True),
            ({"conditions": [condition(["BootstrapReady"], "True")], "bootstrapReady": False}, False),
            ({"bootstrapReady": True}, True),
            ({"bootstrapReady": "true"}, False),
            ({"bootstrapReady": 1}, False),
            ({"initialization": {"bootstrapDataSecretCreated": True}}, True),
            ({"initialization": {"bootstrapDataSecretCreated": False}}, False),
            ({"initialization": {"bootstrapDataSecretCreated": "True"}}, False),
            ({"initialization": {"infrastructureProvisioned": True}}, False),
            ({"initialization": [True]}, False),
        ],
    )
    def test_fallbacks(self, status: dict[str, Any], ready: bool) -> None:
        assert machine_view({"status": status}).bootstrap_ready is ready
