"""SSHSIG: detached signatures with a namespace."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.wire.ssh.encoding import string, to_base64, uint32
from attestors.wire.ssh.errors import SSHReason, SSHRefused
from attestors.wire.ssh.signatures import public_key_of
from attestors.wire.ssh.sshsig import (
    MAXIMUM_SSHSIG_BYTES,
    HashAlgorithm,
    Namespace,
    SSHSignature,
    parse_armored,
    parse_sshsig,
    sign_message,
    verify_message,
)
from tests.support.openssh import SIGNERS, private_key

NAMESPACE = Namespace("host-key@attestation.example")
MESSAGE = b"the SubjectPublicKeyInfo"
KEY = private_key("ed25519")
PUBLIC = public_key_of(KEY)
SIGNED = sign_message(KEY, NAMESPACE, MESSAGE)


def refusal(signed: SSHSignature, message: bytes = MESSAGE, *, namespace: Namespace = NAMESPACE) -> SSHReason:
    with pytest.raises(SSHRefused) as refused:
        verify_message(signed, PUBLIC, namespace, message)
    return refused.value.reason


@pytest.mark.parametrize("name", SIGNERS)
def test_each_kind_of_key_signs(name: str) -> None:
    key = private_key(name)
    signed = sign_message(key, NAMESPACE, MESSAGE)
    assert parse_sshsig(signed.blob) == signed
    assert parse_armored(signed.armored) == signed
    verify_message(signed, public_key_of(key), NAMESPACE, MESSAGE)


def test_another_message() -> None:
    assert refusal(SIGNED, b"another") is SSHReason.BAD_SIGNATURE


def test_another_namespace() -> None:
    """A signature for git, which anybody may have, proves no host key."""
    other = sign_message(KEY, Namespace("git"), MESSAGE)
    assert refusal(other) is SSHReason.WRONG_NAMESPACE


def test_the_namespace_is_signed() -> None:
    assert (
        refusal(replace(sign_message(KEY, Namespace("git"), MESSAGE), namespace=NAMESPACE)) is SSHReason.BAD_SIGNATURE
    )


def test_the_hash_is_signed() -> None:
    assert refusal(replace(SIGNED, hash_algorithm=HashAlgorithm.SHA256)) is SSHReason.BAD_SIGNATURE


def test_another_key() -> None:
    assert refusal(sign_message(private_key("ed25519", 5), NAMESPACE, MESSAGE)) is SSHReason.SIGNED_BY_ANOTHER_KEY


@pytest.mark.parametrize("text", ["", "a b", "a\n", "a\0", "ä", "x" * 129])
def test_namespaces_that_are_none(text: str) -> None:
    with pytest.raises(SSHRefused, match="Malformed"):
        Namespace(text)


def blob(**changed: bytes) -> bytes:
    fields = {
        "magic": b"SSHSIG",
        "version": uint32(1),
        "key": string(PUBLIC.blob),
        "namespace": string(NAMESPACE.text.encode()),
        "reserved": string(b""),
        "hash": string(b"sha512"),
        "signature": string(SIGNED.signature.blob),
    }
    return b"".join((fields | changed).values())


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"magic": b"SSHSIX"}, SSHReason.MALFORMED),
        ({"version": uint32(2)}, SSHReason.MALFORMED),
        ({"namespace": string(b"")}, SSHReason.MALFORMED),
        ({"reserved": string(b"x")}, SSHReason.TOO_LARGE),
        ({"hash": string(b"sha1")}, SSHReason.SIGNATURE_ALGORITHM_UNSUPPORTED),
        ({"key": string(PUBLIC.blob + b"\0")}, SSHReason.TRAILING_BYTES),
        ({"signature": string(SIGNED.signature.blob) + b"\0"}, SSHReason.TRAILING_BYTES),
        ({"signature": string(bytes(9000))}, SSHReason.TOO_LARGE),
        ({"signature": b""}, SSHReason.MALFORMED),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_each_wrong_field(changed: dict[str, bytes], reason: SSHReason) -> None:
    assert blob() == SIGNED.blob
    with pytest.raises(SSHRefused) as refused:
        parse_sshsig(blob(**changed))
    assert refused.value.reason is reason


def test_a_signature_without_bound() -> None:
    with pytest.raises(SSHRefused) as refused:
        parse_sshsig(bytes(MAXIMUM_SSHSIG_BYTES + 1))
    assert refused.value.reason is SSHReason.TOO_LARGE


@given(data=st.data())
def test_changed_signatures_are_refused_or_read_back(data: st.DataObject) -> None:
    changed = bytearray(SIGNED.blob)
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        found = parse_sshsig(bytes(changed))
    except SSHRefused:
        return
    assert found.blob == bytes(changed)
    with pytest.raises(SSHRefused):
        verify_message(found, PUBLIC, NAMESPACE, MESSAGE)


@given(st.text(max_size=80))
def test_any_text_is_refused(text: str) -> None:
    with pytest.raises(SSHRefused):
        parse_armored(f"-----BEGIN SSH SIGNATURE-----\n{text}\n-----END SSH SIGNATURE-----\n")


def test_the_text_has_one_form() -> None:
    one_line = to_base64(SIGNED.blob)
    for text, reason in (
        (f"-----BEGIN SSH SIGNATURE-----\n{one_line}\n-----END SSH SIGNATURE-----\n", SSHReason.NOT_CANONICAL),
        (SIGNED.armored.rstrip("\n"), SSHReason.MALFORMED),
        (SIGNED.armored + "\n", SSHReason.MALFORMED),
        (SIGNED.armored.replace("\n", "\r\n"), SSHReason.MALFORMED),
        ("-----BEGIN SSH SIGNATURE-----\n-----END SSH SIGNATURE-----\n", SSHReason.MALFORMED),
        ("x" * 20_000, SSHReason.TOO_LARGE),
    ):
        with pytest.raises(SSHRefused) as refused:
            parse_armored(text)
        assert refused.value.reason is reason
