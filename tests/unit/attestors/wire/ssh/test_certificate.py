"""Certificates: each type reads back, and each wrong field is refused by its own reason."""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.wire.ssh.certificate import (
    FOREVER,
    MAXIMUM_CERTIFICATE_BYTES,
    MAXIMUM_CERTIFICATE_FILE_BYTES,
    Certificate,
    CertificateKind,
    SignedCertificate,
    parse_certificate,
    parse_certificate_file,
    parse_certificate_line,
)
from attestors.wire.ssh.encoding import mpint, string, strings, to_base64, uint32, uint64
from attestors.wire.ssh.errors import SSHReason, SSHRefused
from attestors.wire.ssh.options import Extension, ForceCommand, VerifyRequired
from attestors.wire.ssh.principals import HostAddress, HostName, LoginOnNode, PlainPrincipal
from attestors.wire.ssh.signatures import public_key_of, sign
from tests.support.openssh import SIGNERS, private_key, public_keys
from tests.unit.attestors.wire.ssh.strategies import certificates

KEYS = public_keys()
AUTHORITY = private_key("ed25519", 1)
USER = Certificate(
    public_key=KEYS["ed25519"],
    kind=CertificateKind.USER,
    serial=7,
    key_id="grant/a",
    principals=(PlainPrincipal("root"),),
    valid_after=1_000,
    valid_before=4_600,
    authority=public_key_of(AUTHORITY),
    nonce=bytes(32),
)
HOST = replace(USER, kind=CertificateKind.HOST, principals=(HostName("worker-1"),))


def signed(certificate: Certificate = USER) -> SignedCertificate:
    return SignedCertificate(certificate, sign(AUTHORITY, certificate.signed_bytes))


def refusal(blob: bytes) -> SSHReason:
    with pytest.raises(SSHRefused) as refused:
        parse_certificate(blob)
    return refused.value.reason


def encoded(**changed: bytes) -> bytes:
    """A certificate with some fields replaced by bytes, as an attacker would write them."""
    fields = {
        "type": string(b"ssh-ed25519-cert-v01@openssh.com"),
        "nonce": string(bytes(32)),
        "key": USER.public_key.fields,
        "serial": uint64(7),
        "kind": uint32(1),
        "key_id": string(b"grant/a"),
        "principals": string(string(b"root")),
        "after": uint64(1_000),
        "before": uint64(4_600),
        "options": string(b""),
        "extensions": string(b""),
        "reserved": string(b""),
        "authority": string(USER.authority.blob),
    }
    assert changed.keys() <= fields.keys()
    body = b"".join((fields | changed).values())
    return body + string(sign(AUTHORITY, body).blob)


def test_the_unchanged_fields_make_a_certificate() -> None:
    assert parse_certificate(encoded()) == signed()
    assert encoded() == signed().blob


@given(certificates(authority=public_key_of(AUTHORITY)))
def test_any_certificate_reads_back(certificate: Certificate) -> None:
    found = parse_certificate(signed(certificate).blob)
    assert found == signed(certificate)
    found.verify()
    assert parse_certificate_line(found.line) == found


@pytest.mark.parametrize("authority", SIGNERS)
@pytest.mark.parametrize("name", list(KEYS))
def test_each_type_of_key_and_authority(name: str, authority: str) -> None:
    key = private_key(authority, 1)
    certificate = replace(USER, public_key=KEYS[name], authority=public_key_of(key))
    found = parse_certificate(SignedCertificate(certificate, sign(key, certificate.signed_bytes)).blob)
    assert found.certificate == certificate
    found.verify()


