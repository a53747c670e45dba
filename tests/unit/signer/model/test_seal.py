"""Seals: a record is ours only as we wrote it, where we wrote it, under a key that is still ours."""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest

from attestors.contract import Security
from signer.model.cluster import ClusterKey
from signer.model.host_keys import (
    NO_FORMER,
    NO_HOST_KEYS,
    AttestedHostKey,
    AttestedHostKeys,
    FormerHostCertificates,
    ReportedTrust,
)
from signer.model.record import AttestedNode, BuiltinApproval, JournalEntry
from signer.model.record_object import parse_record, record_spec
from signer.model.seal import (
    Authentic,
    ControllerKeys,
    Fault,
    Generation,
    InvalidControllerKey,
    KeyUse,
    NoPreviousKey,
    RecordSeals,
    Seals,
    Subkey,
    Unauthentic,
    joined,
)
from tests.unit.signer.builders import CLUSTER, NODE, NOW, PROVIDER_ID, builtin_approval, journal_entry, record

OLD, CURRENT, OTHER = bytes(32), bytes(range(32)), b"o" * 32
SEALS = RecordSeals(ControllerKeys(CURRENT))


def a_record(**changes: Any) -> AttestedNode:
    return record(builtin_approvals=(builtin_approval(),), resource_version="1", uid="u", **changes)


def sealed(made: AttestedNode, seals: RecordSeals = SEALS) -> AttestedNode:
    return replace(made, seal=seals.seal(made))


def fault(made: AttestedNode, seals: RecordSeals = SEALS) -> Fault:
    unsealed = seals.unseal(made)
    assert isinstance(unsealed, Unauthentic), unsealed
    return unsealed.fault


def test_what_was_sealed_is_ours() -> None:
    ours = sealed(a_record())
    assert SEALS.unseal(ours) is ours


def test_form() -> None:
    """``v2.<16 hexadecimal digits>.<64 hexadecimal digits>``, below the schema's 128 characters."""
    version, identifier, mac = sealed(a_record()).seal.split(".")
    assert (version, len(identifier), len(mac)) == ("v2", 16, 64)
    assert bytes.fromhex(identifier + mac)


@pytest.mark.parametrize("entries", [1, 2])
def test_known_answer(entries: int) -> None:
    """Records live for years: the same record has the same seal in every release that knows v2."""
    journal = tuple(journal_entry(number) for number in range(1, entries + 1))
    made = record(journal=journal, builtin_approvals=(builtin_approval(),) * entries)
    attested = "1772366400"
    texts = ["team-a", made.name, "prod", "Machine", "prod-md-0-x7k2p", PROVIDER_ID, "m-1", NODE]
    texts += ["tpm", "ek:1", "secure", attested, attested, "1772971200", "0", str(entries)]
    for number, entry in enumerate(journal, start=1):
        texts += [
            f'{{"kind":"kubelet-client","csrName":"csr-{number}","csrUID":"uid-{number}","specDigest":"{"cd" * 32}",'
            f'"signerName":"{entry.signer_name}","requester":"system:bootstrap:abc123","serialNumber":"{number}",'
            '"notBefore":"2026-03-01T11:55:00Z","notAfter":"2026-03-08T12:00:00Z",'
            f'"caCertHash":"{entry.ca_cert_hash}","evidenceCaCertHash":"{entry.evidence_ca_cert_hash}",'
            f'"certificateDigest":"{entry.certificate_digest}","publicKeyDigest":"{entry.public_key_digest}",'
            '"createdTime":"2026-03-01T11:59:59Z","decidedTime":"2026-03-01T12:00:00Z"}'
        ]
    approval = (
        f'{{"kind":"builtin-kubelet-serving","csrName":"csr-s","csrUID":"uid-s","specDigest":"{"cd" * 32}",'
        f'"publicKeyDigest":"{"12" * 32}","createdTime":"2026-03-01T11:59:59Z","decidedTime":"2026-03-01T12:00:00Z"}}'
    )
    texts += [str(entries), *[approval] * entries]
    text = "".join(f"{len(text)}:{text}," for text in texts)
    key, identifier = derived(b"node-attestation record v2")
    mac = hmac.new(key, text.encode("ascii"), hashlib.sha256).hexdigest()
    assert SEALS.seal(made) == f"v2.{identifier}.{mac}"


def test_challenges_have_a_key_of_their_own() -> None:
    """What one replica has asked for, the next release's answers."""
    key, identifier = derived(b"node-attestation challenge v1")
    assert ControllerKeys(CURRENT).subkeys(KeyUse.CHALLENGE) == (Subkey(identifier, key),)


def derived(use: bytes) -> tuple[bytes, str]:
    key = hmac.new(CURRENT, use + b"\x01", hashlib.sha256).digest()
    return key, hmac.new(CURRENT, use + b" identifier\x01", hashlib.sha256).hexdigest()[:16]


