"""Endorsement key certificates: does a manufacturer vouch for this endorsement key?

The entry point is `verify_endorsement_certificate`; it takes the operator's authorities as
`load_endorsement_authorities` read them, and returns a `VerifiedEndorsementCertificate` or raises one of the closed
tree under `EndorsementCertificateRefused` (module `errors`).

    authorities = load_endorsement_authorities(roots=[roots_pem], intermediates=[intermediates_pem])
    verified = verify_endorsement_certificate(
        nv_content, endorsement_key=key, authorities=authorities, at=datetime.now(UTC), intermediates=[nv_chain]
    )

A certificate says "some genuine TPM of this manufacturer", and never which machine it is in.
"""

from attestors.tpm.endorsement.authorities import EndorsementAuthorities, load_endorsement_authorities
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
