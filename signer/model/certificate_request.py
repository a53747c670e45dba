"""Parses a PKCS#10 request into an immutable view of everything that it holds.

The view hides nothing: it has every subject attribute in order, every kind of alternative name, every attribute and
extension. The rules decide about them. This module is the only parser of the bytes: a peek takes the same steps, only
fewer.
"""

from __future__ import annotations

import enum
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from typing import Final, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtensionOID, NameOID

from attestors.wire import provider_id as provider_id_format
from attestors.wire.names import MAXIMUM_CERTIFICATE_REQUEST_BYTES, PROVIDER_ID_OID
from attestors.wire.provider_id import InvalidProviderID

_LOADED_KEYS: Final = (bytes.fromhex("06092a864886f70d010101"), bytes.fromhex("06072a8648ce3d0201"))
"""rsaEncryption and id-ecPublicKey: the library loads no other keys. A Diffie-Hellman key of 8 KiB (X9.42, with a
subgroup) would take it seconds, during which no other thread runs."""

# The library was observed to raise these for hostile bytes, such as a KeyError for an unknown TLS feature.
LIBRARY_ERRORS: Final = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    x509.UnsupportedGeneralNameType,
    x509.InvalidVersion,
    UnsupportedAlgorithm,
)


class KeyKind(enum.Enum):
    """The kinds of public keys that the rules tell apart."""

    RSA = "RSA"
    ECDSA = "ECDSA"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class PublicKeyFacts:
    """The facts that the key rules check. ``bits`` is the modulus or curve size; ``exponent`` is 0 except for RSA."""

    kind: KeyKind
    bits: int = 0
    exponent: int = 0
    curve: str = ""


def read_public_key(request: x509.CertificateSigningRequest) -> tuple[PublicKeyFacts, object, bytes]:
    """The key's facts, the library's key object, and the request's SubjectPublicKeyInfo in its original bytes.

    A key that the library cannot load, or encodes in other bytes than the request, has kind ``OTHER`` and no more.
    """
    original = _original_key(request.tbs_certrequest_bytes)
    if not _is_loaded(original):
        return PublicKeyFacts(KeyKind.OTHER), None, b""
    try:
        key = request.public_key()
        subject_public_key_info = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    except LIBRARY_ERRORS:
        # Explicit curve parameters, unknown curves, points off the curve: the rules refuse the key.
        return PublicKeyFacts(KeyKind.OTHER), None, b""
    if subject_public_key_info != original:
        # Compressed points, omitted parameters: the binding and the certificate would hold other bytes than the CSR.
        return PublicKeyFacts(KeyKind.OTHER), None, b""
    if isinstance(key, rsa.RSAPublicKey):
        facts = PublicKeyFacts(KeyKind.RSA, key.key_size, key.public_numbers().e)
    elif isinstance(key, ec.EllipticCurvePublicKey):
        facts = PublicKeyFacts(KeyKind.ECDSA, key.curve.key_size, curve=key.curve.name)
    else:
        facts = PublicKeyFacts(KeyKind.OTHER)
    return facts, key, subject_public_key_info


def _original_key(to_be_signed: bytes) -> bytes:
    """The key's bytes in the request, after version and subject. The library has verified before that it is DER."""
    position, _ = _content(to_be_signed, 0)
    for _ in range(2):  # version, subject
        _, position = _content(to_be_signed, position)
    _, end = _content(to_be_signed, position)
    return to_be_signed[position:end]


def _is_loaded(subject_public_key_info: bytes) -> bool:
    algorithm, _ = _content(subject_public_key_info, 0)
    identifier, _ = _content(subject_public_key_info, algorithm)
    return subject_public_key_info.startswith(_LOADED_KEYS, identifier)


def _content(der: bytes, start: int) -> tuple[int, int]:
    """Start and end of the content of the DER element at ``start``."""
    length, content = der[start + 1], start + 2
    if length & 0x80:
        octets = length & 0x7F
        length = int.from_bytes(der[content : content + octets], "big")
        content += octets
    return content, content + length