@given(data=st.data())
def test_changed_certificates_are_refused_or_read_back_and_never_verify(data: st.DataObject) -> None:
    original = signed(replace(USER, extensions=tuple(Extension))).blob
    blob = bytearray(original)
    for _ in range(data.draw(st.integers(1, 3))):
        blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    changed = bytes(blob[: data.draw(st.integers(len(blob) - 9, len(blob)))])
    try:
        found = parse_certificate(changed)
    except SSHRefused:
        return
    assert found.blob == changed
    if changed != original:
        with pytest.raises(SSHRefused):
            found.verify()


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(data: bytes) -> None:
    for begin in (b"", encoded()[:40]):
        with pytest.raises(SSHRefused):
            parse_certificate(begin + data)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"type": string(b"ssh-ed25519")}, SSHReason.KEY_TYPE_UNSUPPORTED),
        ({"type": string(b"ssh-ed25519-cert-v00@openssh.com")}, SSHReason.KEY_TYPE_UNSUPPORTED),
        ({"type": string(b"ssh-dss-cert-v01@openssh.com")}, SSHReason.KEY_TYPE_UNSUPPORTED),
        ({"nonce": string(b"")}, SSHReason.MALFORMED),
        ({"nonce": string(bytes(65))}, SSHReason.TOO_LARGE),
        ({"kind": uint32(0)}, SSHReason.CERTIFICATE_KIND_UNKNOWN),
        ({"kind": uint32(3)}, SSHReason.CERTIFICATE_KIND_UNKNOWN),
        ({"key_id": string(b"a\0b")}, SSHReason.MALFORMED),
        ({"key_id": string(b"\xff")}, SSHReason.MALFORMED),
        ({"key_id": string(b"x" * 1025)}, SSHReason.TOO_LARGE),
        ({"principals": string(string(b"root,admin"))}, SSHReason.PRINCIPAL_INVALID),
        ({"principals": string(string(b"root\0"))}, SSHReason.PRINCIPAL_INVALID),
        ({"principals": string(string(b"root\n"))}, SSHReason.PRINCIPAL_INVALID),
        ({"principals": string(string(b"*"))}, SSHReason.PRINCIPAL_INVALID),
        ({"principals": string(string(b""))}, SSHReason.PRINCIPAL_INVALID),
        ({"principals": string(string(b"-o"))}, SSHReason.PRINCIPAL_INVALID),
        ({"principals": string(string(b"r\xf6\xf6t"))}, SSHReason.PRINCIPAL_INVALID),
        ({"principals": string(string(b"root") + string(b"root"))}, SSHReason.PRINCIPALS_REPEATED),
        ({"principals": string(b"\0\0\0\x05root")}, SSHReason.MALFORMED),
        ({"principals": string(strings(b"u%d" % n for n in range(257)))}, SSHReason.TOO_MANY_PRINCIPALS),
        ({"kind": uint32(2), "principals": string(string(b"*.example"))}, SSHReason.PRINCIPAL_INVALID),
        ({"before": uint64(1_000)}, SSHReason.VALIDITY_INVALID),
        ({"before": uint64(0)}, SSHReason.VALIDITY_INVALID),
        ({"after": uint64(FOREVER)}, SSHReason.VALIDITY_INVALID),
        ({"options": string(string(b"no-such") + string(b""))}, SSHReason.OPTION_UNKNOWN),
        ({"options": string(b"\0")}, SSHReason.MALFORMED),
        ({"extensions": string(string(b"no-such") + string(b""))}, SSHReason.OPTION_UNKNOWN),
        (
            {
                "kind": uint32(2),
                "principals": string(string(b"w")),
                "extensions": string(string(b"permit-pty") + string(b"")),
            },
            SSHReason.OPTION_INVALID,
        ),
        ({"reserved": string(b"x")}, SSHReason.TOO_LARGE),
        ({"authority": string(USER.authority.blob + b"\0")}, SSHReason.TRAILING_BYTES),
        ({"authority": string(string(b"ssh-dss"))}, SSHReason.KEY_TYPE_UNSUPPORTED),
        (
            {"type": string(b"ssh-rsa-cert-v01@openssh.com"), "key": mpint(65537) + mpint(2**2047 + 1)},
            SSHReason.KEY_TOO_WEAK,
        ),
    ],
)
def test_each_wrong_field(changed: dict[str, bytes], reason: SSHReason) -> None:
    assert refusal(encoded(**changed)) is reason


def test_signatures_that_are_none() -> None:
    body = USER.signed_bytes
    good = sign(AUTHORITY, body).blob
    assert refusal(body + string(good) + b"\0") is SSHReason.TRAILING_BYTES
    assert refusal(body + string(good + b"\0")) is SSHReason.TRAILING_BYTES
    sha1 = string(b"ssh-rsa") + string(bytes(384))
    assert refusal(body + string(sha1)) is SSHReason.SIGNATURE_ALGORITHM_UNSUPPORTED
    assert refusal(body) is SSHReason.MALFORMED


def test_the_signature_of_another_authority() -> None:
    forged = SignedCertificate(USER, sign(private_key("ed25519", 2), USER.signed_bytes))
    with pytest.raises(SSHRefused) as refused:
        parse_certificate(forged.blob).verify()
    assert refused.value.reason is SSHReason.BAD_SIGNATURE


