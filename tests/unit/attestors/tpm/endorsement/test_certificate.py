"""Reading one certificate: what form is overlooked, what is malformed, and that garbage does no harm."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from attestors.tpm.endorsement import (
    CertificateUnreadable,
)
from attestors.tpm.endorsement.certificate import (
    LINE_ENDS,
    MAXIMUM_CERTIFICATE_BYTES,
    Certificate,
    read_certificates,
    read_stored_certificate,
)
from signer.authority.der import bit_string, context_constructed, encode, integer, object_identifier, sequence
from tests.support import endorsement_certificates as write
from tests.unit.attestors.tpm.endorsement.support import (
    Attempt,
    elliptic_key,
    endorsement,
    rsa_key,
)

ENCODED = endorsement()
AUTHORITIES = Attempt().authorities()
TPM = write.tpm_attributes("id:53544D20", "ST33", "id:00010200")


def read(**changes: Any) -> Certificate:
    return read_stored_certificate(endorsement(**changes))


def refused(certificate: bytes, words: str) -> None:
    with pytest.raises(CertificateUnreadable, match=words):
        read_stored_certificate(certificate)


def with_parts(*parts: bytes) -> bytes:
    """The ordinary certificate's fields, then signed part only; the signature is not what is tested."""
    signature = bit_string(b"signature")
    return sequence(sequence(*parts), write.SHA256_ECDSA.encoded, signature)


def fields(**changes: bytes) -> bytes:
    """A certificate with some field of the signed part replaced."""
    ordinary = {
        "version": context_constructed(0, integer(2)),
        "serial": integer(1),
        "algorithm": write.SHA256_ECDSA.encoded,
        "issuer": write.common_name("Issuer"),
        "validity": sequence(encode(0x17, b"200101000000Z"), encode(0x17, b"400101000000Z")),
        "subject": write.EMPTY_NAME,
        "key": write.public_key_information(elliptic_key("endorsement")),
        "optional": b"",
    }
    return with_parts(*(ordinary | changes).values())


def test_the_ordinary_one() -> None:
    certificate = read_stored_certificate(fields())
    assert (certificate.version, certificate.serial_number, certificate.issuer.text) == (3, 1, "CN=Issuer")
    assert (certificate.not_before.year, certificate.not_after.year) == (2020, 2040)
    assert certificate.extensions.is_authority is None


@pytest.mark.parametrize("tag", [b"\x10\x02", b""], ids=["with inner tag", "without"])
def test_the_tcg_header_is_taken_off(tag: bytes) -> None:
    header = b"\x10\x01\x00" + (len(tag) + len(ENCODED)).to_bytes(2, "big") + tag
    for behind in (b"", b"\xff" * 99):
        assert read_stored_certificate(header + ENCODED + behind).encoded == ENCODED


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        (b"", "empty"),
        (b"\x00" * 1600, "empty"),
        (b"\xff" * 1600, "empty"),
        (b"\x00\xff" * 9, "empty"),
        (b"\x10\x01\x00" + (len(ENCODED) + 1).to_bytes(2, "big") + ENCODED, "shorter than its TCG header says"),
        (b"\x10\x01\x00\x00\x05" + ENCODED, "truncated"),
        (b"\x10\x01\x01" + len(ENCODED).to_bytes(2, "big") + ENCODED, "type 0x10 where 0x30|not an X.509"),
        (b"\x00" + ENCODED, "type 0x00 where 0x30"),
        (b"-----BEGIN CERTIFICATE-----\n", "truncated|where 0x30"),
        (ENCODED + b"\x00" * (MAXIMUM_CERTIFICATE_BYTES - len(ENCODED) + 1), "larger than 8192 bytes"),
    ],
    ids=["nothing", "zeros", "ones", "both", "long", "short", "partial", "leading zero", "PEM", "large"],
)
def test_what_is_no_certificate_is_refused(stored: bytes, words: str) -> None:
    refused(stored, words)


def test_the_largest_size_is_accepted() -> None:
    assert read_stored_certificate(ENCODED + b"\x00" * (MAXIMUM_CERTIFICATE_BYTES - len(ENCODED))).encoded == ENCODED


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        (integer(0), 0),
        (encode(0x02, b"\xff\xff\x85"), -123),
        (encode(0x02, b"\x00\x00\x05"), 5),
        (integer(2**159), 2**159),
    ],
)
def test_odd_serial_numbers_are_read(encoded: bytes, value: int) -> None:
    assert read(serial=encoded).serial_number == value


