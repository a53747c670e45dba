"""Signs CA certificates: a new CA's own, and link certificates between two CAs.

The to-be-signed part is assembled here and not by the library's builder, so that names and public keys are copied byte
for byte: Go compares names byte by byte, and the library would encode them anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from signer.authority import der
from signer.authority.errors import IssuanceRefused, IssuanceRefusedReason
from signer.authority.issuance import encode_extension
from signer.authority.lenient_certificate import CACertificate, CertificateUnreadable, parse_ca_certificate
from signer.authority.private_key import AuthorityPrivateKey, sign, signature_algorithm, verify
from signer.authority.profiles import Validity, new_serial_number

__all__ = ["AuthorityContents", "Extension", "derived_key_identifier", "key_identifier", "sign_authority_certificate"]

_VERSION_3: Final = der.context_constructed(0, der.integer(2))

Extension = tuple[x509.ExtensionType, bool]
"""The extension and whether it is critical."""
SIGNS_CERTIFICATES: Final = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)
"""The key usage of a CA whose key signs nothing but certificates."""


@dataclass(frozen=True, slots=True)
class AuthorityContents:
    """All contents of a CA certificate except the serial number, which is random."""

    issuer: bytes
    """DER of the Name."""
    subject: bytes
    """DER of the Name."""
    subject_public_key_info: bytes
    """DER."""
    validity: Validity
    extensions: Sequence[Extension]


def sign_authority_certificate(contents: AuthorityContents, key: AuthorityPrivateKey) -> CACertificate:
    """Sign the certificate with the issuer's key, read it back, and verify the signature.

    A faulty RSA signature must not be published, since it can reveal the private key.

    Raises:
        IssuanceRefused: ``SelfCheckFailed``.
    """
    algorithm = signature_algorithm(key)
    encoded = [encode_extension(value, critical) for value, critical in contents.extensions]
    to_be_signed = der.sequence(
        _VERSION_3,
        der.integer(new_serial_number()),
        algorithm,
        contents.issuer,
        der.sequence(der.time(contents.validity.not_before), der.time(contents.validity.not_after)),
        contents.subject,
        contents.subject_public_key_info,
        der.context_constructed(3, der.sequence(*encoded)),
    )
    signature = sign(key, to_be_signed)
    try:
        verify(key.public_key(), signature, to_be_signed)
        certificate = parse_ca_certificate(der.sequence(to_be_signed, algorithm, der.bit_string(signature)))
    except (InvalidSignature, CertificateUnreadable):
        raise _self_check_failed() from None
    found = [(extension.value, extension.critical) for extension in certificate.extensions]
    if found != list(contents.extensions) or (certificate.not_before, certificate.not_after) != (
        contents.validity.not_before,
        contents.validity.not_after,
    ):
        raise _self_check_failed()
    return certificate


def key_identifier(certificate: CACertificate) -> bytes:
    """The CA's subject key identifier, as it is in the authority key identifier of what the CA signed.

    For a CA without one, it is the identifier that RFC 5280 4.2.1.2 (1) derives from the public key, as in
    `signer.authority.issuance`.
    """
    identifier = certificate.subject_key_identifier
    if identifier is None:
        return derived_key_identifier(certificate.subject_public_key_info)
    return identifier.digest


def derived_key_identifier(subject_public_key_info: bytes) -> bytes:
    """The identifier of a public key by RFC 5280 4.2.1.2 (1): SHA-1 of the key's bits."""
    _, key_bits = der.read_elements(der.read_single(subject_public_key_info, der.Tag.SEQUENCE).content)
    return hashlib.sha1(key_bits.content[1:], usedforsecurity=False).digest()


def _self_check_failed() -> IssuanceRefused:
    return IssuanceRefused(
        IssuanceRefusedReason.SELF_CHECK_FAILED,
        "the new CA certificate cannot be read back, or its signature does not verify",
    )
