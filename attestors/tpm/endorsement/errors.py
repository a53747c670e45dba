"""Errors that refuse an endorsement key certificate: a closed tree, each with a message for a person.

    EndorsementCertificateRefused
    ├── CertificateUnreadable            not a certificate, malformed, too large, or of an unsupported key
    ├── NotAnEndorsementCertificate      a CA's or an attestation key's certificate, or one for another use
    ├── EndorsementKeyMismatch           the certificate is for another key
    ├── CertificateExpired               the endorsement key certificate has expired
    ├── CertificateNotYetValid           it is not valid yet, by the controller's clock
    ├── AuthorityMissing                 no issuer among the operator's authorities and the node's intermediates
    ├── AuthorityRefused                 an issuer exists but may not issue this certificate
    │   └── AuthorityOutsideValidity     because it has expired or is not valid yet
    ├── SignatureRefused                 an issuer with that name exists, but its signature does not verify
    └── SearchExhausted                  too many candidates for the chain

`AuthoritiesUnreadable` is separate: it concerns the operator's configuration, before any request.
"""

from __future__ import annotations


class EndorsementCertificateRefused(Exception):
    """The certificate proves nothing about the endorsement key. The message says why."""


class CertificateUnreadable(EndorsementCertificateRefused):
    """Malformed beyond what genuine certificates need, out of bounds, or with an unsupported key."""


class NotAnEndorsementCertificate(EndorsementCertificateRefused):
    """The certificate was issued for another use."""


class EndorsementKeyMismatch(EndorsementCertificateRefused):
    """The certified key is not the endorsement key."""


class CertificateExpired(EndorsementCertificateRefused):
    """The endorsement key certificate has expired."""


class CertificateNotYetValid(EndorsementCertificateRefused):
    """The endorsement key certificate is not valid yet, or the controller's clock is behind."""


class AuthorityMissing(EndorsementCertificateRefused):
    """The certificate of the issuer was neither configured nor sent."""

    def __init__(self, message: str, *, issuer: str, key_identifier: str | None, location: str | None) -> None:
        super().__init__(message)
        self.issuer = issuer
        """The missing authority's name."""
        self.key_identifier = key_identifier
        """Hexadecimal; None if the certificate names none."""
        self.location = location
        """URL of the issuer's certificate according to the certificate. An unverified hint."""

    def without(self, unread: str) -> AuthorityMissing:
        """This error, extended by the fact that the TPM's own intermediate certificates are unreadable."""
        return AuthorityMissing(
            f"The TPM's intermediate certificates cannot be read: {unread}. {self}",
            issuer=self.issuer,
            key_identifier=self.key_identifier,
            location=self.location,
        )


class AuthorityRefused(EndorsementCertificateRefused):
    """The issuer is not a certificate authority, or not one for such a chain."""


class AuthorityOutsideValidity(AuthorityRefused):
    """An issuer has expired or is not valid yet."""


class SignatureRefused(EndorsementCertificateRefused):
    """The signature does not verify, or its algorithm is not accepted."""


class SearchExhausted(EndorsementCertificateRefused):
    """The search for a chain reached its bound."""


class AuthoritiesUnreadable(ValueError):
    """The operator's endorsement authorities cannot be used; the message names the file and the error."""
