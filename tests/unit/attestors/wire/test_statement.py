from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from hypothesis import given
from hypothesis import strategies as st

from attestors.wire import statement
from attestors.wire.binding import CACertHash
from attestors.wire.statement import (
    MAXIMUM_STATEMENT_BYTES,
    ClusterIdentity,
    ClusterTrust,
    ControllerPublicKeys,
    MalformedStatement,
    Signature,
    SignedStatement,
    Statement,
    UnsupportedStatement,
    as_explanatory_text,
    node_digest,
    statements_in,
)
from tests.support.statements import IDENTITY, NOW, ROTATION, authority, bundle_of, controller, signed, trust_of
from tests.unit.attestors.support import PATIENT

TRUST = signed(trust_of(authority("new"), authority("old"), nodes=("node-1", "node-2")), authority("new"))
KEYS = signed(controller().public, authority("old"))
names = st.from_regex(r"\A[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?\Z")
digests = st.from_regex(r"\A[0-9a-f]{8}\Z")


def document(source: SignedStatement = TRUST) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(statement.encode(source))
    return found


def text(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def refusal(data: bytes) -> str:
    with pytest.raises(MalformedStatement) as refused:
        statement.decode(data)
    return str(refused.value)


@pytest.mark.parametrize("source", [TRUST, KEYS])
def test_what_is_encoded_is_decoded(source: SignedStatement) -> None:
    assert statement.decode(statement.encode(source)) == source


@PATIENT
@given(
    namespace=names,
    name=names,
    sequence=st.integers(1, 2**53 - 1),
    begin=st.integers(0, 2**40),
    life=st.integers(1, 2**40),
    nodes=st.lists(digests, unique=True, max_size=30),
    seconds=st.integers(120, 3600),
    signatures=st.lists(st.binary(min_size=1, max_size=512), min_size=1, max_size=16),
)
def test_every_statement_survives(
    namespace: str,
    name: str,
    sequence: int,
    begin: int,
    life: int,
    nodes: list[str],
    seconds: int,
    signatures: list[bytes],
) -> None:
    trust = ClusterTrust(ROTATION, bundle_of(authority()), tuple((node,) for node in nodes), seconds)
    made = SignedStatement(
        Statement(ClusterIdentity(namespace, name, "0-1"), sequence, begin, begin + life, trust),
        tuple(Signature(CACertHash(f"sha256:{place:064x}"), value) for place, value in enumerate(signatures)),
    )
    assert statement.decode(statement.encode(made)) == made


@PATIENT
@given(st.binary(max_size=300))
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises((MalformedStatement, UnsupportedStatement)):
        statement.decode(data)


@PATIENT
@given(st.data())
def test_a_changed_byte_is_refused_or_changes_what_is_signed(data: st.DataObject) -> None:
    original = statement.encode(TRUST)
    place = data.draw(st.integers(0, len(original) - 1))
    changed = original[:place] + bytes((original[place] ^ data.draw(st.integers(1, 255)),)) + original[place + 1 :]
    try:
        read = statement.decode(changed)
    except (MalformedStatement, UnsupportedStatement):
        return
    assert read != TRUST
    assert read.signatures != TRUST.signatures or statement.signed_input(read.statement) != statement.signed_input(
        TRUST.statement
    )


@pytest.mark.parametrize("length", range(0, len(statement.encode(KEYS)), 7))
def test_a_truncated_statement_is_refused(length: int) -> None:
    refusal(statement.encode(KEYS)[:length])


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data + b"\n",
        lambda data: data + b"{}",
        lambda data: b" " + data,
        lambda data: data.replace(b'"sequence":1', b'"sequence": 1'),
        lambda data: data.replace(b'"sequence":1', b'"sequence":1,"sequence":1'),
        lambda data: data.replace(b'"sequence":1', b'"sequence":9,"sequence":1'),
        lambda data: data.replace(b'"version":"v1"', b'"version":"v1","version":"v1"'),
        lambda data: data.replace(b'"fleet"', b'"f\\u006ceet"'),
        lambda data: data.replace(b'"namespace":"fleet","name":"prod"', b'"name":"prod","namespace":"fleet"'),
        lambda data: data.replace(b'"sequence":1', b'"sequence":1.0'),
        lambda data: data.replace(b'"sequence":1', b'"sequence":true'),
        lambda data: data.replace(b'"sequence":1', b'"sequence":0'),
        lambda data: data.replace(b'"sequence":1', b'"sequence":"1"'),
        lambda data: data.replace(b'"sequence":1', b'"sequence":' + b"9" * 5000),
        lambda data: data.replace(b"fleet", "flöet".encode()),
        lambda data: data.replace(b"fleet", b"Fleet"),
    ],
)
def test_there_is_one_text_for_each_statement(change: Any) -> None:
    changed = change(statement.encode(KEYS))
    assert changed != statement.encode(KEYS)
    refusal(changed)


