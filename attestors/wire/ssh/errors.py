"""Why bytes or a value of SSH are refused."""

from __future__ import annotations

import enum


class SSHReason(enum.StrEnum):
    """Why a value is refused. Stable: commands print it and tests compare it."""

    MALFORMED = "Malformed"
    """The bytes end early, or a field is not of its form."""
    TRAILING_BYTES = "TrailingBytes"
    TOO_LARGE = "TooLarge"
    NOT_CANONICAL = "NotCanonical"
    """Another encoding of the same value exists, and that one is the only one accepted."""

    KEY_TYPE_UNSUPPORTED = "KeyTypeUnsupported"
    KEY_TOO_WEAK = "KeyTooWeak"
    KEY_INVALID = "KeyInvalid"
    SECURITY_KEY_NOT_ALLOWED = "SecurityKeyNotAllowed"
    """A FIDO key, which signs only when a person touches it, where a host must sign."""
    KEY_LINE_HAS_OPTIONS = "KeyLineHasOptions"
    KEY_LINE_HAS_COMMENT = "KeyLineHasComment"
    KEY_LINE_HAS_SEVERAL_LINES = "KeyLineHasSeveralLines"
    KEY_LINE_TYPE_MISMATCH = "KeyLineTypeMismatch"
    """The word before the Base64 is not the type inside it."""
    KEY_LINE_MALFORMED = "KeyLineMalformed"

    PRINCIPAL_INVALID = "PrincipalInvalid"
    PRINCIPALS_REPEATED = "PrincipalsRepeated"
    TOO_MANY_PRINCIPALS = "TooManyPrincipals"
    KEY_ID_INVALID = "KeyIDInvalid"
    VALIDITY_INVALID = "ValidityInvalid"
    OPTION_UNKNOWN = "OptionUnknown"
    OPTION_INVALID = "OptionInvalid"
    OPTIONS_NOT_SORTED = "OptionsNotSorted"
    CERTIFICATE_KIND_UNKNOWN = "CertificateKindUnknown"

    SIGNATURE_ALGORITHM_UNSUPPORTED = "SignatureAlgorithmUnsupported"
    BAD_SIGNATURE = "BadSignature"
    SIGNED_BY_ANOTHER_KEY = "SignedByAnotherKey"
    WRONG_NAMESPACE = "WrongNamespace"
    """The signature was made for another use."""
    USER_NOT_PRESENT = "UserNotPresent"
    """A FIDO key signed without a touch."""

    SERIAL_ZERO = "SerialZero"
    SERIAL_RANGE_INVALID = "SerialRangeInvalid"
    REVOCATION_SECTION_UNSUPPORTED = "RevocationSectionUnsupported"
    REVOKED = "Revoked"


class SSHRefused(ValueError):
    """A value is refused; the message names what is wrong, and what to do where that is not obvious."""

    def __init__(self, reason: SSHReason, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


def malformed(message: str) -> SSHRefused:
    """The commonest refusal."""
    return SSHRefused(SSHReason.MALFORMED, message)
