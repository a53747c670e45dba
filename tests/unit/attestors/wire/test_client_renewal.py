"""Statements that client certificates are to be renewed: their form, and each rule with an attack that it stops."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.wire import statement
from attestors.wire.statement import (
    MAXIMUM_SPREAD_SECONDS,
    ClientRenewal,
    ClusterIdentity,
    Kind,
    MalformedStatement,
    NotPinned,
    PinnedController,
    SignedStatement,
    StatementReason,
    StatementRefused,
    accept_client_renewal,
    authorities_in,
)
from signer.authority.statement_signing import StatementKeys
from tests.support.statements import IDENTITY, NOW, authority, controller, signed, trust_of

CLUSTER, THIEF = authority("old"), authority("thief")
PIN = PinnedController(IDENTITY, controller().public, 1)
RENEWAL = ClientRenewal("0a" * 20, NOW, 60)
ELSEWHERE = ClusterIdentity(IDENTITY.namespace, "other", IDENTITY.uid)


def accepted(
    found: SignedStatement, *, pin: PinnedController | NotPinned = PIN, last: int = 0, now: int = NOW
) -> ClientRenewal:
    known = authorities_in([CLUSTER.certificate.der])
    return accept_client_renewal(found, trusted=known, pin=pin, last_sequence=last, now=now)


def reason(found: SignedStatement, **known: Any) -> StatementReason:
    with pytest.raises(StatementRefused) as refused:
        accepted(found, **known)
    return refused.value.reason


def test_one_that_counts() -> None:
    assert accepted(signed(RENEWAL, CLUSTER)) == RENEWAL
    both = signed(RENEWAL, CLUSTER, keys=controller("d", "c"))
    assert accepted(both) == RENEWAL, "signed with the next controller key, too"


def test_what_does_not_count() -> None:
    assert reason(signed(trust_of(CLUSTER), CLUSTER)) == StatementReason.WRONG_KIND
    assert reason(signed(RENEWAL, CLUSTER), pin=NotPinned()) == StatementReason.NOT_PINNED
    assert reason(signed(RENEWAL, CLUSTER, cluster=ELSEWHERE)) == StatementReason.WRONG_CLUSTER
    assert reason(signed(RENEWAL, CLUSTER, sequence=4), last=4) == StatementReason.REPLAYED
    assert reason(signed(RENEWAL, CLUSTER, sequence=3), last=4) == StatementReason.REPLAYED
    assert reason(signed(RENEWAL, CLUSTER, not_before=NOW + 301)) == StatementReason.NOT_YET_VALID
    assert reason(signed(RENEWAL, CLUSTER), now=NOW + 86400) == StatementReason.EXPIRED
    assert reason(signed(RENEWAL, THIEF)) == StatementReason.NOT_SIGNED_BY_TRUSTED_CA
    assert reason(signed(RENEWAL, CLUSTER, keys=StatementKeys(()))) == StatementReason.NOT_SIGNED_BY_CONTROLLER
    assert reason(signed(RENEWAL, CLUSTER, keys=controller("x"))) == StatementReason.NOT_SIGNED_BY_CONTROLLER
    genuine = signed(RENEWAL, CLUSTER)
    other = signed(ClientRenewal("0b" * 20, NOW, 60), CLUSTER)
    moved = SignedStatement(other.statement, genuine.signatures)
    assert reason(moved) == StatementReason.BAD_SIGNATURE


@given(
    authority=st.binary(min_size=8, max_size=64),
    begin=st.integers(0, 2**53 - 1),
    spread=st.integers(1, MAXIMUM_SPREAD_SECONDS),
)
def test_every_one_survives(authority: bytes, begin: int, spread: int) -> None:
    found = signed(ClientRenewal(authority.hex(), begin, spread), CLUSTER)
    assert found.statement.kind is Kind.CLIENT_RENEWAL
    assert statement.decode(statement.encode(found)) == found


@pytest.mark.parametrize(
    "payload",
    [
        {"authority": "0a" * 7},
        {"authority": "0a" * 65},
        {"authority": "0A" * 20},
        {"authority": "0a" * 20 + "\n"},
        {"authority": 1},
        {"begin": -1},
        {"begin": 2**53},
        {"begin": True},
        {"spreadSeconds": 0},
        {"spreadSeconds": MAXIMUM_SPREAD_SECONDS + 1},
        {"spreadSeconds": "60"},
        {"more": 1},
    ],
)
def test_what_is_out_of_bounds_is_refused(payload: dict[str, Any]) -> None:
    with pytest.raises(MalformedStatement):
        ClientRenewal.parse({**RENEWAL.document(), **payload})
    with pytest.raises(MalformedStatement, match="is missing"):
        ClientRenewal.parse({})


def test_nodes_renew_at_times_of_their_own() -> None:
    renewal = ClientRenewal("0a" * 20, NOW, 600)
    due = {renewal.due(f"node-{number}") for number in range(200)}
    assert all(NOW <= one < NOW + 600 for one in due)
    assert len(due) > 100
    assert renewal.due("node-1") == renewal.due("node-1")