@pytest.mark.parametrize("ssh", ["HOST_KEYS", "AFTER_ANOTHER", "REPORTED", "NO_HOST_KEYS"])
def test_it_survives_the_api_server(ssh: str) -> None:
    ours = sealed(replace(a_record(first_attestation=NOW + timedelta(microseconds=5)), ssh=globals()[ssh]))
    metadata = {"namespace": CLUSTER.namespace, "name": ours.name, "uid": "moved", "resourceVersion": "9"}
    spec = json.loads(json.dumps({**record_spec(ours), "seal": ours.seal}))
    read = parse_record({"metadata": metadata, "spec": spec})
    assert SEALS.unseal(read) is read
    assert read.ssh == globals()[ssh]
    assert (read.uid, read.resource_version) == ("moved", "9"), "clusterctl move changes these"


# Nothing in it can be changed


HOST_KEYS = AttestedHostKeys(
    trust_version=7,
    attested=NOW,
    host_keys=(AttestedHostKey("ssh-ed25519 AAAA", 4711),),
    principals=("node-1", "192.0.2.1"),
    not_before=NOW - timedelta(seconds=60),
    not_after=NOW + timedelta(days=30),
    authority="SHA256:abc",
    nonce_key="0123456789abcdef",
)
AFTER_ANOTHER = replace(HOST_KEYS, former=FormerHostCertificates("SHA256:old", NOW + timedelta(days=3)))
REPORTED = ReportedTrust(7, NOW)


def _other(value: Any) -> Any:
    match value:
        case str():
            return f"{value}x"
        case int():
            return value + 1
        case Security():
            return Security.INSECURE
        case ClusterKey():
            return ClusterKey(value.namespace, "other")
        case FormerHostCertificates():
            return NO_FORMER
        case _:
            return value + timedelta(seconds=1)


def _changed_records() -> dict[str, AttestedNode]:
    ours = sealed(replace(a_record(), ssh=AFTER_ANOTHER))
    changes: dict[str, AttestedNode] = {
        "journal": replace(ours, journal=()),
        "journal twice": replace(ours, journal=(*ours.journal, *ours.journal)),
        "builtin_approvals": replace(ours, builtin_approvals=()),
        "namespace": replace(ours, machine=replace(ours.machine, cluster=ClusterKey("team-b", CLUSTER.name))),
    }
    for name in (
        "machine_uid",
        "node_name",
        "first_attestation",
        "last_attestation",
        "last_not_after",
        "dropped_not_after",
    ):
        changes[name] = replace(ours, **{name: _other(getattr(ours, name))})
    for part in ("machine", "identity"):
        value = getattr(ours, part)
        for field in fields(value):
            changed = replace(value, **{field.name: _other(getattr(value, field.name))})
            changes[f"{part}.{field.name}"] = replace(ours, **{part: changed})
    for field in fields(JournalEntry):
        entry = replace(ours.journal[0], **{field.name: _other(getattr(ours.journal[0], field.name))})
        changes[f"journal.{field.name}"] = replace(ours, journal=(entry,))
    for field in fields(BuiltinApproval):
        approval = replace(
            ours.builtin_approvals[0], **{field.name: _other(getattr(ours.builtin_approvals[0], field.name))}
        )
        changes[f"builtin_approvals.{field.name}"] = replace(ours, builtin_approvals=(approval,))
    for field in fields(AttestedHostKeys):
        held: Any = getattr(AFTER_ANOTHER, field.name)
        other: Any = held[:-1] if isinstance(held, tuple) else _other(held)
        changes[f"ssh.{field.name}"] = replace(ours, ssh=replace(AFTER_ANOTHER, **{field.name: other}))
    for field in fields(AttestedHostKey):
        one = replace(HOST_KEYS.host_keys[0], **{field.name: _other(getattr(HOST_KEYS.host_keys[0], field.name))})
        changes[f"ssh.host_keys.{field.name}"] = replace(ours, ssh=replace(AFTER_ANOTHER, host_keys=(one,)))
    changes["ssh"] = replace(ours, ssh=NO_HOST_KEYS)
    changes["ssh without certificates"] = replace(ours, ssh=ReportedTrust(HOST_KEYS.trust_version, HOST_KEYS.attested))
    reported = sealed(replace(a_record(), ssh=REPORTED))
    for field in fields(ReportedTrust):
        other = _other(getattr(REPORTED, field.name))
        changes[f"ssh.reported.{field.name}"] = replace(reported, ssh=replace(REPORTED, **{field.name: other}))
    return changes


@pytest.mark.parametrize("name", _changed_records())
def test_a_changed_record_is_not_ours(name: str) -> None:
    assert fault(_changed_records()[name]) is Fault.WRONG_SEAL


def test_every_field_is_covered() -> None:
    """What is not: the seal itself, and what ``clusterctl move`` rewrites."""
    covered = {name.split(".")[0] for name in _changed_records()} - {
        "journal twice",
        "namespace",
        "ssh without certificates",
    }
    assert covered == {field.name for field in fields(AttestedNode)} - {"seal", "uid", "resource_version"}


def test_the_name_is_covered_beside_what_it_is_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = sealed(a_record())
    monkeypatch.setattr(AttestedNode, "name", property(lambda self: "another-name"))
    assert fault(ours) is Fault.WRONG_SEAL


