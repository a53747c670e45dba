"""Grants of a hostile API server."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.wire.ssh.container_names import parse_container_principal
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.signatures import public_key_of
from node_access.client.grants import (
    BastionAddress,
    ContainerTarget,
    GatewayAddress,
    InvalidGrant,
    NodesTarget,
    created_by,
    parse_grant,
)
from tests.support.openssh import private_key
from tests.unit.node_access.client.made import BASTION, GRANT_UID, document


def test_a_grant() -> None:
    found = parse_grant(document(BASTION, bastion="aws", duration="8h", permissions={"portForwarding": True}))
    assert (str(found.key), found.key.uid, found.creator, found.cluster) == (
        "team-a/repair",
        GRANT_UID,
        "alice",
        "production",
    )
    assert str(found.target) == "worker-1"
    assert isinstance(found.target, NodesTarget)
    assert found.port_forwarding
    assert isinstance(found.status.bastion, BastionAddress)
    assert len(found.status.known_hosts.authorities) == len(found.status.known_hosts.plain) == 1
    assert found.status.condition("Ready").status.value == "True"
    assert found.status.condition("Other").status.value == "Unknown"


def test_all_nodes_and_containers() -> None:
    every = parse_grant(document(target={"allNodes": {}}))
    assert every.opens("production", every.status.targets[0].node)
    pod = {"namespace": "web", "pod": "web-1", "container": "c"}
    of_workload = {"namespace": "web", "workload": {"kind": "Deployment", "name": "shop"}, "container": "c"}
    for target, name in ((pod, "web_web-1_c"), (of_workload, "web_deploy.shop_c")):
        made = document()
        made["spec"]["target"] = {"container": target}
        container = parse_container_principal(name)
        assert parse_grant(made).target == ContainerTarget(container)
        assert str(parse_grant(made).target) == name
        assert parse_grant(made).opens_container("production", container)
        assert not parse_grant(made).opens_container("staging", container)


@pytest.mark.parametrize(
    "container",
    [
        {"namespace": "web", "pod": "web-1"},
        {"namespace": "web\n", "pod": "web-1", "container": "c"},
        {"namespace": "web", "pod": "../x", "container": "c"},
        {"namespace": "web", "workload": {"kind": "Node", "name": "shop"}, "container": "c"},
        {"namespace": "web", "container": "c"},
    ],
)
def test_a_container_that_none_could_be_is_refused(container: dict[str, Any]) -> None:
    made = document()
    made["spec"]["target"] = {"container": container}
    with pytest.raises(InvalidGrant, match=r"spec\.target\.container"):
        parse_grant(made)


def test_the_gateways_keys_are_not_the_bastions() -> None:
    made = document(BASTION)
    line = key_line(public_key_of(private_key("ed25519", 350)))
    made["status"]["knownHosts"].append(f"node-access-gateway-{GRANT_UID} {line}")
    made["status"]["gateway"] = {"host": "gateway.example.com", "port": 2222}
    status = parse_grant(made).status
    assert list(map(key_line, status.known_hosts.gateway)) == [line]
    assert line not in map(key_line, status.known_hosts.plain)
    assert isinstance(status.gateway, GatewayAddress)
    for wrong in ({"host": "-oProxyCommand=x", "port": 22}, {"host": "a b", "port": 22}, {"host": "a", "port": 0}):
        made["status"]["gateway"] = wrong
        with pytest.raises(InvalidGrant, match=r"status\.gateway"):
            parse_grant(made)


def changed(path: str, value: object) -> dict[str, Any]:
    made = document(BASTION)
    *where, last = path.split(".")
    part: Any = made
    for name in where:
        part = part[int(name)] if name.isdigit() else part.setdefault(name, {})
    part[int(last) if last.isdigit() else last] = value
    return made


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("kind", "Secret"),
        ("metadata.name", "-oProxyCommand=x"),
        ("metadata.uid", "../../x"),
        ("metadata.namespace", "a b"),
        ("metadata.creationTimestamp", "now"),
        ("spec.clusterRef.name", "prod\n    ProxyCommand x"),
        ("spec.permissions.pty", "false"),
        ("spec.permissions.portForwarding", 1),
        ("spec.suspend", "true"),
        ("spec.target.nodes", ["-oProxyCommand=touch"]),
        ("spec.target", {}),
        ("spec.sshPublicKey", 'command="x" ssh-ed25519 AAAA'),
        ("spec.ingress", [{"ipBlock": {"cidr": "10.0.0.1/8"}}]),
        ("spec.createdBy", []),
        ("spec.logins", ["root -o x"]),
        ("spec.reason", "x" * 5000),
        ("status.ingress.ip", "$(touch /x)"),
        ("status.ingress.ip", "203.0.113.5 -oProxyCommand=x"),
        ("status.ingress.port", 0),
        ("status.ingress.port", True),
        ("status.targets.0.node", "a\nHost *"),
        ("status.targets.0.addresses", ["-oProxyCommand=x"]),
        ("status.targets.0.addresses", ["10.0.0.7\n    ProxyCommand touch /x"]),
        ("status.targets.0.addresses", ["%h"]),
        ("status.targets.0.port", "22"),
        ("status.targets", [{"node": "worker-1", "addresses": ["10.0.0.7"], "port": 22}] * 1025),
        ("status.certificates.0.hop", "other"),
        ("status.certificates.0.certificate", "ssh-ed25519-cert-v01@openssh.com AAAA"),
        ("status.certificates.0.certificate", "a\nb"),
        ("status.knownHosts", ["@revoked * ssh-ed25519 AAAA"]),
        ("status.knownHosts", ["* ssh-ed25519 AAAA"]),
        ("status.knownHosts", ["@cert-authority *"]),
        ("status.knownHosts", "text"),
        ("status.conditions.0.type", "Ready\x1b[2J"),
        ("status.conditions.0.status", "Maybe"),
        ("status.conditions.0.reason", "\x1b[2J"),
        ("status.conditions.0.message", 7),
        ("status.expirationTimestamp", "never"),
        ("status.observedGeneration", "1"),
        ("status", []),
    ],
)
def test_what_is_refused(path: str, value: object) -> None:
    with pytest.raises(InvalidGrant):
        parse_grant(changed(path, value))


def test_a_changed_but_valid_field_is_accepted() -> None:
    assert parse_grant(changed("status.targets.0.addresses", ["2001:db8::7"])).status.targets


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(["metadata", "spec", "status", "spec.target", "status.certificates", "status.ingress"]), _JSON)
def test_no_other_error_leaves_it(path: str, value: object) -> None:
    with contextlib.suppress(InvalidGrant):
        parse_grant(changed(path, value))


def test_who_made_it() -> None:
    assert created_by({"spec": {}}) == ""
    assert created_by(document()) == "alice"
