"""The entry point: verifies that a certificate is genuine for an endorsement key, authorities and a time.

Cheap checks come first, and nothing is trusted before the chain verifies:

1. the bytes are one certificate within bounds (`certificate`)
2. its key is the TPM's endorsement key
3. it is an endorsement key certificate: not an authority's, not an attestation key's
4. it is valid now
5. it chains to a configured root (`chain`)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec, rsa

from attestors.tpm.endorsement import der
from attestors.tpm.endorsement.authorities import EndorsementAuthorities
from attestors.tpm.endorsement.certificate import Certificate, read_sequence, read_stored_certificate
from attestors.tpm.endorsement.chain import find_root
from attestors.tpm.endorsement.chips import CHIP_NOT_NAMED, Chip, chip_in_subject, chip_of
from attestors.tpm.endorsement.der import Malformed
from attestors.tpm.endorsement.errors import (
    AuthorityMissing,
    CertificateExpired,
    CertificateNotYetValid,
    CertificateUnreadable,
    EndorsementKeyMismatch,
    NotAnEndorsementCertificate,
)
from attestors.tpm.endorsement.extensions import (
    ANY_EXTENDED_KEY_USAGE,
    ATTESTATION_KEY_CERTIFICATE,
    ENDORSEMENT_KEY_CERTIFICATE,
    Extensions,
    KeyUsage,
)
from attestors.tpm.endorsement.public_keys import (
    MAXIMUM_ENDORSEMENT_RSA_BITS,
    PublicKey,
    fingerprint,
    read_public_key,
    same_key,
)

MAXIMUM_SENT_CERTIFICATES: Final = 8
MAXIMUM_SENT_BYTES: Final = 32 * 1024


@dataclass(frozen=True, slots=True)
class VerifiedEndorsementCertificate:
    """The manufacturer's statement that a genuine TPM holds this key. It does not say which machine the TPM is in.

    Only `verify_endorsement_certificate` builds it.
    """

    public_key: PublicKey = field(repr=False)
    public_key_sha256: str
    """Hexadecimal, of the key's SubjectPublicKeyInfo in DER: inventories and deny lists compare it."""
    certificate_sha256: str
    """Hexadecimal, of the certificate without header and padding. For logs only, never for a deny list: the same chip
    can present its certificate with another digest (an ECDSA signature has two forms)."""
    manufacturer: str | None
    """Such as ``id:53544D20``; this and the next two are None if the certificate does not name them."""
    model: str | None
    version: str | None
    subject: str
    """For a person; empty for most manufacturers."""
    serial_number: int
    issuer: str
    root: str
    """The configured authority at which the chain ends."""
    not_before: datetime
    not_after: datetime
    chip: Chip = CHIP_NOT_NAMED
    """The chip that the certificate names by itself."""
    chip_in_subject: Chip = CHIP_NOT_NAMED
    """The chip that the subject names, where the operator says that subjects name chips."""


def verify_endorsement_certificate(
    certificate: bytes,
    *,
    endorsement_key: PublicKey | bytes,
    authorities: EndorsementAuthorities,
    at: datetime,
    intermediates: Sequence[bytes] = (),
) -> VerifiedEndorsementCertificate:
    """Verify an endorsement key certificate.

    Args:
        certificate: as stored in NV: a TCG header before it, and padding or anything else after it, are ignored.
        endorsement_key: the key that the TPM presented, or its SubjectPublicKeyInfo in DER.
        authorities: the operator's authorities (`load_endorsement_authorities`).
        at: the time of verification, with a time zone.
        intermediates: certificates that the node sent (NV 0x01c00100 and up): each item is one certificate or several
            concatenated, with or without padding. They are untrusted candidates. Unreadable ones matter only if no
            chain is found without them.

    Raises:
        EndorsementCertificateRefused: a subclass names the cause, with a message for a person.
        ValueError: ``at`` has no time zone.
    """
    if at.tzinfo is None:
        raise ValueError("the time of verification has no time zone")
    presented = _read_endorsement_key(endorsement_key)
    read = read_stored_certificate(certificate)
    _require_key(read, presented)
    _require_endorsement_use(read)
    _require_valid(read, at)
    sent, unread = _read_sent(intermediates)
    try:
        root = find_root(read, sent=sent, authorities=authorities, at=at)
    except AuthorityMissing as missing:
        raise missing.without(unread) if unread else missing from None
    tpm = read.extensions.tpm
    return VerifiedEndorsementCertificate(
        public_key=read.public_key,
        public_key_sha256=fingerprint(read.public_key),
        certificate_sha256=read.digest,
        manufacturer=tpm.manufacturer,
        model=tpm.model,
        version=tpm.version,
        subject=read.subject.text,
        serial_number=read.serial_number,
        issuer=read.issuer.text,
        root=root.subject.text,
        not_before=read.not_before,
        not_after=read.not_after,
        chip=chip_of(read),
        chip_in_subject=chip_in_subject(read),
    )


def _read_endorsement_key(key: PublicKey | bytes) -> PublicKey:
    if isinstance(key, rsa.RSAPublicKey | ec.EllipticCurvePublicKey):
        return key
    try:
        return read_public_key(der.only(key, der.SEQUENCE))
    except Malformed as error:
        raise EndorsementKeyMismatch(f"The endorsement key that the TPM presented {error}") from None


