"""The plan of a rotation: the steps in order, and the one move that comes next. Pure.

This is the executable list: each step has a title, a proof, and what it writes (:mod:`signer.rotation.desired`).
Document, status and controller are driven by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Final, TypeAlias

from signer.authority.presented import Presented
from signer.model.cluster import LONG_AGO
from signer.rotation.authorities import AuthorityKind, NotMade, Role, RotatedAuthority
from signer.rotation.desired import LINK_LIFETIME, Write, missing_writes, published
from signer.rotation.facts import (
    Absent,
    Facts,
    Held,
    HeldCertificate,
    HeldPair,
    Link,
    ServersFacts,
    TrustFacts,
    Unusable,
)
from signer.rotation.invariants import InvariantBroken, require_joins, require_step, require_write
from signer.rotation.operations import (
    NeverRotated,
    Operation,
    OperationRejected,
    Order,
    UnknownGate,
    read_gates,
    require_possible,
)
from signer.rotation.phases import BACK, Phase, RollbackAvailable, Step, forward
from signer.rotation.proofs import PROOF_OF, NotKnown, NotProven, Proof, Proven, clients_have_returned
from signer.rotation.proofs import switch_is_safe as _switch_is_safe
from signer.rotation.record import Moment, NotYet, RotationRecord, SkippedGate, WorkersRollout

TITLES: Final[Mapping[Step, str]] = MappingProxyType(
    {
        Step.NEW_AUTHORITY: "make the new CA, and keep both pairs",
        Step.ACCEPT: "accept evidence that names either CA",
        Step.PUBLISH_TRUST: "publish both CAs for everything that joins",
        Step.SERVERS_TRUST: "every API server accepts clients of both CAs",
        Step.SIGN_CLIENTS: "sign the nodes' client certificates with the new CA",
        Step.CONTROLLER_MANAGERS_SIGN: "kube-controller-manager signs client certificates with the new CA",
        Step.NODES_TRUST: "every kubelet trusts the new CA, and has a client certificate of it",
        Step.PREPARED: "a person exchanges other credentials, and completes",
        Step.SWITCH: "the cluster's Secrets hold the new CA",
        Step.SERVERS_PRESENT: "every API server presents the new CA's certificate",
        Step.SIGN_SERVING: "sign the nodes' serving certificates with the new CA",
        Step.RETIRE_OLD: "refuse evidence that names the old CA",
        Step.DROP_OLD: "no API server accepts clients of the old CA",
        Step.PRUNE: "aggregated API servers no longer trust the old CA",
        Step.FORGET: "delete the old CA's key",
        Step.SIGN_BY_OLD: "sign with the old CA again",
        Step.RESTORE_OLD: "the cluster's Secrets hold the old CA again",
        Step.NODES_RETURN: "no node has a certificate of the new CA",
        Step.WITHDRAW_TRUST: "publish the old CA alone",
        Step.DISCARD_NEW: "delete the new CA's key",
    }
)


@dataclass(frozen=True, slots=True)
class Make:
    """Make this write, then look again."""

    write: Write


@dataclass(frozen=True, slots=True)
class Advance:
    """Write this record: another step, another phase, or a time."""

    record: RotationRecord


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do until the world is another one."""

    reason: str
    """Stable, for conditions: a step's name, or one of :data:`REASONS`."""
    proof: NotProven | NotKnown


@dataclass(frozen=True, slots=True)
class Finished:
    """The rotation is over."""


Move: TypeAlias = Make | Advance | Wait | Finished

PAUSED: Final = "Paused"
FOREIGN_AUTHORITY: Final = "ForeignAuthority"
WAITING_FOR_COMPLETION: Final = "WaitingForCompletion"
HELD: Final = "ClientsByOldAuthority"
UNSAFE: Final = "WriteWouldBeUnsafe"
CALL_FAILED: Final = "CallFailed"
"""The reconciler's: an API server did not do what a move needs."""
REASONS: Final = (PAUSED, FOREIGN_AUTHORITY, WAITING_FOR_COMPLETION, HELD, UNSAFE, CALL_FAILED)


