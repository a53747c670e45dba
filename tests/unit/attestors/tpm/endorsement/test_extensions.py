"""Reading extensions: odd ones, malformed ones, the TPM that is named in one."""

from __future__ import annotations

from typing import Any

import pytest

from attestors.tpm.endorsement import (
    CertificateUnreadable,
)
from attestors.tpm.endorsement.certificate import (
    Certificate,
    read_stored_certificate,
)
from attestors.tpm.endorsement.extensions import TPMIdentity
from signer.authority.der import encode, integer, object_identifier, sequence
from tests.support import endorsement_certificates as write
from tests.unit.attestors.tpm.endorsement.support import (
    ENDORSEMENT,
    endorsement,
)

TPM = write.tpm_attributes("id:53544D20", "ST33", "id:00010200")


def read(**changes: Any) -> Certificate:
    return read_stored_certificate(endorsement(**changes))


def refused(certificate: bytes, words: str) -> None:
    with pytest.raises(CertificateUnreadable, match=words):
        read_stored_certificate(certificate)


def test_extensions_are_read_once_each_and_in_number() -> None:
    usage = ENDORSEMENT[1]
    refused(endorsement(extensions=(usage, usage)), "2.5.29.15 twice")
    many = tuple(write.extension(f"1.2.3.{number}", b"") for number in range(33))
    read(extensions=many[:32])
    read(extensions=(write.purposes(*(f"1.2.{number}" for number in range(32))),))
    refused(endorsement(extensions=many), "more than 32 extensions")


@pytest.mark.parametrize(
    "malformed",
    [
        sequence(),
        sequence(object_identifier("1.2.3")),
        sequence(object_identifier("1.2.3"), write.CRITICAL, write.CRITICAL, encode(0x04, b"")),
        sequence(object_identifier("1.2.3"), encode(0x01, b""), encode(0x04, b"")),
        sequence(encode(0x06, b""), encode(0x04, b"")),
        sequence(encode(0x06, b"\x80"), encode(0x04, b"")),
        sequence(encode(0x06, b"\x01" * 65), encode(0x04, b"")),
        write.extension("2.5.29.19", b""),
        write.extension("2.5.29.19", sequence() + b"\x00"),
        write.extension("2.5.29.19", sequence(write.CRITICAL, integer(-1))),
        write.extension("2.5.29.19", sequence(write.CRITICAL, integer(1), integer(1))),
        write.extension("2.5.29.19", sequence(encode(0x01, b"\x00\xff"))),
        write.key_usage(b""),
        write.key_usage(b"\x03\x00"),
        write.key_usage(b"\x03\x01\x03"),
        write.key_usage(b"\x03\x02\x08\x20"),
        write.key_usage(b"\x04\x02\x05\x20"),
        write.purposes(),
        write.purposes(*(f"1.2.{number}" for number in range(33))),
        write.extension("2.5.29.14", b"no octet string"),
        write.extension("2.5.29.35", b"no sequence"),
        write.extension("2.5.29.17", b"no sequence"),
        write.extension("2.5.29.17", sequence(encode(0xA4, b"no name"))),
        write.tpm_name(write.name(*TPM, ("2.23.133.2.1", "id:494E5443"))),
    ],
)
def test_malformed_extensions_are_refused(malformed: bytes) -> None:
    refused(endorsement(extensions=(malformed,)), "The endorsement key certificate (has|is truncated|names two TPMs)")


def test_an_extension_has_a_value() -> None:
    refused(endorsement(extensions=(sequence(object_identifier("1.2.3")),)), "has a malformed extension")


def test_a_malformed_hint_is_no_reason_to_refuse() -> None:
    for value in (b"", b"garbage", sequence(sequence(object_identifier("1.3.6.1.5.5.7.48.2")))):
        certificate = read(extensions=(*ENDORSEMENT, write.extension("1.3.6.1.5.5.7.1.1", value)))
        assert certificate.extensions.issuer_location is None
    status = sequence(object_identifier("1.3.6.1.5.5.7.48.1"), encode(0x86, b"https://status.example"))
    elsewhere = sequence(object_identifier("1.3.6.1.5.5.7.48.2"), encode(0x82, b"host.example"))
    value = sequence(status, elsewhere)
    assert read(extensions=(write.extension("1.3.6.1.5.5.7.1.1", value),)).extensions.issuer_location is None
    no_ascii = sequence(sequence(object_identifier("1.3.6.1.5.5.7.48.2"), encode(0x86, b"https://\xff")))
    for value, location in (
        (write.extension("1.3.6.1.5.5.7.1.1", no_ascii), "https://\ufffd"),
        (write.issuer_location("https://\n" + "x" * 247), "https://?" + "x" * 247),
        (write.issuer_location("https://\n" + "x" * 248), "https://?" + "x" * 246 + "…"),
        (write.issuer_location("https://\n" + "x" * 999), "https://?" + "x" * 246 + "…"),
    ):
        assert read(extensions=(value,)).extensions.issuer_location == location


@pytest.mark.parametrize("names", [(write.name(*TPM),), (write.name_in_one_set(*TPM),), (write.name(*TPM),) * 2])
def test_the_tpm_is_named_in_any_arrangement(names: tuple[bytes, ...]) -> None:
    unrelated = write.name(("2.5.4.3", "one"), ("2.5.4.3", "two"))
    others = (encode(0x82, b"host.example"), encode(0xA4, unrelated), *(encode(0xA4, name) for name in names))
    certificate = read(extensions=(write.extension("2.5.29.17", sequence(*others)),))
    assert certificate.extensions.tpm == TPMIdentity("id:53544D20", "ST33", "id:00010200")
