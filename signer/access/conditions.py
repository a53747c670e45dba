"""Conditions of an AccessGrant, and their reasons. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from signer.access.record import Cause
from signer.model.decision import printable
from signer.model.fields import format_time, text_of


class GrantCondition(StrEnum):
    """The types, in the order in which they are shown."""

    READY = "Ready"
    CREATOR_PROVEN = "CreatorProven"
    AUTHORIZED = "Authorized"
    APPROVED = "Approved"
    BASTION_READY = "BastionReady"
    SESSIONS_TERMINATED = "SessionsTerminated"


class GrantReason(StrEnum):
    """Reasons of conditions besides those of :class:`~signer.access.record.Cause`. docs/troubleshooting.md has a
    heading for each that people can mend.
    """

    ISSUED = "CertificatesIssued"
    SEALED = "Sealed"
    ALLOWED = "Allowed"
    ENOUGH_APPROVALS = "EnoughApprovals"
    RECONCILED = "SuccessfullyReconciled"
    """GEP-0015's, of BastionReady."""
    BASTION_NOT_NEEDED = "NotNeeded"
    NOT_REACHED = "NotReached"
    """An earlier check has not passed."""
    NOT_ENDED = "NotEnded"
    CLOCKS_DIFFER = "ClocksDiffer"
    """Or the API server's clock is not known."""
    CLUSTER_PAUSED = "ClusterPaused"
    POLICY_UNREADABLE = "PolicyUnreadable"
    INVALID = "Invalid"
    FORBIDDEN = "ForbiddenByPolicy"
    SPEC_CHANGED = "SpecChanged"
    CREATOR_NOT_PROTECTED = "CreatorNotProtected"
    CREATOR_NOT_PROVEN = "CreatorNotProven"
    RIGHT_MISSING = "RightMissing"
    APPROVALS_MISSING = "ApprovalsMissing"
    APPROVALS_UNKNOWN = "ApprovalsUnknown"
    """The controller does not keep them: the namespace has too many."""
    TARGETS_UNKNOWN = "TargetsUnknown"
    AUTHORITY_NOT_AVAILABLE = "AuthorityNotAvailable"
    BASTION_PENDING = "BastionPending"
    BASTION_FAILED = "FailedReconciling"
    """GEP-0015's, of BastionReady."""
    BASTION_DELETION = "DeletionInProgress"
    """GEP-0015's, of BastionReady."""
    REVOKING = "Revoking"
    PUBLISHING = "Publishing"
    TERMINATED = "Terminated"


MAXIMUM_MESSAGE: Final = 512


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition to be written."""

    type: GrantCondition
    status: str
    """``True``, ``False`` or ``Unknown``."""
    reason: str
    message: str
    """As it is written: a longer one would differ from that in the status at each look."""


def met(kind: GrantCondition, reason: GrantReason | Cause, message: str) -> Condition:
    """The condition holds."""
    return Condition(kind, "True", reason.value, printable(message)[:MAXIMUM_MESSAGE])


def unmet(kind: GrantCondition, reason: GrantReason | Cause | str, message: str) -> Condition:
    """The condition does not hold."""
    return Condition(kind, "False", str(getattr(reason, "value", reason)), printable(message)[:MAXIMUM_MESSAGE])


def unknown(kind: GrantCondition, reason: GrantReason | Cause, message: str) -> Condition:
    """Nobody knows."""
    return Condition(kind, "Unknown", reason.value, printable(message)[:MAXIMUM_MESSAGE])


def condition_objects(
    wanted: Sequence[Condition], present: Mapping[str, Mapping[str, Any]], generation: int, now: datetime
) -> list[dict[str, Any]]:
    """``status.conditions``. The time of transition is kept while the status is the same."""
    found = []
    for one in sorted(wanted, key=lambda condition: list(GrantCondition).index(condition.type)):
        before = present.get(one.type.value, {})
        since = text_of(before, "lastTransitionTime") if before.get("status") == one.status else ""
        found.append(
            {
                "type": one.type.value,
                "status": one.status,
                "reason": one.reason,
                "message": one.message,
                "lastTransitionTime": since or format_time(now),
                "observedGeneration": generation,
            }
        )
    return found


__all__ = ["Condition", "GrantCondition", "GrantReason", "condition_objects", "met", "unknown", "unmet"]