_WRITE_TRUST: Final = frozenset(
    {Step.PUBLISH_TRUST, Step.CONTROLLER_MANAGERS_SIGN, Step.SWITCH, Step.DROP_OLD, Step.RESTORE_OLD}
)
"""Steps whose record keeps when everything that they write was seen: Machines that are older have other files."""


def next_move(record: RotationRecord, facts: Facts) -> Move:
    """The one move that comes next. It keeps the invariants: what would break one now waits for other facts."""
    try:
        return _next_move(record, facts)
    except InvariantBroken as error:
        return Wait(UNSAFE, NotProven(str(error)))


def _next_move(record: RotationRecord, facts: Facts) -> Move:
    """Raises InvariantBroken: the facts have changed since the step was proven, or the plan has a defect."""
    if record.phase.is_over:
        return Finished()
    if facts.paused:
        return Wait(PAUSED, NotProven("the Cluster is paused, so nothing is written"))
    foreign = _foreign_authority(record, facts)
    if not isinstance(foreign, Proven):
        return Wait(FOREIGN_AUTHORITY, foreign)
    if record.step is Step.SIGN_BY_OLD and isinstance(record.held_at, NotYet) and not _leads_back(record, facts):
        # An API server has got the new CA's certificate since the order: the rest would be locked out.
        return Advance(record.next(facts.now, held_at=Step.SWITCH))
    for write in missing_writes(record, facts):
        require_write(write, record, facts)
        return Make(write)
    sealed = _with_new_authorities(record, facts)
    if sealed is not record:
        return Advance(sealed)
    if record.step is Step.CONTROLLER_MANAGERS_SIGN and _every_server_presents_new(facts):
        # A restored record: what these Machines sign with is from a switch. Others would not join them now.
        return Advance(_after(record, facts.now))
    if (record.step in _WRITE_TRUST and _trust_time_is_missing(record)) or _link_was_renewed(record, facts):
        proof = PROOF_OF[Step.PUBLISH_TRUST](record, facts)
        if isinstance(proof, Proven):
            if record.step is Step.CONTROLLER_MANAGERS_SIGN:  # the rollout begins, and is none that a switch asked for
                require_joins(record, facts)
            return Advance(record.next(facts.now, times=_trust_times(record, facts)))
        return Wait(record.step.value, proof)
    if record.step is Step.SIGN_BY_OLD and not isinstance(record.held_at, NotYet):
        lagging = clients_have_returned(record, facts)
        held = NotProven("the old CA signs the nodes' client certificates; order retry-ca-rotation to go on")
        return Wait(HELD, held if isinstance(lagging, Proven) else lagging)
    if record.step is Step.PREPARED:
        return _prepared(record, facts)
    proof = PROOF_OF[record.step](record, facts)
    if not isinstance(proof, Proven):
        return _waiting(record, facts, proof)
    after = _after(record, facts.now)
    require_step(after, record, facts)
    return Advance(after)


def _leads_back(record: RotationRecord, facts: Facts) -> bool:
    """Whether the Secrets can hold the old CA again: a Machine that joins with it accepts every API server."""
    held = facts.authorities[AuthorityKind.CLUSTER].secret
    if isinstance(held, HeldPair) and held.signs.digest == record.authority(AuthorityKind.CLUSTER).old.digest:
        return True  # they never held the new one, or hold the old one again
    if not isinstance(facts.servers, ServersFacts) or facts.servers.unseen:
        return False
    joined = all(machine.joined for machine in facts.control_plane)
    return joined and all(server.presents is not Presented.NEW for server in facts.servers.seen)


def _every_server_presents_old(facts: Facts) -> bool:
    """Asked only where every server was seen."""
    old = (Presented.OLD, Presented.OLD_LINKED)
    return isinstance(facts.servers, ServersFacts) and all(one.presents in old for one in facts.servers.seen)


