"""Launch keys of infrastructure machines: of each kind what declares one, what nearly does, and what is open."""

from __future__ import annotations

from typing import Any

import pytest

from signer.ssh.ways_in.findings import Certainty
from signer.ssh.ways_in.infrastructure import (
    MACHINE_KINDS,
    MANAGED_BY_ANNOTATION,
    AnyInfraCluster,
    InfraCluster,
    NoFields,
    NoInfraCluster,
    findings_in,
    prefix_of,
)

D, P = Certainty.DECLARED, Certainty.POSSIBLE
NONE = NoInfraCluster()


def found(kind: str, spec: Any, cluster: AnyInfraCluster = NONE) -> list[tuple[str, Certainty]]:
    manifest = {"spec": {"template": {"spec": spec}} if kind.endswith("Template") else spec}
    return [(one.field, one.certainty) for one in findings_in(kind, manifest, cluster)]


def aws(**spec: Any) -> InfraCluster:
    return InfraCluster("AWSCluster", spec)


def hetzner(**spec: Any) -> InfraCluster:
    return InfraCluster("HetznerCluster", spec)


MANAGED = {MANAGED_BY_ANNOTATION: "terraform"}
LAUNCH_TEMPLATE = {"awsLaunchTemplate": {"sshKeyName": "ops"}}
PASSED = {"additionalMetadata": [{"key": "block-project-ssh-keys", "value": "TRUE"}]}


@pytest.mark.parametrize(
    ("kind", "spec", "cluster", "field"),
    [
        ("AWSMachine", {"sshKeyName": "ops"}, NONE, "sshKeyName"),
        ("AWSMachine", {"sshKeyName": None}, NONE, "sshKeyName"),
        ("AWSMachine", {}, aws(sshKeyName="ops"), "sshKeyName"),
        ("AWSMachine", {}, aws(), "sshKeyName"),
        ("AWSMachineTemplate", {}, aws(), "sshKeyName"),
        ("AWSMachinePool", LAUNCH_TEMPLATE, NONE, "awsLaunchTemplate.sshKeyName"),
        ("OpenStackMachine", {"sshKeyName": "ops"}, NONE, "sshKeyName"),
        ("OpenStackMachineTemplate", {"sshKeyName": "ops"}, NONE, "sshKeyName"),
        ("HCloudMachine", {"sshKeys": [{"name": "ops"}]}, hetzner(), "sshKeys"),
        ("HCloudMachine", {}, hetzner(sshKeys={"hcloud": [{"name": "ops"}]}), "sshKeys"),
        ("HetznerBareMetalMachine", {"sshSpec": {"secretRef": {"name": "ssh"}}}, NONE, "sshSpec.secretRef"),
        ("DOMachine", {"sshKeys": [1234]}, NONE, "sshKeys"),
        ("KubevirtMachine", {}, InfraCluster("KubevirtCluster"), "virtualMachineTemplate"),
        ("LinodeMachine", {"authorizedKeys": ["k"]}, NONE, "authorizedKeys"),
        ("LinodeMachine", {"authorizedUsers": ["me"]}, NONE, "authorizedUsers"),
        ("LinodeMachine", {"rootPass": "hunter2"}, NONE, "rootPass"),
        ("OCIMachine", {"metadata": {"ssh_authorized_keys": "k"}}, NONE, "metadata.ssh_authorized_keys"),
        (
            "OCIMachinePool",
            {"instanceConfiguration": {"metadata": {"ssh_authorized_keys": "k"}}},
            NONE,
            "instanceConfiguration.metadata.ssh_authorized_keys",
        ),
        ("CloudStackMachine", {"sshKey": "ops"}, NONE, "sshKey"),
        ("IBMVPCMachine", {"sshKeys": [{"id": "r006"}]}, NONE, "sshKeys"),
        ("IBMVPCMachine", {"sshKeyNames": ["ops"]}, NONE, "sshKeyNames"),
        ("IBMPowerVSMachine", {"sshKey": "ops"}, NONE, "sshKey"),
        ("OtherMachine", {"vm": [{"sshAuthorizedKeys": ["k"]}]}, NONE, "vm[].sshAuthorizedKeys"),
        ("OtherMachine", {"ssh_public_key": "k"}, NONE, "ssh_public_key"),
        ("OtherMachineTemplate", {"authorizedKeys": ["k"]}, NONE, "authorizedKeys"),
    ],
)
def test_what_declares_one(kind: str, spec: Any, cluster: AnyInfraCluster, field: str) -> None:
    assert found(kind, spec, cluster) == [(field, D)]


@pytest.mark.parametrize(
    ("kind", "spec", "cluster"),
    [
        ("AWSMachine", {"sshKeyName": ""}, aws(sshKeyName="ops")),
        ("AWSMachine", {}, aws(sshKeyName="")),
        ("AWSMachine", {}, InfraCluster("AWSCluster", {}, MANAGED)),
        ("AWSMachinePool", {"awsLaunchTemplate": {}}, aws()),
        ("AWSMachinePool", {"awsLaunchTemplate": {"sshKeyName": ""}}, aws()),
        ("AzureMachine", {"sshPublicKey": ""}, NONE),
        ("AzureMachinePool", {"template": {}}, NONE),
        ("OpenStackMachine", {"sshKeyName": ""}, NONE),
        ("OpenStackMachine", {}, NONE),
        ("HCloudMachine", {"sshKeys": []}, hetzner(sshKeys={"robotRescueSecretRef": {"name": "x"}})),
        ("HetznerBareMetalMachine", {"sshSpec": {}}, NONE),
        ("DOMachine", {"sshKeys": []}, NONE),
        ("KubevirtMachine", {}, InfraCluster("KubevirtCluster", {}, MANAGED)),
        ("LinodeMachine", {"authorizedKeys": [], "rootPass": ""}, NONE),
        ("OCIMachine", {"metadata": {"user_data": "x"}}, NONE),
        ("OCIMachinePool", {"metadata": {"ssh_authorized_keys": "k"}}, NONE),
        ("CloudStackMachine", {"sshKey": ""}, NONE),
        ("IBMVPCMachine", {"sshKeys": []}, NONE),
        ("IBMPowerVSMachine", {}, NONE),
        ("OtherMachine", {"sshKeyVault": "x", "keyName": "x", "sshKeys": []}, NONE),
        ("DockerMachine", {"sshKeyName": "no such field"}, NONE),
        ("AWSMachineTemplate", None, aws(sshKeyName="")),
    ],
)
def test_what_declares_none(kind: str, spec: Any, cluster: AnyInfraCluster) -> None:
    assert found(kind, spec, cluster) == []


