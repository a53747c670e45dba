"""Read a CA certificate, also one whose serial number is zero.

Why this exists: every CA that Cluster API generates has serial number 0 (``newSelfSignedCACert`` sets none). RFC 5280
4.1.2.2 wants it positive. Go and OpenSSL do not mind, `cryptography` warns when it loads such a certificate ("Loading
this certificate will cause an exception in a future release"), and so a coming release would make every cluster's CA
unreadable.

What it does: a certificate with a positive serial number goes to the library untouched. For any other, the library gets
a copy in which the serial number, and nothing else, is 1. The copy serves to read the key, the validity and the
extensions, which the serial number has no part in. The copy's own signature is void: whatever concerns the signature on
the certificate is done over the original bytes, and the copy never leaves this module's value as a certificate.
Names and the public key's encoding are taken from the original bytes too, because chains and kubeadm's discovery hash
are defined over those.
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
"""Of a signature that a chain rests on. A SHA-1 or MD5 signature can be carried over to another certificate."""
_LOADED_KEYS = tuple(
    object_identifier(dotted) for dotted in ("1.2.840.113549.1.1.1", "1.2.840.113549.1.1.10", "1.2.840.10045.2.1")
)
"""RSA, also bound to RSASSA-PSS, and elliptic curves. A Diffie-Hellman key of a few KiB (X9.42, with a subgroup) takes
the library many seconds, and no other thread runs meanwhile: one tenant's Secret would stop all clusters."""
_LIBRARY_ERRORS = (
    LookupError,
    ArithmeticError,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
"""What the library raises for malformed certificates beside ValueError and TypeError; none is a subclass of those. A
KeyError for a TLS feature that it does not know."""


@dataclass(frozen=True, slots=True)
class OtherKey:
    """A kind of key that no cluster's CA has. It is not looked at."""


class CertificateUnreadable(ValueError):
    """Not a certificate that can be read. The text says why in our words."""


class NotIssuedBy(Exception):
    """The one certificate did not issue the other."""


@dataclass(frozen=True, slots=True)
class CACertificate:
    """A certificate that is, or claims to be, a certificate authority's. Made by `parse_ca_certificate` only."""

    der: bytes = field(repr=False)
    """The certificate as it was given."""
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
    """The library's value; a copy with serial number 1 when ``_is_copy``."""
    _is_copy: bool = field(repr=False)
    public_key_hash: str = field(init=False, compare=False)
    """kubeadm's discovery hash: ``sha256:`` and the hex SHA-256 of SubjectPublicKeyInfo (RFC 7469 2.4)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "public_key_hash", _public_key_hash(self.subject_public_key_info))

    @property
    def basic_constraints(self) -> x509.BasicConstraints | None:
        """None where the certificate has no such extension, which means that it is no CA (RFC 5280 4.2.1.9)."""
        return _extension_value(self.extensions, x509.BasicConstraints)

    @property
    def key_usage(self) -> x509.KeyUsage | None:
        """None where the certificate does not restrict it."""
        return _extension_value(self.extensions, x509.KeyUsage)

    @property
    def extended_key_usage(self) -> x509.ExtendedKeyUsage | None:
        """None where the certificate does not restrict it."""
        return _extension_value(self.extensions, x509.ExtendedKeyUsage)

    @property
    def subject_key_identifier(self) -> x509.SubjectKeyIdentifier | None:
        """None where the certificate has none."""
        return _extension_value(self.extensions, x509.SubjectKeyIdentifier)

    @property
    def may_sign_certificates(self) -> bool:
        """CA:TRUE, and keyCertSign where key usage is restricted (RFC 5280 4.2.1.3, 4.2.1.9)."""
        constraints, usage = self.basic_constraints, self.key_usage
        return constraints is not None and constraints.ca and (usage is None or usage.key_cert_sign)

    def require_directly_issued_by(self, issuer: CACertificate) -> None:
        """Check the issuer's name, byte by byte, and the signature. Validity and constraints are not looked at.

        Raises:
            NotIssuedBy: another name, a signature that does not verify, or one with a hash that proves nothing today.
        """
        if self.issuer != issuer.subject:
            raise NotIssuedBy("the issuer has another name")
        if isinstance(issuer.public_key, OtherKey):
            raise NotIssuedBy("the issuer has a key of a kind that is not looked at")
        try:
            if not isinstance(self._readable.signature_hash_algorithm, _ACCEPTED_HASHES):
                raise NotIssuedBy("the signature's hash is not SHA-256, SHA-384 or SHA-512")
            if self._is_copy:
                _verify_signature(self._readable, self.tbs_certificate, issuer.public_key)
            else:
                self._readable.verify_directly_issued_by(issuer._readable)
        except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError, UserWarning):
            raise NotIssuedBy("the signature does not verify with the issuer's key") from None


@functools.lru_cache(maxsize=4096)  # of a few CAs, several times for each request
def _public_key_hash(subject_public_key_info: bytes) -> str:
    return "sha256:" + hashlib.sha256(subject_public_key_info).hexdigest()


def parse_ca_certificate(der: bytes) -> CACertificate:
    """Read one certificate; whether it is a CA, valid now or of a fit key is for the caller to ask of the value.

    Raises:
        CertificateUnreadable: not exactly one X.509 certificate in DER, or a key or extension that cannot be read.
    """
    try:
        outline = _read_outline(der)
        is_copy = not _is_positive(outline.serial_number)
        # UserWarning: under ``-W error``, what the library announces to refuse one day counts as refused.
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
    """The fields of a Certificate (RFC 5280 4.1) as they stand, uninterpreted."""

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
    """What ``verify_directly_issued_by`` does after comparing names, over bytes of our choice."""
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
