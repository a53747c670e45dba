"""The signed attributes of CMS (RFC 5652, sections 5.3, 5.4 and 11).

If there are signed attributes, the signature covers only them, and one of them is the digest of the content.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from attestors.aws.document import ber
from attestors.aws.document.algorithms import read_digest_algorithm, read_signature_algorithm
from attestors.aws.document.ber import Element, Reader

DATA: Final = bytes.fromhex("2a864886f70d010701")
"""1.2.840.113549.1.7.1, the type of the content."""
_CONTENT_TYPE: Final = bytes.fromhex("2a864886f70d010903")
"""1.2.840.113549.1.9.3 (RFC 5652 11.1)."""
_MESSAGE_DIGEST: Final = bytes.fromhex("2a864886f70d010904")
"""1.2.840.113549.1.9.4 (RFC 5652 11.2)."""
_ALGORITHM_PROTECTION: Final = bytes.fromhex("2a864886f70d010934")
"""1.2.840.113549.1.9.52 (RFC 6211)."""
_DIGEST_BYTES: Final = 32
_MAXIMUM_ATTRIBUTES: Final = 16
STRUCTURE: Final = "the PKCS#7 of the instance identity document"
"""Its name in messages."""


@dataclass(frozen=True, slots=True)
class NoSignedAttributes:
    """The signature covers the content itself."""


@dataclass(frozen=True, slots=True)
class SignedAttributes:
    """The used attributes. Others, such as the signing time, are signed too, and ignored."""

    message_digest: bytes
    """SHA-256 of the content, according to the signer."""
    signed: bytes
    """The signed bytes: the attributes as received, with the tag of a SET (RFC 5652 5.4)."""


def read_signed_attributes(encoded: Element) -> SignedAttributes:
    """Parse SignedAttributes, which must state that the content is plain data, and its digest.

    Raises:
        IdentityDocumentMalformed: one of the two is missing or different, an attribute is repeated or has several
            values, or the attribute that protects the algorithms (RFC 6211) names others.
    """
    values = _single_values(encoded)
    reader = Reader(values.get(_CONTENT_TYPE, b""), STRUCTURE)
    if not values.get(_CONTENT_TYPE) or reader.identifier("the contentType attribute") != DATA:
        raise reader.malformed("has no signed attribute that marks its content as plain data")
    reader.finish()
    if _MESSAGE_DIGEST not in values:
        raise reader.malformed("has no signed attribute with the digest of its content")
    digest = ber.only(values[_MESSAGE_DIGEST], ber.OCTET_STRING, STRUCTURE).content
    if len(digest) != _DIGEST_BYTES:
        raise reader.malformed("has a digest that is not SHA-256's")
    if _ALGORITHM_PROTECTION in values:
        _check_algorithm_protection(values[_ALGORITHM_PROTECTION])
    return SignedAttributes(digest, bytes([ber.SET]) + encoded.encoded[1:])


def _single_values(encoded: Element) -> dict[bytes, bytes]:
    """Each attribute's type and its only value."""
    values: dict[bytes, bytes] = {}
    for attribute in ber.read_all(encoded.content, ber.SEQUENCE, STRUCTURE):
        reader = Reader(attribute.content, STRUCTURE)
        kind = reader.identifier("the type of a signed attribute")
        value = reader.element(ber.SET, "the value of a signed attribute").content
        reader.finish()
        if kind in values or len(values) == _MAXIMUM_ATTRIBUTES:
            raise reader.malformed("has a signed attribute twice, or too many of them")
        values[kind] = value
    return values


def _check_algorithm_protection(value: bytes) -> None:
    """CMSAlgorithmProtection: SEQUENCE { digestAlgorithm, [1] IMPLICIT signatureAlgorithm }."""
    reader = Reader(ber.only(value, ber.SEQUENCE, STRUCTURE).content, STRUCTURE)
    read_digest_algorithm(reader)
    read_signature_algorithm(reader, ber.CONTEXT_1)
    reader.finish()
