from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

import attestors
import signer
from attestors.wire.names import ANNOTATION_PREFIX, ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION
from signer.model.addresses import Address, UnreadableAddress
from signer.model.cluster import (
    CLUSTER_NAME_LABEL,
    CONTROL_PLANE_LABEL,
    EVERY_CLUSTER,
    MACHINE_DEPLOYMENT_LABEL,
    PAUSED_ANNOTATION,
    WATCH_FILTER_LABEL,
    ClusterKey,
    ClusterView,
    InfrastructureReference,
    MachineAddress,
    MachineView,
    NoInfrastructure,
    WatchFilter,
    cluster_view,
    machine_view,
)
from signer.model.fields import shared_text

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

    def test_when_it_was_created(self) -> None:
        created = {"metadata": {"creationTimestamp": "2026-01-02T03:04:05Z"}}
        assert cluster_view(created).created == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

    @pytest.mark.parametrize("metadata", [{}, {"creationTimestamp": None}, {"creationTimestamp": "9999"}])
    def test_a_time_that_is_none_is_long_ago(self, metadata: dict[str, Any]) -> None:
        """So that no record is from before it."""
        assert cluster_view({"metadata": metadata}).created == datetime(1970, 1, 1, tzinfo=UTC)

    def test_nothing(self) -> None:
        expected = ClusterView(ClusterKey("", ""), "", False, False, "", ())
        assert cluster_view({}) == expected
        assert (expected.service_domain, expected.deleting_for_move) == ("cluster.local", False)

    @pytest.mark.parametrize(
        ("blocks", "networks"),
        [
            (["10.128.0.1/12"], ["10.128.0.0/12"]),
            (["nonsense", 5, None, "10.0.0.0/8"], ["0.0.0.5/32", "10.0.0.0/8"]),
            ("10.0.0.0/8", []),
            (None, []),
            ([], []),
            (["nonsense"], []),
            (["fd00::%any text/64"], []),
            ({"a": "b"}, []),
            (5, []),
        ],
    )
    def test_service_networks(self, blocks: Any, networks: list[str]) -> None:
        view = cluster_view({"spec": {"clusterNetwork": {"services": {"cidrBlocks": blocks}}}})
        assert [str(network) for network in view.service_networks if str(network) != "0.0.0.5/32"] == [
            text for text in networks if text != "0.0.0.5/32"
        ]

    @pytest.mark.parametrize(
        ("stated", "domain"),
        [
            ("corp.example", "corp.example"),
            ("Corp.Example.", "corp.example"),
            (None, "cluster.local"),
            ("", "cluster.local"),
            (".", "cluster.local"),
            (["x"], "cluster.local"),
        ],
    )
    def test_service_domain(self, stated: Any, domain: str) -> None:
        assert cluster_view({"spec": {"clusterNetwork": {"serviceDomain": stated}}}).service_domain == domain

    @pytest.mark.parametrize("value", ["", "true", "false"])
    def test_deleting_for_move(self, value: str) -> None:
        annotations = {"clusterctl.cluster.x-k8s.io/delete-for-move": value}
        assert cluster_view({"metadata": {"annotations": annotations}}).deleting_for_move

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