@pytest.mark.parametrize(
    ("encoded", "moment"),
    [
        (encode(0x17, b"490101000000Z"), datetime(2049, 1, 1, tzinfo=UTC)),
        (encode(0x17, b"500101000000Z"), datetime(1950, 1, 1, tzinfo=UTC)),
        (encode(0x17, b"2001020304Z"), datetime(2020, 1, 2, 3, 4, tzinfo=UTC)),
        (encode(0x18, b"20200102030405Z"), datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (encode(0x18, b"20200102030405.678Z"), datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (encode(0x18, b"99991231235959Z"), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
    ],
)
def test_dates_in_either_type(encoded: bytes, moment: datetime) -> None:
    assert read(not_before=encoded).not_before == moment


@pytest.mark.parametrize(
    "encoded",
    [
        encode(0x17, b"200101000000"),
        encode(0x17, b"200101000000+0100"),
        encode(0x17, b"200230000000Z"),
        encode(0x17, b"20010100000Z"),
        encode(0x17, b"20 1 1 0 0 0Z"),
        encode(0x17, b"\xb220101000000Z"),
        encode(0x18, b"200101000000Z"),
        encode(0x18, b"2020-01-01Z"),
        encode(0x0C, b"200101000000Z"),
        encode(0x17, b""),
    ],
)
def test_malformed_dates_are_refused(encoded: bytes) -> None:
    refused(endorsement(not_after=encoded), "date")


@pytest.mark.parametrize(
    ("certificate", "words"),
    [
        (sequence(), "not an X.509 certificate"),
        (sequence(sequence(), sequence(), sequence(), sequence()), "not an X.509 certificate"),
        (with_parts(), "not an X.509 certificate"),
        (with_parts(context_constructed(0, integer(2)), integer(1)), "not an X.509 certificate"),
        (fields(version=context_constructed(0, integer(3))), "unknown X.509 version"),
        (fields(version=context_constructed(0, integer(-1))), "unknown X.509 version"),
        (fields(version=context_constructed(0, integer(2) + integer(2))), "bytes after a value"),
        (fields(serial=encode(0x02, b"")), "INTEGER that is empty"),
        (fields(serial=encode(0x02, b"\x01" * 2000)), "INTEGER that is empty or too large"),
        (fields(algorithm=write.SHA384_ECDSA.encoded), "two signature algorithms"),
        (fields(algorithm=sequence()), "malformed signature algorithm"),
        (fields(validity=sequence()), "malformed validity"),
        (fields(issuer=sequence(encode(0x31, sequence(object_identifier("2.5.4.3"))))), "malformed name"),
        (fields(optional=encode(0x84, b"")), "unknown fields"),
        (fields(optional=context_constructed(3, sequence()) + encode(0x81, b"\x00")), "unknown fields"),
        (fields(optional=context_constructed(3, sequence()) * 2), "unknown fields"),
        (fields(version=b"", optional=context_constructed(3, sequence())), "for version 3 only"),
        (sequence(sequence(), write.SHA256_ECDSA.encoded, bit_string(b"")), "not an X.509 certificate"),
        (b"\x30\x80" + ENCODED[4:] + b"\x00\x00", "indefinite"),
        (b"\x3f\x01" + ENCODED, "tag of several octets"),
        (b"\x30\x85\x00\x00\x00\x00\x00", "indefinite or excessive length"),
        (b"\x30\x82\x01", "truncated"),
        (b"\x30", "truncated"),
    ],
)
def test_another_structure_is_refused(certificate: bytes, words: str) -> None:
    refused(certificate, words)


def test_unique_identifiers_are_overlooked() -> None:
    optional = encode(0x81, b"\x00\x01") + encode(0x82, b"\x00\x02") + context_constructed(3, sequence())
    assert read_stored_certificate(fields(optional=optional)).version == 3
    # What stands behind them counts.
    usage = context_constructed(3, sequence(write.key_usage(write.KEY_CERT_SIGN)))
    for before in (encode(0x81, b"\x00\x01"), encode(0x82, b"\x00\x02")):
        read_usage = read_stored_certificate(fields(optional=before + usage)).extensions.key_usage
        assert read_usage is not None
        assert read_usage.key_cert_sign
    assert read_stored_certificate(fields(version=b"")).version == 1
    assert read_stored_certificate(fields(version=context_constructed(0, integer(0)))).version == 1
    without_extensions = fields(version=b"", optional=encode(0x81, b"\x00\x01"))
    assert read_stored_certificate(without_extensions).extensions.key_usage is None


def test_a_signature_with_unused_bits_is_refused() -> None:
    certificate = fields()
    assert certificate.endswith(b"\x03\x0a\x00signature")
    refused(certificate[:-10] + b"\x01" + certificate[-9:], "not of whole octets")


RSA, EC_PUBLIC_KEY, ID_EC_DH, P256 = map(
    object_identifier, ("1.2.840.113549.1.1.1", "1.2.840.10045.2.1", "1.3.132.1.12", "1.2.840.10045.3.1.7")
)
POINT = write.public_key_information(elliptic_key("endorsement"))[-65:]


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (sequence(), "malformed public key"),
        (sequence(sequence(), bit_string(b"")), "malformed public key algorithm"),
        (
            sequence(sequence(object_identifier("1.3.101.112")), bit_string(b"\x00" * 32)),
            r"unsupported algorithm \(1.3",
        ),
        (sequence(sequence(object_identifier("1.2.840.10045.2.1")), bit_string(b"\x04")), "unsupported algorithm"),
        (sequence(sequence(ID_EC_DH, P256), bit_string(POINT)), r"unsupported algorithm \(1.3.132.1.12"),
        (sequence(sequence(EC_PUBLIC_KEY, P256, write.NULL), bit_string(POINT)), "malformed public key algorithm"),
        (sequence(sequence(RSA, write.NULL, write.NULL), bit_string(b"")), "malformed public key algorithm"),
    ],
    ids=["empty", "no algorithm", "Ed25519", "no curve", "id-ecDH", "more behind the curve", "more behind RSA"],
)
def test_other_keys_are_refused(key: bytes, words: str) -> None:
    refused(fields(key=key), words)


def test_malformed_elliptic_keys_are_refused() -> None:
    p256 = object_identifier("1.2.840.10045.3.1.7")
    curve = object_identifier("1.2.840.10045.2.1")
    point = write.public_key_information(elliptic_key("endorsement"))[-65:]
    read_stored_certificate(fields(key=sequence(sequence(curve, p256), bit_string(point))))
    off_curve = point[:-1] + bytes([point[-1] ^ 1])
    for octets in (b"", b"\x00", point[:-1], off_curve):
        refused(fields(key=sequence(sequence(curve, p256), bit_string(octets))), "invalid public key")
    secp256k1 = object_identifier("1.3.132.0.10")
    refused(fields(key=sequence(sequence(curve, secp256k1), bit_string(point))), "unsupported curve")


def test_malformed_rsa_keys_are_refused() -> None:
    algorithm = sequence(object_identifier("1.2.840.113549.1.1.1"), write.NULL)
    numbers = rsa_key().public_key().public_numbers()

    def key(*parts: bytes, behind: bytes = b"") -> bytes:
        return fields(key=sequence(algorithm, bit_string(sequence(*parts) + behind)))

    modulus, exponent = integer(numbers.n), integer(numbers.e)
    read_stored_certificate(key(modulus, exponent))
    refused(key(modulus), "malformed RSA key")
    refused(key(modulus, exponent, exponent), "malformed RSA key")
    refused(key(modulus, exponent, behind=b"\x00"), "bytes after a value")
    refused(key(integer(-numbers.n), exponent), "RSA key outside")
    refused(key(integer(numbers.n >> 1), exponent), "RSA key outside")
    read_stored_certificate(key(integer(2**8192 - 1), exponent))
    refused(key(integer(2**8192 + 1), exponent), "RSA key outside")
    read_stored_certificate(key(modulus, integer(2**32 - 1)))
    read_stored_certificate(key(modulus, integer(3)))
    for wrong in (2**32, 2**32 + 1, 1, 2, -3):
        refused(key(modulus, integer(wrong)), "exponent out of bounds")
    refused(key(modulus, integer(4)), "invalid public key")


@pytest.mark.parametrize(
    ("tag", "content", "shown"),
    [
        (0x0C, "Zürich".encode(), "CN=Zürich"),
        (0x1E, "Zürich".encode("utf-16-be"), "CN=Zürich"),
        (0x1C, "Zürich".encode("utf-32-be"), "CN=Zürich"),
        (0x14, "Zürich".encode("latin-1"), "CN=Zürich"),
        (0x1A, b"Zurich", "CN=Zurich"),
        (0x13, b"line\nbreak\x1b[31m", "CN=line?break?[31m"),
        (0x13, b"x" * 500, "CN=" + "x" * 127 + "…"),
        (0x0C, b"\xff", "CN=??ÿ"),
        (0x02, b"\x05", "CN=???"),
    ],
)
def test_names_are_made_fit_to_be_read(tag: int, content: bytes, shown: str) -> None:
    issuer = sequence(encode(0x31, sequence(object_identifier("2.5.4.3"), encode(tag, content))))
    assert read(issuer=issuer).issuer.text == shown


def test_the_usual_attributes_have_short_names() -> None:
    kinds = ("2.5.4.6", "2.5.4.8", "2.5.4.7", "2.5.4.10", "2.5.4.11", "2.5.4.3", "2.5.4.5", "2.5.4.65")
    issuer = write.name(*((kind, "x") for kind in kinds))
    assert read(issuer=issuer).issuer.text == "C=x, ST=x, L=x, O=x, OU=x, CN=x, serialNumber=x, 2.5.4.65=x"


def test_names_differ_by_the_kinds_of_their_attributes_and_by_their_arrangement() -> None:
    names = (
        write.name(("2.5.4.3", "a b")),
        write.name(("2.5.4.10", "a b")),
        write.name(("2.5.4.3", "ab")),
        write.name(("2.5.4.3", "a b"), ("2.5.4.10", "c")),
        write.name(("2.5.4.10", "c"), ("2.5.4.3", "a b")),
        write.name_in_one_set(("2.5.4.3", "a b"), ("2.5.4.10", "c")),
        write.name(("2.5.4.3", "a b"), tag=0x05),
        write.EMPTY_NAME,
    )
    assert len({read(issuer=name).issuer.comparable for name in names}) == len(names)
    swapped = write.name_in_one_set(("2.5.4.10", "C"), ("2.5.4.3", "A  B"), tag=0x16)
    assert read(issuer=swapped).issuer.comparable == read(issuer=names[5]).issuer.comparable


def test_a_long_name_is_cut() -> None:
    issuer = write.name(*(("2.5.4.11", "unit " * 9) for _ in range(20)))
    assert len(read(issuer=issuer).issuer.text) == 256


def test_a_name_whose_normalisation_would_take_long_is_refused() -> None:
    """Combining characters are put in order, which takes time by the square of their number."""
    assert read(issuer=write.common_name("\u0f73" * 170 + "xx", tag=0x0C)).issuer.comparable
    refused(endorsement(issuer=write.common_name("\u0f73" * 171, tag=0x0C)), "value of more than 512 octets")
    chip = write.name(*write.tpm_attributes("id:53544D20", "\u0f73" * 171, "id:00010200"), tag=0x0C)
    refused(endorsement(extensions=(write.tpm_name(chip),)), "value of more than 512 octets")


def of_size(size: int) -> bytes:
    """A certificate of that many bytes."""

    def padded(octets: int) -> bytes:
        return fields(optional=context_constructed(3, sequence(write.extension("1.2.3", b"\x00" * octets))))

    return padded(size - len(padded(size)) + size)


def test_a_certificate_in_a_row_is_bounded_to_the_byte() -> None:
    largest = of_size(8192)
    assert len(largest) == 8192
    assert read_certificates(largest, maximum_count=1)[0].encoded == largest
    for certificate in (of_size(8193), of_size(8193) + largest):
        with pytest.raises(CertificateUnreadable, match="certificate 1 is larger than 8192 bytes"):
            read_certificates(certificate, maximum_count=2)


@pytest.mark.parametrize(
    ("read_sequence", "allowed"),
    [
        (partial(read_certificates, maximum_count=2), b"\x00\xff"),
        (partial(read_certificates, maximum_count=2, besides_padding=LINE_ENDS), b"\x00\xff\r\n"),
    ],
    ids=["nodes", "operators"],
)
def test_nothing_but_padding_stands_between_certificates(
    read_sequence: Callable[[bytes], tuple[Certificate, ...]], allowed: bytes
) -> None:
    """What erased NV memory reads as, and in an operator's files line ends."""
    for octet in range(256):
        row = ENCODED + bytes([octet]) + ENCODED
        if octet in allowed:
            assert len(read_sequence(row)) == 2
        else:
            with pytest.raises(CertificateUnreadable, match="certificate 2 "):
                read_sequence(row)


def test_no_bytes_are_shown() -> None:
    certificate = read()
    shown = [field.name for field in dataclasses.fields(certificate) if field.repr]
    assert shown == ["version", "serial_number", "issuer", "subject", "not_before", "not_after"]
    assert repr(certificate.issuer) == f"Name(text={certificate.issuer.text!r})"


def test_a_row_of_certificates() -> None:
    found = read_certificates(b"\xff" + ENCODED + b"\x00" * 7 + ENCODED, maximum_count=2)
    assert [certificate.encoded for certificate in found] == [ENCODED, ENCODED]
    assert read_certificates(b"\x00\xff", maximum_count=0) == ()
    large = sequence(b"\x00" * MAXIMUM_CERTIFICATE_BYTES)
    line_end = (ENCODED + b"\n", "certificate 2 ")  # only files of an operator may have them
    for data, words in (
        line_end,
        (ENCODED * 3, "more than 2"),
        (ENCODED + large, "certificate 2 is larger than 8192 bytes"),
    ):
        with pytest.raises(CertificateUnreadable, match=words):
            read_certificates(data, maximum_count=2)
