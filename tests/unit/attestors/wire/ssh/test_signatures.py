"""Signatures of certificates and messages, by every kind of key."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from hypothesis import given
from hypothesis import strategies as st

from attestors.wire.ssh.encoding import mpint, string, uint32
from attestors.wire.ssh.errors import SSHReason, SSHRefused
from attestors.wire.ssh.keys import PublicKey, SecurityKeyECDSA, SecurityKeyEd25519
from attestors.wire.ssh.signatures import (
    NoTouch,
    Signature,
    SignatureAlgorithm,
    Touch,
    parse_signature,
    public_key_of,
    sign,
    verify,
)
from tests.support.openssh import APPLICATION, SIGNERS, private_key, public_keys

DATA = b"what is signed"
PRESENT = 1


def refusal(key: PublicKey, signature: Signature, data: bytes = DATA) -> SSHReason:
    with pytest.raises(SSHRefused) as refused:
        verify(key, signature, data)
    return refused.value.reason


def touched(name: str, data: bytes = DATA, *, flags: int = PRESENT) -> tuple[PublicKey, Signature]:
    """What a FIDO token with that key answers (PROTOCOL.u2f)."""
    key = public_keys()[name]
    message = b"".join(
        (
            hashlib.sha256(APPLICATION.encode()).digest(),
            bytes([flags]),
            uint32(9),
            hashlib.sha256(data).digest(),
        )
    )
    if name == "sk-ed25519":
        token = private_key("ed25519")
        assert isinstance(token, Ed25519PrivateKey)
        return key, Signature(SignatureAlgorithm.SECURITY_KEY_ED25519, token.sign(message), Touch(flags, 9))
    other = private_key("nistp256")
    assert isinstance(other, ec.EllipticCurvePrivateKey)
    r, s = decode_dss_signature(other.sign(message, ec.ECDSA(hashes.SHA256())))
    return key, Signature(SignatureAlgorithm.SECURITY_KEY_ECDSA_P256, mpint(r) + mpint(s), Touch(flags, 9))


@pytest.mark.parametrize("name", SIGNERS)
def test_each_kind_of_key_signs(name: str) -> None:
    key = private_key(name)
    signature = sign(key, DATA)
    verify(public_key_of(key), signature, DATA)
    assert parse_signature(signature.blob) == signature
    assert refusal(public_key_of(key), signature, b"another") is SSHReason.BAD_SIGNATURE


@pytest.mark.parametrize("name", SIGNERS)
def test_the_same_data_gives_the_same_signature(name: str) -> None:
    """ECDSA too, with OpenSSL 3.2 or later, which cryptography's wheels contain."""
    assert sign(private_key(name), DATA) == sign(private_key(name), DATA)


@pytest.mark.parametrize("name", ["sk-ed25519", "sk-ecdsa"])
def test_fido_keys_are_verified(name: str) -> None:
    key, signature = touched(name)
    verify(key, signature, DATA)
    assert parse_signature(signature.blob) == signature
    assert refusal(key, signature, b"another") is SSHReason.BAD_SIGNATURE


@pytest.mark.parametrize("name", ["sk-ed25519", "sk-ecdsa"])
def test_a_fido_key_that_nobody_touched(name: str) -> None:
    key, signature = touched(name, flags=0)
    assert refusal(key, signature) is SSHReason.USER_NOT_PRESENT


@pytest.mark.parametrize("name", ["sk-ed25519", "sk-ecdsa"])
def test_flags_counter_and_application_are_signed(name: str) -> None:
    key, signature = touched(name)
    assert refusal(key, replace(signature, touch=Touch(5, 9))) is SSHReason.BAD_SIGNATURE
    assert refusal(key, replace(signature, touch=Touch(PRESENT, 8))) is SSHReason.BAD_SIGNATURE
    assert isinstance(key, SecurityKeyEd25519 | SecurityKeyECDSA)
    other = replace(key, application="ssh:other")
    assert refusal(other, signature) is SSHReason.BAD_SIGNATURE
    assert refusal(key, replace(signature, touch=NoTouch())) is SSHReason.MALFORMED


def test_a_plain_signature_of_a_fido_keys_point_does_not_count() -> None:
    plain = sign(private_key("ed25519"), DATA)
    assert refusal(public_keys()["sk-ed25519"], plain) is SSHReason.SIGNATURE_ALGORITHM_UNSUPPORTED


def test_rsa_with_sha256_is_accepted_and_sha1_is_not() -> None:
    key = private_key("rsa-3072")
    assert isinstance(key, rsa.RSAPrivateKey)
    value = key.sign(DATA, padding.PKCS1v15(), hashes.SHA256())
    verify(public_key_of(key), Signature(SignatureAlgorithm.RSA_SHA256, value), DATA)
    assert refusal(public_key_of(key), Signature(SignatureAlgorithm.RSA_SHA512, value)) is SSHReason.BAD_SIGNATURE
    with pytest.raises(SSHRefused) as refused:
        parse_signature(string(b"ssh-rsa") + string(value))
    assert refused.value.reason is SSHReason.SIGNATURE_ALGORITHM_UNSUPPORTED


def test_numbers_of_ecdsa_have_one_form() -> None:
    key = public_key_of(private_key("nistp256"))
    value = sign(private_key("nistp256"), DATA).value
    for other, reason in (
        (value + b"\0", SSHReason.TRAILING_BYTES),
        (string(b"\0" * 3) + mpint(1), SSHReason.NOT_CANONICAL),
        (mpint(0) + mpint(0), SSHReason.BAD_SIGNATURE),
        (mpint(2**600) + mpint(1), SSHReason.TOO_LARGE),
        (b"", SSHReason.MALFORMED),
    ):
        assert refusal(key, Signature(SignatureAlgorithm.ECDSA_P256, other)) is reason


@pytest.mark.parametrize("name", SIGNERS)
@given(value=st.binary(max_size=80))
def test_any_value_is_refused(name: str, value: bytes) -> None:
    key = public_key_of(private_key(name))
    algorithm = SignatureAlgorithm.RSA_SHA512 if name == "rsa-3072" else SignatureAlgorithm(key.key_type.value)
    with pytest.raises(SSHRefused):
        verify(key, Signature(algorithm, value), DATA)


@given(st.binary(max_size=120))
def test_any_bytes_are_refused_or_read_back(data: bytes) -> None:
    for begin in (b"", string(b"ssh-ed25519"), string(b"sk-ssh-ed25519@openssh.com")):
        try:
            signature = parse_signature(begin + data)
        except SSHRefused:
            continue
        assert signature.blob == begin + data


def test_a_signature_shows_nothing() -> None:
    assert "value" not in repr(sign(private_key("ed25519"), DATA))
