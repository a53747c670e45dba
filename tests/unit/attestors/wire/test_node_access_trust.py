"""The trust bundle: its form, and each rule with an attack that it stops."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from attestors.wire import statement
from attestors.wire.node_access import Trust
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.keys import Ed25519Key
from attestors.wire.ssh.krl import RevocationList, encode_revocation_list
from attestors.wire.statement import (
    MAXIMUM_NODE_ACCESS_TRUST_BYTES,
    MAXIMUM_REVOCATION_LIST_BYTES,
    AcceptedNodeAccessTrust,
    ClusterIdentity,
    Kind,
    MalformedStatement,
    NodeAccessTrust,
    NotPinned,
    PinnedController,
    SignedStatement,
    StatementReason,
    StatementRefused,
    accept_node_access_trust,
    authorities_in,
)
from signer.authority.statement_signing import StatementKeys
from tests.support.node_access import trust
from tests.support.statements import IDENTITY, NOW, authority, bundle, controller, signed, trust_of

CLUSTER, THIEF = authority("old"), authority("thief")
PIN = PinnedController(IDENTITY, controller().public, 1)
BUNDLE = bundle()
ELSEWHERE = ClusterIdentity(IDENTITY.namespace, "other", IDENTITY.uid)
AFTER_MOVE = ClusterIdentity(IDENTITY.namespace, IDENTITY.name, "another")


def decode(text: bytes) -> SignedStatement:
    return statement.decode(text, maximum_bytes=MAXIMUM_NODE_ACCESS_TRUST_BYTES)


def accepted(
    found: SignedStatement, *, pin: PinnedController | NotPinned = PIN, last: int = 0, now: int = NOW
) -> AcceptedNodeAccessTrust:
    known = authorities_in([CLUSTER.certificate.der])
    return accept_node_access_trust(found, trusted=known, pin=pin, last_sequence=last, now=now)


def reason(found: SignedStatement, **known: Any) -> StatementReason:
    with pytest.raises(StatementRefused) as refused:
        accepted(found, **known)
    return refused.value.reason


def test_one_that_counts() -> None:
    found = accepted(signed(BUNDLE, CLUSTER))
    assert (found.sequence, found.trust, found.revocation_list) == (1, BUNDLE.trust, BUNDLE.revocation_list)
    assert found.revocations == RevocationList(1, 1)
    assert accepted(signed(BUNDLE, CLUSTER, keys=controller("d", "c"))) == found, "signed with the next key, too"


def test_what_does_not_count() -> None:
    """Another cluster, an older one, other signers, another kind under the same keys."""
    assert reason(signed(trust_of(CLUSTER), CLUSTER)) == StatementReason.WRONG_KIND
    assert reason(signed(BUNDLE, CLUSTER), pin=NotPinned()) == StatementReason.NOT_PINNED
    assert reason(signed(BUNDLE, CLUSTER, cluster=ELSEWHERE)) == StatementReason.WRONG_CLUSTER
    assert reason(signed(BUNDLE, CLUSTER, cluster=AFTER_MOVE)) == StatementReason.WRONG_CLUSTER
    assert reason(signed(bundle(4), CLUSTER, sequence=4), last=4) == StatementReason.REPLAYED
    assert reason(signed(bundle(3), CLUSTER, sequence=3), last=4) == StatementReason.REPLAYED
    assert reason(signed(BUNDLE, CLUSTER, not_before=NOW + 301)) == StatementReason.NOT_YET_VALID
    assert reason(signed(BUNDLE, CLUSTER), now=NOW + 86400) == StatementReason.EXPIRED
    assert reason(signed(BUNDLE, THIEF)) == StatementReason.NOT_SIGNED_BY_TRUSTED_CA
    assert reason(signed(BUNDLE, CLUSTER, keys=StatementKeys(()))) == StatementReason.NOT_SIGNED_BY_CONTROLLER
    assert reason(signed(BUNDLE, CLUSTER, keys=controller("x"))) == StatementReason.NOT_SIGNED_BY_CONTROLLER
    genuine, other = signed(BUNDLE, CLUSTER), signed(replace(BUNDLE, trust=trust(version=8)), CLUSTER)
    assert reason(SignedStatement(other.statement, genuine.signatures)) == StatementReason.BAD_SIGNATURE


def test_signatures_of_another_kind_do_not_count() -> None:
    """The kind is signed: what the controller said of CAs is nothing that it said of SSH."""
    genuine, of_cas = signed(BUNDLE, CLUSTER), signed(trust_of(CLUSTER), CLUSTER)
    assert reason(SignedStatement(genuine.statement, of_cas.signatures)) == StatementReason.BAD_SIGNATURE


@pytest.mark.parametrize(
    "revoked",
    [
        b"nothing that sshd reads",
        encode_revocation_list(RevocationList(1, 1))[:-1],
        encode_revocation_list(RevocationList(2, 1)),
        encode_revocation_list(RevocationList(0, 1)),
    ],
    ids=["no list", "truncated", "a later version", "an earlier version"],
)
def test_a_bad_revocation_list(revoked: bytes) -> None:
    found = signed(replace(BUNDLE, revocation_list=revoked), CLUSTER)
    assert reason(found) == StatementReason.BAD_REVOCATION_LIST


@given(
    users=st.lists(st.builds(Ed25519Key, st.binary(min_size=32, max_size=32)), min_size=1, max_size=12, unique=True),
    online=st.integers(1, 12),
    host=st.builds(Ed25519Key, st.binary(min_size=32, max_size=32)),
    version=st.integers(1, 2**53 - 1),
    share=st.integers(0, 100),
    spread=st.integers(1, 3600),
    revoked=st.binary(min_size=1, max_size=200),
)
def test_every_one_survives(
    users: list[Ed25519Key], online: int, host: Ed25519Key, version: int, share: int, spread: int, revoked: bytes
) -> None:
    assume(host not in users)
    made = Trust(tuple(users[:online]), tuple(users[online:]), (host,), version)
    found = signed(NodeAccessTrust(made, revoked, version * share // 100, spread), CLUSTER)
    assert found.statement.kind is Kind.NODE_ACCESS_TRUST
    assert decode(statement.encode(found)) == found


@given(position=st.integers(0, 10**6), byte=st.integers(0, 255), cut=st.booleans())
def test_nothing_else_is_read_as_it(position: int, byte: int, cut: bool) -> None:
    """Cut, or with one byte changed: it is refused as a text, or its signature is."""
    genuine = statement.encode(signed(BUNDLE, CLUSTER))
    place = position % len(genuine)
    changed = genuine[:place] if cut else genuine[:place] + bytes([byte]) + genuine[place + 1 :]
    if changed == genuine:
        return
    try:
        found = decode(changed)
    except (MalformedStatement, statement.UnsupportedStatement):
        return
    with pytest.raises(StatementRefused):
        accepted(found)


@pytest.mark.parametrize(
    "payload",
    [
        {"trustVersion": 0},
        {"trustVersion": 2**53},
        {"trustVersion": True},
        {"renewBelow": -1},
        {"renewBelow": BUNDLE.trust.version + 1},
        {"renewBelow": 2**63},
        {"renewBelow": True},
        {"renewBelow": "7"},
        {"renewBelow": 7.0},
        {"renewBelow": None},
        {"renewSpreadSeconds": 0},
        {"renewSpreadSeconds": 3601},
        {"renewSpreadSeconds": True},
        {"renewSpreadSeconds": "240"},
        {"userAuthorities": []},
        {"userAuthorities": "x"},
        {"userAuthorities": [1]},
        {"userAuthorities": ["ssh-ed25519 AAAA"]},
        {"userAuthorities": BUNDLE.document()["userAuthorities"] * 2},
        {"userAuthorities": [key_line(BUNDLE.trust.user_authorities[0]) + " comment"]},
        {"userAuthorities": BUNDLE.document()["hostAuthorities"]},
        {"breakGlassAuthorities": "x"},
        {"breakGlassAuthorities": ["ssh-ed25519 AAAA"]},
        {"breakGlassAuthorities": BUNDLE.document()["userAuthorities"]},
        {"breakGlassAuthorities": BUNDLE.document()["hostAuthorities"]},
        {"hostAuthorities": []},
        {"hostAuthorities": BUNDLE.document()["hostAuthorities"] * 5},
        {"revocationList": ""},
        {"revocationList": "AA=A"},
        {"revocationList": "AAA"},
        {"revocationList": None},
        {"more": 1},
    ],
)
def test_what_is_out_of_bounds_is_refused(payload: dict[str, Any]) -> None:
    with pytest.raises(MalformedStatement):
        NodeAccessTrust.parse({**BUNDLE.document(), **payload})
    with pytest.raises(MalformedStatement, match="is missing"):
        NodeAccessTrust.parse({})


def test_who_attests_now_is_signed() -> None:
    """The owner of the workload cluster cannot have all nodes attest again and again, nor keep them from it."""
    asked = signed(bundle(renew_below=7), CLUSTER)
    assert accepted(asked).renew_below == 7
    assert accepted(signed(BUNDLE, CLUSTER)).renew_below == 0
    for other in (0, 6):
        changed = signed(bundle(renew_below=other), CLUSTER)
        assert reason(SignedStatement(changed.statement, asked.signatures)) == StatementReason.BAD_SIGNATURE
    without = BUNDLE.document()
    del without["renewBelow"]
    with pytest.raises(MalformedStatement, match="renewBelow is missing"):
        NodeAccessTrust.parse(without)
    with pytest.raises(MalformedStatement, match="renewBelow"):
        bundle(version=7, renew_below=8)


def test_the_largest_list_fits_and_a_larger_one_is_refused() -> None:
    largest = replace(BUNDLE, revocation_list=bytes(MAXIMUM_REVOCATION_LIST_BYTES))
    text = statement.encode(signed(largest, CLUSTER))
    assert len(text) < MAXIMUM_NODE_ACCESS_TRUST_BYTES < 1024 * 1024 - 64
    assert decode(text).statement.payload == largest
    with pytest.raises(MalformedStatement):
        statement.decode(text)  # readers of other kinds are not made to read so much
    with pytest.raises(MalformedStatement):
        replace(BUNDLE, revocation_list=bytes(MAXIMUM_REVOCATION_LIST_BYTES + 1))
    longer = base64.b64encode(bytes(MAXIMUM_REVOCATION_LIST_BYTES + 100)).decode()
    with pytest.raises(MalformedStatement):
        NodeAccessTrust.parse({**BUNDLE.document(), "revocationList": longer})
