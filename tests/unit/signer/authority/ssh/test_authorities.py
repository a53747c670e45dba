"""The two authorities sign what was asked for, each its own kind, and nothing else."""

from __future__ import annotations

import base64
import inspect
import itertools
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.wire.ssh import signatures
from attestors.wire.ssh.certificate import FOREVER, CertificateKind, parse_certificate
from attestors.wire.ssh.errors import SSHReason, SSHRefused
from attestors.wire.ssh.keys import host_key
from attestors.wire.ssh.options import Extension, ForceCommand
from attestors.wire.ssh.principals import PlainPrincipal
from signer.authority.ssh import authorities
from signer.authority.ssh.authorities import HostAuthority, UserAuthority
from signer.authority.ssh.errors import SSHAuthorityReason, SSHAuthorityRefused
from signer.authority.ssh.key_id import KeyID
from signer.authority.ssh.private_key import AuthorityAlgorithm, new_private_key, read_private_key
from signer.authority.ssh.requests import (
    AnyClock,
    HostCertificateRequest,
    Nonce,
    Serial,
    UserCertificateRequest,
    WithoutEnd,
)
from tests.support.openssh import private_key, private_key_text, public_keys
from tests.unit.signer.authority.ssh.requests import FOR_HOST, FOR_USER, HOSTS, NOW, USERS, authority_key


def refusal(changed: Any) -> SSHAuthorityReason:
    with pytest.raises(SSHAuthorityRefused) as refused:
        changed()
    return refused.value.reason


def test_a_users_certificate() -> None:
    signed = USERS.sign(replace(FOR_USER, critical_options=(ForceCommand("ls"),), extensions=(Extension.PERMIT_PTY,)))
    signed.verify()
    certificate = signed.certificate
    assert (certificate.kind, certificate.serial, certificate.key_id) == (
        CertificateKind.USER,
        7,
        "grant/team-a/night/alice",
    )
    assert (certificate.valid_after, certificate.valid_before) == (NOW - 60, NOW + 3600)
    assert certificate.authority == USERS.public_key


def test_a_users_certificate_for_any_clock() -> None:
    """It never ends, so it is for one login."""
    certificate = USERS.sign(replace(FOR_USER, lifetime=AnyClock(), principals=(PlainPrincipal("root"),))).certificate
    assert (certificate.valid_after, certificate.valid_before) == (0, FOREVER)
    several = (PlainPrincipal("root"), PlainPrincipal("alice"))
    assert refusal(lambda: replace(FOR_USER, lifetime=AnyClock(), principals=several)) is (
        SSHAuthorityReason.LIFETIME_INVALID
    )


def test_a_hosts_certificate() -> None:
    certificate = HOSTS.sign(FOR_HOST).certificate
    assert (certificate.kind, certificate.authority) == (CertificateKind.HOST, HOSTS.public_key)
    assert (certificate.valid_after, certificate.valid_before) == (NOW - 60, NOW + 30 * 86400)
    assert HOSTS.sign(replace(FOR_HOST, lifetime=WithoutEnd())).certificate.valid_before == FOREVER


@pytest.mark.parametrize("name", list(public_keys()))
@pytest.mark.parametrize("authority", ["ed25519", "nistp384"])
def test_each_type_of_key(name: str, authority: str) -> None:
    by = UserAuthority(authority_key(authority, 3))
    assert by.sign(replace(FOR_USER, public_key=public_keys()[name])).certificate.public_key == public_keys()[name]


@pytest.mark.parametrize("authority", ["ed25519", "nistp384"])
def test_the_same_journal_entry_gives_the_same_bytes(authority: str) -> None:
    """Test 9's pure half. ECDSA needs OpenSSL 3.2 (RFC 6979), which cryptography's wheels contain."""
    again = UserAuthority(read_private_key(private_key_text(authority_key(authority))))
    one, other = UserAuthority(authority_key(authority)).sign(FOR_USER), again.sign(replace(FOR_USER))
    assert one.blob == other.blob
    entry = Nonce.of_entry(bytes(32), b"another entry")
    assert UserAuthority(authority_key(authority)).sign(replace(FOR_USER, nonce=entry)).blob != one.blob


def test_another_controller_key_gives_another_nonce() -> None:
    assert Nonce.of_entry(bytes(32), b"entry") != Nonce.of_entry(b"\1" * 32, b"entry")


def test_neither_authority_signs_what_is_the_others() -> None:
    """Tests 21 and 22: two types, and no function of the module takes the kind as an argument."""
    takes = {
        cls: inspect.signature(cls.sign, eval_str=True).parameters["request"].annotation
        for cls in (UserAuthority, HostAuthority)
    }
    assert takes == {UserAuthority: UserCertificateRequest, HostAuthority: HostCertificateRequest}
    with pytest.raises((AttributeError, SSHRefused)):
        USERS.sign(FOR_HOST)  # type: ignore[arg-type]
    with pytest.raises((AttributeError, SSHRefused)):
        HOSTS.sign(FOR_USER)  # type: ignore[arg-type]
    assert not hasattr(authorities, "sign_certificate")