@pytest.mark.parametrize("where", [(), ("statement",), ("statement", "cluster"), ("statement", "payload")])
def test_unknown_and_missing_keys_are_refused(where: tuple[str, ...]) -> None:
    for source in (TRUST, KEYS):
        inner = document(source)
        for key in where:
            inner = inner[key]
        for key in inner:
            changed = document(source)
            target = changed
            for step in where:
                target = target[step]
            del target[key]
            with pytest.raises((MalformedStatement, UnsupportedStatement)):
                statement.decode(text(changed))
        changed = document(source)
        target = changed
        for step in where:
            target = target[step]
        target["more"] = 1
        assert "unknown keys" in refusal(text(changed))


def test_a_megabyte_is_refused_before_it_is_parsed() -> None:
    assert str(MAXIMUM_STATEMENT_BYTES) in refusal(b"[" * 2**20)
    refusal(b"[" * (MAXIMUM_STATEMENT_BYTES - 1))


def test_later_versions_and_kinds_are_told_from_malformed_ones() -> None:
    later = document()
    later["version"] = "v2"
    with pytest.raises(UnsupportedStatement):
        statement.decode(text(later | {"more": 1}))
    later = document()
    later["statement"]["kind"] = "SSHTrust"
    with pytest.raises(UnsupportedStatement):
        statement.decode(text(later))


def test_the_digest_is_that_of_the_bundle() -> None:
    swapped = document()
    swapped["statement"]["payload"]["bundle"] = bundle_of(authority("thief"))
    assert "bundleSHA256" in refusal(text(swapped))


def test_signatures_are_sorted_and_one_for_each_key() -> None:
    two = signed(trust_of(authority("new")), authority("old"), authority("new"))
    for order in (two.signatures[::-1], (two.signatures[0], *two.signatures), ()):
        with pytest.raises(MalformedStatement):
            SignedStatement(two.statement, order)
    crowded = document()
    crowded["signatures"] = crowded["signatures"] * 20
    refusal(text(crowded))


def test_signed_inputs_differ_by_kind_and_cluster() -> None:
    other = ClusterIdentity("fleet", "prod", IDENTITY.uid.replace("1", "2"))
    inputs = {
        statement.signed_input(one.statement)
        for one in (TRUST, KEYS, signed(controller().public, authority("old"), cluster=other))
    }
    assert len(inputs) == 3
    assert all(one[0] == 0 for one in inputs), "no DER value begins so: a CA never signs one by mistake"


# Turns.


def test_no_turn_has_more_than_a_tenth_of_the_nodes() -> None:
    digests = [node_digest(f"node-{number}") for number in range(40)]
    ClusterTrust(
        ROTATION, bundle_of(authority()), tuple(tuple(digests[start : start + 4]) for start in range(0, 40, 4))
    )
    with pytest.raises(MalformedStatement, match="more than 4"):
        ClusterTrust(
            ROTATION,
            bundle_of(authority()),
            (tuple(digests[:5]), *(tuple(digests[s : s + 5]) for s in range(5, 40, 5))),
        )
    with pytest.raises(MalformedStatement, match="more than 1"):
        ClusterTrust(ROTATION, bundle_of(authority()), (tuple(digests[:2]), (digests[2],)))
    with pytest.raises(MalformedStatement, match="no node"):
        ClusterTrust(ROTATION, bundle_of(authority()), ((), (digests[2],)))


@PATIENT
@given(st.integers(0, 12), st.integers(0, 2**33))
def test_turns_come_round_and_do_not_overlap(nodes: int, now: int) -> None:
    every = [f"node-{number}" for number in range(nodes)]
    trust = trust_of(authority(), nodes=every)
    turns = [trust.next_turn(node, now) for node in [*every, "not listed"]]
    assert len(set(turns)) == nodes + 1
    for begin, end in turns:
        assert end - begin == 120
        assert now < end <= now + 120 * (nodes + 2)
        assert begin <= now + 120 * (nodes + 1)


def test_nodes_that_are_not_listed_share_the_last_turn() -> None:
    trust = trust_of(authority(), nodes=("node-1",))
    assert trust.next_turn("late", NOW) == trust.next_turn("later", NOW) != trust.next_turn("node-1", NOW)


@pytest.mark.parametrize("seconds", [0, 119, 3601, True])
def test_turns_have_bounds(seconds: int) -> None:
    with pytest.raises(MalformedStatement):
        trust_of(authority(), turn_seconds=seconds)


# Controller keys.


def test_controller_keys_are_one_or_two() -> None:
    one, other, third = (ed25519.Ed25519PrivateKey.generate().public_key().public_bytes_raw() for _ in range(3))
    assert len(ControllerPublicKeys((one, other)).by_hash()) == 2
    for keys in ((), (one, one), (one, other, third), (one[:31],)):
        with pytest.raises(MalformedStatement):
            ControllerPublicKeys(keys)


# Behind a certificate.


def test_statements_stand_behind_a_certificate() -> None:
    certificate = bundle_of(authority()).encode("ascii")
    line = as_explanatory_text(KEYS)
    assert statements_in(certificate + line) == (statement.encode(KEYS),)
    assert statements_in(certificate) == ()
    assert len(statements_in(certificate + line * 9)) == 4
    assert statements_in(certificate + b"node-attestation statement: " + b"x" * 2**18) == ()


def test_pem_is_no_explanatory_text() -> None:
    with pytest.raises(MalformedStatement):
        as_explanatory_text(TRUST)
