"""The PKCS#7 around the document: CMS SignedData with its content and exactly one signer (RFC 5652, sections 3 to 5).

Certificates and revocation lists inside are skipped unread: data from the node must not decide which keys may sign (a
PKCS#7 library would take the signer's key from there). Unsigned attributes are always refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from attestors.aws.document import ber
from attestors.aws.document.algorithms import read_digest_algorithm, read_signature_algorithm
from attestors.aws.document.ber import Reader
from attestors.aws.document.signed_attributes import (
    DATA,
    STRUCTURE,
    NoSignedAttributes,
    SignedAttributes,
    read_signed_attributes,
)
from attestors.aws.wire import MAXIMUM_IDENTITY_DOCUMENT_BYTES

SIGNED_DATA: Final = bytes.fromhex("2a864886f70d010702")
"""1.2.840.113549.1.7.2."""
_VERSION_1: Final = b"\x01"
"""The version of SignedData with plain data, and of a signer named by issuer and serial number (RFC 5652 5.1, 5.3)."""
_MAXIMUM_SEGMENTS: Final = 64


@dataclass(frozen=True, slots=True)
class SignerInfo:
    """The signer's own claims; the algorithm is RSA PKCS#1 v1.5 with SHA-256, the only one that parses."""

    issuer_and_serial_number: bytes
    """Content of IssuerAndSerialNumber in DER."""
    signed_attributes: SignedAttributes | NoSignedAttributes
    signature: bytes


@dataclass(frozen=True, slots=True)
class SignedData:
    """Proves nothing before :func:`~attestors.aws.document.verification.verify_identity_document`."""

    content: bytes
    signer: SignerInfo


def parse_signed_data(data: bytes) -> SignedData:
    """Parse the PKCS#7, in the form that AWS writes or in DER.

    Raises:
        IdentityDocumentMalformed: anything else; no signer or several; no content; SHA-1 or any algorithm other than
            SHA-256 with RSA.
    """
    reader = Reader(data, STRUCTURE)
    if len(data) > MAXIMUM_IDENTITY_DOCUMENT_BYTES:
        raise reader.malformed(f"is larger than {MAXIMUM_IDENTITY_DOCUMENT_BYTES} bytes")
    content_info = reader.enter(ber.SEQUENCE, "ContentInfo")
    if reader.identifier("contentType") != SIGNED_DATA:
        raise reader.malformed("is not SignedData")
    explicit = reader.enter(ber.CONTEXT_0, "content")
    signed_data = reader.enter(ber.SEQUENCE, "SignedData")
    _expect_version_1(reader)
    _expect_sha256_only(reader)
    content = _read_content(reader)
    for skipped, what in ((ber.CONTEXT_0, "certificates"), (ber.CONTEXT_1, "crls")):
        if reader.at(skipped):
            reader.element(skipped, what)
    signers = ber.read_all(reader.element(ber.SET, "signerInfos").content, ber.SEQUENCE, STRUCTURE)
    if len(signers) != 1:
        raise reader.malformed(f"has {len(signers)} signers instead of one")
    reader.leave(signed_data, "SignedData")
    reader.leave(explicit, "content")
    reader.leave(content_info, "ContentInfo")
    reader.finish()
    return SignedData(content, _read_signer(signers[0].content))


def _expect_version_1(reader: Reader) -> None:
    if reader.element(ber.INTEGER, "version").content != _VERSION_1:
        raise reader.malformed("has another version than 1")


def _expect_sha256_only(reader: Reader) -> None:
    algorithms = Reader(reader.element(ber.SET, "digestAlgorithms").content, STRUCTURE)
    read_digest_algorithm(algorithms)
    algorithms.finish()


def _read_content(reader: Reader) -> bytes:
    """EncapsulatedContentInfo (RFC 5652 5.2)."""
    layer = reader.enter(ber.SEQUENCE, "encapContentInfo")
    if reader.identifier("eContentType") != DATA:
        raise reader.malformed("has a content that is not plain data")
    if not reader.at(ber.CONTEXT_0):
        raise reader.malformed("has no content: the document must be inside it")
    explicit = reader.enter(ber.CONTEXT_0, "eContent")
    if reader.at(ber.CONSTRUCTED_OCTET_STRING):
        content = _read_segments(reader)
    else:
        content = reader.element(ber.OCTET_STRING, "eContent").content
    reader.leave(explicit, "eContent")
    reader.leave(layer, "encapContentInfo")
    return content


def _read_segments(reader: Reader) -> bytes:
    """A constructed OCTET STRING (X.690 8.7.3), of plain segments only."""
    layer = reader.enter(ber.CONSTRUCTED_OCTET_STRING, "eContent")
    if not layer.indefinite:
        raise reader.malformed("has a content in segments but of definite length")
    segments: list[bytes] = []
    while reader.at(ber.OCTET_STRING):
        if len(segments) == _MAXIMUM_SEGMENTS:
            raise reader.malformed(f"has a content of more than {_MAXIMUM_SEGMENTS} segments")
        segments.append(reader.element(ber.OCTET_STRING, "a segment of eContent").content)
    reader.leave(layer, "eContent")
    return b"".join(segments)


def _read_signer(signer: bytes) -> SignerInfo:
    """SignerInfo (RFC 5652 5.3)."""
    reader = Reader(signer, STRUCTURE)
    _expect_version_1(reader)
    issuer_and_serial_number = reader.element(ber.SEQUENCE, "issuerAndSerialNumber").content
    read_digest_algorithm(reader)
    attributes = reader.element(ber.CONTEXT_0, "signedAttrs") if reader.at(ber.CONTEXT_0) else None
    read_signature_algorithm(reader)
    signature = reader.element(ber.OCTET_STRING, "signature").content
    if reader.at(ber.CONTEXT_1):
        raise reader.malformed("has unsigned attributes")
    reader.finish()
    signed_attributes = NoSignedAttributes() if attributes is None else read_signed_attributes(attributes)
    return SignerInfo(issuer_and_serial_number, signed_attributes, signature)