def _read_sent(intermediates: Sequence[bytes]) -> tuple[tuple[Certificate, ...], str]:
    """The readable certificates, and the first error of the others: a TPM may hold any data there, and not erasably."""
    if sum(len(data) for data in intermediates) > MAXIMUM_SENT_BYTES:
        raise CertificateUnreadable(f"The TPM's intermediate certificates are larger than {MAXIMUM_SENT_BYTES} bytes")
    found: list[Certificate] = []
    first_fault = ""
    for data in intermediates:
        read, unread = read_sequence(data, maximum_count=MAXIMUM_SENT_CERTIFICATES - len(found))
        found.extend(read)
        first_fault = first_fault or unread
    return tuple(found), first_fault


def _require_key(certificate: Certificate, endorsement_key: PublicKey) -> None:
    if not same_key(certificate.public_key, endorsement_key):
        raise EndorsementKeyMismatch(
            "The certificate is for another key than the TPM's endorsement key: it belongs to another TPM, or to "
            "another endorsement key of this one"
        )
    if endorsement_key.key_size > MAXIMUM_ENDORSEMENT_RSA_BITS:
        raise CertificateUnreadable(
            f"The endorsement key has more than {MAXIMUM_ENDORSEMENT_RSA_BITS} bits, which no TPM has"
        )


def _require_endorsement_use(certificate: Certificate) -> None:
    """TCG EK Credential Profile 2.6, 3.2, as far as genuine certificates follow it."""
    extensions = certificate.extensions
    if certificate.version != 3:
        raise NotAnEndorsementCertificate(
            f"The certificate is of X.509 version {certificate.version}; endorsement key certificates are of version 3"
        )
    if extensions.is_authority is True or (extensions.key_usage is not None and extensions.key_usage.key_cert_sign):
        raise NotAnEndorsementCertificate(
            f"The certificate is that of a certificate authority, not of an endorsement key: {certificate.subject.text}"
        )
    if extensions.unknown_critical:
        raise NotAnEndorsementCertificate(
            f"The certificate has an unknown critical extension: {extensions.unknown_critical[0]}"
        )
    _require_endorsement_purpose(extensions)
    if extensions.key_usage is not None:
        _require_key_establishment(extensions.key_usage, certificate)
    _require_mark(extensions)


def _require_mark(extensions: Extensions) -> None:
    """Something that only certificates of endorsement keys have. A root may also have certified web servers, whose
    certificates often name no purpose, and whose key usage is that of an endorsement key. Their keys are in files.
    """
    purposes = extensions.purposes or frozenset()
    named_tpm = extensions.tpm.manufacturer is not None or extensions.instance is not None
    if ENDORSEMENT_KEY_CERTIFICATE not in purposes and not named_tpm:
        raise NotAnEndorsementCertificate(
            "The certificate names neither the purpose of an endorsement key, nor a TPM manufacturer, nor a virtual "
            "machine of Google Cloud: nothing marks it as that of an endorsement key"
        )


def _require_endorsement_purpose(extensions: Extensions) -> None:
    """Google's and old Infineon's have no extended key usage; if present, it must allow endorsement keys."""
    purposes = extensions.purposes
    if purposes is None:
        return
    if ATTESTATION_KEY_CERTIFICATE in purposes:
        raise NotAnEndorsementCertificate("The certificate is that of an attestation key, not of an endorsement key")
    if purposes.isdisjoint({ENDORSEMENT_KEY_CERTIFICATE, ANY_EXTENDED_KEY_USAGE}):
        raise NotAnEndorsementCertificate(
            f"The certificate is for another purpose ({', '.join(sorted(purposes)[:3])}), not for an endorsement key"
        )


def _require_key_establishment(usage: KeyUsage, certificate: Certificate) -> None:
    """An endorsement key decrypts. Only this distinguishes Google's attestation key certificates from its EK ones.

    Further bits do not matter (`swtpm_setup --allow-signing` sets digitalSignature). The profile requires
    keyEncipherment for RSA keys and keyAgreement for elliptic ones. Intel's elliptic certificates have keyEncipherment,
    and Microsoft Pluton's RSA certificates have keyAgreement. An RSA key cannot agree on a key, so there the extended
    key usage must name endorsement keys.
    """
    if usage.key_encipherment:
        return
    if usage.key_agreement and (
        isinstance(certificate.public_key, ec.EllipticCurvePublicKey)
        or ENDORSEMENT_KEY_CERTIFICATE in (certificate.extensions.purposes or ())
    ):
        return
    if usage.digital_signature:
        raise NotAnEndorsementCertificate(
            "The certificate's key is for signing only, so it is that of an attestation key, not of an endorsement key"
        )
    raise NotAnEndorsementCertificate("The certificate's key usage does not fit an endorsement key")


def _require_valid(certificate: Certificate, at: datetime) -> None:
    if at < certificate.not_before:
        raise CertificateNotYetValid(
            f"The endorsement key certificate is not valid before {certificate.not_before:%Y-%m-%d}: check the "
            "controller's clock"
        )
    if at > certificate.not_after:
        raise CertificateExpired(f"The endorsement key certificate expired on {certificate.not_after:%Y-%m-%d}")
