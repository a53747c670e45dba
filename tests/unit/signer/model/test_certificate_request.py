from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding

from attestors.wire import certificate_request
from attestors.wire.names import PROVIDER_ID_OID
from signer.model.certificate_request import (
    MAXIMUM_ALTERNATIVE_NAMES,
    MAXIMUM_EXTENSIONS,
    MAXIMUM_SUBJECT_ATTRIBUTES,
    CertificateRequest,
    KeyKind,
    MalformedCertificateRequest,
    NoProviderID,
    PublicKeyFacts,
    RequestedExtension,
    SelfSignature,
    SubjectAttribute,
    parse_certificate_request,
    peek_provider_id,
)
from tests.unit.signer.builders import (
    BMP_STRING,
    COMMON_NAME,
    EXTENSION_REQUEST,
    NODE,
    ORGANIZATION,
    PROVIDER_ID,
    SUBJECT_ALTERNATIVE_NAME,
    T61_STRING,
    UNIVERSAL_STRING,
    UTF8_STRING,
    alternative_names,
    attribute,
    dns,
    ec_key,
    extension,
    extension_request,
    ip,
    oid,
    pkcs10,
    provider_id_extension,
    public_key_info,
    rdn,
    rsa_key,
    sequence,
    set_of,
    tlv,
)

NOT_DER = "the certificate request is not a PKCS#10 request in DER"


@pytest.fixture(autouse=True)
def _without_any_warning() -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def malformed(der: bytes) -> str:
    with pytest.raises(MalformedCertificateRequest) as caught:
        parse_certificate_request(der)
    return str(caught.value)


OIDS = (PROVIDER_ID_OID, "1.2.3.4")


def peek_at_either(der: bytes) -> bytes:
    return peek_provider_id(der, OIDS)


def value_of(view: CertificateRequest) -> bytes:
    """Of a provider-ID extension that holds no provider ID."""
    assert isinstance(view.provider_id, NoProviderID)
    assert bool(view.provider_id.why) is bool(view.provider_id.value)
    return view.provider_id.value


