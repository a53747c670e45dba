from __future__ import annotations

import hashlib
import re
import warnings
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from signer.authority.der import (
    Tag,
    bit_string,
    encode,
    integer,
    object_identifier,
    octet_string,
    read_blocks,
    read_elements,
    read_single,
    sequence,
)
from signer.authority.lenient_certificate import CertificateUnreadable, NotIssuedBy, OtherKey, parse_ca_certificate
from tests.support.cpu_time import within_cpu_seconds
from tests.unit.signer.authority.support import capi_secret, ec_key, make, openssl, pem_key, rsa_key, with_serial_number

pytestmark = pytest.mark.usefixtures("release")


def capi_der(number: int = 0) -> bytes:
    return read_blocks(capi_secret(number)["tls.crt"], maximum_bytes=9999, maximum_blocks=1)[0].content


@pytest.fixture(autouse=True)
def _warnings_are_errors() -> None:
    warnings.simplefilter("error")


def test_the_release_under_test_refuses_a_bare_serial_number_zero() -> None:
    with pytest.raises((ValueError, UserWarning)):
        x509.load_der_x509_certificate(capi_der())


def test_serial_number_zero() -> None:
    certificate = parse_ca_certificate(capi_der())
    assert certificate.may_sign_certificates
    assert certificate.public_key == ec_key().public_key()
    assert certificate.basic_constraints == x509.BasicConstraints(ca=True, path_length=0)
    information = ec_key().public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert certificate.public_key_hash == "sha256:" + hashlib.sha256(information).hexdigest()


@pytest.mark.parametrize("serial_number", [0, -1, -128, -(1 << 70)])
def test_the_signature_is_verified_over_the_original(serial_number: int) -> None:
    root = make("root", ec_key(1))
    child = make("child", ec_key(2), root)
    der = with_serial_number(child, serial_number, ec_key(1))
    issuer = parse_ca_certificate(root.certificate.public_bytes(Encoding.DER))
    certificate = parse_ca_certificate(der)
    certificate.require_directly_issued_by(issuer)
    assert certificate.der == der
    assert certificate.serial_number == serial_number
    # The same signature over serial number 1, which is what the library was shown, must not do.
    tbs, algorithm, signature = read_elements(read_single(der, Tag.SEQUENCE).content)
    fields = [element.encoded for element in read_elements(tbs.content)]
    fields[1] = b"\x02\x01\x01"
    forged = parse_ca_certificate(sequence(sequence(*fields), algorithm.encoded, signature.encoded))
    with pytest.raises(NotIssuedBy):
        forged.require_directly_issued_by(issuer)


@pytest.mark.parametrize("key", [ec_key(1), rsa_key()], ids=["ecdsa", "rsa"])
def test_a_self_signature_with_serial_number_zero(key: object) -> None:
    der = read_blocks(capi_secret(key=key)["tls.crt"], maximum_bytes=9999, maximum_blocks=1)[0].content
    certificate = parse_ca_certificate(der)
    certificate.require_directly_issued_by(certificate)
    damaged = parse_ca_certificate(der[:-1] + bytes([der[-1] ^ 1]))
    with pytest.raises(NotIssuedBy):
        damaged.require_directly_issued_by(certificate)


def test_same_name_other_key_did_not_issue_it() -> None:
    ours, theirs = parse_ca_certificate(capi_der(0)), parse_ca_certificate(capi_der(1))
    assert ours.issuer == theirs.subject
    with pytest.raises(NotIssuedBy):
        ours.require_directly_issued_by(theirs)


def test_same_key_other_name_did_not_issue_it() -> None:
    root, renamed = make("root", ec_key(1)), make("renamed", ec_key(1))
    child = parse_ca_certificate(make("child", ec_key(2), root).certificate.public_bytes(Encoding.DER))
    with pytest.raises(NotIssuedBy, match="name"):
        child.require_directly_issued_by(parse_ca_certificate(renamed.certificate.public_bytes(Encoding.DER)))