MAXIMUM_EXTENSIONS: Final = 16
MAXIMUM_ALTERNATIVE_NAMES: Final = 64
MAXIMUM_SUBJECT_ATTRIBUTES: Final = 8

COMMON_NAME: Final = NameOID.COMMON_NAME.dotted_string
ORGANIZATION: Final = NameOID.ORGANIZATION_NAME.dotted_string
KNOWN_EXTENSIONS: Final = frozenset(
    oid.dotted_string
    for oid in (
        ExtensionOID.BASIC_CONSTRAINTS,
        ExtensionOID.KEY_USAGE,
        ExtensionOID.EXTENDED_KEY_USAGE,
        ExtensionOID.SUBJECT_ALTERNATIVE_NAME,
        ExtensionOID.SUBJECT_KEY_IDENTIFIER,
    )
)
"""Extensions that a kubelet's CSR may mark critical. Only the alternative names have any effect."""
AUTHORITY_EXTENSIONS: Final = frozenset(
    oid.dotted_string
    for oid in (
        ExtensionOID.NAME_CONSTRAINTS,
        ExtensionOID.POLICY_CONSTRAINTS,
        ExtensionOID.POLICY_MAPPINGS,
        ExtensionOID.INHIBIT_ANY_POLICY,
    )
)
"""Extensions that only CA certificates have (RFC 5280 section 4.2.1)."""
SUBJECT_ALTERNATIVE_NAME: Final = ExtensionOID.SUBJECT_ALTERNATIVE_NAME.dotted_string
EXTENSION_REQUEST: Final = "1.2.840.113549.1.9.14"
"""PKCS#9 extensionRequest (RFC 2985 section 5.4.2), the only attribute of a kubelet's CSR."""

# The library warns about a common name outside 1 to 64 bytes of UTF-8 (Kubernetes node names exceed X.520's bound),
# about a country that is not two bytes, and about an authority key identifier's serial number below one. The encoded
# length decides for UTF8String and PrintableString; other string types grow when decoded.
_MAY_WARN: Final = re.compile(
    rb"\x06\x03\x55\x04\x03(?:[\x0c\x13][\x00\x41-\xff]|[^\x0c\x13])"
    rb"|\x06\x03\x55\x04\x06"
    rb"|\x06\x0b\x2b\x06\x01\x04\x01\x82\x37\x3c\x02\x01\x03"
    rb"|\x06\x03\x55\x1d\x23",
    re.DOTALL,
)
_HARMLESS_WARNINGS: Final = ("Attribute's length must be", "Parsed a serial number which wasn't positive")


_Read = TypeVar("_Read")


class MalformedCertificateRequest(ValueError):
    """The bytes are not one DER PKCS#10 request. The message names the part that cannot be read."""


@dataclass(frozen=True, slots=True)
class SubjectAttribute:
    """One attribute type and value of the subject."""

    oid: str
    value: str


@dataclass(frozen=True, slots=True)
class RequestedExtension:
    """One extension that the CSR requests."""

    oid: str
    critical: bool


@dataclass(frozen=True, slots=True)
class NoProviderID:
    """There is no provider-ID extension, or its value is not a provider ID."""

    value: bytes
    """The extension's value; empty without the extension."""
    why: str
    """Why the value is not a provider ID; empty without the extension."""