class TestView:
    def test_of_the_authenticators_request(self) -> None:
        der = certificate_request.build(
            ec_key(),
            node_name=NODE,
            provider_id=PROVIDER_ID,
            dns_names=[NODE],
            ip_addresses=[ip_address("10.0.0.1"), ip_address("::2")],
        )
        view = parse_certificate_request(der)
        assert view.subject == (
            (SubjectAttribute(ORGANIZATION, "system:nodes"),),
            (SubjectAttribute(COMMON_NAME, f"system:node:{NODE}"),),
        )
        assert view.attributes == (EXTENSION_REQUEST,)
        assert view.extensions == (
            RequestedExtension(PROVIDER_ID_OID, False),
            RequestedExtension(SUBJECT_ALTERNATIVE_NAME, False),
        )
        assert view.dns_names == (NODE,)
        assert view.ip_addresses == (ip_address("10.0.0.1"), ip_address("::2"))
        assert view.other_name_kinds == ()
        assert not view.asks_to_be_authority
        assert view.provider_id == PROVIDER_ID
        assert view.provider_id_oids == (PROVIDER_ID_OID,)
        assert view.key == PublicKeyFacts(KeyKind.ECDSA, 256, 0, "secp256r1")
        assert view.subject_public_key_info == public_key_info(ec_key())
        assert view.signature_hash == "sha256"
        assert view.signature_is_valid() is SelfSignature.VALID

    def test_nothing_is_hidden(self) -> None:
        subject = sequence(
            rdn(COMMON_NAME, "a"),
            rdn(COMMON_NAME, "b"),
            set_of(attribute("2.5.4.45", b"\0\xff", 0x03), attribute("1.2.3.4", "x")),
        )
        extensions = [
            extension("1.2.3.4", b"\x05\0", critical=True),
            alternative_names(dns("a"), tlv(0x81, b"a@b"), ip(bytes(8)), dns("a"), critical=True),
        ]
        challenge = sequence(oid("1.2.840.113549.1.9.7"), set_of(tlv(UTF8_STRING, b"x")))
        view = parse_certificate_request(
            pkcs10(subject=subject, attributes=[challenge, extension_request(*extensions)])
        )
        assert [[attribute.oid for attribute in name] for name in view.subject] == [
            [COMMON_NAME],
            [COMMON_NAME],
            ["1.2.3.4", "2.5.4.45"],
        ]
        assert view.subject[2][1].value == "00ff"
        assert view.attributes == ("1.2.840.113549.1.9.7", EXTENSION_REQUEST)
        assert view.extensions == (
            RequestedExtension("1.2.3.4", True),
            RequestedExtension(SUBJECT_ALTERNATIVE_NAME, True),
        )
        assert view.dns_names == ("a", "a")
        assert view.ip_addresses == ()
        assert view.other_name_kinds == ("RFC822Name", "IPAddress")
        assert view.provider_id == NoProviderID(b"", "")

    def test_empty_alternative_names(self) -> None:
        view = parse_certificate_request(pkcs10(extensions=[alternative_names()]))
        assert view.other_name_kinds == ("an empty list",)

    @pytest.mark.parametrize(
        ("value", "authority"),
        [
            (extension("2.5.29.19", sequence(tlv(0x01, b"\xff"))), True),
            (extension("2.5.29.19", sequence()), False),
            (extension("2.5.29.15", tlv(0x03, b"\x02\x04")), True),
            (extension("2.5.29.15", tlv(0x03, b"\x01\x02")), True),
            (extension("2.5.29.15", tlv(0x03, b"\x05\xa0")), False),
        ],
    )
    def test_asks_to_be_authority(self, value: bytes, authority: bool) -> None:
        for extensions in ([value, provider_id_extension()], [provider_id_extension(), value]):
            assert parse_certificate_request(pkcs10(extensions=extensions)).asks_to_be_authority is authority

    def test_configured_provider_id(self) -> None:
        der = pkcs10(extensions=[provider_id_extension(b"a"), extension("1.2.3.4", b"b")])
        view = parse_certificate_request(der, ("1.2.3.4",))
        assert (view.provider_id_oids, value_of(view)) == (("1.2.3.4",), b"b")
        # An identifier that the library decodes itself gives no bytes, and so nothing to believe.
        other = parse_certificate_request(pkcs10(extensions=[alternative_names(dns("a"))]), ("2.5.29.17",))
        assert other.provider_id == NoProviderID(b"", "")

    @pytest.mark.parametrize("read", [lambda der: value_of(parse_certificate_request(der, OIDS)), peek_at_either])
    def test_provider_id_under_one_of_several_oids(self, read: Callable[[bytes], bytes]) -> None:
        for oid_of_it in OIDS:
            der = pkcs10(extensions=[extension("1.2.3.9", b"x"), extension(oid_of_it, b"a")])
            assert read(der) == b"a"
        assert read(pkcs10(extensions=[extension("1.2.3.9", b"x")])) == b""

    @pytest.mark.parametrize("read", [lambda der: parse_certificate_request(der, OIDS), peek_at_either])
    @pytest.mark.parametrize("values", [(b"a", b"b"), (b"a", b"a"), (b"", b"a")])
    def test_two_provider_ids(self, read: Callable[[bytes], object], values: tuple[bytes, bytes]) -> None:
        """Which of them is meant is nobody's to say."""
        der = pkcs10(extensions=[extension(oid_of_it, value) for oid_of_it, value in zip(OIDS, values, strict=True)])
        with pytest.raises(MalformedCertificateRequest) as refused:
            read(der)
        assert str(refused.value) == f"more than one provider-ID extension ({PROVIDER_ID_OID} or 1.2.3.4)"

    def test_signature_hashes(self) -> None:
        for name in ("sha1", "sha224", "sha384", "sha512"):
            assert parse_certificate_request(pkcs10(hash_name=name)).signature_hash == name
        unknown = pkcs10().replace(oid("1.2.840.10045.4.3.2"), oid("1.2.840.10045.4.3.9"))
        view = parse_certificate_request(unknown)
        assert (view.signature_hash, view.signature_is_valid()) == ("", SelfSignature.INVALID)

    def test_secrets_and_bulk_stay_out_of_repr(self) -> None:
        text = repr(parse_certificate_request(pkcs10()))
        assert "library" not in text
        assert "public_key" not in text

    def test_equal_whatever_object_the_library_made(self) -> None:
        der = pkcs10()
        view = parse_certificate_request(der)
        assert parse_certificate_request(der) == view
        others: dict[str, Any] = {"library": object(), "public_key": object()}
        assert replace(view, **others) == view

    def test_signature_without_a_hash(self) -> None:
        key = ed25519.Ed25519PrivateKey.generate()
        request = x509.CertificateSigningRequestBuilder(x509.Name([])).sign(key, None)
        view = parse_certificate_request(request.public_bytes(Encoding.DER))
        assert (view.key.kind, view.signature_hash) == (KeyKind.OTHER, "")
        assert view.subject_public_key_info == b""
        assert view.signature_is_valid() is SelfSignature.VALID


