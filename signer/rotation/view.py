"""A rotation as people see it: made from the policy's status and the CertificateAuthorityRotation. Pure.

A viewer cannot verify the seal, and need not: the controller says in the policy's conditions when it does not hold.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

from signer.model.cluster import ClusterKey
from signer.model.decision import printable
from signer.model.fields import format_time, items_of, mapping_of, parse_time, text_of
from signer.rotation.authorities import NotMade
from signer.rotation.condition_types import LEFTOVERS_FOUND, OPERATION_REJECTED, ROTATION_PROGRESSING, ROTATION_STALLED
from signer.rotation.operations import OPERATION_ANNOTATION
from signer.rotation.phases import BACK, Phase, RollbackAvailable, SigningPairs, Step, forward
from signer.rotation.plan import HELD, TITLES
from signer.rotation.record import InvalidRotation, Moment, NotYet, RotationRecord, parse_rotation

_MOST_ITEMS: Final = 100
_MAXIMUM_CHARACTERS: Final = 4096
UNVERIFIED: Final = "Unverified"
"""Reason of condition ``CertificateAuthorityRotationProgressing``."""


class Attention(enum.Enum):
    """Whether a person must do something; the value is for scripts."""

    NONE = "None"
    """No rotation is under way, or the controller goes on by itself."""
    PERSON = "WaitsForPerson"
    """It is as it should be, and waits for what only a person can do."""
    NEEDED = "NeedsAttention"
    """It has stalled, or its state does not count."""


class StepState(enum.Enum):
    """Where a step of the plan is."""

    PROVEN = "Proven"
    CURRENT = "Current"
    AHEAD = "Ahead"


@dataclass(frozen=True, slots=True)
class StepView:
    """One step of the plan."""

    step: Step
    state: StepState

    @property
    def title(self) -> str:
        """What is proven at its end."""
        return TITLES[self.step]


@dataclass(frozen=True, slots=True)
class ConditionView:
    """One condition of the policy."""

    type: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class AuthorityView:
    """One authority of the rotation."""

    kind: str
    old: str
    """The discovery hash."""
    old_not_after: str
    new: str = ""
    """Empty while it is not made."""
    new_not_after: str = ""


@dataclass(frozen=True, slots=True)
class ServerView:
    """One API server, as it answered last."""

    machine: str
    presents: str
    accepts_old: str
    accepts_new: str
    time: str


@dataclass(frozen=True, slots=True)
class NodesView:
    """The nodes, as they attested last."""

    total: int
    trust_new: int
    client_by_new: int
    serving_by_new: int
    lagging: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NoRotation:
    """The Cluster has no rotation, or none that can be read."""

    cluster: ClusterKey
    conditions: tuple[ConditionView, ...] = ()
    pending_order: str = ""
    """The operation that no controller has taken yet; empty if there is none."""
    fault: str = ""
    """Why the object that exists is no rotation."""

    @property
    def attention(self) -> Attention:
        """See there."""
        return Attention.NEEDED if self.fault or _is_unverified(self.conditions) else Attention.NONE


@dataclass(frozen=True, slots=True)
class RotationView:
    """The present or last rotation of a Cluster."""

    cluster: ClusterKey
    rotation_id: str
    phase: Phase
    step: Step
    held: bool
    """Clients are signed by the old CA again, and the servers stay with the new one."""
    step_since: datetime | NotYet
    times: Mapping[str, str]
    """By the names of the policy's status."""
    authorities: tuple[AuthorityView, ...]
    rollback_available: RollbackAvailable
    skipped: tuple[tuple[str, str], ...]
    """Gates, and when each was skipped."""
    nodes: NodesView
    servers: tuple[ServerView, ...]
    conditions: tuple[ConditionView, ...]
    pending_order: str
    reported: bool
    """Whether the policy's status is of this rotation: a controller rotates."""
    up_to_date: bool
    """Whether it is of the present step. The status is written some seconds after the record."""
    signing_pairs: SigningPairs

    @property
    def steps(self) -> tuple[StepView, ...]:
        """The plan in its direction."""
        direction = BACK if self.step in BACK else forward(self.signing_pairs)
        plan = direction[:1] if self.held else direction
        ended = self.phase.is_over and self.phase is not Phase.ABANDONED
        position = len(plan) if ended else plan.index(self.step)
        return tuple(StepView(step, _state(index, position)) for index, step in enumerate(plan))

    @property
    def waits_for(self) -> str:
        """What it waits for, and what to do; empty if it goes on, or is over. A former step's waits are over."""
        found = condition(self.conditions, ROTATION_PROGRESSING)
        waits = found.status in ("False", "Unknown") and not self.phase.is_over
        return found.message if waits and (self.up_to_date or found.reason == UNVERIFIED) else ""

    @property
    def leftovers(self) -> str:
        """What still holds the old CA after the rotation; empty if nothing is known to."""
        found = condition(self.conditions, LEFTOVERS_FOUND)
        return found.message if found.status == "True" else ""

    @property
    def reason(self) -> str:
        """Why it waits, in one word; empty if it goes on."""
        return condition(self.conditions, ROTATION_PROGRESSING).reason if self.waits_for else ""

    @property
    def counts(self) -> bool:
        """Whether the record authenticates, as the controller says."""
        return not _is_unverified(self.conditions)

    @property
    def attention(self) -> Attention:
        """See there."""
        if not self.counts:
            return Attention.NEEDED
        if self.phase.is_over:
            return Attention.NONE
        stalled = self.up_to_date and condition(self.conditions, ROTATION_STALLED).status == "True"
        if not self.reported or stalled:
            return Attention.NEEDED
        return Attention.PERSON if self.waits_for_person else Attention.NONE

    @property
    def waits_for_person(self) -> bool:
        """Whether the next move is a person's."""
        return self.held or self.phase in (Phase.PREPARED, Phase.WAITING_FOR_WORKERS_ROLLOUT)