def test_a_key_that_is_the_authoritys_own() -> None:
    assert refusal(lambda: USERS.sign(replace(FOR_USER, public_key=USERS.public_key))) is (
        SSHAuthorityReason.SUBJECT_IS_AUTHORITY
    )
    assert refusal(lambda: HOSTS.sign(replace(FOR_HOST, public_key=HOSTS.public_key))) is (
        SSHAuthorityReason.SUBJECT_IS_AUTHORITY
    )


def test_a_certificate_that_does_not_read_back_is_discarded(monkeypatch: pytest.MonkeyPatch) -> None:
    other = parse_certificate(USERS.sign(replace(FOR_USER, serial=Serial(9))).blob)
    monkeypatch.setattr(authorities, "parse_certificate", lambda blob: other)
    assert refusal(lambda: USERS.sign(FOR_USER)) is SSHAuthorityReason.SELF_CHECK_FAILED


@pytest.mark.parametrize("faulty", [0, 1])
def test_a_faulty_signature_of_ed25519_is_discarded(monkeypatch: pytest.MonkeyPatch, faulty: int) -> None:
    """With the right one of the same bytes, it would give the private key away."""
    sign, calls = signatures.sign, itertools.count()

    def sign_once_wrongly(key: signatures.PrivateKey, data: bytes) -> signatures.Signature:
        return sign(key, data + b"x" if next(calls) == faulty else data)

    monkeypatch.setattr(authorities, "sign", sign_once_wrongly)
    assert refusal(lambda: USERS.sign(FOR_USER)) is SSHAuthorityReason.SELF_CHECK_FAILED


def test_a_signature_by_a_key_whose_public_half_changed_is_discarded(monkeypatch: pytest.MonkeyPatch) -> None:
    users = UserAuthority(new_private_key())
    monkeypatch.setattr(authorities, "public_key_of", lambda key: HOSTS.public_key)
    assert refusal(lambda: users.sign(FOR_USER)) is SSHAuthorityReason.SELF_CHECK_FAILED


def test_a_signature_of_ecdsa_that_does_not_verify_is_discarded(monkeypatch: pytest.MonkeyPatch) -> None:
    users, sign = UserAuthority(new_private_key(AuthorityAlgorithm.ECDSA_P384)), signatures.sign
    monkeypatch.setattr(authorities, "sign", lambda key, data: sign(key, data + b"x"))
    assert refusal(lambda: users.sign(FOR_USER)) is SSHAuthorityReason.SELF_CHECK_FAILED


@pytest.mark.parametrize("number", [0, -1, 2**63, 2**64])
def test_serial_numbers_that_are_never_issued(number: int) -> None:
    """Test 4."""
    assert refusal(lambda: Serial(number)) is SSHAuthorityReason.SERIAL_INVALID


@given(st.binary(min_size=8, max_size=8))
def test_serial_numbers_have_63_random_bits(random: bytes) -> None:
    number = int.from_bytes(random, "big") >> 1
    if number:
        assert Serial.from_random(random).number == number
    else:
        assert refusal(lambda: Serial.from_random(random)) is SSHAuthorityReason.SERIAL_INVALID


def test_random_bits_that_are_all_zero_or_too_few() -> None:
    for random in (bytes(8), b"\0" * 7 + b"\1", b"\xff" * 7, b"\xff" * 9):
        assert refusal(lambda: Serial.from_random(random)) is SSHAuthorityReason.SERIAL_INVALID  # noqa: B023


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_nonce_has_32_bytes(length: int) -> None:
    assert refusal(lambda: Nonce(bytes(length))) is SSHAuthorityReason.NONCE_INVALID


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"principals": ()}, SSHAuthorityReason.PRINCIPALS_MISSING),
        ({"lifetime": timedelta(hours=1, seconds=1)}, SSHAuthorityReason.LIFETIME_INVALID),
        ({"lifetime": timedelta(0)}, SSHAuthorityReason.LIFETIME_INVALID),
        ({"lifetime": timedelta(microseconds=1)}, SSHAuthorityReason.LIFETIME_INVALID),
        ({"lifetime": -timedelta(seconds=1)}, SSHAuthorityReason.LIFETIME_INVALID),
        ({"now": 60}, SSHAuthorityReason.LIFETIME_INVALID),
        *(
            ({"extensions": (one,)}, SSHAuthorityReason.EXTENSION_NOT_ISSUED)
            for one in Extension
            if one not in (Extension.PERMIT_PTY, Extension.PERMIT_PORT_FORWARDING)
        ),
    ],
)
def test_requests_of_users_that_are_refused(changes: dict[str, Any], reason: SSHAuthorityReason) -> None:
    assert refusal(lambda: replace(FOR_USER, **changes)) is reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"principals": ()}, SSHAuthorityReason.PRINCIPALS_MISSING),
        ({"lifetime": timedelta(0)}, SSHAuthorityReason.LIFETIME_INVALID),
        ({"now": 60}, SSHAuthorityReason.LIFETIME_INVALID),
    ],
)
def test_requests_of_hosts_that_are_refused(changes: dict[str, Any], reason: SSHAuthorityReason) -> None:
    assert refusal(lambda: replace(FOR_HOST, **changes)) is reason


