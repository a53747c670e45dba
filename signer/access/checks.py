"""The checks of a grant, in their order. Pure.

Each passes, holds the grant (:class:`Held`: nothing is issued now), or ends it (:class:`Ended`). What ends a grant does
so whether or not an earlier check holds it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from signer.access.approvals import (
    ApprovalsMissing,
    DeniedByPerson,
    JudgedApproval,
    Tally,
    authentic,
    tally,
)
from signer.access.bastion_objects import has_bastion_targets
from signer.access.conditions import GrantCondition, GrantReason
from signer.access.creator import CreatorNotProven, require_lock
from signer.access.facts import (
    ApprovalsUnknown,
    ClusterOver,
    ClusterPaused,
    Facts,
    GrantForbidden,
    GrantRules,
    GrantsNotAllowed,
    RulesUnknown,
)
from signer.access.lifetimes import DurationOver, HeartbeatMissing, life_state
from signer.access.parts import (
    AbsentBastion,
    BrokenBastion,
    PendingBastion,
    TargetsFound,
    TargetsGone,
    TargetsUnknown,
)
from signer.access.record import Cause, GrantRecord
from signer.access.right_answers import LONGEST_WITHOUT_ANSWER, Denied, RightUnknown
from signer.kube.clocks import ClocksAgree
from signer.model.access import BastionOf, Decision, InvalidAccessGrant


class Held(Exception):
    """Nothing is issued now."""

    def __init__(self, reason: GrantReason, message: str, *, is_known: bool = True) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.is_known = is_known
        """False: the condition is Unknown, not False."""


class Ended(Exception):
    """The grant ends, or pauses."""

    def __init__(self, cause: Cause, message: str) -> None:
        super().__init__(message)
        self.cause = cause
        self.message = message


class BastionMissing(Held):
    """The Bastion is to be made, or changed."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check, and the condition that its failure shows."""

    run: Callable[[Facts, GrantRecord], None]
    condition: GrantCondition = GrantCondition.READY


def cluster_issues(facts: Facts) -> None:
    """The Cluster exists, is not paused and not in deletion."""
    match facts.cluster:
        case ClusterOver(message):
            raise Ended(Cause.CLUSTER_GONE, message)
        case ClusterPaused():
            raise Held(GrantReason.CLUSTER_PAUSED, "the Cluster is paused")


def grants_are_allowed(facts: Facts) -> None:
    """Policy and operator allow grants for the cluster."""
    match facts.rules:
        case GrantsNotAllowed(message):
            raise Ended(Cause.NOT_ALLOWED, message)
        case RulesUnknown(message):
            raise Held(GrantReason.POLICY_UNREADABLE, message, is_known=False)


def grant_is_valid(facts: Facts) -> None:
    """The object is valid by schema and policy."""
    if isinstance(facts.grant, InvalidAccessGrant):
        raise Held(GrantReason.INVALID, str(facts.grant))
    if isinstance(facts.rules, GrantForbidden):
        raise Held(GrantReason.FORBIDDEN, facts.rules.message)


def clocks_agree(facts: Facts) -> None:
    """The controller's clock is the API server's: certificates and ends by time follow from it."""
    if not isinstance(facts.clocks, ClocksAgree):
        raise Held(
            GrantReason.CLOCKS_DIFFER,
            f"{facts.clocks.message}; until then grants get no certificates, and none ends by time",
        )


def spec_is_sealed_one(facts: Facts, record: GrantRecord) -> None:
    """The immutable part of the spec, the creator in it, is what it was at first sight."""
    grant = facts.grant
    if not isinstance(grant, InvalidAccessGrant) and grant.digest != record.spec_digest:
        raise Held(GrantReason.SPEC_CHANGED, "the spec is not what it was at first sight; make another grant")


def creators_are_proven(facts: Facts) -> None:
    """Admission keeps people from speaking in each other's name."""
    try:
        require_lock(facts.lock)
    except CreatorNotProven as error:
        raise Held(GrantReason.CREATOR_NOT_PROTECTED, str(error)) from error


def creator_has_right(facts: Facts) -> None:
    """The sealed creator may use every login."""
    match facts.right:
        case Denied(message):
            raise Ended(Cause.RIGHT_LOST, message)
        case RightUnknown(message, seconds):
            if timedelta(seconds=seconds) >= LONGEST_WITHOUT_ANSWER:
                raise Ended(Cause.RIGHT_UNKNOWN, message)
            raise Held(GrantReason.RIGHT_MISSING, message, is_known=False)


_NOT_REVIEWED: Final = Denied("it was not reviewed")


def tally_of(facts: Facts, record: GrantRecord) -> Tally:
    """What persons say about the grant. A denial is sealed once its creator's right is known; until then it holds.

    Raises:
        Held: what they say is not known.
    """
    if isinstance(facts.approvals, ApprovalsUnknown):
        raise Held(GrantReason.APPROVALS_UNKNOWN, facts.approvals.message, is_known=False)
    rights = {one.metadata.uid: facts.approvers.get(one.metadata.uid, _NOT_REVIEWED) for one in facts.known_approvals}
    sealed = authentic(facts.known_approvals, record.approvals)
    waiting = (
        one
        for one in facts.known_approvals
        if one.decision is Decision.DENY and isinstance(rights[one.metadata.uid], RightUnknown) and one not in sealed
    )
    judged = tuple(JudgedApproval(one, rights[one.metadata.uid]) for one in (*sealed, *waiting))
    required = facts.rules.required_approvals if isinstance(facts.rules, GrantRules) else 0
    return tally(record.creator, judged, required)


