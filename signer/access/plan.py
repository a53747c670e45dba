"""The next move for a grant: facts in, exactly one move of a closed set out. Pure.

Live, the grant runs through the checks of :mod:`signer.access.checks`. Its end has an order that never varies, so that
a controller that dies anywhere finds its place in the sealed record: closing is sealed, key ids are revoked, nodes know
(or every certificate has ended) and the bastion is gone, sessions are reported terminated, the finalizer goes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from attestors.wire.ssh.errors import SSHRefused
from signer.access.checks import (
    BEFORE_SEALING,
    CHECKS,
    BastionMissing,
    Ended,
    Held,
    Stopped,
    lets_grant_return,
    needs_bastion,
    run_grant_checks,
)
from signer.access.conditions import Condition, GrantCondition, GrantReason, met, unknown, unmet
from signer.access.creator import CreatorNotProven, prove_creator, require_lock
from signer.access.facts import ClusterOver, Facts, GrantRules, Keepalive
from signer.access.lifetimes import (
    MINIMUM_CERTIFICATE_DURATION,
    Alive,
    certificate_lifetime,
    expiration,
    first_created,
    life_state,
)
from signer.access.observing import first_record, has_waiting_heartbeat, heartbeat_counts_from, observed
from signer.access.parts import (
    AbsentBastion,
    HopRequest,
    IssuanceFacts,
    NoBastion,
    Publication,
    ReadyBastion,
    TargetsFound,
)
from signer.access.record import (
    MAXIMUM_EPOCH,
    BrokenRecord,
    Cause,
    Closing,
    GrantRecord,
    Live,
    NoCertificate,
    NoRecord,
    Seen,
    Stage,
    content_of,
    digest_of,
)
from signer.access.right_answers import Allowed
from signer.kube.clocks import latest
from signer.model.access import AccessGrant, AsPolicySays, Creator

_NEVER: Final = datetime.max.replace(tzinfo=UTC)
LONGEST_CERTIFICATE: Final = timedelta(hours=1)
PUBLICATION_POLL: Final = timedelta(seconds=5)
KEY_POLL: Final = timedelta(seconds=10)
HELD_POLL: Final = timedelta(seconds=15)
"""Between looks at a grant that waits for something of which nothing tells: a node's first attestation, an answer about
a right, the trial of the creator lock, the SSH authorities."""
_UNTOLD: Final = frozenset(
    {
        GrantReason.TARGETS_UNKNOWN,
        GrantReason.RIGHT_MISSING,
        GrantReason.CREATOR_NOT_PROTECTED,
        GrantReason.AUTHORITY_NOT_AVAILABLE,
    }
)
BASTION_PATIENCE: Final = timedelta(minutes=10)
"""How long the end of a grant without living certificates waits for its bastion. The Bastion has a finalizer of its
own, so its controller goes on."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing but the conditions, if they changed."""


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Take care of the object: finalizer, and the Cluster as owner."""


@dataclass(frozen=True, slots=True)
class WriteRecord:
    """Seal and write the step's record."""


@dataclass(frozen=True, slots=True)
class Issue:
    """Sign these certificates, and write them together with the step's record and their entries."""

    requests: tuple[HopRequest, ...]
    facts: IssuanceFacts


@dataclass(frozen=True, slots=True)
class MakeBastion:
    """Create the Bastion, or change it to what it should be."""


@dataclass(frozen=True, slots=True)
class RemoveKeepalive:
    """Remove GEP-0015's annotation. ``counts``: as a heartbeat."""

    counts: bool


@dataclass(frozen=True, slots=True)
class Revoke:
    """Have the key ids revoked, and then write the step's record."""

    cluster: str
    key_ids: tuple[str, ...]
    until: datetime


@dataclass(frozen=True, slots=True)
class DeleteBastion:
    """Delete the Bastion."""