def test_a_signature_of_another_algorithm_than_the_authoritys() -> None:
    forged = SignedCertificate(USER, sign(private_key("nistp256"), USER.signed_bytes))
    with pytest.raises(SSHRefused) as refused:
        forged.verify()
    assert refused.value.reason is SSHReason.SIGNATURE_ALGORITHM_UNSUPPORTED


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"serial": 2**64}, SSHReason.MALFORMED),
        ({"serial": -1}, SSHReason.MALFORMED),
        ({"key_id": "a\0b"}, SSHReason.KEY_ID_INVALID),
        ({"key_id": "x" * 1025}, SSHReason.KEY_ID_INVALID),
        ({"key_id": "\ud800"}, SSHReason.KEY_ID_INVALID),
        ({"principals": (HostName("worker-1"),)}, SSHReason.PRINCIPAL_INVALID),
        ({"kind": CertificateKind.HOST}, SSHReason.PRINCIPAL_INVALID),
        ({"kind": CertificateKind.HOST, "principals": (LoginOnNode("root", "w"),)}, SSHReason.PRINCIPAL_INVALID),
        ({"principals": (PlainPrincipal("a"),) * 2}, SSHReason.PRINCIPALS_REPEATED),
        ({"principals": tuple(PlainPrincipal(f"u{n}") for n in range(257))}, SSHReason.TOO_MANY_PRINCIPALS),
        ({"valid_before": FOREVER + 1}, SSHReason.VALIDITY_INVALID),
        ({"valid_after": -1}, SSHReason.VALIDITY_INVALID),
        ({"critical_options": (VerifyRequired(), ForceCommand("ls"))}, SSHReason.OPTIONS_NOT_SORTED),
        ({"extensions": (Extension.PERMIT_PTY, Extension.PERMIT_PTY)}, SSHReason.OPTIONS_NOT_SORTED),
        ({"nonce": bytes(15)}, SSHReason.MALFORMED),
    ],
)
def test_values_that_make_no_certificate(changes: dict[str, Any], reason: SSHReason) -> None:
    with pytest.raises(SSHRefused) as refused:
        replace(USER, **changes)
    assert refused.value.reason is reason


def test_a_host_certificate_has_no_options() -> None:
    with pytest.raises(SSHRefused) as refused:
        replace(HOST, critical_options=(VerifyRequired(),))
    assert refused.value.reason is SSHReason.OPTION_INVALID
    assert replace(HOST, principals=(HostAddress(ipaddress.ip_address("2001:db8::1")),)).kind is CertificateKind.HOST


def test_forever_is_the_largest_number_of_64_bits() -> None:
    assert FOREVER == 2**64 - 1
    assert parse_certificate(encoded(before=uint64(2**64 - 1))).certificate.valid_before == FOREVER


def test_none_and_256_principals_of_any_length() -> None:
    for count in (0, 1, 256):
        certificate = replace(USER, principals=tuple(PlainPrincipal(f"{n:0381}") for n in range(count)))
        assert parse_certificate(signed(certificate).blob).certificate == certificate
        assert parse_certificate_file(f"{signed(certificate).line} alice\n".encode()) == signed(certificate)


def test_a_certificate_without_bound() -> None:
    assert refusal(bytes(MAXIMUM_CERTIFICATE_BYTES + 1)) is SSHReason.TOO_LARGE


def test_lines() -> None:
    line = signed().line
    assert parse_certificate_file(f"{line} a comment\n".encode()) == signed()
    for text, reason in (
        (line.replace("ssh-ed25519-", "ecdsa-sha2-nistp256-", 1), SSHReason.KEY_LINE_TYPE_MISMATCH),
        (f"ssh-ed25519 {line.split()[1]}", SSHReason.KEY_TYPE_UNSUPPORTED),
        (f"{line}\n", SSHReason.MALFORMED),
        (f"{line} comment", SSHReason.MALFORMED),
        (f"{line.split()[0]} {to_base64(signed().blob + bytes(1))}", SSHReason.TRAILING_BYTES),
        ("x" * (MAXIMUM_CERTIFICATE_FILE_BYTES + 1), SSHReason.TOO_LARGE),
    ):
        with pytest.raises(SSHRefused) as refused:
            parse_certificate_line(text)
        assert refused.value.reason is reason
