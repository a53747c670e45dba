"""Why an endorsement key certificate was refused: a closed tree, each with a sentence for a person.

    EndorsementCertificateRefused
    ├── CertificateUnreadable            not a certificate, malformed, too large, or of an unsupported key
    ├── NotAnEndorsementCertificate      a CA, an attestation key's certificate, or one for some other use
    ├── EndorsementKeyMismatch           the certificate is of another key
    ├── CertificateExpired               the endorsement key certificate has expired
    ├── CertificateNotYetValid           it is not valid yet, as far as our clock says
    ├── AuthorityMissing                 no issuer among the operator's authorities and the node's intermediates
    ├── AuthorityRefused                 there is an issuer, and it may not issue this
    │   └── AuthorityOutsideValidity     because it has expired or is not valid yet
    ├── SignatureRefused                 there is an issuer by that name, and its signature proves nothing
    └── SearchExhausted                  more candidates for the chain than anybody needs

`AuthoritiesUnreadable` stands apart: it is about the operator's configuration, before any node asks.
"""

from __future__ import annotations


class EndorsementCertificateRefused(Exception):
    """The certificate proves nothing about the endorsement key. The text says why."""


class CertificateUnreadable(EndorsementCertificateRefused):
    """Malformed beyond the leniency that manufacturers' certificates need, out of bounds, or of an unsupported key."""


class NotAnEndorsementCertificate(EndorsementCertificateRefused):
    """A certificate that was issued for something else."""


class EndorsementKeyMismatch(EndorsementCertificateRefused):
    """The certified key is not the endorsement key."""


class CertificateExpired(EndorsementCertificateRefused):
    """The endorsement key certificate has expired."""


class CertificateNotYetValid(EndorsementCertificateRefused):
    """The endorsement key certificate is not valid yet. It will be; or it is, and our clock is behind."""


class AuthorityMissing(EndorsementCertificateRefused):
    """Nobody configured, and nobody sent, the certificate of the issuer."""

    def __init__(self, message: str, *, issuer: str, key_identifier: str | None, location: str | None) -> None:
        super().__init__(message)
        self.issuer = issuer
        """The missing authority's name."""
        self.key_identifier = key_identifier
        """Hexadecimal; None where the certificate does not name one."""
        self.location = location
        """Where the certificate itself says that its issuer's can be had. A hint only: nothing has vouched for it."""

    def without(self, unread: str) -> AuthorityMissing:
        """The same, where the TPM may have sent it in certificates that cannot be read."""
        return AuthorityMissing(
            f"The TPM's intermediate certificates cannot be read: {unread}. {self}",
            issuer=self.issuer,
            key_identifier=self.key_identifier,
            location=self.location,
        )


class AuthorityRefused(EndorsementCertificateRefused):
    """The issuer is no certificate authority, or not one for a chain like this."""


class AuthorityOutsideValidity(AuthorityRefused):
    """An issuer has expired or is not valid yet."""


class SignatureRefused(EndorsementCertificateRefused):
    """The signature does not verify, or is made with an algorithm that proves nothing today."""


class SearchExhausted(EndorsementCertificateRefused):
    """The search for a chain was ended at its bound."""


class AuthoritiesUnreadable(ValueError):
    """The operator's endorsement authorities cannot be used as they are; the text names which and why."""