def rollback_possible(record: RotationRecord, facts: Facts) -> RollbackAvailable:
    """What can be taken back now, by the record and by what the API servers present."""
    available = record.rollback_available
    if record.goes_back or available is RollbackAvailable.NONE or not record.step.is_at_least(Step.SWITCH):
        return available
    if not _leads_back(record, facts):
        return RollbackAvailable.CLIENTS_ONLY
    if record.step is Step.SERVERS_PRESENT and _every_server_presents_old(facts):
        return RollbackAvailable.FULL  # the second rollout has not made its first Machine
    return available


def _prepared(record: RotationRecord, facts: Facts) -> Move:
    """Say whether the rotation could be completed now."""
    safe = _switch_is_safe(record, facts)
    if not isinstance(safe, Proven):
        return Wait(WAITING_FOR_COMPLETION, safe)
    text = "exchange the credentials of other clients, then order complete-ca-rotation"
    return Wait(WAITING_FOR_COMPLETION, NotProven(text))


def _waiting(record: RotationRecord, facts: Facts, proof: NotProven | NotKnown) -> Move:
    """A rotation that waits for workers which the owner replaces says so by its phase."""
    by_owner = record.workers_rollout is WorkersRollout.BY_OWNER
    if record.step is Step.NODES_TRUST and by_owner and record.phase is not Phase.WAITING_FOR_WORKERS_ROLLOUT:
        return Advance(record.next(facts.now, phase=Phase.WAITING_FOR_WORKERS_ROLLOUT))
    return Wait(record.step.value, proof)


def _trust_time_is_missing(record: RotationRecord) -> bool:
    """Whether the present step wrote trust, and the time at which all of it was seen is not recorded."""
    written, began = record.at(Moment.TRUST_WRITTEN), record.at(Moment.STEP)
    return isinstance(written, NotYet) or (not isinstance(began, NotYet) and written < began)


def _trust_times(record: RotationRecord, facts: Facts) -> dict[Moment, datetime]:
    """The times to record once everything that is published was seen."""
    times = {Moment.TRUST_WRITTEN: facts.now}
    renewed = not _trust_time_is_missing(record) or record.step not in _WRITE_TRUST
    ends = facts.trust.link_not_after if isinstance(facts.trust, TrustFacts) else Absent()
    if renewed:
        times[Moment.LINK_RENEWED] = facts.now
    if isinstance(ends, datetime) and (renewed or not record.goes_back):
        times[Moment.LINK_ENDS] = ends
    return times


def _link_was_renewed(record: RotationRecord, facts: Facts) -> bool:
    """Whether the published link certificate is younger than the recorded time of the trust.

    API servers have the link of the time at which their Machines were made, so that time is recorded again, and every
    older Machine is replaced. Otherwise they would present a link that has ended: programs that know both CAs refuse
    such a chain, and the rotation could not be completed.
    """
    if record.step in (Step.SIGN_BY_OLD, Step.RESTORE_OLD) and isinstance(record.held_at, NotYet):
        return False  # these steps write the link that Machines get if they are replaced on the way back
    if published(record).link is Link.NONE or not isinstance(facts.trust, TrustFacts):
        return False
    ends, written = facts.trust.link_not_after, record.at(Moment.TRUST_WRITTEN)
    return isinstance(ends, datetime) and isinstance(written, datetime) and ends - LINK_LIFETIME > written


