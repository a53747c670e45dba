"""What a policy's status says of the cluster's SSH authorities. Public keys and fingerprints alone. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.keys import PublicKey
from signer.authority.ssh.secret import AuthorityPurpose
from signer.kube.client import JsonObject
from signer.model.condition import PolicyCondition
from signer.model.decision import printable
from signer.model.fields import format_time
from signer.model.ssh_access import NoRotationPeriod
from signer.rotation.phases import Phase, RollbackAvailable
from signer.rotation.record import Moment
from signer.ssh.available import NotAvailable, Reason
from signer.ssh.condition_types import (
    SSH_AUTHORITIES_AVAILABLE,
    SSH_AUTHORITIES_WITHIN_PERIOD,
    SSH_OPERATION_REJECTED,
    SSH_ROTATION_PROGRESSING,
)
from signer.ssh.plan import NoPeriod, Offer, PeriodPassed, WithinPeriod, age
from signer.ssh.rotation_plan import Progress, Waits, can_go_back
from signer.ssh.rotation_record import AuthorityRotation, Step
from signer.ssh.secrets import HeldAuthority, OtherAuthority

AVAILABLE: Final = "Available"
WITHIN_PERIOD: Final = "WithinPeriod"
PERIOD_PASSED: Final = "PeriodPassed"
ISSUING: Final = "Issuing"
TRUSTED: Final = "Trusted"
MOST_LAGGING: Final = 10
MAXIMUM_WAITS_CHARACTERS: Final = 1024
SPOKEN: Final = {AuthorityPurpose.USER: "user", AuthorityPurpose.HOST: "host"}
"""The authorities' names in ``status.ssh.rotation``."""
_TIMES: Final = (
    ("lastInitiationTime", Moment.STARTED),
    ("lastInitiationFinishedTime", Moment.PREPARED),
    ("lastCompletionTriggeredTime", Moment.COMPLETION_TRIGGERED),
    ("lastCompletionTime", Moment.FINISHED),
)
"""As in ``status.credentials.rotation.certificateAuthorities``."""
_UNDER_WAY: Final = (Phase.ROLLING_BACK, Phase.PREPARING, Phase.PREPARED, Phase.COMPLETING)
"""The first of them that one of the two is in is the phase of both."""


def conditions_of(
    found: Offer | NotAvailable, period: timedelta | NoRotationPeriod, now: datetime
) -> tuple[PolicyCondition, ...]:
    """The conditions of the last pass."""
    if isinstance(found, NotAvailable):
        met = None if found.reason is Reason.NOT_KNOWN else False
        return (PolicyCondition(SSH_AUTHORITIES_AVAILABLE, met, found.reason.value, printable(found.message)),)
    offered = found.authorities
    message = (
        f"user authority {offered.user.public_key.fingerprint}, host authority {offered.host.public_key.fingerprint}, "
        f"trust version {offered.trust.version}"
    )
    available = PolicyCondition(SSH_AUTHORITIES_AVAILABLE, True, AVAILABLE, message)
    rotation = _rotation_condition(found)
    match age(offered, period, now):
        case WithinPeriod(text):
            return (available, PolicyCondition(SSH_AUTHORITIES_WITHIN_PERIOD, True, WITHIN_PERIOD, text), *rotation)
        case PeriodPassed(text):
            return (available, PolicyCondition(SSH_AUTHORITIES_WITHIN_PERIOD, False, PERIOD_PASSED, text), *rotation)
        case NoPeriod():
            return (available, *rotation)


def rejected_condition(asked: str, why: str) -> PolicyCondition:
    """An order was rejected."""
    return PolicyCondition(SSH_OPERATION_REJECTED, True, "Rejected", printable(f"{asked}: {why}"))


