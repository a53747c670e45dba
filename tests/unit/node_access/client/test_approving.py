"""What an approver sees: everything that the digest covers, and nothing that a terminal obeys."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from node_access.client.approving import UNKNOWN_FIELD, approval_lines
from node_access.client.grants import InvalidGrant, parse_grant
from node_access.client.manifests import spec_digest
from node_access.client.tables import fields
from tests.unit.node_access.client.made import document

FULL: dict[str, Any] = {
    "target": {"nodes": ["worker-1", "worker-2"]},
    "logins": ["root", "admin"],
    "ingress": [{"ipBlock": {"cidr": "198.51.100.7/32"}}, {"ipBlock": {"cidr": "2001:db8::7/128"}}],
    "bastion": "kubernetes",
    "duration": "8h",
    "permissions": {"pty": False, "portForwarding": True, "command": "journalctl -f"},
    "reason": "disk full",
    "ticket": "OPS-7",
    "createdBy": {"username": "alice", "uid": "u-1", "groups": ["system:authenticated", "sre"]},
    "suspend": False,
}


def shown(made: dict[str, Any]) -> str:
    return fields(approval_lines(made, parse_grant(made)), width=80)


def test_every_field_has_a_line() -> None:
    made = document(**copy.deepcopy(FULL))
    lines = dict(approval_lines(made, parse_grant(made)))
    assert lines["Grant"] == "team-a/repair"
    assert lines["UID"] == made["metadata"]["uid"]
    assert lines["Target"] == "worker-1, worker-2"
    assert lines["Logins"] == "root, admin"
    assert (lines["Creator"], lines["Creator's UID"]) == ("alice", "u-1")
    assert lines["Creator's groups"] == "system:authenticated, sre"
    assert (lines["Terminal (pty)"], lines["Port forwarding"]) == ("no", "yes")
    assert lines["Command"] == "journalctl -f"
    assert lines["Bastion"] == "kubernetes"
    assert lines["Ingress"].startswith("198.51.100.7/32, 2001:db8::7/128; the creator may change it")
    assert (lines["Duration"], lines["Reason"], lines["Ticket"]) == ("8h", "disk full", "OPS-7")
    assert lines["Key"].startswith("ssh-ed25519 SHA256:")
    assert lines["Digest (SHA-256)"] == spec_digest(made["spec"])
    assert UNKNOWN_FIELD not in lines


def test_what_is_not_stated_is_said_to_be_so() -> None:
    made = document(permissions={})
    for name in ("createdBy", "logins", "duration", "reason", "ticket", "ingress", "bastion"):
        made["spec"].pop(name, None)
    lines = dict(approval_lines(made, parse_grant(made)))
    assert (lines["Terminal (pty)"], lines["Port forwarding"], lines["Command"]) == ("yes", "no", "any")
    assert (lines["Logins"], lines["Creator"], lines["Creator's groups"]) == ("root", "not stated", "none")
    assert lines["Duration"] == "the policy's longest"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({"allNodes": {}}, "all nodes"),
        (
            {"container": {"namespace": "web", "pod": "web-1", "container": "shop"}},
            "container shop of Pod web/web-1",
        ),
        (
            {"container": {"namespace": "web", "workload": {"kind": "DaemonSet", "name": "proxy"}, "container": "x"}},
            "container x of DaemonSet web/proxy",
        ),
    ],
)
def test_targets(target: dict[str, Any], words: str) -> None:
    made = document(target=target) if "allNodes" in target else document()
    made["spec"]["target"] = target
    assert dict(approval_lines(made, parse_grant(made)))["Target"] == words


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ((), "spec.novelty"),
        (("permissions",), "spec.permissions.novelty"),
        (("target",), "spec.target.novelty"),
        (("createdBy",), "spec.createdBy.novelty"),
        (("ingress", 0), "spec.ingress.novelty"),
        (("ingress", 0, "ipBlock"), "spec.ingress.ipBlock.novelty"),
    ],
)
def test_a_field_of_a_newer_version_is_shown_as_it_is(where: tuple[str | int, ...], name: str) -> None:
    made = document(**copy.deepcopy(FULL))
    part: Any = made["spec"]
    for one in where:
        part = part[one]
    part["novelty"] = {"forwardAgent": True}
    found = dict(approval_lines(made, parse_grant(made)))[UNKNOWN_FIELD]
    assert found == f'{name}: {{"forwardAgent": true}}'


def test_a_terminal_obeys_nothing_of_it() -> None:
    """Escapes, a line that overwrites another one, a text from right to left, and half of a surrogate pair."""
    attack = "x\r\x1b[2K\x1b[1ALogins: nobody\u202e\x9b2J\nTicket: OPS-1\ud800"
    made = document(**copy.deepcopy(FULL))
    made["spec"]["reason"] = made["spec"]["permissions"]["command"] = attack
    made["spec"]["createdBy"].update(username=attack, groups=[attack], uid=attack)
    made["spec"]["novelty"] = {attack: attack}
    made["spec"][attack] = attack
    text = shown(made)
    assert all(one.isprintable() for one in text.splitlines())
    assert all(len(line) <= 80 for line in text.splitlines())
    assert not [line for line in text.splitlines() if line.startswith("Ticket:") and "OPS-1" in line]
    assert "\\x1b[2K" in text


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_spec_without_a_digest_is_not_approved(value: float) -> None:
    made = document(novelty=value)
    with pytest.raises(InvalidGrant, match="not JSON"):
        approval_lines(made, parse_grant(made))
