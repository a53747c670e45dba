"""A lenient parser of one certificate from its original bytes, for endorsement keys and for authorities.

`cryptography` is a strict DER parser and rejects genuine certificates (Intel's explicit defaults, Nuvoton's order of
sets, STMicroelectronics' padding and OAEP keys). Two parsers could give the same bytes two meanings, so this one parses
all certificates, and the library handles only keys and signatures.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from attestors.tpm.endorsement import der
from attestors.tpm.endorsement.der import Element, Malformed
from attestors.tpm.endorsement.errors import CertificateUnreadable
from attestors.tpm.endorsement.extensions import Extensions, read_extensions
from attestors.tpm.endorsement.names import Name, read_name
from attestors.tpm.endorsement.public_keys import PublicKey, read_public_key
from attestors.tpm.endorsement.signatures import (
    SignatureAlgorithm,
    read_algorithm,
    verify_signature,
)

MAXIMUM_CERTIFICATE_BYTES: Final = 8 * 1024
"""An NV index holds 2 KiB on current chips; certificates have 0.7 to 2 KiB."""

_STORED_CERTIFICATE: Final = b"\x10\x01"
"""TCG_TAG_PCCLIENT_STORED_CERT (TCG PC Client Implementation Specification for Conventional BIOS 1.2, 7.3.2)."""
_FULL_CERTIFICATE_TYPE: Final = b"\x00"
_FULL_CERTIFICATE: Final = b"\x10\x02"
"""TCG_TAG_PCCLIENT_FULL_CERT; some chips omit it."""
_STORED_HEADER_BYTES: Final = 5
_PADDING: Final = b"\x00\xff"
"""The content of erased NV memory."""
LINE_ENDS: Final = b"\r\n"
"""Version control adds a line end to AMD's certificates in DER."""

_VERSION, _ISSUER_UNIQUE_ID, _SUBJECT_UNIQUE_ID, _EXTENSIONS = 0xA0, 0x81, 0x82, 0xA3
_SERIAL, _ALGORITHM, _ISSUER, _VALIDITY, _SUBJECT, _KEY = range(6)
_FIXED_FIELDS: Final = 6
_V3: Final = 2


@dataclass(frozen=True, slots=True)
class Certificate:
    """A parsed certificate; nothing in it is verified. Only `read_certificate` and its relatives build it."""

    encoded: bytes = field(repr=False)
    """Without header and padding."""
    signed: bytes = field(repr=False)
    """TBSCertificate, the bytes that the signature covers."""
    algorithm: SignatureAlgorithm = field(repr=False)
    signature: bytes = field(repr=False)
    version: int
    """1 to 3."""
    serial_number: int
    """As encoded: zero and negative numbers occur."""
    issuer: Name
    subject: Name
    not_before: datetime
    not_after: datetime
    public_key: PublicKey = field(repr=False, compare=False)
    extensions: Extensions = field(repr=False)

    @property
    def digest(self) -> str:
        """Hexadecimal SHA-256 of `encoded`."""
        return hashlib.sha256(self.encoded).hexdigest()

    @property
    def is_self_issued(self) -> bool:
        """Issuer and subject are the same name (RFC 5280 3.2)."""
        return self.issuer.comparable == self.subject.comparable

    def require_signature_of(self, issuer: Certificate) -> None:
        """Verify the signature over the original bytes. This does not check names, validity or use.

        Raises:
            UnacceptableSignature: it is not the issuer's, or its algorithm is not accepted.
        """
        verify_signature(issuer.public_key, self.algorithm, self.signed, self.signature)


def read_stored_certificate(data: bytes) -> Certificate:
    """Parse the certificate in an NV index; a TCG header before it, and anything after it, are ignored.

    Raises:
        CertificateUnreadable: too large, or the content does not begin with a certificate.
    """
    if len(data) > MAXIMUM_CERTIFICATE_BYTES:
        raise CertificateUnreadable(f"The endorsement key certificate is larger than {MAXIMUM_CERTIFICATE_BYTES} bytes")
    if not data.strip(_PADDING):
        raise CertificateUnreadable("The endorsement key certificate is empty: the TPM's NV index holds nothing")
    try:
        return _read(der.read_first(_without_header(data)))
    except Malformed as error:
        raise CertificateUnreadable(f"The endorsement key certificate {error}") from None