def others_approve(facts: Facts, record: GrantRecord) -> None:
    """As many persons approve as policy and operator require, and none who may denies. Where approvals are not known,
    somebody may deny the grant, also one that needs none.
    """
    match tally_of(facts, record):
        case DeniedByPerson(username):
            raise Ended(Cause.DENIED, f"{username} denies the grant")
        case ApprovalsMissing(message):
            raise Held(GrantReason.APPROVALS_MISSING, message)


def grant_lives(facts: Facts, record: GrantRecord) -> None:
    """Heartbeats come in time, and the duration is not over."""
    clocks_agree(facts)
    match life_state(facts.lifetime, record.heartbeat, facts.now):
        case HeartbeatMissing():
            raise Ended(Cause.HEARTBEAT_MISSING, "no heartbeat came in time")
        case DurationOver():
            raise Ended(Cause.DURATION_OVER, "the grant has lived for its duration")


def nobody_suspends(facts: Facts, record: GrantRecord) -> None:
    """The grant is not suspended."""
    if record.is_suspended:
        raise Ended(Cause.SUSPENDED, "spec.suspend is set")


def targets_exist(facts: Facts) -> None:
    """A node that the grant names is there."""
    match facts.targets:
        case TargetsGone(message):
            raise Ended(Cause.TARGETS_GONE, message)
        case TargetsUnknown(message):
            raise Held(GrantReason.TARGETS_UNKNOWN, message)


def authority_is_available(facts: Facts) -> None:
    """The cluster's user authority can sign."""
    if not facts.authority:
        raise Held(GrantReason.AUTHORITY_NOT_AVAILABLE, "the cluster has no SSH user authority that signs now")


def needs_bastion(facts: Facts) -> bool:
    """Whether the person reaches the nodes by a bastion."""
    return isinstance(facts.rules, GrantRules) and isinstance(facts.rules.bastion, BastionOf)


def bastion_is_ready(facts: Facts) -> None:
    """The bastion, if there is to be one, lets the creator's networks in."""
    if not needs_bastion(facts):
        return
    if facts.is_bastion_deleting:
        raise Held(GrantReason.BASTION_DELETION, "a former bastion is being removed")
    if isinstance(facts.targets, TargetsFound) and not has_bastion_targets(facts.targets.nodes):
        message = "no Machine of the grant's nodes shows an IP address, which a bastion needs"
        raise Held(GrantReason.TARGETS_UNKNOWN, message)
    if isinstance(facts.bastion, AbsentBastion) or not facts.is_bastion_current:
        raise BastionMissing(GrantReason.BASTION_PENDING, "the bastion is to be made")
    match facts.bastion:
        case PendingBastion(message):
            raise Held(GrantReason.BASTION_PENDING, message)
        case BrokenBastion(message):
            raise Held(GrantReason.BASTION_FAILED, message)


def _of_facts(check: Callable[[Facts], None]) -> Callable[[Facts, GrantRecord], None]:
    def run(facts: Facts, record: GrantRecord) -> None:
        del record
        check(facts)

    run.__name__, run.__doc__ = check.__name__, check.__doc__
    return run


BEFORE_SEALING: Final = (
    Check(_of_facts(cluster_issues)),
    Check(_of_facts(grants_are_allowed)),
    Check(_of_facts(grant_is_valid)),
    Check(_of_facts(clocks_agree)),
)
"""What must pass before the creator is sealed."""
CHECKS: Final = (
    *BEFORE_SEALING,
    Check(spec_is_sealed_one),
    Check(_of_facts(creators_are_proven), GrantCondition.CREATOR_PROVEN),
    Check(_of_facts(creator_has_right), GrantCondition.AUTHORIZED),
    Check(others_approve, GrantCondition.APPROVED),
    Check(grant_lives),
    Check(nobody_suspends),
    Check(_of_facts(targets_exist)),
    Check(_of_facts(authority_is_available)),
    Check(_of_facts(bastion_is_ready), GrantCondition.BASTION_READY),
)
"""All of them, in order."""
_BASTION_AND_BEHIND: Final = len(CHECKS) - 3


@dataclass(frozen=True, slots=True)
class Passed:
    """Every check passes."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The first check that does not pass, and the first that ends the grant."""

    index: int
    first: Held | Ended
    end: Ended | None
    """Also of a check behind the first that does not pass."""


Outcome = Passed | Stopped


def run_grant_checks(facts: Facts, record: GrantRecord, checks: tuple[Check, ...] = CHECKS) -> Outcome:
    """Run all of them."""
    first: tuple[int, Held | Ended] | None = None
    end: Ended | None = None
    for index, check in enumerate(checks):
        try:
            check.run(facts, record)
        except Held as held:
            first = first or (index, held)
        except Ended as ended:
            first = first or (index, ended)
            end = end or ended
    return Passed() if first is None else Stopped(first[0], first[1], end)


def lets_grant_return(outcome: Outcome) -> bool:
    """Whether a paused grant may go on: everything passes up to the checks of targets, authority and bastion."""
    return isinstance(outcome, Passed) or (outcome.end is None and outcome.index >= _BASTION_AND_BEHIND)


__all__ = [
    "BEFORE_SEALING",
    "CHECKS",
    "BastionMissing",
    "Check",
    "Ended",
    "Held",
    "Outcome",
    "Passed",
    "Stopped",
    "lets_grant_return",
    "needs_bastion",
    "run_grant_checks",
    "tally_of",
]