@dataclass(frozen=True, slots=True)
class CertificateRequest:
    """A parsed PKCS#10 request."""

    subject: tuple[tuple[SubjectAttribute, ...], ...]
    """Relative distinguished names in order; more than one attribute in one of them is a multi-valued RDN."""
    attributes: tuple[str, ...]
    """OIDs of the PKCS#10 attributes, in order."""
    extensions: tuple[RequestedExtension, ...]
    dns_names: tuple[str, ...]
    ip_addresses: tuple[IPv4Address | IPv6Address, ...]
    other_name_kinds: tuple[str, ...]
    """Kinds of alternative names that are neither DNS names nor single IP addresses."""
    asks_to_be_authority: bool
    """basicConstraints with CA:TRUE, or keyUsage with keyCertSign or cRLSign."""
    provider_id_oids: tuple[str, ...]
    """The OIDs that count as provider-ID extensions."""
    provider_id: str | NoProviderID
    """The claim in the provider-ID extension, decoded once."""
    key: PublicKeyFacts
    public_key: object = field(repr=False, compare=False)
    """The library's key object; None for a kind that it cannot load."""
    subject_public_key_info: bytes = field(repr=False)
    """DER, input of the binding."""
    signature_hash: str
    """Name of the self-signature's hash, such as ``sha256``; empty if there is none or it is unknown."""
    library: x509.CertificateSigningRequest = field(repr=False, compare=False)

    def signature_is_valid(self) -> SelfSignature:
        """Verify that the requester holds the private key (RFC 2986 section 3)."""
        try:
            valid = self.library.is_signature_valid
        except (InvalidSignature, *LIBRARY_ERRORS):
            valid = False
        return SelfSignature.VALID if valid else SelfSignature.INVALID


class SelfSignature(enum.Enum):
    """Whether the CSR's own signature verifies with its own key."""

    VALID = "valid"
    INVALID = "invalid"


def parse_certificate_request(der: bytes, provider_id_oids: tuple[str, ...] = (PROVIDER_ID_OID,)) -> CertificateRequest:
    """Decode a PKCS#10 request in strict DER.

    Raises:
        MalformedCertificateRequest: too large, not DER, trailing bytes, a duplicate extension, two extension requests,
            or more elements than the limits allow.
    """
    return _read(der, partial(_parse, provider_id_oids=provider_id_oids))


def peek_provider_id(der: bytes, provider_id_oids: tuple[str, ...] = (PROVIDER_ID_OID,)) -> bytes:
    """The value of the provider-ID extension; empty if there is none. It takes a tenth of the time of a full parse.

    :func:`parse_certificate_request` may still refuse the bytes.

    Raises:
        MalformedCertificateRequest: the extensions cannot be read.
    """
    return _read(der, partial(_peek, provider_id_oids=provider_id_oids))


def _read(der: bytes, read: Callable[[bytes], _Read]) -> _Read:
    if len(der) > MAXIMUM_CERTIFICATE_REQUEST_BYTES:
        raise MalformedCertificateRequest(
            f"the certificate request is larger than {MAXIMUM_CERTIFICATE_REQUEST_BYTES} bytes"
        )
    if not _MAY_WARN.search(der):
        return read(der)
    with warnings.catch_warnings():
        for message in _HARMLESS_WARNINGS:
            warnings.filterwarnings("ignore", message=message, category=UserWarning)
        return read(der)


def _peek(der: bytes, provider_id_oids: tuple[str, ...]) -> bytes:
    try:
        extensions = tuple(x509.load_der_x509_csr(der).extensions)
    except (x509.DuplicateExtension, *LIBRARY_ERRORS) as error:
        raise MalformedCertificateRequest("the certificate request's extensions cannot be read") from error
    return _provider_id(extensions, provider_id_oids)


def _parse(der: bytes, provider_id_oids: tuple[str, ...]) -> CertificateRequest:
    try:
        request = x509.load_der_x509_csr(der)
        attributes = tuple(attribute.oid.dotted_string for attribute in request.attributes)
        # The library reads the first extension request only. No check would see a second one.
        if attributes.count(EXTENSION_REQUEST) > 1:
            raise MalformedCertificateRequest("more than one extension request")
        # The library ignores unused bits at the end of the signature: other bytes with the same signature would pass.
        if der[len(der) - len(request.signature) - 1] != 0:
            raise MalformedCertificateRequest("the signature has unused bits")
        subject = _subject(request)
        extensions = tuple(request.extensions)
    except MalformedCertificateRequest:
        raise
    except x509.DuplicateExtension as error:
        raise MalformedCertificateRequest(f"duplicate extension {error.oid.dotted_string}") from error
    except LIBRARY_ERRORS as error:
        raise MalformedCertificateRequest("the certificate request is not a PKCS#10 request in DER") from error
    if len(extensions) > MAXIMUM_EXTENSIONS:
        raise MalformedCertificateRequest(f"more than {MAXIMUM_EXTENSIONS} extensions")
    names = _AlternativeNames.of(extensions)
    key, public_key, subject_public_key_info = read_public_key(request)
    return CertificateRequest(
        subject=subject,
        attributes=attributes,
        extensions=tuple(RequestedExtension(e.oid.dotted_string, e.critical) for e in extensions),
        dns_names=names.dns_names,
        ip_addresses=names.ip_addresses,
        other_name_kinds=names.other_kinds,
        asks_to_be_authority=any(_asks_to_be_authority(extension.value) for extension in extensions),
        provider_id_oids=provider_id_oids,
        provider_id=_decoded(_provider_id(extensions, provider_id_oids)),
        key=key,
        public_key=public_key,
        subject_public_key_info=subject_public_key_info,
        signature_hash=_signature_hash(request),
        library=request,
    )