def _foreign_authority(record: RotationRecord, facts: Facts) -> Proof:
    """Every Secret of an authority, and every pair that the rotation keeps, is one of the two that the record seals."""
    found = []
    for authority in record.authorities:
        known = {authority.old.digest} | (set() if isinstance(authority.new, NotMade) else {authority.new.digest})
        held = facts.authorities[authority.kind]
        if isinstance(held.secret, HeldPair) and not set(held.secret.bundle) <= known:
            found.append(
                f"the Secret of authority {authority.kind.value} holds a certificate that is not of this rotation"
            )
        if not isinstance(held.secret, HeldPair):
            why = held.secret.message if isinstance(held.secret, Unusable) else "it has no key, or does not exist"
            found.append(f"the Secret of authority {authority.kind.value} has no usable pair: {why}")
        for role, pair in held.pairs.items():
            found += _foreign_pair(authority, role, pair)
            if isinstance(pair, Absent) and _is_lost(record, authority, role, held.secret):
                found.append(_title(authority, role) + " is gone")
    if found:
        return NotProven(f"{found[0]}; restore it from a backup")
    return Proven()


def _is_lost(record: RotationRecord, authority: RotatedAuthority, role: Role, secret: Held) -> bool:
    """Whether the rotation needs the pair, and no other Secret holds it."""
    if role is Role.NEW and isinstance(authority.new, NotMade):
        return False
    if record.goes_back and record.step.is_at_least(Step.WITHDRAW_TRUST):
        return False
    return not isinstance(secret, HeldPair) or secret.signs.digest != authority.of(role).digest


def _title(authority: RotatedAuthority, role: Role) -> str:
    return f"the Secret that keeps the {role.value} pair of authority {authority.kind.value}"


def _foreign_pair(authority: RotatedAuthority, role: Role, pair: object) -> list[str]:
    title = _title(authority, role)
    if isinstance(pair, Unusable):
        return [f"{title} cannot be used: {pair.message}"]
    if role is Role.NEW and isinstance(authority.new, NotMade):
        return []
    expected = authority.of(role).digest
    if isinstance(pair, HeldPair) and (pair.signs.digest != expected or len(pair.certificates) != 1):
        return [f"{title} holds another one"]
    if isinstance(pair, HeldCertificate) and pair.certificate.digest != expected:
        return [f"{title} holds another one"]
    return []


def _with_new_authorities(record: RotationRecord, facts: Facts) -> RotationRecord:
    """The record that seals the new authorities, once each is kept durably."""
    if not any(isinstance(authority.new, NotMade) for authority in record.authorities):
        return record
    sealed = []
    for authority in record.authorities:
        held = facts.authorities[authority.kind].pairs[Role.NEW]
        if isinstance(authority.new, NotMade) and isinstance(held, HeldPair):
            sealed.append(replace(authority, new=held.signs))
        else:
            sealed.append(authority)
    after = tuple(sealed)
    return record if after == record.authorities else record.next(facts.now, authorities=after)


_PHASE_AFTER: Final[Mapping[Step, Phase]] = MappingProxyType(
    {Step.NODES_TRUST: Phase.PREPARED, Step.FORGET: Phase.COMPLETED, Step.DISCARD_NEW: Phase.ROLLED_BACK}
)
"""The phase that begins when the step is proven."""


def _after(record: RotationRecord, now: datetime) -> RotationRecord:
    """The record once its step is proven."""
    direction = BACK if record.goes_back else forward(record.signing_pairs)
    position = direction.index(record.step) + 1
    phase = _PHASE_AFTER.get(record.step, record.phase)
    times = {}
    if phase is Phase.PREPARED and record.phase is not Phase.PREPARED:
        times[Moment.PREPARED] = now
    if phase.is_over:
        times[Moment.FINISHED] = now
        return record.next(now, phase=phase, times=times)
    if record.step is Step.SWITCH:
        times[Moment.SWITCHED] = now
    if direction[position] is Step.CONTROLLER_MANAGERS_SIGN:
        times[Moment.CONTROLLER_MANAGERS] = now  # before anything is written: a rollback must know of it
    return record.next(now, phase=phase, step=direction[position], times=times)


def _every_server_presents_new(facts: Facts) -> bool:
    if not isinstance(facts.servers, ServersFacts) or facts.servers.unseen or not facts.servers.seen:
        return False
    return all(server.presents is Presented.NEW for server in facts.servers.seen)


