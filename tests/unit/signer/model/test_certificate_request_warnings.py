from __future__ import annotations

import warnings

import pytest
from cryptography import x509

from signer.model.certificate_request import (
    RequestedExtension,
    SubjectAttribute,
    parse_certificate_request,
)
from tests.unit.signer.builders import (
    BMP_STRING,
    COMMON_NAME,
    T61_STRING,
    UNIVERSAL_STRING,
    UTF8_STRING,
    alternative_names,
    extension,
    node_subject,
    pkcs10,
    rdn,
    sequence,
    tlv,
)


@pytest.fixture(autouse=True)
def _without_any_warning() -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


SUBJECT_TEXTS = [
    (COMMON_NAME, "", UTF8_STRING, ""),
    (COMMON_NAME, "n" * 64, UTF8_STRING, "n" * 64),
    (COMMON_NAME, "n" * 65, UTF8_STRING, "n" * 65),
    (COMMON_NAME, "n" * 127, 0x13, "n" * 127),
    (COMMON_NAME, "n" * 128, UTF8_STRING, "n" * 128),
    (COMMON_NAME, "n" * 300, UTF8_STRING, "n" * 300),
    (COMMON_NAME, "", 0x13, ""),
    (COMMON_NAME, "system:node:a", T61_STRING, "system:node:a"),
    (COMMON_NAME, "n" * 65, T61_STRING, "n" * 65),
    (COMMON_NAME, ("\u20ac" * 30).encode("utf-16-be"), BMP_STRING, "\u20ac" * 30),
    (COMMON_NAME, ("\u20ac" * 16).encode("utf-32-be"), UNIVERSAL_STRING, "\u20ac" * 16),
    (COMMON_NAME, "a\0b", UTF8_STRING, "a\0b"),
    ("2.5.4.6", "XXX", 0x13, "XXX"),
    ("2.5.4.6", "", UTF8_STRING, ""),
    ("1.3.6.1.4.1.311.60.2.1.3", "XXX", 0x13, "XXX"),
]


@pytest.mark.parametrize(("kind", "value", "tag", "expected"), SUBJECT_TEXTS)
def test_subject_text_never_warns(kind: str, value: str | bytes, tag: int, expected: str) -> None:
    view = parse_certificate_request(pkcs10(subject=sequence(rdn(kind, value, tag))))
    assert view.subject == ((SubjectAttribute(kind, expected),),)


@pytest.mark.parametrize(("kind", "value", "tag", "expected"), SUBJECT_TEXTS)
def test_names_in_extensions_never_warn(kind: str, value: str | bytes, tag: int, expected: str) -> None:
    name = tlv(0xA4, sequence(rdn(kind, value, tag)))
    view = parse_certificate_request(pkcs10(extensions=[alternative_names(name)]))
    assert view.other_name_kinds == ("DirectoryName",)
    assert expected not in view.dns_names


@pytest.mark.parametrize("serial_number", [b"\x00", b"\xff"])
def test_serial_number_in_extension_never_warns(serial_number: bytes) -> None:
    key_identifier = extension(
        "2.5.29.35", sequence(tlv(0xA1, tlv(0xA4, sequence(rdn(COMMON_NAME, "x")))), tlv(0x82, serial_number))
    )
    view = parse_certificate_request(pkcs10(extensions=[key_identifier]))
    assert view.extensions == (RequestedExtension("2.5.29.35", False),)


def test_other_warnings_are_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    load = x509.load_der_x509_csr

    def warn(der: bytes) -> x509.CertificateSigningRequest:
        warnings.warn("look at me", UserWarning, stacklevel=1)
        return load(der)

    monkeypatch.setattr(x509, "load_der_x509_csr", warn)
    with pytest.raises(UserWarning, match="look at me"):
        parse_certificate_request(pkcs10(subject=node_subject("n" * 253)))