@pytest.mark.parametrize("serial_number", ["0", "1"])
def test_a_weak_hash_proves_nothing(tmp_path: Path, serial_number: str) -> None:
    key, der = tmp_path / "key", tmp_path / "der"
    key.write_bytes(pem_key(rsa_key()))
    openssl(
        *("req", "-x509", "-key", str(key), "-sha1", "-subj", "/CN=x", "-set_serial", serial_number),
        *("-outform", "der", "-out", str(der)),
    )
    certificate = parse_ca_certificate(der.read_bytes())
    with pytest.raises(NotIssuedBy, match="SHA-256"):
        certificate.require_directly_issued_by(certificate)


def test_a_positive_serial_number_reaches_the_library_untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []
    load = x509.load_der_x509_certificate

    def spy(data: bytes) -> x509.Certificate:
        seen.append(data)
        return load(data)

    monkeypatch.setattr(x509, "load_der_x509_certificate", spy)
    positive = make("root", ec_key(1)).certificate.public_bytes(Encoding.DER)
    parse_ca_certificate(positive)
    zero = capi_der()
    parse_ca_certificate(zero)
    assert seen[0] == positive
    # Only the serial number differs in what the library is shown instead of a zero.
    assert len(seen[1]) == len(zero)
    assert [(was, shown) for was, shown in zip(zero, seen[1], strict=True) if was != shown] == [(0, 1)]


def rebuilt(**changes: bytes) -> bytes:
    """The CA with one field replaced; the signature is void, which parsing does not look at."""
    tbs, algorithm, signature = read_elements(read_single(capi_der(), Tag.SEQUENCE).content)
    names = ("version", "serial", "signature", "issuer", "validity", "subject", "key", "extensions")
    fields = dict(zip(names, (element.encoded for element in read_elements(tbs.content)), strict=True))
    outer = {"algorithm": algorithm.encoded, "value": signature.encoded}
    for name, value in changes.items():
        (fields if name in fields else outer)[name] = value
    return sequence(sequence(*fields.values()), *outer.values())


UNKNOWN_TLS_FEATURE = sequence(object_identifier("1.3.6.1.5.5.7.1.24"), octet_string(sequence(integer(3))))
"""For which the library raises a KeyError (RFC 7633)."""


@pytest.mark.parametrize(
    "der",
    [
        b"",
        b"\x30\x00",
        capi_der() + b"\x00",
        capi_der()[:-1],
        rebuilt(serial=b"\x02\x00"),
        rebuilt(serial=b"\x02\x02\x00\x00"),
        rebuilt(serial=b"\x02\x02\xff\xff"),
        rebuilt(serial=b"\x04\x01\x00"),
        rebuilt(serial=b""),
        rebuilt(signature=sequence(encode(0x06, b"\x2a\x03"))),
        rebuilt(validity=sequence()),
        rebuilt(key=sequence()),
        rebuilt(extensions=encode(0xA3, b"")),
        rebuilt(value=b"\x03\x02\x01\x02\x00"),
        rebuilt(version=encode(0xA0, b"\x02\x01\x09")),
        rebuilt(extensions=encode(0xA3, sequence(UNKNOWN_TLS_FEATURE))),
    ],
)
def test_refuses_what_is_no_certificate(der: bytes) -> None:
    with pytest.raises(CertificateUnreadable):
        parse_ca_certificate(der)


@pytest.mark.parametrize("bits", [512, 30_000])
def test_a_key_that_no_authority_has_is_not_looked_at(bits: int) -> None:
    """X9.42 Diffie-Hellman with a subgroup: the library takes ten seconds over the larger one, all threads wait."""
    number = integer((1 << bits) - 3)
    group = sequence(object_identifier("1.2.840.10046.2.1"), sequence(number, integer(2), number))
    der = rebuilt(key=sequence(group, bit_string(integer((1 << bits) - 7))))
    certificate = within_cpu_seconds(0.3, lambda: parse_ca_certificate(der))
    assert certificate.public_key == OtherKey()
    with pytest.raises(NotIssuedBy):
        certificate.require_directly_issued_by(certificate)


def test_version_1_without_extensions_is_no_authority() -> None:
    certificate = parse_ca_certificate(rebuilt(version=b"", extensions=b""))
    assert not certificate.may_sign_certificates
    assert certificate.key_usage is None
    assert certificate.subject_key_identifier is None


def test_the_value_shows_no_bytes() -> None:
    # A digest may end with the letter.
    assert re.search(r"(?<![0-9a-f])b'", repr(parse_ca_certificate(capi_der()))) is None