def abandoned(order: Order, record: RotationRecord, now: datetime) -> RotationRecord:
    """The record of a rotation that a person takes over. It needs no facts: what holds a rotation must not hold this.

    The same order again changes nothing: ``record`` is returned.

    Raises:
        OperationRejected: the rotation is over.
    """
    if order.identifier == record.operation:
        return record
    require_possible(Operation.ABANDON, record.phase, record.rollback_available, stalled=False)
    now = now.replace(microsecond=0)
    return record.next(now, phase=Phase.ABANDONED, times={Moment.FINISHED: now}, operation=order.identifier)


def carry_out(order: Order, record: RotationRecord, facts: Facts, *, stalled: bool) -> RotationRecord:
    """The record after an operation, other than a start, that a person ordered.

    The same order again changes nothing: ``record`` is returned.

    Raises:
        OperationRejected: it is not possible now; the message says why.
    """
    if order.identifier == record.operation:
        return record
    require_possible(order.operation, record.phase, record.rollback_available, stalled=stalled or _is_held(record))
    now = facts.now.replace(microsecond=0)
    changes = {"operation": order.identifier, "skipped": _with_skipped(record, order, now)}
    match order.operation:
        case Operation.COMPLETE:
            asked = record.next(now, **changes)
            foreign = _foreign_authority(asked, facts)
            safe = _switch_is_safe(asked, facts) if isinstance(foreign, Proven) else foreign
            if not isinstance(safe, Proven):
                raise OperationRejected(f"it cannot be completed now: {safe.message}")
            times = {Moment.COMPLETION_TRIGGERED: now}
            return record.next(now, phase=Phase.COMPLETING, step=Step.SWITCH, times=times, **changes)
        case Operation.ROLLBACK:
            possible = rollback_possible(record, facts)
            held = record.step if possible is RollbackAvailable.CLIENTS_ONLY else NotYet()
            return record.next(now, phase=Phase.ROLLING_BACK, step=Step.SIGN_BY_OLD, held_at=held, **changes)
        case Operation.RETRY if isinstance(record.held_at, Step):
            return record.next(now, phase=Phase.COMPLETING, step=record.held_at, held_at=NotYet(), **changes)
        case _:
            return record.next(now, **changes)


def _is_held(record: RotationRecord) -> bool:
    return isinstance(record.held_at, Step)


def _with_skipped(record: RotationRecord, order: Order, now: datetime) -> tuple[SkippedGate, ...]:
    try:
        gates = read_gates(order.skip_gates)
    except UnknownGate as error:
        raise OperationRejected(str(error)) from error
    known = {one.gate for one in record.skipped}
    return (*record.skipped, *(SkippedGate(gate, now) for gate in sorted(gates - known, key=lambda one: one.value)))


def started(order: Order, before: RotationRecord | NeverRotated, fresh: RotationRecord) -> RotationRecord:
    """The first record of a new rotation, after the preflight has allowed it.

    Raises:
        OperationRejected: a rotation is under way, or the order names an unknown gate.
    """
    began = fresh.at(Moment.STARTED)
    at = began if isinstance(began, datetime) else LONG_AGO
    skipping = replace(fresh, skipped=_with_skipped(fresh, order, at))
    if isinstance(before, RotationRecord):
        require_possible(order.operation, before.phase, before.rollback_available, stalled=False)
        return replace(skipping, sequence=before.sequence + 1)
    return skipping


__all__ = [
    "Advance",
    "CALL_FAILED",
    "FOREIGN_AUTHORITY",
    "Finished",
    "HELD",
    "Make",
    "Move",
    "PAUSED",
    "TITLES",
    "UNSAFE",
    "WAITING_FOR_COMPLETION",
    "Wait",
    "abandoned",
    "carry_out",
    "next_move",
    "rollback_possible",
    "started",
]