def _subject(request: x509.CertificateSigningRequest) -> tuple[tuple[SubjectAttribute, ...], ...]:
    subject = tuple(
        tuple(SubjectAttribute(attribute.oid.dotted_string, _text(attribute.value)) for attribute in name)
        for name in request.subject.rdns
    )
    if sum(len(name) for name in subject) > MAXIMUM_SUBJECT_ATTRIBUTES:
        raise MalformedCertificateRequest(f"more than {MAXIMUM_SUBJECT_ATTRIBUTES} subject attributes")
    return subject


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.hex()


@dataclass(frozen=True, slots=True)
class _AlternativeNames:
    dns_names: tuple[str, ...]
    ip_addresses: tuple[IPv4Address | IPv6Address, ...]
    other_kinds: tuple[str, ...]

    @classmethod
    def of(cls, extensions: tuple[x509.Extension[x509.ExtensionType], ...]) -> _AlternativeNames:
        dns_names: list[str] = []
        ip_addresses: list[IPv4Address | IPv6Address] = []
        other_kinds: list[str] = []
        for extension in extensions:
            if not isinstance(extension.value, x509.SubjectAlternativeName):
                continue
            for name in extension.value:
                if isinstance(name, x509.DNSName):
                    dns_names.append(name.value)
                elif isinstance(name, x509.IPAddress) and isinstance(name.value, IPv4Address | IPv6Address):
                    ip_addresses.append(name.value)
                else:
                    other_kinds.append(type(name).__name__)
            if len(extension.value) > MAXIMUM_ALTERNATIVE_NAMES:
                raise MalformedCertificateRequest(f"more than {MAXIMUM_ALTERNATIVE_NAMES} subject alternative names")
            if len(extension.value) == 0:
                other_kinds.append("an empty list")
        return cls(tuple(dns_names), tuple(ip_addresses), tuple(other_kinds))


def _asks_to_be_authority(value: x509.ExtensionType) -> bool:
    if isinstance(value, x509.BasicConstraints):
        return value.ca
    if isinstance(value, x509.KeyUsage):
        return value.key_cert_sign or value.crl_sign
    return False


def _decoded(value: bytes) -> str | NoProviderID:
    if not value:
        return NoProviderID(value, "")
    try:
        return provider_id_format.decode(value)
    except InvalidProviderID as error:
        return NoProviderID(value, str(error))


def _provider_id(extensions: tuple[x509.Extension[x509.ExtensionType], ...], oids: tuple[str, ...]) -> bytes:
    found = [
        extension.value.value
        for extension in extensions
        if extension.oid.dotted_string in oids and isinstance(extension.value, x509.UnrecognizedExtension)
    ]
    if len(found) > 1:
        raise MalformedCertificateRequest(f"more than one provider-ID extension ({' or '.join(oids)})")
    return found[0] if found else b""


def _signature_hash(request: x509.CertificateSigningRequest) -> str:
    try:
        algorithm = request.signature_hash_algorithm
    except LIBRARY_ERRORS:
        return ""
    return algorithm.name if algorithm is not None else ""