def _rotation_condition(found: Offer) -> tuple[PolicyCondition, ...]:
    if not _rotations(found):
        return ()
    waits = list(_waits(found))
    if not waits:
        text = "no rotation of the SSH authorities is under way"
        return (PolicyCondition(SSH_ROTATION_PROGRESSING, True, _phase(_rotations(found)).value, text),)
    reason = next((one.step for _, one in waits if one.step is not Step.PREPARED), Step.PREPARED)
    message = "; ".join(
        f"{SPOKEN[held.purpose]} authority, {one.step.value}: {one.proof.message}" for held, one in waits
    )
    return (PolicyCondition(SSH_ROTATION_PROGRESSING, False, reason.value, printable(message)),)


def _pairs(found: Offer) -> tuple[tuple[HeldAuthority, Progress], ...]:
    return (found.user, found.user_progress), (found.host, found.host_progress)


def _waits(found: Offer) -> Iterator[tuple[HeldAuthority, Waits]]:
    for held, one in _pairs(found):
        if isinstance(one, Waits):
            yield held, one


def _rotations(found: Offer) -> tuple[AuthorityRotation, ...]:
    held = (found.user.rotation, found.host.rotation)
    return tuple(one for one in held if isinstance(one, AuthorityRotation))


def _phase(rotations: tuple[AuthorityRotation, ...]) -> Phase:
    """The phase of both authorities' rotation; there is one."""
    for phase in _UNDER_WAY:
        if any(one.phase is phase for one in rotations):
            return phase
    return max(rotations, key=lambda one: one.at(Moment.FINISHED)).phase


def lagging(found: Offer) -> tuple[str, ...]:
    """The nodes for which a rotation waits; sorted."""
    return tuple(sorted({name for _, one in _waits(found) for name in one.proof.members}))


def is_under_way(found: Offer) -> bool:
    """Whether a rotation of one of the two is under way."""
    return any(not one.phase.is_over for one in _rotations(found))


def status_of(found: Offer) -> JsonObject:
    """``status.ssh``: what people need for ``TrustedUserCAKeys`` and ``known_hosts``, and the rotation."""
    status: JsonObject = {
        "trustVersion": found.authorities.trust.version,
        "userAuthorities": _authorities(found.user),
        "hostAuthorities": _authorities(found.host),
    }
    if rotations := _rotations(found):
        back = any(can_go_back(held) for held, _ in _pairs(found))
        status["rotation"] = {
            "phase": _phase(rotations).value,
            "rollbackAvailable": _rollback(back),
            **{
                SPOKEN[held.purpose]: _rotation(held, held.rotation, one)
                for held, one in _pairs(found)
                if isinstance(held.rotation, AuthorityRotation)
            },
        }
    return status


def _rollback(possible: bool) -> str:
    return RollbackAvailable.FULL.value if possible else RollbackAvailable.NONE.value


def _rotation(held: HeldAuthority, rotation: AuthorityRotation, found: Progress) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "phase": rotation.phase.value,
        "step": rotation.step.value,
        "cause": rotation.cause.value,
        "rollbackAvailable": _rollback(can_go_back(held)),
        "order": rotation.operation,
        **{name: format_time(rotation.times[moment]) for name, moment in _TIMES if moment in rotation.times},
        "skippedGates": [{"gate": one.gate.value, "time": format_time(one.at)} for one in rotation.skipped],
    }
    if isinstance(found, Waits):
        shown["waitsFor"] = printable(found.proof.message)[:MAXIMUM_WAITS_CHARACTERS]
        shown["lagging"] = list(found.proof.members[:MOST_LAGGING])
    return shown


def _authorities(held: HeldAuthority) -> list[JsonObject]:
    shown = [_authority(held.authority.public_key, held.created_at, ISSUING)]
    if isinstance(held.other, OtherAuthority):
        shown.append(_authority(held.other.authority.public_key, held.other.created_at, TRUSTED))
    return shown


def _authority(key: PublicKey, created_at: datetime, state: str) -> JsonObject:
    return {
        "publicKey": key_line(key),
        "fingerprint": key.fingerprint,
        "createdAt": format_time(created_at),
        "state": state,
    }
