"""Why an SSH authority cannot be read, or does not sign."""

from __future__ import annotations

from enum import StrEnum


class SSHAuthorityReason(StrEnum):
    """Stable CamelCase text for conditions, Events and messages."""

    MASTER_SECRET_INVALID = "MasterSecretInvalid"  # noqa: S105 - no password
    """The file is not the JSON of RFC 016, or the key in it is too short."""
    GENERATION_INVALID = "GenerationInvalid"
    INFO_INVALID = "InfoInvalid"
    SECRET_INVALID = "SecretInvalid"  # noqa: S105 - no password
    """The manifest is not that of a Secret with an SSH authority."""
    WRONG_AUTHORITY = "WrongAuthority"
    """The Secret holds an authority of another kind: a host authority does not sign users' certificates."""
    KEY_INVALID = "KeyInvalid"
    KEY_ENCRYPTED = "KeyEncrypted"
    KEY_UNSUPPORTED = "KeyUnsupported"
    KEY_MISMATCH = "KeyMismatch"
    """The private key is not that of the public key beside it."""
    SERIAL_INVALID = "SerialInvalid"
    NONCE_INVALID = "NonceInvalid"
    PRINCIPALS_MISSING = "PrincipalsMissing"
    LIFETIME_INVALID = "LifetimeInvalid"
    EXTENSION_NOT_ISSUED = "ExtensionNotIssued"
    """What no certificate permits here: agent and X11 forwarding, a login script, or a FIDO key without a touch."""
    SUBJECT_IS_AUTHORITY = "SubjectIsAuthority"
    """The key to be certified is the authority's own."""
    SELF_CHECK_FAILED = "SelfCheckFailed"
    """The new certificate does not read back as what was asked for. It is discarded."""


class SSHAuthorityRefused(Exception):
    """The authority cannot be read, or does not sign; the message says what to do. It never holds key material."""

    def __init__(self, reason: SSHAuthorityReason, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message
