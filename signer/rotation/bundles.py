"""Certificates of a bundle, read leniently: what others wrote there is compared and never used. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from signer.authority import CACertificate
from signer.authority.der import PemError, encode_block, read_blocks
from signer.authority.lenient_certificate import CertificateUnreadable, NotIssuedBy, parse_ca_certificate
from signer.authority.private_key import AuthorityPrivateKey
from signer.rotation.authorities import AuthorityReference
from signer.rotation.facts import Bundle

MAXIMUM_BYTES: Final = 1024 * 1024
"""extension-apiserver-authentication was seen with 550 CAs."""
MAXIMUM_CERTIFICATES: Final = 1024
NO_END: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
"""A key without certificate does not expire."""


@dataclass(frozen=True, slots=True)
class UnreadableBundle:
    """The text is no bundle of PEM blocks."""

    message: str


def read_bundle(text: bytes) -> tuple[bytes, ...] | UnreadableBundle:
    """The DER of each certificate, in order. Empty for an empty text."""
    if not text.strip():
        return ()
    try:
        blocks = read_blocks(text, maximum_bytes=MAXIMUM_BYTES, maximum_blocks=MAXIMUM_CERTIFICATES)
    except PemError as error:
        return UnreadableBundle(str(error))
    return tuple(block.content for block in blocks)


def digest_of(der: bytes) -> str:
    """The digest by which facts and record name a certificate."""
    return hashlib.sha256(der).hexdigest()


def digests_in(text: bytes) -> Bundle | UnreadableBundle:
    """The digests of a bundle's certificates, in order."""
    found = read_bundle(text)
    return found if isinstance(found, UnreadableBundle) else tuple(map(digest_of, found))


def bundle_of(*certificates: bytes) -> bytes:
    """PEM of the certificates, in order."""
    return b"".join(encode_block("CERTIFICATE", der) for der in certificates)


def reference_of(certificate: CACertificate) -> AuthorityReference:
    """The reference to a CA."""
    return AuthorityReference(digest_of(certificate.der), certificate.public_key_hash, certificate.not_after)


def reference_of_key(subject_public_key_info: bytes) -> AuthorityReference:
    """The reference to a key without certificate."""
    digest = hashlib.sha256(subject_public_key_info).hexdigest()
    return AuthorityReference(digest, f"sha256:{digest}", NO_END)


def public_key_of(key: AuthorityPrivateKey) -> bytes:
    """SubjectPublicKeyInfo."""
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def is_issued_by(der: bytes, issuer: CACertificate) -> bool:
    """Whether that CA signed the certificate."""
    try:
        parse_ca_certificate(der).require_directly_issued_by(issuer)
    except (CertificateUnreadable, NotIssuedBy):
        return False
    return True
