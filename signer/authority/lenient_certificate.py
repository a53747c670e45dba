"""Reads a CA certificate, even one with serial number 0.

Every CA that Cluster API generates has serial number 0 (``newSelfSignedCACert`` sets none), although RFC 5280 4.1.2.2
requires a positive one. Go and OpenSSL accept it. `cryptography` warns when it loads such a certificate ("Loading this
certificate will cause an exception in a future release"), so a future release would make every cluster's CA unreadable.

A certificate with a positive serial number goes to the library unchanged. For any other, the library gets a copy whose
serial number is 1. The copy is used to read the key, the validity and the extensions, which do not depend on the serial
number. Its signature is invalid: signatures are verified over the original bytes, and the copy never leaves this module
as a certificate. Names and the public key's encoding come from the original bytes too, because chains and kubeadm's
discovery hash are defined over those.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes

from signer.authority.der import (
    DerError,
    Element,
    Tag,
    integer,
    object_identifier,
    read_elements,
    read_single,
    sequence,
)

__all__ = ["CACertificate", "CertificateUnreadable", "NotIssuedBy", "OtherKey", "parse_ca_certificate"]

_Extension = TypeVar("_Extension", bound=x509.ExtensionType)
_VERSION_TAG = 0xA0
_ACCEPTED_HASHES = (hashes.SHA256, hashes.SHA384, hashes.SHA512)
"""Accepted hashes of signatures in a chain. A SHA-1 or MD5 signature can be transferred to another certificate."""
_LOADED_KEYS = tuple(
    object_identifier(dotted) for dotted in ("1.2.840.113549.1.1.1", "1.2.840.113549.1.1.10", "1.2.840.10045.2.1")
)
"""RSA, also bound to RSASSA-PSS, and elliptic curves. A Diffie-Hellman key of a few KiB (X9.42, with a subgroup) takes
the library many seconds, during which no other thread runs: one tenant's Secret would block all clusters."""
_LIBRARY_ERRORS = (
    LookupError,
    ArithmeticError,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
"""The errors that the library raises for malformed certificates besides ValueError and TypeError, such as a KeyError
for an unknown TLS feature. None is a subclass of those two."""


@dataclass(frozen=True, slots=True)
class OtherKey:
    """A kind of key that no cluster's CA has. It is not loaded."""


class CertificateUnreadable(ValueError):
    """The certificate cannot be read. The message is our own, never the library's."""


class NotIssuedBy(Exception):
    """The other certificate did not issue this one."""


@dataclass(frozen=True, slots=True)
class CACertificate:
    """A certificate that is, or claims to be, a CA certificate. Only `parse_ca_certificate` makes it."""

    der: bytes = field(repr=False)
    """The original certificate."""
    tbs_certificate: bytes = field(repr=False)
    """The signed part of ``der``."""
    issuer: bytes = field(repr=False)
    """DER of the issuer's Name."""
    subject: bytes = field(repr=False)
    """DER of the subject's Name, to be copied into issued certificates: Go compares names byte by byte."""
    subject_public_key_info: bytes = field(repr=False)
    public_key: CertificatePublicKeyTypes | OtherKey = field(repr=False, compare=False)
    extensions: x509.Extensions = field(repr=False, compare=False)
    not_before: datetime
    not_after: datetime
    _readable: x509.Certificate = field(repr=False, compare=False)
    """The library's value; of a copy with serial number 1 if ``_is_copy``."""
    _is_copy: bool = field(repr=False)
    public_key_hash: str = field(init=False, compare=False)
    """kubeadm's discovery hash: ``sha256:`` and the hex SHA-256 of SubjectPublicKeyInfo (RFC 7469 2.4)."""
    extended_key_usage: x509.ExtendedKeyUsage | None = field(init=False, compare=False, repr=False)
    """None if the certificate does not restrict it. Every issuance needs it, so it is looked up once."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "public_key_hash", _public_key_hash(self.subject_public_key_info))
        object.__setattr__(self, "extended_key_usage", _extension_value(self.extensions, x509.ExtendedKeyUsage))

    @property
    def basic_constraints(self) -> x509.BasicConstraints | None:
        """None if the certificate has no such extension, so it is not a CA (RFC 5280 4.2.1.9)."""
        return _extension_value(self.extensions, x509.BasicConstraints)

    @property
    def key_usage(self) -> x509.KeyUsage | None:
        """None if the certificate does not restrict it."""
        return _extension_value(self.extensions, x509.KeyUsage)

    @property
    def subject_key_identifier(self) -> x509.SubjectKeyIdentifier | None:
        """None if the certificate has none."""
        return _extension_value(self.extensions, x509.SubjectKeyIdentifier)

    @property
    def serial_number(self) -> int:
        """The original one, which may be zero or negative."""
        fields = read_elements(read_single(self.tbs_certificate, Tag.SEQUENCE).content)
        serial_number = fields[1] if fields[0].tag == _VERSION_TAG else fields[0]
        return int.from_bytes(serial_number.content, "big", signed=True)

    @property
    def may_sign_certificates(self) -> bool:
        """CA:TRUE, and keyCertSign if key usage is restricted (RFC 5280 4.2.1.3, 4.2.1.9)."""
        constraints, usage = self.basic_constraints, self.key_usage
        return constraints is not None and constraints.ca and (usage is None or usage.key_cert_sign)

    def require_directly_issued_by(self, issuer: CACertificate) -> None:
        """Verify the issuer's name, byte by byte, and the signature. Validity and constraints are not checked.

        Raises:
            NotIssuedBy: the name differs, the signature does not verify, or its hash is not secure.
        """
        if self.issuer != issuer.subject:
            raise NotIssuedBy("the issuer has another name")
        if isinstance(issuer.public_key, OtherKey):
            raise NotIssuedBy("the issuer's kind of key is not supported")
        try:
            if not isinstance(self._readable.signature_hash_algorithm, _ACCEPTED_HASHES):
                raise NotIssuedBy("the signature's hash is not SHA-256, SHA-384 or SHA-512")
            if self._is_copy:
                _verify_signature(self._readable, self.tbs_certificate, issuer.public_key)
            else:
                self._readable.verify_directly_issued_by(issuer._readable)
        except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError, UserWarning):
            raise NotIssuedBy("the signature does not verify with the issuer's key") from None


@functools.lru_cache(maxsize=4096)  # there are few CAs, and each request needs their hashes several times
def _public_key_hash(subject_public_key_info: bytes) -> str:
    return "sha256:" + hashlib.sha256(subject_public_key_info).hexdigest()


def parse_ca_certificate(der: bytes) -> CACertificate:
    """Read one certificate. The caller checks whether it is a CA, valid now, and has a supported key.

    Raises:
        CertificateUnreadable: not exactly one X.509 certificate in DER, or its key or an extension cannot be read.
    """
    try:
        outline = _read_outline(der)
        is_copy = not _is_positive(outline.serial_number)
        # UserWarning: under ``-W error``, the library raises its deprecation warnings.
        readable = x509.load_der_x509_certificate(_with_serial_number_one(outline) if is_copy else der)
        return CACertificate(
            der=der,
            tbs_certificate=outline.tbs_certificate,
            issuer=outline.issuer,
            subject=outline.subject,
            subject_public_key_info=outline.subject_public_key_info,
            public_key=_public_key(outline, readable),
            extensions=readable.extensions,
            not_before=readable.not_valid_before_utc,
            not_after=readable.not_valid_after_utc,
            _readable=readable,
            _is_copy=is_copy,
        )
    except DerError as error:
        raise CertificateUnreadable(f"is not DER of a certificate ({error})") from None
    except UnsupportedAlgorithm:
        raise CertificateUnreadable("has a kind of public key that is not supported") from None
    except (ValueError, TypeError, *_LIBRARY_ERRORS, UserWarning):
        raise CertificateUnreadable("has a malformed field or extension") from None


@dataclass(frozen=True, slots=True)
class _Outline:
    """The fields of a Certificate (RFC 5280 4.1) in their original bytes."""

    tbs_certificate: bytes
    tbs_elements: tuple[Element, ...]
    serial_position: int
    signature_algorithm: bytes
    signature: bytes
    issuer: bytes
    subject: bytes
    subject_public_key_info: bytes

    @property
    def serial_number(self) -> Element:
        return self.tbs_elements[self.serial_position]


def _read_outline(der: bytes) -> _Outline:
    parts = read_elements(read_single(der, Tag.SEQUENCE).content)
    if [part.tag for part in parts] != [Tag.SEQUENCE, Tag.SEQUENCE, Tag.BIT_STRING]:
        raise DerError("not a Certificate")
    tbs, algorithm, signature = parts
    elements = read_elements(tbs.content)
    position = 1 if elements and elements[0].tag == _VERSION_TAG else 0
    # serialNumber, signature, issuer, validity, subject, subjectPublicKeyInfo
    fields = elements[position : position + 6]
    if [element.tag for element in fields] != [Tag.INTEGER, *[Tag.SEQUENCE] * 5]:
        raise DerError("not a TBSCertificate")
    if fields[1].encoded != algorithm.encoded:
        raise DerError("signed and outer signature algorithm differ")
    return _Outline(
        tbs_certificate=tbs.encoded,
        tbs_elements=elements,
        serial_position=position,
        signature_algorithm=algorithm.encoded,
        signature=signature.encoded,
        issuer=fields[2].encoded,
        subject=fields[4].encoded,
        subject_public_key_info=fields[5].encoded,
    )


def _public_key(outline: _Outline, readable: x509.Certificate) -> CertificatePublicKeyTypes | OtherKey:
    parts = read_elements(read_single(outline.subject_public_key_info, Tag.SEQUENCE).content)
    if not parts or not parts[0].content.startswith(_LOADED_KEYS):
        return OtherKey()
    return readable.public_key()


def _is_positive(serial_number: Element) -> bool:
    content = serial_number.content
    if not content:
        raise DerError("empty serial number")
    if len(content) > 1 and ((content[0] == 0x00 and content[1] < 0x80) or (content[0] == 0xFF and content[1] >= 0x80)):
        raise DerError("serial number not minimal")
    return int.from_bytes(content, "big", signed=True) > 0


def _with_serial_number_one(outline: _Outline) -> bytes:
    elements = [element.encoded for element in outline.tbs_elements]
    elements[outline.serial_position] = integer(1)
    return sequence(sequence(*elements), outline.signature_algorithm, outline.signature)


def _verify_signature(
    signed: x509.Certificate, signed_bytes: bytes, public_key: CertificatePublicKeyTypes | OtherKey
) -> None:
    """The same verification as ``verify_directly_issued_by`` without names, over ``signed_bytes``."""
    parameters = signed.signature_algorithm_parameters
    hash_algorithm = signed.signature_hash_algorithm
    if isinstance(public_key, rsa.RSAPublicKey) and hash_algorithm is not None:
        if isinstance(parameters, padding.PKCS1v15 | padding.PSS):
            public_key.verify(signed.signature, signed_bytes, parameters, hash_algorithm)
            return
    elif isinstance(public_key, ec.EllipticCurvePublicKey) and isinstance(parameters, ec.ECDSA):
        public_key.verify(signed.signature, signed_bytes, parameters)
        return
    raise InvalidSignature


def _extension_value(extensions: x509.Extensions, kind: type[_Extension]) -> _Extension | None:
    for extension in extensions:
        if isinstance(extension.value, kind):
            return extension.value
    return None