def read_certificates(data: bytes, *, maximum_count: int, besides_padding: bytes = b"") -> tuple[Certificate, ...]:
    """Parse concatenated certificates, with padding between and after them (NV indices 0x01c00100 and up).

    ``besides_padding``: other octets that may stand there, such as ``LINE_ENDS`` in an operator's files.

    Raises:
        CertificateUnreadable: too many, too large, or other data between them; the message says "certificate N".
    """
    found, unread = read_sequence(data, maximum_count=maximum_count, besides_padding=besides_padding)
    if unread:
        raise CertificateUnreadable(unread)
    return found


def read_sequence(
    data: bytes, *, maximum_count: int, besides_padding: bytes = b""
) -> tuple[tuple[Certificate, ...], str]:
    """Like `read_certificates`, but returns the parsable certificates and the first error (empty if there is none)."""
    found: list[Certificate] = []
    fault, number = "", 0
    try:
        for number, element in enumerate(_elements_between(_PADDING + besides_padding, data), start=1):
            if number > maximum_count:
                return tuple(found), fault or f"there are more than {maximum_count} certificates"
            try:
                found.append(_read(element))
            except Malformed as error:
                fault = fault or f"certificate {number} {error}"
    except Malformed as error:
        fault = fault or f"certificate {number + 1} {error}"
    return tuple(found), fault


def _without_header(data: bytes) -> bytes:
    if not data.startswith(_STORED_CERTIFICATE + _FULL_CERTIFICATE_TYPE):
        return data
    length = int.from_bytes(data[3:_STORED_HEADER_BYTES], "big")
    stored = data[_STORED_HEADER_BYTES : _STORED_HEADER_BYTES + length]
    if len(stored) != length:
        raise Malformed("is shorter than its TCG header says")
    return stored.removeprefix(_FULL_CERTIFICATE)


def _elements_between(padding: bytes, data: bytes) -> Iterator[Element]:
    rest = data.lstrip(padding)
    while rest:
        element = der.read_first(rest)
        yield element
        rest = rest[len(element.encoded) :].lstrip(padding)


def _read(certificate: Element) -> Certificate:
    """RFC 5280 4.1."""
    if len(certificate.encoded) > MAXIMUM_CERTIFICATE_BYTES:
        raise Malformed(f"is larger than {MAXIMUM_CERTIFICATE_BYTES} bytes")
    parts = der.children(certificate, der.SEQUENCE)
    if len(parts) != 3:
        raise Malformed("is not an X.509 certificate")
    signed, algorithm, signature = parts
    fields = list(der.children(signed, der.SEQUENCE))
    version = _read_version(fields.pop(0)) if fields and fields[0].tag == _VERSION else 1
    fixed, optional = fields[:_FIXED_FIELDS], fields[_FIXED_FIELDS:]
    if len(fixed) != _FIXED_FIELDS:
        raise Malformed("is not an X.509 certificate")
    read_as = read_algorithm(algorithm)
    if read_as != read_algorithm(fixed[_ALGORITHM]):
        raise Malformed("names two signature algorithms")
    validity = der.children(fixed[_VALIDITY], der.SEQUENCE)
    if len(validity) != 2:
        raise Malformed("has a malformed validity")
    return Certificate(
        encoded=certificate.encoded,
        signed=signed.encoded,
        algorithm=read_as,
        signature=der.octets_of_bit_string(signature),
        version=version,
        serial_number=der.integer(fixed[_SERIAL]),
        issuer=read_name(fixed[_ISSUER]),
        subject=read_name(fixed[_SUBJECT]),
        not_before=der.time(validity[0]),
        not_after=der.time(validity[1]),
        public_key=read_public_key(fixed[_KEY]),
        extensions=_read_optional(optional, version),
    )


def _read_version(element: Element) -> int:
    version = der.integer(der.only(element.content, der.INTEGER))
    if not 0 <= version <= _V3:
        raise Malformed("is of an unknown X.509 version")
    return version + 1


def _read_optional(fields: list[Element], version: int) -> Extensions:
    tags = [element.tag for element in fields]
    if tags != sorted({*tags} & {_ISSUER_UNIQUE_ID, _SUBJECT_UNIQUE_ID, _EXTENSIONS}):
        raise Malformed("has unknown fields")
    if not fields or fields[-1].tag != _EXTENSIONS:
        return Extensions()
    if version != _V3 + 1:
        raise Malformed("has extensions, which are for version 3 only")
    return read_extensions(der.only(fields[-1].content, der.SEQUENCE))