View: TypeAlias = RotationView | NoRotation


def _state(index: int, position: int) -> StepState:
    if index == position:
        return StepState.CURRENT
    return StepState.PROVEN if index < position else StepState.AHEAD


def condition(conditions: tuple[ConditionView, ...], kind: str) -> ConditionView:
    """The condition of that type; one with an empty status if there is none."""
    return next((one for one in conditions if one.type == kind), ConditionView(kind, "", "", ""))


def rejection(conditions: tuple[ConditionView, ...]) -> str:
    """The operation that was rejected last, and why; empty if the last one was accepted."""
    found = condition(conditions, OPERATION_REJECTED)
    return found.message if found.status == "True" else ""


def _is_unverified(conditions: tuple[ConditionView, ...]) -> bool:
    return condition(conditions, ROTATION_PROGRESSING).reason == UNVERIFIED


def rotation_view(key: ClusterKey, policy: Mapping[str, Any], rotation: Mapping[str, Any]) -> View:
    """Read both objects, as they came from the API server; each is empty if it does not exist or may not be read."""
    conditions = tuple(_conditions(policy))
    annotations = mapping_of(mapping_of(policy, "metadata"), "annotations")
    pending = _shown(annotations, OPERATION_ANNOTATION)
    status = mapping_of(policy, "status")
    for name in ("credentials", "rotation", "certificateAuthorities"):
        status = mapping_of(status, name)
    if not rotation:
        return _by_status(key, status, conditions, pending)
    try:
        record = parse_rotation(rotation).claimed
    except InvalidRotation as error:
        return NoRotation(key, conditions, pending, printable(str(error)))
    return _by_record(record, status, conditions, pending)


def _by_record(
    record: RotationRecord, status: Mapping[str, Any], conditions: tuple[ConditionView, ...], pending: str
) -> RotationView:
    authorities = tuple(
        AuthorityView(one.kind.value, one.old.public_key_hash, _day(one.old.not_after))
        if isinstance(one.new, NotMade)
        else AuthorityView(
            one.kind.value,
            one.old.public_key_hash,
            _day(one.old.not_after),
            one.new.public_key_hash,
            _day(one.new.not_after),
        )
        for one in record.authorities
    )
    reported = text_of(status, "rotationID") == record.rotation_id
    up_to_date = reported and text_of(status, "step") == record.step.value
    own = status if reported else {}
    return RotationView(
        cluster=record.cluster,
        rotation_id=record.rotation_id,
        phase=record.phase,
        step=record.step,
        held=record.step is Step.SIGN_BY_OLD and isinstance(record.held_at, Step),
        step_since=record.at(Moment.STEP),
        times={moment.value: format_time(at) for moment, at in record.times.items()},
        authorities=authorities,
        rollback_available=_rollback(own) if up_to_date else record.rollback_available,
        skipped=tuple((one.gate.value, format_time(one.at)) for one in record.skipped),
        nodes=_nodes(own),
        servers=tuple(_servers(own)),
        conditions=conditions,
        pending_order=pending,
        reported=reported,
        up_to_date=up_to_date,
        signing_pairs=record.signing_pairs,
    )


