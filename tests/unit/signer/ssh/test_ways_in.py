"""Other ways in than certificates: what bootstrap data and infrastructure objects open, and what is only said."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer.ssh.status import condition_of_ways_in
from signer.ssh.ways_in import (
    MAXIMUM_WAYS,
    NO_KEYS,
    WITH_KEYS,
    WaysIn,
    knows_fields_of,
    ways_of_bootstrap_config,
    ways_of_infrastructure,
)


def of_bootstrap(**spec: Any) -> list[tuple[str, str]]:
    return [(way.where, way.what) for way in ways_of_bootstrap_config({"spec": spec})]


def of_machine(kind: str, **spec: Any) -> list[tuple[str, str]]:
    return [(way.where, way.what) for way in ways_of_infrastructure(kind, {"spec": spec})]


@pytest.mark.parametrize(
    ("spec", "where"),
    [
        ({"users": [{"name": "capi", "sshAuthorizedKeys": ["ssh-ed25519 A"]}]}, "spec.users[].sshAuthorizedKeys"),
        ({"users": [{"name": "capi", "passwd": "$6$x", "lockPassword": False}]}, "spec.users[].lockPassword"),
        ({"files": [{"path": "/root/.ssh/authorized_keys", "content": "x"}]}, "spec.files[].path"),
        ({"files": [{"path": "/home/a/.ssh/rc"}]}, "spec.files[].path"),
        ({"files": [{"path": "/etc/ssh/sshd_config.d/50.conf", "contentFrom": {}}]}, "spec.files[].path"),
        ({"files": [{"path": "/etc/shadow"}]}, "spec.files[].path"),
        ({"files": [{"path": "/run.sh", "content": "echo K >> ~/.ssh/authorized_keys"}]}, "spec.files[].content"),
        ({"preKubeadmCommands": ["echo root:x | chpasswd"]}, "spec.preKubeadmCommands"),
        ({"postKubeadmCommands": ["ssh-import-id gh:me"]}, "spec.postKubeadmCommands"),
        ({"bootCommands": ["usermod -p x root"]}, "spec.bootCommands"),
        (
            {"ignition": {"containerLinuxConfig": {"additionalConfig": "ssh_authorized_keys: [x]"}}},
            "spec.ignition",
        ),
    ],
)
def test_bootstrap_data_that_opens_a_way(spec: dict[str, Any], where: str) -> None:
    assert [found for found, _ in of_bootstrap(**spec)] == [where]


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"users": [{"name": "locked", "passwd": "$6$x"}, {"name": "locked", "lockPassword": True}]},
        {"files": [{"path": "/etc/ssh/node-access/sshd_config", "content": "Port 2222"}]},
        {"preKubeadmCommands": ["systemctl enable node-access-sshd.socket"]},
        {"users": "x", "files": [5, {"path": 5}], "preKubeadmCommands": [5, {}], "ignition": []},
    ],
)
def test_bootstrap_data_that_opens_none(spec: dict[str, Any]) -> None:
    assert of_bootstrap(**spec) == []


@pytest.mark.parametrize(
    ("kind", "spec", "where"),
    [
        ("AWSMachine", {}, "spec.sshKeyName"),
        ("AWSMachine", {"sshKeyName": "ops"}, "spec.sshKeyName"),
        ("OpenStackMachine", {"sshKeyName": "ops"}, "spec.sshKeyName"),
        ("AzureMachine", {"sshPublicKey": "c3No"}, "spec.sshPublicKey"),
        ("GCPMachine", {}, "spec.additionalMetadata"),
        ("HCloudMachine", {}, "spec.sshKeys"),
        ("HCloudMachine", {"sshKeys": [{"name": "ops"}]}, "spec.sshKeys"),
        ("DOMachine", {"sshKeys": [1234]}, "spec.sshKeys"),
        ("PacketMachine", {"sshKeys": ["k"]}, "spec.sshKeys"),
        ("CloudStackMachine", {"sshKey": "ops"}, "spec.sshKey"),
        ("LinodeMachine", {"authorizedKeys": ["k"]}, "spec.authorizedKeys"),
        ("LinodeMachine", {"authorizedUsers": ["me"]}, "spec.authorizedUsers"),
        ("VultrMachine", {"sshKeyName": "ops"}, "spec.sshKeyName"),
        ("OtherMachine", {"template": {"vm": [{"sshAuthorizedKeys": ["k"]}]}}, "spec.template.vm[].sshAuthorizedKeys"),
        ("OtherMachine", {"metadata": {"ssh_authorized_keys": "k"}}, "spec.metadata.ssh_authorized_keys"),
        ("OtherMachine", {"sshPublicKeys": ["k"]}, "spec.sshPublicKeys"),
    ],
)
def test_a_machine_with_launch_keys(kind: str, spec: dict[str, Any], where: str) -> None:
    assert [found for found, _ in of_machine(kind, **spec)] == [where]


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("AWSMachine", {"sshKeyName": ""}),
        ("OpenStackMachine", {}),
        ("OpenStackMachine", {"sshKeyName": ""}),
        ("GCPMachine", {"additionalMetadata": [{"key": "block-project-ssh-keys", "value": "TRUE"}]}),
        ("DOMachine", {"sshKeys": []}),
        ("Metal3Machine", {"image": {"url": "x"}}),
        ("OtherMachine", {"sshKeyVault": "x", "keyName": "x"}),
    ],
)
def test_a_machine_without(kind: str, spec: dict[str, Any]) -> None:
    assert of_machine(kind, **spec) == []


def test_metadata_of_google() -> None:
    def found(**metadata: str) -> list[str]:
        items = [{"key": key.replace("_", "-"), "value": value} for key, value in metadata.items()]
        return [what.split(":")[0] for _, what in of_machine("GCPMachine", additionalMetadata=items)]

    blocked = {"block_project_ssh_keys": "true"}
    assert found(ssh_keys="me:ssh-ed25519 A", **blocked) == ["ssh-keys"]
    assert found(enable_oslogin="TRUE") == ["enable-oslogin"]
    assert found(block_project_ssh_keys="false") == ["without block-project-ssh-keys"]


def test_a_key_of_azure_is_said_to_be_perhaps_nobodys() -> None:
    [(_, what)] = of_machine("AzureMachine", sshPublicKey="c3No")
    assert "a key that nobody has" in what
    assert "c3No" not in what


def test_which_kinds_are_known() -> None:
    assert not NO_KEYS & WITH_KEYS
    assert all(map(knows_fields_of, NO_KEYS | WITH_KEYS))
    assert not knows_fields_of("OtherMachine")


def test_the_same_way_of_many_machines_is_one_line() -> None:
    ways = WaysIn()
    for number in range(1000):
        ways.add(ways_of_infrastructure("AWSMachine", {"spec": {"sshKeyName": "ops"}}), f"m{number}")
    assert ways.lines == ("AWSMachine spec.sshKeyName: a launch key ops (m0, m1, m2 and 997 more)",)


def test_ways_are_bounded() -> None:
    ways = WaysIn()
    for number in range(MAXIMUM_WAYS + 5):
        user = {"name": f"u{number}", "sshAuthorizedKeys": ["k"]}
        ways.add(ways_of_bootstrap_config({"spec": {"users": [user]}}), "config")
    assert len(ways.lines) == MAXIMUM_WAYS
    assert list(ways.not_known) == [f"there are more than {MAXIMUM_WAYS} ways in"]
    assert ways.message.endswith(f"; and {MAXIMUM_WAYS - 5} more ways")


def test_the_condition() -> None:
    ways = WaysIn()
    assert (condition_of_ways_in(ways).met, condition_of_ways_in(ways).reason) == (False, "NoneFound")
    assert "not seen from here" in condition_of_ways_in(ways).message
    ways.unknown("AWSMachines may not be listed")
    assert (condition_of_ways_in(ways).met, condition_of_ways_in(ways).reason) == (None, "NotKnown")
    ways.add(ways_of_infrastructure("AWSMachine", {}), "m")
    found = condition_of_ways_in(ways)
    assert (found.met, found.reason) == (True, "Found")
    assert "AWSMachine spec.sshKeyName" in found.message
    assert "not known: AWSMachines may not be listed" in found.message
    assert not found.type.counts_toward_ready(None)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["users", "files", "path", "name", "sshKeys", "sshKeyName", "spec", "content", "\n\x1b"])
            | st.text(max_size=8),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JSON, st.sampled_from([*sorted(WITH_KEYS), "OtherMachine"]))
def test_any_object_has_printable_lines(value: Any, kind: str) -> None:
    ways = WaysIn()
    manifest = {"spec": value}
    ways.add(ways_of_bootstrap_config(manifest), "a\n\x1b[2Jb")
    ways.add(ways_of_infrastructure(kind, manifest), "m")
    assert all(line.isprintable() for line in ways.lines)