@pytest.mark.parametrize(
    ("kind", "spec", "cluster", "fields"),
    [
        ("AWSMachine", {}, NONE, ["sshKeyName"]),
        ("AWSMachine", {}, InfraCluster("AWSManagedCluster"), ["sshKeyName"]),
        ("AzureMachine", {"sshPublicKey": "c3No"}, NONE, ["sshPublicKey"]),
        ("AzureMachinePool", {"template": {"sshPublicKey": "c3No"}}, NONE, ["template.sshPublicKey"]),
        ("HCloudMachine", {}, NONE, ["sshKeys"]),
        ("HCloudMachine", {}, hetzner(hetznerSecretRef={"key": {"sshKey": "ssh-key"}}), ["sshKeys"]),
        ("KubevirtMachine", {}, NONE, ["virtualMachineTemplate"]),
    ],
)
def test_what_something_else_decides(kind: str, spec: Any, cluster: AnyInfraCluster, fields: list[str]) -> None:
    assert found(kind, spec, cluster) == [(field, P) for field in fields]


@pytest.mark.parametrize("kind", ["GCPMachine", "GCPMachinePool"])
@pytest.mark.parametrize(
    ("metadata", "fields"),
    [
        ({"enable-oslogin": "FALSE", "block-project-ssh-keys": "TRUE"}, []),
        ({"enable-oslogin": "false", "block-project-ssh-keys": "1"}, []),
        ({"enable-oslogin": "TRUE", "ssh-keys": "me:ssh-ed25519 A"}, [("enable-oslogin", D)]),
        ({"block-project-ssh-keys": "TRUE"}, [("enable-oslogin", P)]),
        ({"enable-oslogin": "FALSE"}, [("block-project-ssh-keys", P)]),
        ({"enable-oslogin": "FALSE", "block-project-ssh-keys": "yes"}, [("block-project-ssh-keys", P)]),
        ({"enable-oslogin": "FALSE", "block-project-ssh-keys": "TRUE", "ssh-keys": "a"}, [("ssh-keys", D)]),
        ({"enable-oslogin": "FALSE", "block-project-ssh-keys": "TRUE", "sshKeys": "a"}, [("sshKeys", D)]),
        ({"enable-oslogin": "FALSE", "block-project-ssh-keys": "TRUE", "ssh-keys": ""}, []),
        ({}, [("enable-oslogin", P), ("block-project-ssh-keys", P)]),
    ],
)
def test_metadata_of_google(kind: str, metadata: dict[str, str], fields: list[tuple[str, Certainty]]) -> None:
    items: list[Any] = [{"key": key, "value": value} for key, value in metadata.items()]
    expected = [(f"additionalMetadata[{key}]", certainty) for key, certainty in fields]
    assert found(kind, {"additionalMetadata": [*items, None, "x", {"key": 7, "value": []}]}) == expected


def test_no_secret_is_shown() -> None:
    spec = {"rootPass": "hunter2", "sshPublicKey": "hunter2", "sshKeys": ["hunter2"], "authorizedKeys": ["hunter2"]}
    for kind in (*MACHINE_KINDS, "OtherMachine"):
        for one in findings_in(kind, {"spec": {**spec, "metadata": {"ssh_authorized_keys": "hunter2"}}}, NONE):
            assert "hunter2" not in f"{one.field} {one.says} {one.close}"


def test_a_name_is_bounded_and_printable() -> None:
    [one] = findings_in("OpenStackMachine", {"spec": {"sshKeyName": "\x1b[2J\n" + "a" * 9999}}, NONE)
    assert len(one.says) < 100
    assert one.says.isprintable()


@pytest.mark.parametrize("kind", [*MACHINE_KINDS, *(f"{kind}Template" for kind in MACHINE_KINDS), "OtherMachine"])
@pytest.mark.parametrize("value", [None, 7, True, "x", [], [7], {}, {"key": {"sshKey": 7}}])
def test_any_object_is_read(kind: str, value: Any) -> None:
    names = ("sshKeyName", "sshKeys", "additionalMetadata", "template", "sshSpec", "metadata", "awsLaunchTemplate")
    for spec in (value, dict.fromkeys(names, value)):
        for cluster in (NONE, aws(sshKeyName=value), hetzner(sshKeys=value, hetznerSecretRef=value)):
            found(kind, spec, cluster)


def test_where_the_spec_is() -> None:
    assert (prefix_of("AWSMachine"), prefix_of("AWSMachineTemplate")) == ("spec", "spec.template.spec")


def test_each_kind_without_fields_says_what_is_not_seen() -> None:
    """Containers for tests aside."""
    for kind, one in MACHINE_KINDS.items():
        assert one.unseen or (isinstance(one.rule, NoFields) and kind.startswith(("Docker", "Dev")))