def test_the_seal_of_another_record_of_ours() -> None:
    other = sealed(a_record(identity="ek:2"))
    assert fault(replace(a_record(), seal=other.seal)) is Fault.WRONG_SEAL


@pytest.mark.parametrize(
    "change",
    [
        lambda seal: "",
        lambda seal: seal[:-1],
        lambda seal: seal + "0",
        lambda seal: seal.removeprefix("v2."),
        lambda seal: "v1" + seal[2:],
        lambda seal: seal.replace(".", ""),
        lambda seal: seal[:-64] + "\u0661" * 64,
        lambda seal: seal.rpartition(".")[0] + ".",
    ],
    ids=["missing", "truncated", "longer", "no version", "other version", "no dots", "no ASCII", "no MAC"],
)
def test_a_seal_of_another_form(change: Any) -> None:
    ours = sealed(a_record())
    assert fault(replace(ours, seal=change(ours.seal))) is Fault.MALFORMED_SEAL


@pytest.mark.parametrize("change", [str.upper, lambda mac: "0" * 64, lambda mac: mac[1:] + mac[0]])
def test_a_seal_with_another_mac(change: Any) -> None:
    ours = sealed(a_record())
    head, _, mac = ours.seal.rpartition(".")
    assert fault(replace(ours, seal=f"{head}.{change(mac)}")) is Fault.WRONG_SEAL


# Keys


def test_the_seal_of_another_controller() -> None:
    assert fault(sealed(a_record(), RecordSeals(ControllerKeys(OTHER)))) is Fault.UNKNOWN_KEY


def test_another_controllers_seal_under_our_identifier() -> None:
    theirs, ours = sealed(a_record(), RecordSeals(ControllerKeys(OTHER))), sealed(a_record())
    stolen = f"v2.{ours.seal.split('.')[1]}.{theirs.seal.split('.')[2]}"
    assert fault(replace(ours, seal=stolen)) is Fault.WRONG_SEAL


def test_two_generations() -> None:
    before = sealed(a_record(), RecordSeals(ControllerKeys(OLD)))
    rotated = RecordSeals(ControllerKeys(CURRENT, OLD))
    assert rotated.unseal(before) is before
    again = sealed(before, rotated)
    assert again.seal == sealed(before, SEALS).seal, "the next write is under the current key"
    assert rotated.unseal(again) is again
    assert fault(before, RecordSeals(ControllerKeys(OTHER, CURRENT))) is Fault.UNKNOWN_KEY, "rotated away"


def test_every_use_has_its_own_key() -> None:
    keys = ControllerKeys(CURRENT, OLD)
    subkeys = [subkey for use in KeyUse for subkey in keys.subkeys(use)]
    assert len({subkey.secret for subkey in subkeys}) == len({subkey.identifier for subkey in subkeys}) == 24
    assert {CURRENT, OLD}.isdisjoint(subkey.secret for subkey in subkeys)


def test_the_seal_of_one_kind_of_object_is_none_for_another() -> None:
    """Though they say the same, under the same key: each use has a subkey of its own."""
    one, other = (Seals(ControllerKeys(CURRENT), use) for use in (KeyUse.RECORD, KeyUse.CHALLENGE))
    content = joined("the", "same")
    assert one.verify(one.seal(content), lambda: content) == Authentic()
    assert other.verify(one.seal(content), lambda: content) == Unauthentic(Fault.UNKNOWN_KEY)
    version, _, mac = one.seal(content).split(".")
    relabelled = f"{version}.{other.seal(content).split('.')[1]}.{mac}"
    assert other.verify(relabelled, lambda: content) == Unauthentic(Fault.WRONG_SEAL)


def test_the_generation_of_the_key_is_told() -> None:
    before, now = Seals(ControllerKeys(OLD), KeyUse.RECORD), Seals(ControllerKeys(CURRENT, OLD), KeyUse.RECORD)
    assert now.verify(before.seal("x"), lambda: "x") == Authentic(Generation.PREVIOUS)
    assert now.verify(now.seal("x"), lambda: "x") == Authentic(Generation.CURRENT)
    same = Seals(ControllerKeys(OLD, OLD), KeyUse.RECORD)
    assert same.verify(before.seal("x"), lambda: "x") == Authentic(Generation.CURRENT)


def test_texts_do_not_run_together() -> None:
    assert len({joined("ab", "c"), joined("a", "bc"), joined("abc"), joined("ab", "c", "")}) == 4


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_keys_have_one_length(length: int) -> None:
    with pytest.raises(InvalidControllerKey):
        ControllerKeys(bytes(length))
    with pytest.raises(InvalidControllerKey):
        ControllerKeys(CURRENT, bytes(length))


def test_no_key_is_shown() -> None:
    shown = f"{ControllerKeys(CURRENT, OTHER)!r} {ControllerKeys(CURRENT).subkeys(KeyUse.RECORD)!r} {SEALS!r}"
    for secret in (CURRENT, OTHER, ControllerKeys(CURRENT).subkeys(KeyUse.RECORD)[0].secret):
        assert repr(secret)[2:-1] not in shown
        assert secret.hex() not in shown
    assert ControllerKeys(CURRENT).previous == NoPreviousKey()