_TIMES: Final = {
    "lastInitiationTime": Moment.STARTED,
    "lastInitiationFinishedTime": Moment.PREPARED,
    "lastCompletionTriggeredTime": Moment.COMPLETION_TRIGGERED,
    "lastCompletionTime": Moment.FINISHED,
    "linkNotAfter": Moment.LINK_ENDS,
}


def _by_status(key: ClusterKey, status: Mapping[str, Any], conditions: tuple[ConditionView, ...], pending: str) -> View:
    """What the policy's status alone shows, to a viewer who may not read the rotation."""
    try:
        phase, step = Phase(status["phase"]), Step(status["step"])
    except (KeyError, TypeError, ValueError):
        return NoRotation(key, conditions, pending)
    old, new = mapping_of(status, "current"), mapping_of(status, "next")
    return RotationView(
        cluster=key,
        rotation_id=_shown(status, "rotationID"),
        phase=phase,
        step=step,
        held=condition(conditions, ROTATION_PROGRESSING).reason == HELD,
        step_since=NotYet(),
        times={moment.value: _shown(status, name) for name, moment in _TIMES.items() if name in status},
        authorities=(AuthorityView("ca", _shown(old, "hash"), _end(old), _shown(new, "hash"), _end(new)),),
        rollback_available=_rollback(status),
        skipped=tuple((_shown(one, "gate"), _shown(one, "time")) for one in _objects(status, "skippedGates")),
        nodes=_nodes(status),
        servers=tuple(_servers(status)),
        conditions=conditions,
        pending_order=pending,
        reported=True,
        up_to_date=True,
        signing_pairs=_signing_pairs(status, step),
    )


def _signing_pairs(status: Mapping[str, Any], step: Step) -> SigningPairs:
    split = text_of(status, "signingPairs") == SigningPairs.SPLIT.value or step is Step.CONTROLLER_MANAGERS_SIGN
    return SigningPairs.SPLIT if split else SigningPairs.ONE_PAIR


def _rollback(status: Mapping[str, Any]) -> RollbackAvailable:
    try:
        return RollbackAvailable(text_of(status, "rollbackAvailable"))
    except ValueError:
        return RollbackAvailable.NONE


def _nodes(status: Mapping[str, Any]) -> NodesView:
    nodes = mapping_of(status, "nodes")
    lagging = (printable(one) for one in items_of(nodes, "lagging")[:_MOST_ITEMS] if isinstance(one, str))
    return NodesView(
        _count(nodes, "total"),
        _count(nodes, "trustNew"),
        _count(nodes, "clientByNew"),
        _count(nodes, "servingByNew"),
        tuple(lagging),
    )


def _servers(status: Mapping[str, Any]) -> Iterator[ServerView]:
    for one in _objects(status, "apiServers"):
        yield ServerView(*(_shown(one, name) for name in ("machine", "presents", "acceptsOld", "acceptsNew", "time")))


def _conditions(policy: Mapping[str, Any]) -> Iterator[ConditionView]:
    for one in _objects(mapping_of(policy, "status"), "conditions"):
        yield ConditionView(*(_shown(one, name) for name in ("type", "status", "reason", "message")))


def _objects(parent: Mapping[str, Any], key: str) -> Iterator[Mapping[str, Any]]:
    return (one for one in items_of(parent, key)[:_MOST_ITEMS] if isinstance(one, Mapping))


def _shown(parent: Mapping[str, Any], key: str) -> str:
    return printable(text_of(parent, key)[:_MAXIMUM_CHARACTERS])


def _count(parent: Mapping[str, Any], key: str) -> int:
    value = parent.get(key)
    return value if type(value) is int else 0


def _end(authority: Mapping[str, Any]) -> str:
    try:
        return _day(parse_time(text_of(authority, "notAfter")))
    except ValueError:
        return ""


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d}"