LIBRARY_ERRORS = [
    ValueError("x"),
    TypeError("x"),
    KeyError("x"),
    OverflowError("x"),
    UnsupportedAlgorithm("x"),
    x509.InvalidVersion("x", 1),
    x509.UnsupportedGeneralNameType("x"),
]


class Failing:
    """The library's request, with one property that raises."""

    def __init__(self, der: bytes, name: str, error: Exception) -> None:
        self._request, self._name, self._error = x509.load_der_x509_csr(der), name, error

    def __getattr__(self, name: str) -> object:
        if name == self._name:
            raise self._error
        return getattr(self._request, name)


class TestLibraryErrors:
    """Not all of them were seen from this version of the library; whatever it raises, nothing else comes out."""

    @pytest.fixture
    def _patched(self, monkeypatch: pytest.MonkeyPatch, name: str, error: Exception) -> None:
        self.der = pkcs10()
        failing = Failing(self.der, name, error)
        monkeypatch.setattr(x509, "load_der_x509_csr", lambda _: failing)

    @pytest.mark.parametrize("name", ["attributes", "subject", "extensions"])
    @pytest.mark.parametrize("error", LIBRARY_ERRORS)
    @pytest.mark.usefixtures("_patched")
    def test_unreadable(self) -> None:
        assert malformed(self.der) == NOT_DER

    @pytest.mark.parametrize("name", ["public_key"])
    @pytest.mark.parametrize("error", LIBRARY_ERRORS)
    @pytest.mark.usefixtures("_patched")
    def test_public_key(self) -> None:
        view = parse_certificate_request(self.der)
        assert (view.key, view.subject_public_key_info) == (PublicKeyFacts(KeyKind.OTHER), b"")

    @pytest.mark.parametrize("name", ["signature_hash_algorithm"])
    @pytest.mark.parametrize("error", LIBRARY_ERRORS)
    @pytest.mark.usefixtures("_patched")
    def test_signature_hash(self) -> None:
        assert parse_certificate_request(self.der).signature_hash == ""

    @pytest.mark.parametrize("name", ["is_signature_valid"])
    @pytest.mark.parametrize("error", [*LIBRARY_ERRORS, InvalidSignature()])
    @pytest.mark.usefixtures("_patched")
    def test_signature(self) -> None:
        assert parse_certificate_request(self.der).signature_is_valid() is SelfSignature.INVALID


def many(count: int) -> list[bytes]:
    return [extension(f"1.2.3.{number}", b"\x05\0") for number in range(count)]


