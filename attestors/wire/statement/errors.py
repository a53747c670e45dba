"""Why a statement does not count."""

from __future__ import annotations

import enum


class MalformedStatement(ValueError):
    """The bytes are not a statement; the message names the field and the error."""


class UnsupportedStatement(ValueError):
    """The version or the kind is unknown here: a newer controller wrote it. Nothing else was read."""


class StatementReason(enum.StrEnum):
    """Why a node refuses a well-formed statement. Stable: ``kubelet-authenticator status`` shows it."""

    WRONG_KIND = "WrongKind"
    WRONG_CLUSTER = "WrongCluster"
    REPLAYED = "Replayed"
    """Its sequence is not greater than that of the last accepted statement."""
    NOT_YET_VALID = "NotYetValid"
    EXPIRED = "Expired"
    BAD_BUNDLE = "BadBundle"
    """A certificate in the bundle is no valid CA of an accepted kind."""
    BAD_REVOCATION_LIST = "BadRevocationList"
    """sshd would not read it, or it is of another version than the statement."""
    BAD_SIGNATURE = "BadSignature"
    """A signature of a key that matters does not verify."""
    NOT_SIGNED_BY_TRUSTED_CA = "NotSignedByTrustedCA"
    NOT_SIGNED_BY_NEW_CA = "NotSignedByNewCA"
    """A CA in the bundle that the node does not trust yet has not signed."""
    NOT_SIGNED_BY_CONTROLLER = "NotSignedByController"
    """No controller key that the node pinned has signed."""
    NOT_PINNED = "NotPinned"
    """The node has pinned no controller key, and the kind counts only with one."""
    NOT_SIGNED_BY_NEW_CONTROLLER_KEY = "NotSignedByNewControllerKey"
    """A controller key that the statement lists has not signed."""


class StatementRefused(Exception):
    """A well-formed statement does not count for this node."""

    def __init__(self, reason: StatementReason, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
