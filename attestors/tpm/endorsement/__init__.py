"""Verification of endorsement key certificates: a manufacturer vouches for the endorsement key.

The entry point is `verify_endorsement_certificate`. It takes the operator's authorities as
`load_endorsement_authorities` parsed them, and returns a `VerifiedEndorsementCertificate` or raises a subclass of
`EndorsementCertificateRefused` (module `errors`).

    authorities = load_endorsement_authorities(roots=[roots_pem], intermediates=[intermediates_pem])
    verified = verify_endorsement_certificate(
        nv_content, endorsement_key=key, authorities=authorities, at=datetime.now(UTC), intermediates=[nv_chain]
    )

A certificate proves that the key belongs to some genuine TPM of the manufacturer, not which machine the TPM is in.
"""

from attestors.tpm.endorsement.authorities import EndorsementAuthorities, load_endorsement_authorities
from attestors.tpm.endorsement.chips import CHIP_PREFIX, Chip, ChipNamed, ChipNotNamed
from attestors.tpm.endorsement.errors import (
    AuthoritiesUnreadable,
    AuthorityMissing,
    AuthorityOutsideValidity,
    AuthorityRefused,
    CertificateExpired,
    CertificateNotYetValid,
    CertificateUnreadable,
    EndorsementCertificateRefused,
    EndorsementKeyMismatch,
    NotAnEndorsementCertificate,
    SearchExhausted,
    SignatureRefused,
)
from attestors.tpm.endorsement.verification import VerifiedEndorsementCertificate, verify_endorsement_certificate

__all__ = [
    "verify_endorsement_certificate",
    "VerifiedEndorsementCertificate",
    "load_endorsement_authorities",
    "CHIP_PREFIX",
    "Chip",
    "ChipNamed",
    "ChipNotNamed",
    "EndorsementAuthorities",
    "EndorsementCertificateRefused",
    "CertificateUnreadable",
    "NotAnEndorsementCertificate",
    "EndorsementKeyMismatch",
    "CertificateExpired",
    "CertificateNotYetValid",
    "AuthorityMissing",
    "AuthorityRefused",
    "AuthorityOutsideValidity",
    "SignatureRefused",
    "SearchExhausted",
    "AuthoritiesUnreadable",
]