@pytest.mark.parametrize("name", ["sk-ed25519", "sk-ecdsa"])
def test_a_fido_key_gets_no_host_certificate(name: str) -> None:
    """Test 8: the type of the request's key has no FIDO keys, and this makes one."""
    with pytest.raises(SSHRefused) as refused:
        host_key(public_keys()[name])
    assert refused.value.reason is SSHReason.SECURITY_KEY_NOT_ALLOWED


def test_the_same_principal_twice() -> None:
    with pytest.raises(SSHRefused) as refused:
        USERS.sign(replace(FOR_USER, principals=(PlainPrincipal("root"),) * 2))
    assert refused.value.reason is SSHReason.PRINCIPALS_REPEATED


def test_no_key_is_shown() -> None:
    secret = private_key_text(authority_key("ed25519", 1)).split(b"\n")[2].decode()
    assert secret not in repr(USERS)
    assert "private_key" not in repr(HOSTS)
    assert bytes(32).hex() not in repr(Nonce(bytes(32)))


# Key ids


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (("grant", "team-a", "alice@example.org"), "grant/team-a/alice@example.org"),
        (("a/b", "c"), "a%2Fb/c"),
        (("x\n", "y\0", "\x1b[31m"), "x%0A/y%00/%1B%5B31m"),
        (('x" (serial 5)',), "x%22%20%28serial%205%29"),
        (("100%",), "100%25"),
        (("Jürgen",), "J%C3%BCrgen"),
        (("\udcff",), "%ED%B3%BF"),
        (("oidc:https://x#y",), "oidc:https:%2F%2Fx%23y"),
    ],
)
def test_key_ids_are_escaped(parts: tuple[str, ...], text: str) -> None:
    assert str(KeyID(parts)) == text


@given(st.lists(st.text(min_size=1, max_size=10), min_size=1, max_size=4), st.lists(st.text(min_size=1), max_size=4))
def test_key_ids_of_different_parts_differ_and_are_one_word(parts: list[str], others: list[str]) -> None:
    text = str(KeyID(tuple(parts)))
    assert text.isascii()
    assert text.isprintable()
    assert not set(text) & set(" \"'()\\<>")
    assert others in ([], parts) or str(KeyID(tuple(others))) != text


@pytest.mark.parametrize("parts", [(), ("",), ("a", ""), ("ü" * 200,)])
def test_key_ids_that_are_none(parts: tuple[str, ...]) -> None:
    with pytest.raises(SSHRefused) as refused:
        KeyID(parts)
    assert refused.value.reason is SSHReason.KEY_ID_INVALID


# Private keys


@pytest.mark.parametrize("algorithm", AuthorityAlgorithm)
def test_new_keys_are_read(algorithm: AuthorityAlgorithm) -> None:
    key = new_private_key(algorithm)
    assert UserAuthority(read_private_key(private_key_text(key))).public_key == UserAuthority(key).public_key


def test_keys_that_are_no_authoritys() -> None:
    for name in ("nistp256", "nistp521", "rsa-3072"):
        text = private_key_text(private_key(name))
        assert refusal(lambda: read_private_key(text)) is SSHAuthorityReason.KEY_UNSUPPORTED  # noqa: B023
    assert refusal(lambda: read_private_key(bytes(5000))) is SSHAuthorityReason.KEY_UNSUPPORTED


@pytest.mark.parametrize(
    "text", [b"", b"x", b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n"]
)
def test_damaged_keys(text: bytes) -> None:
    assert refusal(lambda: read_private_key(text)) is SSHAuthorityReason.KEY_INVALID


def test_a_compressed_point_in_opensshs_format() -> None:
    """Found by fuzzing: the library raises NotImplementedError."""
    text = private_key_text(private_key("nistp384")).decode()
    blob = bytearray(base64.b64decode("".join(text.splitlines()[1:-1])))
    point = blob.index(b"nistp384\0\0\0\x61\x04") + len(b"nistp384\0\0\0\x61")
    blob[point] = 2
    changed = (
        f"-----BEGIN OPENSSH PRIVATE KEY-----\n{base64.encodebytes(blob).decode()}-----END OPENSSH PRIVATE KEY-----\n"
    )
    assert refusal(lambda: read_private_key(changed.encode())) is SSHAuthorityReason.KEY_INVALID


def test_messages_hold_no_key() -> None:
    text = private_key_text(private_key("ed25519"))
    with pytest.raises(SSHAuthorityRefused) as refused:
        read_private_key(text.replace(b"\n", b"\nX", 1))
    assert not any(line in json.dumps(str(refused.value)) for line in text.decode().splitlines()[1:-1])
    assert refused.value.__cause__ is None
