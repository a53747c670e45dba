"""The Bastion of a grant, and what its status may say."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from attestors.wire.ssh.key_line import key_line, parse_key_line
from attestors.wire.ssh.keys import host_key
from signer.access.bastion_objects import (
    AsDesired,
    Change,
    MakeAnother,
    bastion_change,
    bastion_state,
    desired_bastion,
)
from signer.access.parts import AbsentBastion, BrokenBastion, PendingBastion, ReadyBastion, TargetNode
from signer.access.targets import bastion_known_hosts
from signer.model.access import parse_bastion
from tests.support.access_grants import AUTHORITY, grant_of
from tests.support.access_objects import AUTHORITY_KEY, GRANT_UID, metadata
from tests.support.openssh import public_keys

INGRESS: Final = [{"ipBlock": {"cidr": "198.51.100.7/32"}}]
END: Final = datetime(2026, 11, 27, 22, tzinfo=UTC)
HOST_KEY: Final = key_line(public_keys()["nistp256"])
READY: Final = {
    "observedGeneration": 1,
    "ingress": {"ip": "203.0.113.9", "port": 2222},
    "hostKeys": [HOST_KEY],
    "egress": ["10.1.0.9/32"],
    "conditions": [{"type": "BastionReady", "status": "True", "reason": "SuccessfullyReconciled", "message": ""}],
}


def desired(*nodes: TargetNode, **changes: Any) -> dict[str, Any]:
    grant = grant_of(ingress=changes.pop("ingress", INGRESS))
    given = {"authorities": (AUTHORITY.public_key,), "not_after": END, "provider": "local", "settings": {}, **changes}
    targets = nodes or (TargetNode("worker-1", ("10.0.0.5", "w.example"), 22),)
    made: dict[str, Any] = desired_bastion(grant, targets, **given)
    return made


def stored(made: dict[str, Any], **status: Any) -> dict[str, Any]:
    """As the API server gives it."""
    given = metadata("repair", "5d1c2b6a-3a0e-4f4a-a9b1-5a1b8c0d9e03")
    return {**copy.deepcopy(made), "metadata": {**made["metadata"], **given}, "status": status}


def test_it_is_what_the_model_reads() -> None:
    made = desired(settings={"subnet": "public"})
    [owner] = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("AccessGrant", GRANT_UID, True)
    bastion = parse_bastion(stored(made))
    assert bastion.principal == f"bastion@{GRANT_UID}"
    assert bastion.settings == {"subnet": "public"}
    assert bastion.user_authorities == (key_line(AUTHORITY.public_key),)
    assert [list(map(str, one.addresses)) for one in bastion.targets] == [["10.0.0.5"]], "a bastion looks no name up"
    assert bastion.not_after == END


def test_addresses_that_are_no_nodes_are_no_targets() -> None:
    """A provider of infrastructure, or whoever writes Machines, names the metadata service or the bastion itself."""
    bad = ("127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "::1", "fe80::1", "worker-1")  # noqa: S104
    made = desired(TargetNode("a", bad, 22), TargetNode("b", (*bad, "10.0.0.6"), 2222))
    assert made["spec"]["targets"] == [{"addresses": ["10.0.0.6"], "port": 2222}]


def test_only_three_fields_change() -> None:
    found = stored(desired())
    assert bastion_change(found, desired()) == AsDesired()
    narrowed = desired(ingress=[{"ipBlock": {"cidr": "198.51.100.8/32"}}])
    assert bastion_change(found, narrowed) == Change({"ingress": narrowed["spec"]["ingress"]})
    other = public_keys()["ed25519"]
    later = desired(authorities=(other, AUTHORITY.public_key), not_after=END.replace(hour=23))
    change = bastion_change(found, later)
    assert isinstance(change, Change)
    assert change.fields == {name: later["spec"][name] for name in ("notAfter", "userAuthorities")}
    assert bastion_change(found, desired(provider="aws")) == MakeAnother(("provider",))
    assert bastion_change(found, desired(settings={"a": 1}, not_after=END.replace(hour=23))) == MakeAnother(
        ("settings",)
    )
    assert bastion_change(found, desired(TargetNode("b", ("10.0.0.6",), 22))) == MakeAnother(("targets",))
    of_another = copy.deepcopy(found)
    of_another["spec"]["grantRef"]["uid"] = "0d2f7e9e-58a4-4ad1-9a55-0d6fdf9a3c99"
    assert bastion_change(of_another, desired()) == MakeAnother(("grantRef",)), "a former grant of that name"


def test_the_order_of_authorities_changes_nothing() -> None:
    other = public_keys()["ed25519"]
    one, same = (desired(authorities=two) for two in ((other, AUTHORITY.public_key), (AUTHORITY.public_key, other)))
    assert one == same


def test_a_ready_bastion() -> None:
    state = bastion_state(stored(desired(), **READY))
    key = host_key(parse_key_line(HOST_KEY))
    assert state == ReadyBastion({"ip": "203.0.113.9", "port": 2222}, ("10.1.0.9/32",), (key,))
    assert isinstance(state, ReadyBastion)
    assert bastion_known_hosts(grant_of(), state) == (f"node-access-bastion-{GRANT_UID} {HOST_KEY}",)
    named = bastion_state(stored(desired(), **{**READY, "ingress": {"hostname": "b.example", "port": 22}}))
    assert isinstance(named, ReadyBastion)
    assert named.ingress == {"hostname": "b.example", "port": 22}


def condition(status: str, reason: str) -> list[dict[str, str]]:
    return [{"type": "BastionReady", "status": status, "reason": reason, "message": "m"}]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ({}, PendingBastion),
        ({**READY, "observedGeneration": 0}, PendingBastion),
        ({**READY, "observedGeneration": "1"}, PendingBastion),
        ({**READY, "conditions": []}, PendingBastion),
        ({**READY, "conditions": condition("Unknown", "Creating")}, PendingBastion),
        ({**READY, "conditions": condition("False", "DeletionInProgress")}, PendingBastion),
        ({**READY, "conditions": condition("False", "FailedReconciling")}, BrokenBastion),
        ({**READY, "conditions": condition("False", "TargetNotAllowed")}, BrokenBastion),
        ({**READY, "conditions": condition("False", "PlaceChanged")}, BrokenBastion),
        ({**READY, "conditions": condition("False", "PlaceUnknown")}, BrokenBastion),
        ({**READY, "conditions": condition("true", "SuccessfullyReconciled")}, BrokenBastion),
        ({**READY, "ingress": None}, BrokenBastion),
        ({**READY, "ingress": {"ip": "203.0.113.9 -oProxyCommand=x", "port": 22}}, BrokenBastion),
        ({**READY, "ingress": {"hostname": "-oProxyCommand=x", "port": 22}}, BrokenBastion),
        ({**READY, "ingress": {"ip": "203.0.113.9", "port": 0}}, BrokenBastion),
        ({**READY, "hostKeys": []}, BrokenBastion),
        ({**READY, "hostKeys": [f"{HOST_KEY} comment"]}, BrokenBastion),
        ({**READY, "hostKeys": [f"* {HOST_KEY}"]}, BrokenBastion),
        ({**READY, "hostKeys": [f"{HOST_KEY}\n@cert-authority * {AUTHORITY_KEY}"]}, BrokenBastion),
        ({**READY, "hostKeys": [key_line(public_keys()["sk-ed25519"])]}, BrokenBastion),
        ({**READY, "hostKeys": [key_line(AUTHORITY.public_key)]}, BrokenBastion),
        ({**READY, "egress": ["0.0.0.0/0"]}, BrokenBastion),
        ({**READY, "egress": ["10.1.0.9"]}, BrokenBastion),
    ],
)
def test_other_status(status: dict[str, Any], kind: type) -> None:
    state = bastion_state(stored(desired(), **status))
    assert isinstance(state, kind), state
    assert not isinstance(state, ReadyBastion)


def test_a_bastion_that_goes_is_not_ready() -> None:
    found = stored(desired(), **READY)
    found["metadata"]["deletionTimestamp"] = "2026-11-27T15:00:00Z"
    assert isinstance(bastion_state(found), PendingBastion)
    assert bastion_state(AbsentBastion()) == AbsentBastion()


def test_a_bastion_for_another_principal_is_broken() -> None:
    found = stored(desired(), **READY)
    found["spec"]["principal"] = "root"
    assert isinstance(bastion_state(found), BrokenBastion)
