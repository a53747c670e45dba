"""What is sent, what is answered, and the digest that an approval names."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attestors.wire.ssh.options import parse_network
from attestors.wire.ssh.principals import HostName
from attestors.wire.ssh.signatures import public_key_of
from node_access.client.grants import AllNodesTarget, GrantKey, NodesTarget
from node_access.client.manifests import (
    GrantRequest,
    NotAsSent,
    Person,
    approval_manifest,
    grant_manifest,
    heartbeat_patch,
    ingress_patch,
    require_as_sent,
    spec_digest,
    with_creator,
)
from signer.model.access import parse_access_approval, parse_access_grant
from signer.model.access.digest import digest_of_spec
from tests.support.access_objects import GRANT_UID, metadata
from tests.unit.node_access.client.made import KEY, document

ALICE = Person("alice", "u-1", ("team-a",))
KEY_OF_GRANT = GrantKey("team-a", "repair", GRANT_UID)
FULL = GrantRequest(
    cluster="production",
    target=NodesTarget((HostName("worker-1"),)),
    logins=("root", "admin"),
    ingress=(parse_network("198.51.100.7/32"),),
    bastion="aws",
    duration="8h",
    port_forwarding=True,
    command="journalctl -f",
    reason="disk full",
    ticket="OPS-7",
)


def stored(made: dict[str, Any]) -> dict[str, Any]:
    """As an API server returns it."""
    return {**copy.deepcopy(made), "metadata": metadata(made["metadata"]["name"], GRANT_UID)}


def test_the_controller_reads_what_is_asked_for() -> None:
    grant = parse_access_grant(stored(with_creator(grant_manifest(FULL, "repair", public_key_of(KEY)), ALICE)))
    assert (grant.logins, grant.reason, grant.ticket) == (("admin", "root"), "disk full", "OPS-7")
    assert grant.permissions.port_forwarding
    assert grant.permissions.command == "journalctl -f"
    every = GrantRequest("production", AllNodesTarget(), ("root",))
    assert parse_access_grant(stored(grant_manifest(every, "repair", public_key_of(KEY)))).target is not None


def test_the_controller_reads_an_approval() -> None:
    grant = document(reason="ä € 💥")
    approval = with_creator(approval_manifest(KEY_OF_GRANT, "yes", grant["spec"], decision="Approve"), Person("bob"))
    found = parse_access_approval(stored(approval))
    assert found.spec_digest == parse_access_grant(grant).digest
    assert found.grant.uid == GRANT_UID


_JSON = st.recursive(
    st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=9,
)


@settings(max_examples=40)
@given(st.dictionaries(st.sampled_from(["ingress", "suspend", "reason", "logins"]) | st.text(max_size=5), _JSON))
def test_the_digest_is_the_controllers(spec: dict[str, Any]) -> None:
    assert spec_digest(spec) == digest_of_spec(spec)


def test_what_may_change_is_not_in_the_digest() -> None:
    assert spec_digest({"a": 1, "ingress": [1], "suspend": True}) == spec_digest({"a": 1})
    assert spec_digest({"a": 1}) != spec_digest({"a": 2})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sshPublicKey", "ssh-ed25519 AAAA"),
        ("target", {"allNodes": {}}),
        ("logins", ["root"]),
        ("ingress", [{"ipBlock": {"cidr": "0.0.0.0/1"}}]),
        ("createdBy", {"username": "bob"}),
        ("permissions", {}),
    ],
)
def test_an_answer_that_differs_is_noticed(field: str, value: object) -> None:
    sent = with_creator(grant_manifest(FULL, "repair", public_key_of(KEY)), ALICE)
    got = stored(sent)
    require_as_sent(sent, got)
    got["spec"]["suspend"] = False
    got["spec"]["permissions"]["pty"] = True
    require_as_sent(sent, got)
    got["spec"][field] = value
    with pytest.raises(NotAsSent):
        require_as_sent(sent, got)
    for broken in ({}, {**got, "kind": "Secret"}, {**stored(sent), "metadata": {"name": "other"}}):
        with pytest.raises(NotAsSent):
            require_as_sent(sent, broken)


def test_patches_are_for_one_uid() -> None:
    beat = heartbeat_patch(KEY_OF_GRANT, datetime(2026, 11, 27, tzinfo=UTC))
    assert beat["metadata"]["uid"] == ingress_patch(KEY_OF_GRANT, FULL.ingress)["metadata"]["uid"] == GRANT_UID
    assert beat["metadata"]["annotations"] == {"access.cluster.x-k8s.io/heartbeat": "2026-11-27T00:00:00Z"}


def test_a_person_with_many_groups_is_cut_to_what_the_kind_takes() -> None:
    made = with_creator(grant_manifest(FULL, "x", public_key_of(KEY)), Person("a", groups=tuple(map(str, range(99)))))
    assert len(made["spec"]["createdBy"]["groups"]) == 64
