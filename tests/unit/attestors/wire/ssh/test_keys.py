"""Public keys: each type is read and written, and everything else is refused."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import re

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from attestors.wire.ssh.encoding import mpint, string, strings
from attestors.wire.ssh.errors import SSHReason, SSHRefused
from attestors.wire.ssh.keys import (
    ECDSAKey,
    Ed25519Key,
    KeyType,
    PublicKey,
    RSAKey,
    SecurityKeyEd25519,
    WeakRSAKey,
    host_key,
    parse_public_key,
    parse_revocable_key,
)
from attestors.wire.ssh.signatures import public_key_of
from tests.support.openssh import SIGNERS, private_key, public_keys

KEYS = public_keys()
ODD = 2**3071 + 1


def refusal(blob: bytes) -> SSHReason:
    with pytest.raises(SSHRefused) as refused:
        parse_public_key(blob)
    return refused.value.reason


@pytest.mark.parametrize("name", list(KEYS))
def test_each_type_reads_back(name: str) -> None:
    key = KEYS[name]
    assert parse_public_key(key.blob) == key
    assert parse_public_key(key.blob).blob == key.blob
    assert {one.key_type for one in KEYS.values()} >= set(KeyType) - {KeyType.ECDSA_P384}


@pytest.mark.parametrize("name", SIGNERS)
def test_blobs_are_those_of_cryptography(name: str) -> None:
    """Which compares the encoder with another implementation."""
    public = private_key(name).public_key()
    theirs = public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).split()[1]

    assert base64.b64decode(theirs) == KEYS[name].blob


@given(st.binary(max_size=120))
def test_any_bytes_are_refused_or_read_back(data: bytes) -> None:
    try:
        key = parse_public_key(data)
    except SSHRefused:
        return
    assert key.blob == data


@pytest.mark.parametrize("name", list(KEYS))
@given(data=st.data())
def test_changed_keys_are_refused_or_read_back(name: str, data: st.DataObject) -> None:
    blob = bytearray(KEYS[name].blob)
    for _ in range(data.draw(st.integers(1, 3))):
        blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    changed = bytes(blob[: data.draw(st.integers(0, len(blob)))])
    try:
        key = parse_public_key(changed)
    except SSHRefused:
        return
    assert key.blob == changed


def test_bytes_that_follow_are_refused() -> None:
    assert refusal(KEYS["ed25519"].blob + b"\0") is SSHReason.TRAILING_BYTES


def test_dsa_is_refused() -> None:
    numbers = dsa.DSAPublicNumbers(5, dsa.DSAParameterNumbers(2**1023 + 1, 2**159 + 1, 3))
    blob = string(b"ssh-dss") + b"".join(map(mpint, (numbers.parameter_numbers.p, 7, 3, numbers.y)))
    assert refusal(blob) is SSHReason.KEY_TYPE_UNSUPPORTED


@pytest.mark.parametrize("name", [b"ssh-ed448", b"", b"\xff", b"ssh-ed25519-cert-v01@openssh.com", b"SSH-ED25519"])
def test_other_types_are_refused(name: bytes) -> None:
    assert refusal(string(name) + string(bytes(32))) is SSHReason.KEY_TYPE_UNSUPPORTED


@pytest.mark.parametrize("bits", [1024, 2048, 3071])
def test_short_rsa_is_refused_and_can_be_revoked(bits: int) -> None:
    blob = string(b"ssh-rsa") + mpint(65537) + mpint(2 ** (bits - 1) + 1)
    assert refusal(blob) is SSHReason.KEY_TOO_WEAK
    assert isinstance(parse_revocable_key(blob), WeakRSAKey)
    assert parse_revocable_key(blob).blob == blob


def test_rsa_of_1023_bits_cannot_even_be_revoked() -> None:
    """OpenSSH refuses a whole revocation list with such a key."""
    with pytest.raises(SSHRefused) as refused:
        parse_revocable_key(string(b"ssh-rsa") + mpint(65537) + mpint(2**1022 + 1))
    assert refused.value.reason is SSHReason.KEY_TOO_WEAK


def test_rsa_of_3072_bits_is_not_weak() -> None:
    with pytest.raises(SSHRefused, match="not weak"):
        WeakRSAKey(65537, ODD)
    assert RSAKey(65537, ODD).modulus == ODD


@pytest.mark.parametrize(
    ("exponent", "modulus", "reason"),
    [
        (1, ODD, SSHReason.KEY_INVALID),
        (65536, ODD, SSHReason.KEY_INVALID),
        (2**32 + 1, ODD, SSHReason.TOO_LARGE),
        (65537, ODD + 1, SSHReason.KEY_INVALID),
        (65537, 2**8192 + 1, SSHReason.TOO_LARGE),
    ],
    ids=["exponent 1", "even exponent", "long exponent", "even modulus", "long modulus"],
)
def test_rsa_numbers_that_make_no_key(exponent: int, modulus: int, reason: SSHReason) -> None:
    assert refusal(string(b"ssh-rsa") + mpint(exponent) + mpint(modulus)) is reason
    with pytest.raises(SSHRefused):
        RSAKey(exponent, modulus)


def test_points_of_fido_keys_are_checked_too() -> None:
    for point in (b"", bytes(31), bytes(33)):
        assert refusal(strings((b"sk-ssh-ed25519@openssh.com", point, b"ssh:"))) is SSHReason.KEY_INVALID
    p256 = KEYS["nistp256"]
    assert isinstance(p256, ECDSAKey)
    off = p256.point[:-1] + bytes([p256.point[-1] ^ 1])
    for curve, point in ((b"nistp256", off), (b"nistp256", b"\0"), (b"nistp384", p256.point)):
        blob = strings((b"sk-ecdsa-sha2-nistp256@openssh.com", curve, point, b"ssh:"))
        assert refusal(blob) is SSHReason.KEY_INVALID


def test_the_smallest_exponent() -> None:
    assert RSAKey(3, ODD).exponent == 3


def test_the_longest_rsa_key_and_exponent() -> None:
    key = RSAKey(2**32 - 1, 2**8191 + 1)
    assert parse_public_key(key.blob) == key


@pytest.mark.parametrize(("length", "accepted"), [(1, True), (255, True), (256, False)])
def test_lengths_of_applications(length: int, accepted: bool) -> None:
    point = KEYS["sk-ed25519"].blob[:-8]
    blob = point + string(b"x" * length)
    if accepted:
        assert parse_public_key(blob).blob == blob
    else:
        assert refusal(blob) is SSHReason.TOO_LARGE
    with contextlib.suppress(SSHRefused):
        SecurityKeyEd25519(bytes(32), "x" * length)
        assert accepted


def test_a_type_is_shown_only_if_it_is_a_name() -> None:
    """What stands in its place may be a secret."""
    for name, shown in ((b"ssh-ed448", "type ssh-ed448 are"), (b'{"key":"AAEC', "type (not shown) are")):
        with pytest.raises(SSHRefused, match=re.escape(shown)):
            parse_public_key(string(name))


def ecdsa_blob(point: bytes, *, curve: bytes = b"nistp256", named: bytes = b"ecdsa-sha2-nistp256") -> bytes:
    return strings((named, curve, point))


def test_points_that_are_on_no_curve() -> None:
    good = KEYS["nistp256"]
    assert isinstance(good, ECDSAKey)
    compressed = private_key("nistp256").public_key().public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
    off = good.point[:-1] + bytes([good.point[-1] ^ 1])
    for point in (compressed, off, b"", b"\0", good.point[:-1], good.point + b"\0"):
        assert refusal(ecdsa_blob(point)) is SSHReason.KEY_INVALID


def test_a_curve_that_is_not_the_types() -> None:
    p256 = KEYS["nistp256"]
    assert isinstance(p256, ECDSAKey)
    assert refusal(ecdsa_blob(p256.point, curve=b"nistp384")) is SSHReason.KEY_INVALID
    p384 = KEYS["nistp384"]
    assert isinstance(p384, ECDSAKey)
    assert refusal(ecdsa_blob(p384.point, curve=b"nistp384")) is SSHReason.KEY_INVALID


@pytest.mark.parametrize("length", [0, 31, 33])
def test_ed25519_has_32_bytes(length: int) -> None:
    assert refusal(string(b"ssh-ed25519") + string(bytes(length))) is SSHReason.KEY_INVALID


@pytest.mark.parametrize("application", [b"", b"ssh:\0", b"ssh:\n", b"\xff"])
@pytest.mark.parametrize("name", ["sk-ed25519", "sk-ecdsa"])
def test_applications_that_nobody_can_print(name: str, application: bytes) -> None:
    blob = KEYS[name].blob
    assert blob.endswith(string(b"ssh:"))
    assert refusal(blob[: -len(string(b"ssh:"))] + string(application)) is SSHReason.KEY_INVALID


def test_a_key_without_bound() -> None:
    assert refusal(bytes(4096)) is SSHReason.TOO_LARGE


@pytest.mark.parametrize("name", ["sk-ed25519", "sk-ecdsa"])
def test_a_fido_key_is_no_host_key(name: str) -> None:
    """Test 8: sshd would need a touch for each login."""
    with pytest.raises(SSHRefused) as refused:
        host_key(KEYS[name])
    assert refused.value.reason is SSHReason.SECURITY_KEY_NOT_ALLOWED


@pytest.mark.parametrize("name", SIGNERS)
def test_other_keys_are_host_keys(name: str) -> None:
    assert host_key(KEYS[name]) == KEYS[name]


def test_keys_of_other_curves_do_not_sign() -> None:
    with pytest.raises(SSHRefused) as refused:
        public_key_of(ec.generate_private_key(ec.SECP256K1()))
    assert refused.value.reason is SSHReason.KEY_TYPE_UNSUPPORTED
    with pytest.raises(SSHRefused) as weak:
        public_key_of(rsa.generate_private_key(65537, 2048))
    assert weak.value.reason is SSHReason.KEY_TOO_WEAK


def test_values_do_not_change() -> None:
    key: PublicKey = Ed25519Key(bytes(32))
    with pytest.raises(dataclasses.FrozenInstanceError):
        key.point = b""  # type: ignore[union-attr,misc]
