"""The conditions of a rotation on the policy. Pure.

They exist from the first rotation of a cluster on; the one about the CA's end always exists. None counts toward Ready:
a rotation that waits is no reason to distrust a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from signer.authority.presented import Presented
from signer.model.condition import ConditionType, PolicyCondition
from signer.rotation.authorities import AuthorityKind, NotMade
from signer.rotation.condition_types import (
    AUTHORITY_EXPIRY,
    AUTHORITY_TRUSTED,
    EXCHANGE_CLIENT_CERTIFICATES,
    LEFTOVERS_FOUND,
    NODES_TRUST_NEW_AUTHORITY,
    OLD_AUTHORITY_REFUSED,
    RECORD_OUTDATED,
    ROLLBACK_AVAILABLE,
    ROTATION_PROGRESSING,
    ROTATION_STALLED,
    SERVERS_PRESENT_NEW_AUTHORITY,
    SERVICE_ACCOUNT_KEY_PUBLISHED,
    UNVERIFIED_CURE,
)
from signer.rotation.facts import Acceptance, Facts, NotObserved, Publication, ServersFacts
from signer.rotation.leftovers import Scan
from signer.rotation.operations import NeverRotated
from signer.rotation.phases import Phase, SigningPairs, Step
from signer.rotation.plan import FOREIGN_AUTHORITY, UNSAFE, Move, Wait
from signer.rotation.proofs import (
    PROOF_OF,
    NotKnown,
    NotProven,
    Proof,
    Proven,
    named,
    service_account_key_is_published,
)
from signer.rotation.record import Moment, NotYet, RotationRecord
from signer.rotation.rotations import Known, Unverified, Verified
from signer.rotation.servers.key_set import key_identifier

_MOST_LEFTOVERS: Final = 10

STALLED_AFTER: Final = timedelta(minutes=30)
"""How long something may hold a step before a person should look."""
STALLED_AFTER_MACHINES: Final = timedelta(hours=3)
"""The same for a step that waits for machines: three of bare metal take two hours in a rollout."""
_WAITS_FOR_MACHINES: Final = frozenset(
    {
        Step.SERVERS_TRUST,
        Step.CONTROLLER_MANAGERS_SIGN,
        Step.NODES_TRUST,
        Step.SERVERS_PRESENT,
        Step.SIGN_SERVING,
        Step.DROP_OLD,
        Step.NODES_RETURN,
    }
)
WARNINGS: Final = (
    (timedelta(days=30), "ExpiresWithin30Days"),
    (timedelta(days=90), "ExpiresWithin90Days"),
    (timedelta(days=365), "ExpiresWithinAYear"),
)

_SHOWN_PROOFS: Final = (
    (AUTHORITY_TRUSTED, Step.SERVERS_TRUST),
    (NODES_TRUST_NEW_AUTHORITY, Step.NODES_TRUST),
    (SERVERS_PRESENT_NEW_AUTHORITY, Step.SERVERS_PRESENT),
    (OLD_AUTHORITY_REFUSED, Step.DROP_OLD),
)


def expiry_condition(not_after: datetime, now: datetime, *, under_way: bool) -> PolicyCondition:
    """A warning a year, 90 and 30 days before the CA ends. Nothing is started by it, nor completed."""
    cure = "complete the rotation that is under way" if under_way else "order start-ca-rotation (docs/rotation.md)"
    left = not_after - now
    for before, reason in WARNINGS:
        if left < before:
            message = f"the CA ends at {not_after:%Y-%m-%d}, in {max(left.days, 0)} days: {cure}"
            return PolicyCondition(AUTHORITY_EXPIRY, False, reason, message)
    return PolicyCondition(AUTHORITY_EXPIRY, True, "FarAway", f"the CA ends at {not_after:%Y-%m-%d}")


def leftovers_condition(scan: Scan) -> PolicyCondition:
    """What still holds the old CA. Nothing waits for it: no API server accepts that CA any more."""
    found = scan.leftovers
    if found:
        named = ", ".join(map(str, found[:_MOST_LEFTOVERS]))
        more = f" and {len(found) - _MOST_LEFTOVERS} more" if len(found) > _MOST_LEFTOVERS else ""
        message = f"{len(found)} objects of the workload cluster hold the old CA: {named}{more}"
        return PolicyCondition(LEFTOVERS_FOUND, True, "OldAuthorityHeld", message)
    if scan.unread:
        kind, why = next(iter(scan.unread.items()))
        return PolicyCondition(LEFTOVERS_FOUND, None, "NotReadable", f"objects of kind {kind} cannot be read: {why}")
    return PolicyCondition(LEFTOVERS_FOUND, False, "NoneFound", "no object that is searched holds the old CA")


def rotation_conditions(known: Known, facts: Facts | None, move: Move | None) -> tuple[PolicyCondition, ...]:
    """The conditions; ``facts`` and ``move`` are those of the last pass, None before the first one."""
    match known:
        case NeverRotated():
            return ()
        case Unverified(message):
            text = (
                f"{message}: nothing of the rotation counts, and Secret <cluster>-ca decides who signs. After a move, "
                f"{UNVERIFIED_CURE}"
            )
            return (PolicyCondition(ROTATION_PROGRESSING, False, "Unverified", text),)
        case Verified(record=record):
            return tuple(_of(record, facts, move))


def _of(record: RotationRecord, facts: Facts | None, move: Move | None) -> Iterator[PolicyCondition]:
    yield _progressing(record, move)
    if facts is not None and not record.phase.is_over and not record.goes_back:
        for kind, step in _SHOWN_PROOFS:
            yield _proof_condition(kind, record, step, facts)
        yield from _key_published(record, facts)
        yield from _outdated(record, facts)
        yield _exchange(record)
    available = record.rollback_available
    text = "nothing can be taken back" if available.value == "None" else "order rollback-ca-rotation to take it back"
    yield PolicyCondition(ROLLBACK_AVAILABLE, available.value != "None", available.value, text)
    if isinstance(move, Wait) and facts is not None:
        yield _stalled(record, facts, move)


def _outdated(record: RotationRecord, facts: Facts) -> Iterator[PolicyCondition]:
    """API servers show what a later step brings: the record was restored, or another program did the later steps."""
    servers = facts.servers.seen if isinstance(facts.servers, ServersFacts) else ()
    later = {
        "present the new CA's certificate": (
            Step.SWITCH,
            (one.machine for one in servers if one.presents in (Presented.NEW, Presented.NEW_LINKED)),
        ),
        "refuse the old CA's client certificates": (
            Step.DROP_OLD,
            (one.machine for one in servers if one.old is Acceptance.REFUSED and one.new is Acceptance.ACCEPTED),
        ),
    }
    for what, (begins, found) in later.items():
        machines = tuple(found)
        if machines and not record.step.is_at_least(begins):
            message = (
                f"API servers {what}, which only step {begins.value} brings, and the record is at {record.step.value}: "
                f"{named(machines)}. The management cluster may have been restored from a backup. The rotation goes on "
                "by what it proves; compare Secret <cluster>-ca with the CA that the API servers present before you "
                "order anything"
            )
            yield PolicyCondition(RECORD_OUTDATED, True, "ServersAreFurther", message)
            return


def _progressing(record: RotationRecord, move: Move | None) -> PolicyCondition:
    kind = ROTATION_PROGRESSING
    if record.phase is Phase.COMPLETED:
        return PolicyCondition(kind, True, "Completed", "the new CA signs, and no API server accepts the old one")
    if record.phase is Phase.ROLLED_BACK:
        return PolicyCondition(
            kind, True, "RolledBack", "the old CA signs, as before the rotation" + _link_left(record)
        )
    if record.phase is Phase.ABANDONED:
        message = (
            f"abandoned at step {record.step.value}: Secret <cluster>-ca decides which CA signs, and the rest is yours"
        )
        return PolicyCondition(kind, False, "Abandoned", message)
    if isinstance(move, Wait):
        met = None if isinstance(move.proof, NotKnown) else False
        return PolicyCondition(kind, met, move.reason, move.proof.message)
    return PolicyCondition(kind, True, record.step.value, f"step {record.step.value}")


def _link_left(record: RotationRecord) -> str:
    """Nothing renews the link after the end, and programs in Java and GnuTLS refuse one that has ended."""
    ends = record.at(Moment.LINK_ENDS)
    if isinstance(ends, NotYet):
        return ""
    return f"; have the control plane's Machines replaced before {ends:%Y-%m-%d}, when the link that they present ends"


def _proof_condition(kind: ConditionType, record: RotationRecord, step: Step, facts: Facts) -> PolicyCondition:
    if not record.step.is_at_least(step):
        return PolicyCondition(kind, False, "NotReached", f"step {step.value} has not been reached")
    if record.step is not step:
        return PolicyCondition(kind, True, "Proven", f"step {step.value} was proven")
    return _shown(kind, PROOF_OF[step](record, facts))


def _key_published(record: RotationRecord, facts: Facts) -> Iterator[PolicyCondition]:
    """Of a rotation that replaces the service-account key."""
    kind, step = SERVICE_ACCOUNT_KEY_PUBLISHED, Step.SERVERS_TRUST
    keys = [one.new for one in record.authorities if one.kind is AuthorityKind.SERVICE_ACCOUNT]
    if not keys:
        return
    (key,) = keys
    if isinstance(key, NotMade) or not record.step.is_at_least(step):
        yield PolicyCondition(kind, False, "NotReached", f"step {step.value} has not been reached")
        return
    proof: Proof = Proven() if record.step.is_at_least(Step.SWITCH) else service_account_key_is_published(record, facts)
    if not isinstance(proof, Proven):
        yield _shown(kind, proof)
        return
    identifier = key_identifier(key.public_key_hash)
    text = f"every API server publishes the new service-account key, whose ID (kid) is {identifier}"
    unpublished = facts.published_keys
    if not isinstance(unpublished, NotObserved) and Publication.NOT_SERVED in unpublished.values():
        text = "no API server publishes service-account keys"
    yield PolicyCondition(kind, True, "Proven", text)


def _exchange(record: RotationRecord) -> PolicyCondition:
    """With one pair, kube-controller-manager signs with the new CA once the second rollout is proven."""
    kind = EXCHANGE_CLIENT_CERTIFICATES
    opens = Step.PREPARED if record.signing_pairs is SigningPairs.SPLIT else Step.SIGN_SERVING
    if not record.step.is_at_least(opens):
        return PolicyCondition(kind, False, "NotOpen", f"it opens with step {opens.value}")
    if record.step.is_at_least(Step.DROP_OLD):
        return PolicyCondition(kind, False, "Closed", "API servers refuse certificates of the old CA, or will")
    text = "have kube-controller-manager sign client certificates again: those of the old CA hold until step DropOld"
    return PolicyCondition(kind, True, "Open", text)


def _shown(kind: ConditionType, proof: Proof) -> PolicyCondition:
    match proof:
        case Proven():
            return PolicyCondition(kind, True, "Proven", "proven")
        case NotProven(message):
            return PolicyCondition(kind, False, "NotProven", message)
        case NotKnown(message):
            return PolicyCondition(kind, None, "NotKnown", message)


def _stalled(record: RotationRecord, facts: Facts, move: Wait) -> PolicyCondition:
    """A step that waits for time alone, or for a person, is not stalled: nothing lags."""
    began = record.at(Moment.STEP)
    since = facts.now if isinstance(began, NotYet) else began
    limit = STALLED_AFTER_MACHINES if record.step in _WAITS_FOR_MACHINES else STALLED_AFTER
    lags = bool(move.proof.members) or isinstance(move.proof, NotKnown) or move.reason == UNSAFE
    late = lags and record.step is not Step.PREPARED and facts.now - since >= limit
    if move.reason == FOREIGN_AUTHORITY or late:
        message = f"step {record.step.value} since {since:%Y-%m-%d %H:%M} UTC: {move.proof.message}"
        return PolicyCondition(ROTATION_STALLED, True, move.reason, message)
    return PolicyCondition(ROTATION_STALLED, False, "Progressing", "no step waits for long")