@dataclass(frozen=True, slots=True)
class DeleteGrant:
    """Delete the object: its time is over."""


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Let the object go."""


Move: TypeAlias = (
    Rest
    | AddFinalizer
    | WriteRecord
    | Issue
    | MakeBastion
    | RemoveKeepalive
    | Revoke
    | DeleteBastion
    | DeleteGrant
    | RemoveFinalizer
)


@dataclass(frozen=True, slots=True)
class Step:
    """The move, and what the grant's status says after it."""

    move: Move
    record: GrantRecord | NoRecord
    conditions: tuple[Condition, ...] = ()
    again: datetime | None = None
    """Look again then, whatever happens; None: only when something changes."""


class NotIssued(Exception):
    """No certificates can be made now."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


Certify: TypeAlias = Callable[[IssuanceFacts], tuple[HopRequest, ...]]
"""Plans certificates.

Raises:
    NotIssued: none can be made now.
"""


def plan(facts: Facts, certify: Certify) -> Step:
    """The next step of a grant."""
    record = facts.record
    if isinstance(record, BrokenRecord):
        if record.is_key_unknown and not facts.is_key_wait_over:
            condition = unmet(GrantCondition.READY, Cause.RECORD_NOT_AUTHENTIC, record.message)
            return Step(Rest(), NoRecord(), (condition,), facts.now + KEY_POLL)
        record = _lost_record(facts)
    if facts.metadata.is_deleted and not facts.has_finalizer:
        return Step(Rest(), record)
    if isinstance(record, NoRecord):
        return _without_record(facts, certify)
    if not facts.has_finalizer:
        return Step(AddFinalizer(), record, again=facts.now)
    if isinstance(record.state, Closing):
        return _closing(facts, record, record.state, certify)
    return _living(facts, record, observed(facts, record), certify)


# Before the first record


def _without_record(facts: Facts, certify: Certify) -> Step:
    if facts.metadata.is_deleted:
        return Step(RemoveFinalizer(), NoRecord())
    created = first_created(facts.metadata.created, facts.now)
    life = life_state(replace(facts.lifetime, created=created), created, facts.now)
    if not isinstance(life, Alive) and facts.time_counts:
        return Step(DeleteGrant(), NoRecord())
    until = life.until if isinstance(life, Alive) and facts.time_counts else facts.now + HELD_POLL
    outcome = run_grant_checks(facts, _NO_RECORD, BEFORE_SEALING)
    if isinstance(outcome, Stopped):
        return Step(Rest(), NoRecord(), _stopped(facts, outcome), until)
    grant = facts.grant
    if not isinstance(grant, AccessGrant):
        raise TypeError("a check before has refused invalid grants")
    try:
        creator = prove_creator(grant.created_by, facts.metadata.created, facts.lock)
        guard = require_lock(facts.lock).identity
    except CreatorNotProven as error:
        reason = GrantReason.CREATOR_NOT_PROVEN if error.is_final else GrantReason.CREATOR_NOT_PROTECTED
        stopped = Stopped(len(BEFORE_SEALING) + 1, Held(reason, str(error)), None)
        return Step(Rest(), NoRecord(), _stopped(facts, stopped), _sooner(facts, stopped.first, until))
    record = first_record(facts, grant, creator, guard)
    if not _has_key_ids(facts, record):
        held = Held(GrantReason.INVALID, "namespace, names and creator are too long for a key id; shorten a name")
        return Step(Rest(), NoRecord(), _stopped(facts, Stopped(len(BEFORE_SEALING), held, None)), until)
    if not facts.has_finalizer:
        return Step(AddFinalizer(), NoRecord(), again=facts.now)
    return _living(facts, record, record, certify, is_unwritten=True)


def _has_key_ids(facts: Facts, record: GrantRecord) -> bool:
    """Whether every epoch of the grant can have a key id: without one, nothing could be revoked."""
    try:
        record.key_id(facts.metadata, MAXIMUM_EPOCH)
    except SSHRefused:
        return False
    return True


_NO_RECORD: Final = GrantRecord(
    sequence=1,
    cluster="",
    creator=Creator("", "", frozenset()),
    created=datetime.min,
    spec_digest="",
    logins=(),
    duration=AsPolicySays(),
    heartbeat=datetime.min,
    seen=Seen("", "", "", is_suspended=False),
    ingress=(),
    is_suspended=False,
)
"""Checks before sealing take none."""


_UNKNOWN: Final = Creator("unknown", "", frozenset())


def _lost_record(facts: Facts) -> GrantRecord:
    """In place of a record that is not as the controller wrote it: every key id that the grant may have is revoked, for
    as long as a certificate may live.
    """
    known = facts.known
    stated = known.creator if isinstance(known.creator, Creator) else facts.stated_creator
    created = first_created(facts.metadata.created, facts.now)
    now = latest(facts.now, facts.clocks).replace(microsecond=0)
    lost = GrantRecord(
        sequence=known.sequence + 1,
        cluster=known.cluster or facts.stated_cluster or _UNKNOWN.username,
        creator=stated if isinstance(stated, Creator) else _UNKNOWN,
        created=created,
        spec_digest=digest_of(),
        logins=(),
        duration=AsPolicySays(),
        heartbeat=created,
        seen=Seen("unverified", digest_of(), digest_of(), is_suspended=False),
        ingress=(),
        is_suspended=False,
        epoch=MAXIMUM_EPOCH,
        state=Closing(Cause.RECORD_NOT_AUTHENTIC, now),
        last_end=now + LONGEST_CERTIFICATE,
        every_epoch=True,
    )
    # No certificate was ever made for a creator who fits no key id: another is stated now.
    return lost if _has_key_ids(facts, lost) else replace(lost, creator=_UNKNOWN)


# Alive


def _living(
    facts: Facts, written: GrantRecord, record: GrantRecord, certify: Certify, *, is_unwritten: bool = False
) -> Step:
    """``written`` is what the object has, unless ``is_unwritten``; ``record`` is what counts now."""
    must_write = is_unwritten or record != written
    if facts.metadata.is_deleted:
        return _close(facts, record, Cause.DELETED)
    if facts.keepalive is Keepalive.ASKED and not is_unwritten:
        return Step(RemoveKeepalive(_heartbeats_count(facts, written)), record, again=facts.now)
    outcome = run_grant_checks(facts, record)
    again = _next_look(facts, record)
    if isinstance(outcome, Stopped):
        if outcome.end is not None and (outcome.end.cause.is_final or _has_begun(facts, record)):
            return _close(facts, record, outcome.end.cause)
        if isinstance(outcome.first, BastionMissing) and not must_write:
            return Step(MakeBastion(), record, _stopped(facts, outcome), again)
        if must_write and isinstance(outcome.first, BastionMissing):
            again = facts.now
        again = _sooner(facts, outcome.first, again)
        return Step(WriteRecord() if must_write else Rest(), record, _stopped(facts, outcome), again)
    return _issuing(facts, record, must_write, again, certify)


def _issuing(facts: Facts, record: GrantRecord, must_write: bool, again: datetime, certify: Certify) -> Step:
    """Every check passes."""
    otherwise = WriteRecord() if must_write else Rest()
    grant, rules, targets = facts.grant, facts.rules, facts.targets
    if not (isinstance(grant, AccessGrant) and isinstance(rules, GrantRules) and isinstance(targets, TargetsFound)):
        raise TypeError("the checks before have refused this")
    expires = expiration(facts.lifetime, record.heartbeat, facts.now)
    lifetime = certificate_lifetime(facts.now, expires, rules.certificate_duration)
    if lifetime < MINIMUM_CERTIFICATE_DURATION:
        return Step(otherwise, record, _all_met(facts), again)
    issuance = IssuanceFacts(
        grant=replace(grant, ingress=record.ingress),
        creator=record.creator.username,
        epoch=record.epoch,
        targets=targets,
        bastion=facts.bastion if isinstance(facts.bastion, ReadyBastion) and needs_bastion(facts) else NoBastion(),
        lifetime=lifetime,
    )
    try:
        requests = certify(issuance)
    except NotIssued as error:
        conditions = (unmet(GrantCondition.READY, error.reason, error.message), *_all_met(facts)[1:])
        return Step(otherwise, record, conditions, min(again, facts.now + HELD_POLL))
    if _is_due(facts, record, requests):
        return Step(Issue(requests, issuance), record, _all_met(facts), again)
    return Step(otherwise, record, _all_met(facts), again)


def _is_due(facts: Facts, record: GrantRecord, requests: tuple[HopRequest, ...]) -> bool:
    """Certificates are made at first, after each heartbeat, when something in them changes, and before they end in a
    grant that lives longer: GEP-0015 gives access until the grant's expiration, and the policy's ``timeToLive`` may be
    longer than a certificate's hour.
    """
    current = record.current(facts.metadata, facts.now)
    return (
        not current
        or facts.now >= _renewal(facts, record)
        or record.heartbeat > current[0].issued
        or [one.content for one in current] != [content_of(one) for one in requests]
        or any(one.authority != facts.authority for one in current)
    )


def _renewal(facts: Facts, record: GrantRecord) -> datetime:
    """When the current certificates are to be renewed without a heartbeat: in the last third of their time. A grant
    that ends with them gets no others.
    """
    current = record.current(facts.metadata, facts.now)
    if not current:
        return _NEVER
    one = min(current, key=lambda entry: entry.ends)
    expires = expiration(facts.lifetime, record.heartbeat, facts.now)
    if expires <= one.ends + timedelta(seconds=1):
        return _NEVER
    return one.ends - (one.ends - one.issued) / 3


def _heartbeats_count(facts: Facts, record: GrantRecord) -> bool:
    try:
        guard = require_lock(facts.lock).identity
    except CreatorNotProven:
        return False
    return guard == record.seen.guard and isinstance(facts.right, Allowed)


def _has_begun(facts: Facts, record: GrantRecord) -> bool:
    """Whether there is anything to end."""
    return isinstance(record.last_end, datetime) or not isinstance(facts.bastion, AbsentBastion)


def _next_look(facts: Facts, record: GrantRecord) -> datetime:
    """When time alone changes something."""
    if not facts.time_counts:
        return facts.now + HELD_POLL
    life = life_state(facts.lifetime, record.heartbeat, facts.now)
    moments = [life.until] if isinstance(life, Alive) else [facts.now]
    if (renewal := _renewal(facts, record)) > facts.now:
        moments.append(renewal)
    if has_waiting_heartbeat(facts, record) and heartbeat_counts_from(record) > facts.now:
        moments.append(heartbeat_counts_from(record))
    return min(moments)


def _sooner(facts: Facts, held: Held | Ended, again: datetime) -> datetime:
    is_untold = isinstance(held, Held) and held.reason in _UNTOLD
    return min(again, facts.now + HELD_POLL) if is_untold else again


# The end


def _close(facts: Facts, record: GrantRecord, cause: Cause) -> Step:
    """Nothing is issued from now on: that is sealed before anything else happens."""
    if not _has_begun(facts, record) and cause is Cause.DELETED:
        return Step(RemoveFinalizer(), record)
    # Where no certificate lives and there is no bastion, nothing is left to do.
    is_over = not facts.may_be_accepted(record) and isinstance(facts.bastion, AbsentBastion)
    stage = Stage.TERMINATED if is_over else Stage.CLOSING
    closed = record.next(state=Closing(cause, facts.now.replace(microsecond=0), stage))
    return Step(WriteRecord(), closed, _end_conditions(facts, closed), facts.now)


def _closing(facts: Facts, record: GrantRecord, state: Closing, certify: Certify) -> Step:
    match state.stage:
        case Stage.CLOSING:
            revoked = record.next(state=replace(state, stage=Stage.REVOKED))
            conditions = _end_conditions(facts, revoked)
            if not facts.may_be_accepted(record):
                return Step(WriteRecord(), revoked, conditions, facts.now)
            key_ids = tuple(record.key_id(facts.metadata, epoch) for epoch in record.revoked_epochs)
            until = record.last_end if isinstance(record.last_end, datetime) else facts.now
            return Step(Revoke(record.cluster, key_ids, until), revoked, conditions, facts.now)
        case Stage.REVOKED:
            return _revoked(facts, record, state)
        case Stage.TERMINATED:
            return _terminated(facts, record, state, certify)


def _revoked(facts: Facts, record: GrantRecord, state: Closing) -> Step:
    conditions = _end_conditions(facts, record)
    is_gone = isinstance(facts.bastion, AbsentBastion)
    if not is_gone and not facts.is_bastion_deleting:
        return Step(DeleteBastion(), record, conditions, facts.now)
    living = facts.may_be_accepted(record)
    if living:
        is_over = is_gone and facts.publication is Publication.PUBLISHED
    else:
        is_over = is_gone or (facts.time_counts and facts.now >= state.since + BASTION_PATIENCE)
    if is_over:
        terminated = record.next(state=replace(state, stage=Stage.TERMINATED))
        return Step(WriteRecord(), terminated, _end_conditions(facts, terminated), facts.now)
    last = record.last_end if living and isinstance(record.last_end, datetime) else state.since + BASTION_PATIENCE
    soon = facts.now + PUBLICATION_POLL
    return Step(Rest(), record, conditions, min(last, soon) if facts.time_counts else soon)


def _terminated(facts: Facts, record: GrantRecord, state: Closing, certify: Certify) -> Step:
    conditions = _end_conditions(facts, record)
    if facts.metadata.is_deleted:
        return Step(RemoveFinalizer(), record, conditions)
    if isinstance(facts.cluster, ClusterOver):
        return Step(DeleteGrant(), record, conditions)
    if not facts.time_counts:
        return Step(Rest(), record, conditions, facts.now + HELD_POLL)
    life = life_state(facts.lifetime, record.heartbeat, facts.now)
    if not isinstance(life, Alive):
        return Step(DeleteGrant(), record, conditions)
    if state.cause.is_final:
        return Step(Rest(), record, conditions, life.until)
    if facts.keepalive is Keepalive.ASKED:
        return Step(RemoveKeepalive(_heartbeats_count(facts, record)), record, again=facts.now)
    seen = observed(facts, record)
    back = _back(seen)
    outcome = run_grant_checks(facts, back)
    if isinstance(outcome, Stopped) and outcome.end is not None and outcome.end.cause.is_final:
        ended = seen.next(state=replace(state, cause=outcome.end.cause))
        return Step(WriteRecord(), ended, _end_conditions(facts, ended), facts.now)
    if not lets_grant_return(outcome):
        return Step(WriteRecord() if seen != record else Rest(), seen, conditions, _next_look(facts, seen))
    if back.epoch > MAXIMUM_EPOCH:
        ended = seen.next(state=replace(state, cause=Cause.TOO_MANY_RETURNS))
        return Step(WriteRecord(), ended, _end_conditions(facts, ended), life.until)
    return _living(facts, record, back, certify)


def _back(record: GrantRecord) -> GrantRecord:
    """The grant goes on. Its key id was revoked if it had certificates, so it gets another."""
    epoch = record.epoch + 1 if isinstance(record.last_end, datetime) else record.epoch
    return record.next(state=Live(), epoch=epoch, last_end=NoCertificate())


# Conditions


def _stopped(facts: Facts, outcome: Stopped) -> tuple[Condition, ...]:
    """The condition of the first check that does not pass says so; those behind it are Unknown."""
    failed = CHECKS[outcome.index].condition if outcome.index < len(CHECKS) else GrantCondition.READY
    reason: GrantReason | Cause = outcome.first.reason if isinstance(outcome.first, Held) else outcome.first.cause
    is_known = not isinstance(outcome.first, Held) or outcome.first.is_known
    say = unmet if is_known else unknown
    found = [say(GrantCondition.READY, reason, outcome.first.message)]
    for index, check in enumerate(CHECKS):
        kind = check.condition
        if kind is GrantCondition.READY:
            continue
        if index < outcome.index:
            found.append(_met(facts, kind))
        elif kind is failed and index == outcome.index:
            found.append(say(kind, reason, outcome.first.message))
        else:
            found.append(unknown(kind, GrantReason.NOT_REACHED, "an earlier check has not passed"))
    return (*found, _not_ended())


def _all_met(facts: Facts) -> tuple[Condition, ...]:
    ready = met(GrantCondition.READY, GrantReason.ISSUED, "certificates are in the status")
    kinds = [check.condition for check in CHECKS if check.condition is not GrantCondition.READY]
    return (ready, *(_met(facts, kind) for kind in kinds), _not_ended())


def _met(facts: Facts, kind: GrantCondition) -> Condition:
    match kind:
        case GrantCondition.CREATOR_PROVEN:
            return met(kind, GrantReason.SEALED, "admission has proven the creator, and the record keeps it")
        case GrantCondition.AUTHORIZED:
            return met(kind, GrantReason.ALLOWED, "the creator may use every login")
        case GrantCondition.APPROVED:
            return met(kind, GrantReason.ENOUGH_APPROVALS, "as many persons approve as are required")
        case _:
            needed = needs_bastion(facts)
            reason = GrantReason.RECONCILED if needed else GrantReason.BASTION_NOT_NEEDED
            return met(kind, reason, "the bastion is ready" if needed else "the grant has no bastion")


def _not_ended() -> Condition:
    return unmet(GrantCondition.SESSIONS_TERMINATED, GrantReason.NOT_ENDED, "the grant has not ended")


WHY: Final = {
    Cause.DELETED: "the grant was deleted",
    Cause.HEARTBEAT_MISSING: "no heartbeat came in time",
    Cause.DURATION_OVER: "the grant has lived for its duration",
    Cause.CLUSTER_GONE: "the Cluster is gone, or is being deleted",
    Cause.TARGETS_GONE: "every node of the grant is gone",
    Cause.DENIED: "a person who may approve denies the grant",
    Cause.RECORD_NOT_AUTHENTIC: "status.record is not as the controller wrote it",
    Cause.TOO_MANY_RETURNS: f"the grant was paused more than {MAXIMUM_EPOCH} times; make another one",
    Cause.SUSPENDED: "spec.suspend is set",
    Cause.RIGHT_LOST: "the creator has no right to a login any more",
    Cause.RIGHT_UNKNOWN: "the API server has not reviewed the creator's right for five minutes",
    Cause.NOT_ALLOWED: "policy or operator allow no grants here any more",
}


def _end_conditions(facts: Facts, record: GrantRecord) -> tuple[Condition, ...]:
    state = record.state
    if not isinstance(state, Closing):
        raise TypeError("the grant has not ended")
    why = WHY[state.cause]
    found = [unmet(GrantCondition.READY, state.cause, why)]
    if state.cause in (Cause.RIGHT_LOST, Cause.RIGHT_UNKNOWN):
        found.append(unmet(GrantCondition.AUTHORIZED, state.cause, why))
    if state.cause is Cause.DENIED:
        found.append(unmet(GrantCondition.APPROVED, state.cause, why))
    if not isinstance(facts.bastion, AbsentBastion):
        found.append(unmet(GrantCondition.BASTION_READY, GrantReason.BASTION_DELETION, "the bastion is being removed"))
    match state.stage:
        case Stage.CLOSING:
            found.append(unmet(GrantCondition.SESSIONS_TERMINATED, GrantReason.REVOKING, "certificates live"))
        case Stage.REVOKED:
            message = "nodes do not know of the revocation yet, or the bastion is still there"
            found.append(unmet(GrantCondition.SESSIONS_TERMINATED, GrantReason.PUBLISHING, message))
        case Stage.TERMINATED:
            found.append(met(GrantCondition.SESSIONS_TERMINATED, GrantReason.TERMINATED, why))
    return tuple(found)


__all__ = [
    "WHY",
    "AddFinalizer",
    "Certify",
    "DeleteBastion",
    "DeleteGrant",
    "Issue",
    "MakeBastion",
    "Move",
    "NotIssued",
    "RemoveFinalizer",
    "RemoveKeepalive",
    "Rest",
    "Revoke",
    "Step",
    "WriteRecord",
    "plan",
]
