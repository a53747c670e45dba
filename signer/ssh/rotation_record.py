"""The state of one SSH authority's rotation, as its Secret keeps it under the seal. Pure.

Phases, times and skipped gates are those of the rotation of CAs (:mod:`signer.rotation`). Each of the two authorities
has its own state in its own Secret, beside its keys: so one write changes keys and state together, and neither can be
restored or moved without the other.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

from signer.model.fields import format_time, parse_time
from signer.rotation.operations import Gate
from signer.rotation.phases import Phase
from signer.rotation.record import Moment, SkippedGate

_KEYS: Final = frozenset({"phase", "step", "cause", "operation", "skipped", "times"})
_MAXIMUM_OPERATION_CHARACTERS: Final = 256


class Step(enum.Enum):
    """What the rotation of one authority works on."""

    NODES_TRUST = "NodesTrust"
    """Every node trusts the new user authority. Then it signs."""
    PREPARED = "Prepared"
    """Both are trusted. A person gives clients the new host authority, and decides."""
    CERTIFICATES_END = "CertificatesEnd"
    """The last certificate of the user authority that signs no more has ended."""
    NODES_RENEW = "NodesRenew"
    """Every node has a certificate of the host authority that signs."""
    NODES_FORGET = "NodesForget"
    """Every node trusts no user authority but the one that signs, and the break-glass ones."""


STEPS_OF_USER: Final = (Step.NODES_TRUST, Step.PREPARED, Step.CERTIFICATES_END, Step.NODES_FORGET)
STEPS_OF_HOST: Final = (Step.PREPARED, Step.NODES_RENEW)


class Cause(enum.Enum):
    """Why another authority is made."""

    ORDERED = "Ordered"
    REVOKED = "Revoked"
    """A thief may have the former one: it lost all trust at once."""


@dataclass(frozen=True, slots=True)
class AuthorityRotation:
    """The present rotation of one authority, or its last one."""

    phase: Phase
    step: Step
    cause: Cause
    operation: str
    """Identifier of the order that was carried out last: the same order is never carried out twice."""
    times: Mapping[Moment, datetime] = field(default_factory=lambda: MappingProxyType({}))
    """``SWITCHED`` is when the authority that signs began to."""
    skipped: tuple[SkippedGate, ...] = ()

    def skips(self, gate: Gate) -> bool:
        """Whether a person had the gate skipped in this rotation."""
        return any(one.gate is gate for one in self.skipped)

    def at(self, moment: Moment) -> datetime:
        """That time. Raises LookupError: it has not come."""
        return self.times[moment]

    def next(self, now: datetime, *moments: Moment, **changes: Any) -> AuthorityRotation:
        """The state after a change; ``moments`` come now, to the second. Entering another step sets its time."""
        entered = (Moment.STEP,) if changes.get("step", self.step) is not self.step else ()
        times = {**self.times, **dict.fromkeys((*moments, *entered), now.replace(microsecond=0))}
        return replace(self, times=MappingProxyType(times), **changes)


class InvalidState(ValueError):
    """The text is no state that this release writes."""


def state_text(rotation: AuthorityRotation) -> str:
    """The state as the Secret's annotation holds it."""
    return json.dumps(
        {
            "phase": rotation.phase.value,
            "step": rotation.step.value,
            "cause": rotation.cause.value,
            "operation": rotation.operation,
            "skipped": [{"gate": one.gate.value, "time": format_time(one.at)} for one in rotation.skipped],
            "times": {moment.value: format_time(at) for moment, at in rotation.times.items()},
        },
        sort_keys=True,
    )


def parse_state(text: str) -> AuthorityRotation:
    """Read what :func:`state_text` wrote. Its seal was verified, so only another release can have written more.

    Raises:
        InvalidState: it is anything else.
    """
    try:
        found = json.loads(text)
        if found.keys() != _KEYS or len(found["operation"]) > _MAXIMUM_OPERATION_CHARACTERS:
            raise ValueError("other fields")
        return AuthorityRotation(
            Phase(found["phase"]),
            Step(found["step"]),
            Cause(found["cause"]),
            str(found["operation"]),
            MappingProxyType({Moment(name): parse_time(at) for name, at in found["times"].items()}),
            tuple(SkippedGate(Gate(one["gate"]), parse_time(one["time"])) for one in found["skipped"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidState(f"the state of a rotation is none of this release's: {type(error).__name__}") from error


def begun(operation: str, step: Step, cause: Cause, phase: Phase, now: datetime, *moments: Moment) -> AuthorityRotation:
    """The first state of a rotation."""
    at = now.astimezone(UTC).replace(microsecond=0)
    times = dict.fromkeys((Moment.STARTED, Moment.STEP, *moments), at)
    return AuthorityRotation(phase, step, cause, operation, MappingProxyType(times))


__all__ = [
    "STEPS_OF_HOST",
    "STEPS_OF_USER",
    "AuthorityRotation",
    "Cause",
    "InvalidState",
    "Step",
    "begun",
    "parse_state",
    "state_text",
]