class TestBounds:
    def test_bytes(self) -> None:
        """Before anything is decoded: the library takes 12 ms for 64 KiB of names."""

        def of(size: int) -> bytes:
            beside = len(pkcs10(ec_key(), extensions=[extension("1.2.3", bytes(4000))])) - 4000
            return pkcs10(ec_key(), extensions=[extension("1.2.3", bytes(size - beside - 12))])

        # A signature of ECDSA may be a byte or two shorter than another.
        largest = next(der for _ in range(100) for size in range(8215, 8195, -1) if len(der := of(size)) == 8192)
        assert parse_certificate_request(largest).extensions
        too_large = next(der for size in range(8192, 8300) if len(der := of(size)) > 8192)
        assert malformed(too_large) == "the certificate request is larger than 8192 bytes"
        with pytest.raises(MalformedCertificateRequest):
            peek_provider_id(too_large)

    def test_extensions(self) -> None:
        assert len(parse_certificate_request(pkcs10(extensions=many(MAXIMUM_EXTENSIONS))).extensions) == 16
        assert malformed(pkcs10(extensions=many(MAXIMUM_EXTENSIONS + 1))) == "more than 16 extensions"

    def test_alternative_names(self) -> None:
        names = [dns("a"), ip(bytes(4))] * (MAXIMUM_ALTERNATIVE_NAMES // 2)
        view = parse_certificate_request(pkcs10(extensions=[alternative_names(*names)]))
        assert len(view.dns_names) + len(view.ip_addresses) == 64
        der = pkcs10(extensions=[alternative_names(*names, tlv(0x81, b"a@b"))])
        assert malformed(der) == "more than 64 subject alternative names"

    def test_subject_attributes(self) -> None:
        names = [rdn(COMMON_NAME, "a")] * (MAXIMUM_SUBJECT_ATTRIBUTES - 2)
        pair = set_of(attribute(COMMON_NAME, "a"), attribute(ORGANIZATION, "b"))
        assert len(parse_certificate_request(pkcs10(subject=sequence(*names, pair))).subject) == 7
        assert malformed(pkcs10(subject=sequence(*names, names[0], pair))) == "more than 8 subject attributes"


class TestMalformed:
    @pytest.mark.parametrize(
        "break_it",
        [
            lambda der: b"",
            lambda der: der[:-1],
            lambda der: der[:100],
            lambda der: der + b"\0",
            lambda der: der + der,
            lambda der: b"\x30\x80" + der[4:] + b"\0\0",
            lambda der: b"\x30\x83\0" + der[2:4] + der[4:],
            lambda der: b"-----BEGIN CERTIFICATE REQUEST-----\n",
            lambda der: tlv(0x04, der),
        ],
    )
    def test_not_der(self, break_it: Callable[[bytes], bytes]) -> None:
        assert malformed(break_it(pkcs10(rsa_key("rsa-2048")))) == NOT_DER

    @pytest.mark.parametrize("version", [1, 2, 3, -1])
    def test_version(self, version: int) -> None:
        assert malformed(pkcs10(version=version)) == NOT_DER

    def test_certificate(self) -> None:
        name = x509.Name([])
        assert malformed(name.public_bytes()) == NOT_DER

    def test_extension_twice(self) -> None:
        der = pkcs10(extensions=[provider_id_extension(), extension("1.2.3.4", b""), provider_id_extension()])
        assert malformed(der) == f"duplicate extension {PROVIDER_ID_OID}"

    def test_two_extension_requests(self) -> None:
        second = extension_request(extension("2.5.29.19", sequence(tlv(0x01, b"\xff"))))
        der = pkcs10(attributes=[extension_request(provider_id_extension()), second])
        assert malformed(der) == "more than one extension request"

    def test_extension_request_without_or_with_two_values(self) -> None:
        for values in ([], [sequence(), sequence(provider_id_extension())]):
            assert malformed(pkcs10(attributes=[sequence(oid(EXTENSION_REQUEST), set_of(*values))])) == NOT_DER

    @pytest.mark.parametrize(
        "name",
        [ip(b"abcde"), ip(b""), ip(bytes((10, 0, 0, 0, 1, 2, 3, 4))), tlv(0xA3, b""), tlv(0xA5, b""), tlv(0x89, b"")],
    )
    def test_alternative_name(self, name: bytes) -> None:
        assert malformed(pkcs10(extensions=[alternative_names(dns("a"), name)])) == NOT_DER

    def test_tls_feature_that_the_library_does_not_know(self) -> None:
        features = extension("1.3.6.1.5.5.7.1.24", sequence(tlv(0x02, b"\x03")))
        assert malformed(pkcs10(extensions=[provider_id_extension(), features])) == NOT_DER

    @pytest.mark.parametrize(
        "value",
        [
            (b"\xff\xfe", UTF8_STRING),
            (b"\xe9", T61_STRING),
            (b"x", BMP_STRING),
            (b"\xd8\0", BMP_STRING),
            (b"x", UNIVERSAL_STRING),
            (b"\0x", 0x03),
        ],
    )
    def test_subject_text(self, value: tuple[bytes, int]) -> None:
        assert malformed(pkcs10(subject=sequence(rdn(COMMON_NAME, *value)))) == NOT_DER


def test_unused_bits_behind_the_signature_are_refused() -> None:
    """The library verifies the same signature, so that one request could be written in two ways."""
    while True:  # where the last bit is 0, DER allows to call it unused
        der = bytearray(pkcs10())
        signature = x509.load_der_x509_csr(bytes(der)).signature
        if signature[-1] & 1 == 0:
            break
    der[len(der) - len(signature) - 1] = 1
    assert x509.load_der_x509_csr(bytes(der)).is_signature_valid
    assert malformed(bytes(der)) == "the signature has unused bits"