def owner(kind: str, name: Any, api_version: str = "cluster.x-k8s.io/v1beta2") -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": "u", "controller": True}


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
            infrastructure=view.infrastructure,
        )
        assert str(view) == "Machine team-a/m1"

    def test_inframachine(self) -> None:
        found = [machine_view(manifest).infrastructure for manifest in MACHINES]
        assert found == [InfrastructureReference("x", version, "AWSMachine", "infra1") for version in ("v1", "")]

    @pytest.mark.parametrize("namespace", ["team-b", 5, ["team-a"]])
    def test_an_inframachine_elsewhere_is_none(self, namespace: Any) -> None:
        reference = V1BETA1_MACHINE["spec"]["infrastructureRef"] | {"namespace": namespace}
        manifest = V1BETA1_MACHINE | {"spec": {"infrastructureRef": reference}}
        assert machine_view(manifest).infrastructure == NoInfrastructure()

    @pytest.mark.parametrize("namespace", ["", None, "team-a"])
    def test_an_inframachine_in_the_machines_namespace(self, namespace: Any) -> None:
        reference = V1BETA1_MACHINE["spec"]["infrastructureRef"] | {"namespace": namespace}
        view = machine_view(V1BETA1_MACHINE | {"spec": {"infrastructureRef": reference}})
        assert view.infrastructure == InfrastructureReference("x", "v1", "AWSMachine", "infra1")

    def test_machines_share_what_their_references_have_in_common(self) -> None:
        """100,000 of them are cached."""
        reference = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "AWSMachine", "name": "infra1"}
        texts = [json.dumps({"spec": {"infrastructureRef": reference}}) for _ in range(2)]
        first, second = (machine_view(json.loads(text)).infrastructure for text in texts)
        assert isinstance(first, InfrastructureReference)
        assert isinstance(second, InfrastructureReference)
        assert (first.kind is second.kind, first.api_group is second.api_group) == (True, True)

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
        assert view.addresses == ()

    def test_a_list_is_several_addresses(self) -> None:
        view = machine_view({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1, fd00::1/64"}]}})
        assert view.addresses == (MachineAddress("InternalIP", "10.0.0.1"), MachineAddress("InternalIP", "fd00::1/64"))
        assert [one.reading for one in view.addresses] == [Address("10.0.0.1"), Address("fd00::1")]
        many = machine_view({"status": {"addresses": [{"type": "InternalIP", "address": "a,b"}] * 200}})
        assert len(many.addresses) == 256

    def test_readable_and_unreadable_addresses(self) -> None:
        texts = ["10.0.0.1", "10.0.0.010", "", "x" * 513]
        view = machine_view({"status": {"addresses": [{"type": "InternalIP", "address": text} for text in texts]}})
        assert view.readable_addresses == (MachineAddress("InternalIP", "10.0.0.1"),)
        assert view.unreadable_addresses == (
            "InternalIP '10.0.0.010' has leading zeros, which some programs read as octal and others as decimal",
            "InternalIP '' is empty",
            f"InternalIP '{'x' * 64}' is longer than 512 characters",
        )

    def test_addresses_are_kept_as_written(self) -> None:
        view = machine_view({"status": {"addresses": [{"type": "Hostname", "address": "UPPER."}]}})
        assert view.addresses == (MachineAddress("Hostname", "UPPER."),)

    @pytest.mark.parametrize("value", ["", "true"])
    def test_control_plane(self, value: str) -> None:
        assert machine_view({"metadata": {"labels": {CONTROL_PLANE_LABEL: value}}}).control_plane
        assert not machine_view({"metadata": {"labels": {"other": value}}}).control_plane

    def test_readiness_gates(self) -> None:
        gates = [{"conditionType": "A"}, {"conditionType": "B", "polarity": "Negative"}, {"conditionType": 5}, "C", {}]
        assert machine_view({"spec": {"readinessGates": gates}}).readiness_gates == {"A", "B"}

    @pytest.mark.parametrize(
        ("owners", "pool"),
        [
            ([owner("MachinePool", "p1")], "p1"),
            ([owner("MachinePool", "p1", "cluster.x-k8s.io/v1beta1")], "p1"),
            ([owner("MachineSet", "s1"), owner("MachinePool", "p1")], "p1"),
            ([owner("MachinePool", "p1"), owner("MachinePool", "p2")], ""),
            ([owner("MachineSet", "s1")], ""),
            ([owner("MachinePool", "p1", "example.com/v1")], ""),
            ([owner("MachinePool", "p1", "exp.cluster.x-k8s.io/v1")], ""),
            ([{"kind": "MachinePool", "name": "p1"}, 5, None], ""),
            ([owner("MachinePool", 5)], ""),
            ({"kind": "MachinePool"}, ""),
            (None, ""),
        ],
    )
    def test_owner_pool(self, owners: Any, pool: str) -> None:
        assert machine_view({"metadata": {"ownerReferences": owners}}).owner_pool == pool

    @pytest.mark.parametrize(
        ("owners", "of_a_pool"),
        [
            ([owner("MachinePool", "p1")], True),
            ([owner("MachinePool", "p1"), owner("MachinePool", "p2")], True),
            ([owner("MachinePool", 5)], True),
            ([owner("MachineSet", "s1")], False),
            ([owner("MachinePool", "p1", "example.com/v1")], False),
            (None, False),
        ],
    )
    def test_any_pool_among_the_owners_counts(self, owners: Any, of_a_pool: bool) -> None:
        assert machine_view({"metadata": {"ownerReferences": owners}}).of_a_pool is of_a_pool

    def test_instance_as_text(self) -> None:
        view = replace(machine_view(V1BETA2_MACHINE), kind="MachinePool", name="p1")
        assert str(view) == "instance aws:///a/i-1 of MachinePool team-a/p1"


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
            # Conditions of the other version, which each version keeps aside
            ({"v1beta2": {"conditions": [condition("BootstrapConfigReady", "False")]}, "bootstrapReady": True}, False),
            ({"v1beta2": {"conditions": [condition("BootstrapConfigReady", "True")]}}, True),
            ({"deprecated": {"v1beta1": {"conditions": [condition("BootstrapReady", "True")]}}}, True),
            (
                {
                    "deprecated": {"v1beta1": {"conditions": [condition("BootstrapReady", "False")]}},
                    "initialization": {"bootstrapDataSecretCreated": True},
                },
                False,
            ),
            ({"deprecated": [{"v1beta1": {"conditions": [condition("BootstrapReady", "True")]}}]}, False),
            # Nothing but the boolean
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


LONG = "x" * 100_000


@pytest.mark.parametrize(
    ("manifest", "field", "expected"),
    [
        ({"spec": {"providerID": "a" * 513}}, "provider_id", ""),
        ({"spec": {"providerID": "a" * 512}}, "provider_id", "a" * 512),
        ({"spec": {"infrastructureRef": {"name": LONG}}}, "infrastructure_name", ""),
        ({"status": {"nodeRef": {"name": LONG}}}, "node_ref", ""),
        ({"status": {"nodeRef": {"name": "n" * 253}}}, "node_ref", "n" * 253),
        ({"spec": {"readinessGates": [{"conditionType": LONG}]}}, "readiness_gates", frozenset()),
        ({"spec": {"clusterName": LONG}}, "cluster", ClusterKey("", "")),
    ],
)
def test_what_a_tenant_makes_too_long_is_not_kept(manifest: dict[str, Any], field: str, expected: object) -> None:
    """v1beta1's schema does not limit all of these, and views stay in memory."""
    assert getattr(machine_view(manifest), field) == expected


def test_so_many_addresses_and_no_more() -> None:
    addresses = [{"type": "InternalDNS", "address": f"a{number}"} for number in range(300)]
    assert len(machine_view({"status": {"addresses": addresses}}).addresses) == 256


class TestAttestorAnnotations:
    """What the management cluster says to attestors of a Machine."""

    KEY = ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION

    @staticmethod
    def found(annotations: Any, machine: dict[str, Any] = V1BETA2_MACHINE) -> tuple[tuple[str, str], ...]:
        metadata = {**machine["metadata"], "annotations": annotations}
        return machine_view({**machine, "metadata": metadata}).annotations

    @pytest.mark.parametrize("machine", MACHINES)
    def test_in_the_order_of_their_keys(self, machine: dict[str, Any]) -> None:
        first, second = f"{ANNOTATION_PREFIX}/a", f"{ANNOTATION_PREFIX}/b"
        assert self.found({second: "2", first: "1"}, machine) == ((first, "1"), (second, "2"))
        assert self.found({first: "1", second: "2"}, machine) == self.found({second: "2", first: "1"}, machine)

    @pytest.mark.parametrize(
        "key",
        [
            "cluster.x-k8s.io/paused",
            "a",
            f"x{ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION}",
            f"x.{ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION}",
            f"{ANNOTATION_PREFIX}.example/a",
            ANNOTATION_PREFIX,
            ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION.upper(),
        ],
    )
    def test_those_of_others_are_not_kept(self, key: str) -> None:
        assert self.found({key: "value", self.KEY: "ours"}) == ((self.KEY, "ours"),)

    @pytest.mark.parametrize("value", ["", "x" * 2049, 7, None, True, ["x"], {"x": "y"}])
    def test_of_a_value_that_is_no_short_text_is_kept_that_there_is_one(self, value: Any) -> None:
        """A script with an empty variable has said something: what comes after it must not decide instead."""
        other = f"{ANNOTATION_PREFIX}/other"
        assert self.found({self.KEY: value, other: "x"}) == ((other, "x"), (self.KEY, ""))

    def test_a_public_key_of_the_largest_kind_is_kept(self) -> None:
        pem = "x" * 800  # RSA-4096 in PEM
        assert self.found({self.KEY: pem}) == ((self.KEY, pem),)
        assert self.found({self.KEY: "x" * 2048}) == ((self.KEY, "x" * 2048),)

    def test_so_many_and_no_more(self) -> None:
        given = {f"{ANNOTATION_PREFIX}/{number:02}": "x" for number in range(20)}
        assert self.found(given) == tuple(sorted(given.items())[:8])

    def test_unusable_ones_take_nobodys_place(self) -> None:
        given = {f"{ANNOTATION_PREFIX}/a{number:02}": "" for number in range(20)}
        assert self.found({**given, self.KEY: "x"}) == (*sorted(given.items())[:7], (self.KEY, "x"))

    @pytest.mark.parametrize("annotations", [None, [], "text", 7, {}])
    def test_without_any(self, annotations: Any) -> None:
        assert self.found(annotations) == ()
        assert machine_view(V1BETA2_MACHINE).annotations == ()

    def test_a_changed_one_makes_another_view(self) -> None:
        views = [
            machine_view({**V1BETA2_MACHINE, "metadata": {**V1BETA2_MACHINE["metadata"], "annotations": annotations}})
            for annotations in ({}, {self.KEY: "1"}, {self.KEY: "2"})
        ]
        assert len(set(views)) == 3


@pytest.mark.parametrize(
    ("labels", "value", "let_in"),
    [
        ({}, "", True),
        ({WATCH_FILTER_LABEL: "theirs"}, "", True),
        ({WATCH_FILTER_LABEL: "ours"}, "ours", True),
        ({WATCH_FILTER_LABEL: "theirs"}, "ours", False),
        ({WATCH_FILTER_LABEL: ""}, "ours", False),
        ({"other": "ours"}, "ours", False),
        ({}, "ours", False),
        ({WATCH_FILTER_LABEL: 1}, "1", False),
    ],
)
def test_the_watch_filter_is_that_of_cluster_api(labels: dict[str, Any], value: str, let_in: bool) -> None:
    cluster = cluster_view({"metadata": {"namespace": "n", "name": "c", "labels": labels}})
    assert WatchFilter(value).selects(cluster) is let_in


def test_the_watch_filters_label() -> None:
    assert WATCH_FILTER_LABEL == "cluster.x-k8s.io/watch-filter"
    assert EVERY_CLUSTER.selects(cluster_view({}))


class TestBounds:
    """Tenants write these objects, and views are kept in memory: each bound as it is, and one beyond."""

    @pytest.mark.parametrize("length", [253, 254])
    def test_names(self, length: int) -> None:
        name = "n" * length
        assert machine_view({"spec": {"clusterName": name}}).cluster.name == (name if length == 253 else "")

    @pytest.mark.parametrize("length", [512, 513])
    def test_hosts(self, length: int) -> None:
        host = "h" * length
        view = cluster_view({"spec": {"controlPlaneEndpoint": {"host": host}}})
        assert view.control_plane_host == (host if length == 512 else "")
        machine = machine_view({"status": {"addresses": [{"type": "Hostname", "address": host}]}})
        assert machine.addresses == (MachineAddress("Hostname", host),)
        longer = machine_view({"status": {"addresses": [{"type": "Hostname", "address": f"{host}hh"}]}})
        assert longer.addresses == (MachineAddress("Hostname", "h" * 513),)
        assert isinstance(longer.addresses[0].reading, UnreadableAddress)

    @pytest.mark.parametrize("length", [64, 65])
    def test_types_of_addresses(self, length: int) -> None:
        kind = "t" * length
        machine = machine_view({"status": {"addresses": [{"type": kind, "address": "a"}]}})
        assert machine.addresses == (MachineAddress(kind if length == 64 else "", "a"),)

    def test_readiness_gates(self) -> None:
        gates = [{"conditionType": f"Gate{number}"} for number in range(33)]
        view = machine_view({"spec": {"readinessGates": gates}})
        assert view.readiness_gates == {f"Gate{number}" for number in range(32)}

    @pytest.mark.parametrize("length", [316, 317])
    def test_types_of_conditions(self, length: int) -> None:
        gate = "g" * length
        view = machine_view({"spec": {"readinessGates": [{"conditionType": gate}]}})
        assert view.readiness_gates == ({gate} if length == 316 else frozenset())

    def test_networks(self) -> None:
        blocks = [f"10.{number}.0.0/16" for number in range(65)]
        view = cluster_view({"spec": {"clusterNetwork": {"services": {"cidrBlocks": blocks}}}})
        assert view.service_networks == tuple(map(ip_network, blocks[:64]))


REFERENCE = {"apiGroup": "infrastructure.example.com", "kind": "AWSCluster", "name": "prod"}
V1BETA1_REFERENCE = {"apiVersion": "infrastructure.example.com/v1", "kind": "AWSCluster", "name": "prod"}


class TestInfrastructure:
    """The names become parts of a path: nothing that no object is called so."""

    @pytest.mark.parametrize(("reference", "version"), [(REFERENCE, ""), (V1BETA1_REFERENCE, "v1")])
    def test_a_clusters(self, reference: dict[str, Any], version: str) -> None:
        found = cluster_view({"spec": {"infrastructureRef": reference}}).infrastructure
        assert found == InfrastructureReference("infrastructure.example.com", version, "AWSCluster", "prod")

    @pytest.mark.parametrize("field", ["apiGroup", "kind", "name"])
    @pytest.mark.parametrize("text", ["", "../x", "a/b", "x ", "x\n", "x?watch=1", "x%2f", "x" * 254, None, 7])
    def test_no_such_name(self, field: str, text: object) -> None:
        reference = REFERENCE | {field: text}
        assert cluster_view({"spec": {"infrastructureRef": reference}}).infrastructure == NoInfrastructure()
        assert machine_view({"spec": {"infrastructureRef": reference}}).infrastructure == NoInfrastructure()

    @pytest.mark.parametrize("version", ["v1/x", "v1 ", "v1?", "-v1"])
    def test_no_such_version(self, version: str) -> None:
        reference = V1BETA1_REFERENCE | {"apiVersion": f"infrastructure.example.com/{version}"}
        assert cluster_view({"spec": {"infrastructureRef": reference}}).infrastructure == NoInfrastructure()


def test_texts_that_a_tenant_chooses_are_shared_and_not_kept_for_ever() -> None:
    """A Machine that changes without end must not fill the memory, whatever an interpreter does with interned texts."""

    def machine(number: int) -> MachineView:
        reference = {"apiGroup": f"g{number}.example.com", "kind": f"Kind{number}", "name": "m"}
        status = {"addresses": [{"type": f"Type{number}", "address": "10.0.0.1"}]}
        metadata = {"namespace": "team-a", "name": "m", "labels": {MACHINE_DEPLOYMENT_LABEL: f"deployment-{number}"}}
        return machine_view({"metadata": metadata, "spec": {"infrastructureRef": reference}, "status": status})

    one, same = machine(0), machine(0)
    assert isinstance(one.infrastructure, InfrastructureReference)
    assert isinstance(same.infrastructure, InfrastructureReference)
    assert one.infrastructure.kind is same.infrastructure.kind
    assert one.addresses[0].type is same.addresses[0].type
    before = sys.getrefcount(one.deployment)
    for number in range(1, 10_000):
        machine(number)
    kept = shared_text.cache_info()
    assert (kept.currsize, kept.maxsize) == (4096, 4096)
    assert sys.getrefcount(one.deployment) < before  # the table has let go of it
    assert machine(0).deployment is not one.deployment


def test_no_text_of_an_object_is_interned() -> None:
    for package in (signer, attestors):
        for path in Path(package.__path__[0]).rglob("*.py"):
            assert "sys.intern(" not in path.read_text("utf-8"), path
