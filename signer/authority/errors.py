"""Everything the certificate authority can say no with.

::

    AuthorityError
    ├── CertificateAuthorityUnavailable   the cluster's CA cannot sign now; nothing about any one request
    └── IssuanceRefused                   this one certificate must not be made

Both carry a ``reason`` from a closed enumeration (stable CamelCase text, fit for conditions, Events and metric labels)
and a ``message`` for the operator. Messages name the Secret's key that is wrong and what to do; they never hold key
material or text that a node or tenant chose, save for what has been parsed and bounded before.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = [
    "AuthorityError",
    "CertificateAuthorityUnavailable",
    "CertificateAuthorityUnavailableReason",
    "IssuanceRefused",
    "IssuanceRefusedReason",
]


class CertificateAuthorityUnavailableReason(StrEnum):
    """Why a cluster's CA cannot sign."""

    CERTIFICATE_MISSING = "CertificateAuthorityCertificateMissing"
    """``tls.crt`` is absent or empty."""
    KEY_MISSING = "CertificateAuthorityKeyMissing"
    """``tls.key`` is absent or empty: a managed or foreign control plane, whose certificates somebody else signs."""
    INVALID = "CertificateAuthorityInvalid"
    """``tls.crt`` cannot be read, or not to the letter."""
    NOT_AN_AUTHORITY = "CertificateAuthorityNotAnAuthority"
    """The first certificate of ``tls.crt`` may not sign certificates."""
    KEY_INVALID = "CertificateAuthorityKeyInvalid"
    """``tls.key`` cannot be read."""
    KEY_ENCRYPTED = "CertificateAuthorityKeyEncrypted"
    """``tls.key`` is protected by a passphrase."""
    KEY_UNSUPPORTED = "CertificateAuthorityKeyUnsupported"
    """Neither RSA up to 4096 bits nor ECDSA on P-256, P-384 or P-521."""
    KEY_WEAK = "CertificateAuthorityKeyWeak"
    """RSA below 2048 bits."""
    KEY_MISMATCH = "CertificateAuthorityKeyMismatch"
    """``tls.key`` belongs to another certificate than the first one of ``tls.crt``."""
    EXPIRED = "CertificateAuthorityExpired"
    EXPIRING = "CertificateAuthorityExpiring"
    """Less than ten minutes left: the shortest certificate that Kubernetes knows no longer fits in."""
    NOT_YET_VALID = "CertificateAuthorityNotYetValid"


class IssuanceRefusedReason(StrEnum):
    """Why one certificate is not made."""

    SUBJECT_INVALID = "SubjectInvalid"
    PUBLIC_KEY_UNSUPPORTED = "PublicKeyUnsupported"
    USAGES_INVALID = "UsagesInvalid"
    SUBJECT_ALTERNATIVE_NAMES_INVALID = "SubjectAlternativeNamesInvalid"
    SERIAL_NUMBER_INVALID = "SerialNumberInvalid"
    VALIDITY_INVALID = "ValidityInvalid"
    EXPIRATION_TOO_SHORT = "ExpirationTooShort"
    OUTSIDE_AUTHORITY_VALIDITY = "OutsideAuthorityValidity"
    """The journalled validity does not fit the CA that would sign today, as after a change of CA: plan it afresh."""
    USAGE_NOT_PERMITTED_BY_AUTHORITY = "UsageNotPermittedByAuthority"
    """The CA certificate's own extended key usage excludes what the certificate is for."""
    KEY_WITHHELD = "KeyWithheld"
    """The CA's private key is not here: what explains decisions has its certificate only."""
    SELF_CHECK_FAILED = "SelfCheckFailed"
    """What came out is not what was asked for, or its signature does not verify. It is thrown away."""


class AuthorityError(Exception):
    """Base of both errors."""

    reason: CertificateAuthorityUnavailableReason | IssuanceRefusedReason
    message: str


class CertificateAuthorityUnavailable(AuthorityError):
    """The CA of a workload cluster cannot sign as it stands. Never the fault of a request: defer, do not deny."""

    reason: CertificateAuthorityUnavailableReason

    def __init__(self, reason: CertificateAuthorityUnavailableReason, message: str) -> None:
        super().__init__(f"{reason.value}: {message}")
        self.reason = reason
        self.message = message


class IssuanceRefused(AuthorityError):
    """A certificate that must not be made."""

    reason: IssuanceRefusedReason

    def __init__(self, reason: IssuanceRefusedReason, message: str) -> None:
        super().__init__(f"{reason.value}: {message}")
        self.reason = reason
        self.message = message
