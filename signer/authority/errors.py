"""Errors of the certificate authority.

::

    AuthorityError
    ├── CertificateAuthorityUnavailable   the cluster's CA cannot sign now, whatever the request
    └── IssuanceRefused                   this one certificate must not be issued

Both have a ``reason`` from a closed enumeration (stable CamelCase text for conditions, Events and metric labels) and a
``message`` for the operator. Messages name the wrong key of the Secret and the remedy. They never hold key material,
nor text that a node or tenant chose, unless it has been parsed and limited before.
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
    """``tls.key`` is absent or empty, as with a managed or external control plane, which signs by itself."""
    INVALID = "CertificateAuthorityInvalid"
    """``tls.crt`` is malformed."""
    NOT_AN_AUTHORITY = "CertificateAuthorityNotAnAuthority"
    """The first certificate of ``tls.crt`` may not sign certificates."""
    KEY_INVALID = "CertificateAuthorityKeyInvalid"
    """``tls.key`` cannot be read."""
    KEY_ENCRYPTED = "CertificateAuthorityKeyEncrypted"
    """``tls.key`` is protected by a passphrase."""
    KEY_UNSUPPORTED = "CertificateAuthorityKeyUnsupported"
    """The key is neither RSA up to 4096 bits nor ECDSA on P-256, P-384 or P-521."""
    KEY_WEAK = "CertificateAuthorityKeyWeak"
    """The key is RSA below 2048 bits."""
    KEY_MISMATCH = "CertificateAuthorityKeyMismatch"
    """``tls.key`` belongs to another certificate than the first one of ``tls.crt``."""
    EXPIRED = "CertificateAuthorityExpired"
    EXPIRING = "CertificateAuthorityExpiring"
    """The CA expires in less than ten minutes, the shortest lifetime of a certificate in Kubernetes."""
    NOT_YET_VALID = "CertificateAuthorityNotYetValid"


class IssuanceRefusedReason(StrEnum):
    """Why one certificate is not issued."""

    SUBJECT_INVALID = "SubjectInvalid"
    PUBLIC_KEY_UNSUPPORTED = "PublicKeyUnsupported"
    USAGES_INVALID = "UsagesInvalid"
    SUBJECT_ALTERNATIVE_NAMES_INVALID = "SubjectAlternativeNamesInvalid"
    SERIAL_NUMBER_INVALID = "SerialNumberInvalid"
    VALIDITY_INVALID = "ValidityInvalid"
    EXPIRATION_TOO_SHORT = "ExpirationTooShort"
    OUTSIDE_AUTHORITY_VALIDITY = "OutsideAuthorityValidity"
    """The journaled validity does not fit the CA that would sign now, as after a change of CA: plan it again."""
    USAGE_NOT_PERMITTED_BY_AUTHORITY = "UsageNotPermittedByAuthority"
    """The CA certificate's own extended key usage excludes the certificate's."""
    KEY_WITHHELD = "KeyWithheld"
    """The CA was loaded without its private key, as ``explain`` does."""
    SELF_CHECK_FAILED = "SelfCheckFailed"
    """The new certificate differs from the request, or its signature does not verify. It is discarded."""


class AuthorityError(Exception):
    """Base of both errors."""

    reason: CertificateAuthorityUnavailableReason | IssuanceRefusedReason
    message: str


class CertificateAuthorityUnavailable(AuthorityError):
    """The CA of a workload cluster cannot sign now. It is never the fault of a request: defer, do not deny."""

    reason: CertificateAuthorityUnavailableReason

    def __init__(self, reason: CertificateAuthorityUnavailableReason, message: str) -> None:
        super().__init__(f"{reason.value}: {message}")
        self.reason = reason
        self.message = message


class IssuanceRefused(AuthorityError):
    """The certificate must not be issued."""

    reason: IssuanceRefusedReason

    def __init__(self, reason: IssuanceRefusedReason, message: str) -> None:
        super().__init__(f"{reason.value}: {message}")
        self.reason = reason
        self.message = message
