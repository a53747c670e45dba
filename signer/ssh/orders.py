"""What an order on the SSH authorities leads to, or why it is rejected. Pure.

An order is on both authorities, except a revocation. Their Secrets are written one after the other, so after a crash
the same order comes again: an authority whose state names it is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from signer.authority.ssh.secret import AuthorityPurpose
from signer.rotation.operations import Gate, Operation, OperationRejected, Order, UnknownGate, read_gates
from signer.rotation.phases import Phase
from signer.rotation.record import Moment, SkippedGate
from signer.ssh.rotation_plan import can_go_back, rolled_back
from signer.ssh.rotation_record import AuthorityRotation, Cause, Step, begun
from signer.ssh.secrets import AddNext, Change, HeldAuthority, Record, ReplaceAll, Swap

SKIPPABLE: Final = frozenset({Gate.UNREACHABLE_NODES, Gate.OVERLAP})
_REVOKES: Final[Mapping[Operation, AuthorityPurpose]] = {
    Operation.REVOKE_SSH_USER: AuthorityPurpose.USER,
    Operation.REVOKE_SSH_HOST: AuthorityPurpose.HOST,
}


def changes_of(
    order: Order, user: HeldAuthority, host: HeldAuthority, now: datetime
) -> list[tuple[HeldAuthority, Change]]:
    """The changes that the order leads to, in this order; those that an earlier pass has made are left out.

    Raises:
        OperationRejected: it is not possible now; the message says why. Nothing may be written then.
    """
    gates = _gates(order)
    if order.operation in _REVOKES:
        held = user if _REVOKES[order.operation] is AuthorityPurpose.USER else host
        return [] if _is_done(order, held) else [(held, _revoked(order, held, gates, now))]
    both = (host, user)
    left = [held for held in both if not _is_done(order, held)]
    if not left:
        return []
    match order.operation:
        case Operation.START_SSH:
            return [(held, _started(order, held, gates, now)) for held in left]
        case Operation.COMPLETE_SSH:
            waiting = [held for held in _under_way(left, both) if _rotation(held).phase is not Phase.COMPLETING]
            if not waiting and len(left) == len(both):
                raise OperationRejected(f"{_shown(both)}: the completion was ordered before")
            return [(held, _completed(order, held, gates, now)) for held in waiting]
        case Operation.ROLLBACK_SSH:
            if gates:
                raise OperationRejected("a rollback skips no gate: order retry-ssh-ca-rotation after it")
            going = [held for held in _under_way(left, both) if can_go_back(held)]
            if not going and len(left) == len(both):
                raise OperationRejected(
                    f"{_shown(both)}: nothing can be rolled back; to replace the new authorities, start a rotation "
                    "once this one is over"
                )
            return [(held, rolled_back(held, order.identifier, now)) for held in going]
        case Operation.RETRY_SSH:
            if not gates:
                raise OperationRejected("name the gates that are not to be waited for, in skip-gates")
            return [(held, Record(_skipping(_rotation(held), order, gates, now))) for held in _under_way(left, both)]
        case _:
            raise OperationRejected(f"{order.operation.value} is no operation on SSH authorities")


def _is_done(order: Order, held: HeldAuthority) -> bool:
    return isinstance(held.rotation, AuthorityRotation) and held.rotation.operation == order.identifier


def _rotation(held: HeldAuthority) -> AuthorityRotation:
    assert isinstance(held.rotation, AuthorityRotation)
    return held.rotation


def _is_under_way(held: HeldAuthority) -> bool:
    return isinstance(held.rotation, AuthorityRotation) and not held.rotation.phase.is_over


def _under_way(left: list[HeldAuthority], both: tuple[HeldAuthority, ...]) -> list[HeldAuthority]:
    """Those whose rotation is under way. An authority that a revocation replaced meanwhile needs nothing."""
    found = [held for held in left if _is_under_way(held)]
    if not found and not any(map(_is_under_way, both)):
        raise OperationRejected(f"{_shown(both)}: no rotation of the SSH authorities is under way")
    return found


def _shown(both: tuple[HeldAuthority, ...]) -> str:
    shown = (
        f"the {held.purpose.value} authority's rotation is {held.rotation.phase.value}"
        if isinstance(held.rotation, AuthorityRotation)
        else f"no rotation of the {held.purpose.value} authority was started"
        for held in both
    )
    return ", ".join(shown)


def _gates(order: Order) -> frozenset[Gate]:
    try:
        gates = read_gates(order.skip_gates)
    except UnknownGate as error:
        raise OperationRejected(str(error)) from error
    if not gates <= SKIPPABLE:
        names = " and ".join(sorted(gate.value for gate in SKIPPABLE))
        raise OperationRejected(f"operations on SSH authorities can skip {names} alone")
    return gates


def _started(order: Order, held: HeldAuthority, gates: frozenset[Gate], now: datetime) -> Change:
    if _is_under_way(held):
        raise OperationRejected(f"{_shown((held,))}: complete it or roll it back before you start another one")
    if held.purpose is AuthorityPurpose.USER:
        first = begun(order.identifier, Step.NODES_TRUST, Cause.ORDERED, Phase.PREPARING, now)
    else:
        first = begun(order.identifier, Step.PREPARED, Cause.ORDERED, Phase.PREPARED, now, Moment.PREPARED)
    return AddNext(_skipping(first, order, gates, now))


def _completed(order: Order, held: HeldAuthority, gates: frozenset[Gate], now: datetime) -> Change:
    rotation = _rotation(held)
    if rotation.phase is not Phase.PREPARED:
        raise OperationRejected(f"{_shown((held,))}: a rotation is completed once it is {Phase.PREPARED.value}")
    skipping = _skipping(rotation, order, gates, now)
    if held.purpose is AuthorityPurpose.USER:
        return Record(
            skipping.next(now, Moment.COMPLETION_TRIGGERED, phase=Phase.COMPLETING, step=Step.CERTIFICATES_END)
        )
    times = (Moment.COMPLETION_TRIGGERED, Moment.SWITCHED)
    return Swap(skipping.next(now, *times, phase=Phase.COMPLETING, step=Step.NODES_RENEW))


def _revoked(order: Order, held: HeldAuthority, gates: frozenset[Gate], now: datetime) -> Change:
    """A thief of one key of the Secret may have the other, so neither stays."""
    step = Step.NODES_FORGET if held.purpose is AuthorityPurpose.USER else Step.NODES_RENEW
    times = (Moment.COMPLETION_TRIGGERED, Moment.SWITCHED)
    first = begun(order.identifier, step, Cause.REVOKED, Phase.COMPLETING, now, *times)
    return ReplaceAll(_skipping(first, order, gates, now))


def _skipping(rotation: AuthorityRotation, order: Order, gates: frozenset[Gate], now: datetime) -> AuthorityRotation:
    """With the order, and the gates that it names."""
    known = {one.gate for one in rotation.skipped}
    added = [SkippedGate(gate, now.replace(microsecond=0)) for gate in sorted(gates - known, key=lambda one: one.value)]
    return replace(rotation, operation=order.identifier, skipped=(*rotation.skipped, *added))


__all__ = ["SKIPPABLE", "changes_of"]
