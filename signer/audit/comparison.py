"""Compares a logged decision with its replay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from signer.audit.decision_line import DecisionLine, LoggedDecision
from signer.audit.errors import Inconsistent
from signer.audit.replay import Replayed, replay
from signer.audit.replay_attestors import ReplayAttestors
from signer.audit.values import InvalidValue
from signer.model.decision import printable
from signer.model.reasons import Reason

_FROM_OUTSIDE: Final = frozenset(
    {
        Reason.RESERVATION_PENDING,
        Reason.MANAGEMENT_CLUSTER_UNREACHABLE,
        Reason.NAMESPACE_OVER_LIMIT,
        Reason.WORKLOAD_CLUSTER_UNREACHABLE,
        Reason.WORKLOAD_GRANT_MISSING,
        Reason.CERTIFICATE_AUTHORITY_UNAVAILABLE,
        Reason.CERTIFICATE_AUTHORITY_NOT_TRUSTED,
        Reason.CERTIFICATE_AUTHORITY_NOT_PROVEN,
        Reason.CONTROLLER_KEY_UNAVAILABLE,
        Reason.CLOCKS_DIFFER,
        Reason.ATTESTOR_UNAVAILABLE,
        Reason.POLICY_INVALID,
        Reason.BOOTSTRAP_TOKEN_UNTRACEABLE,
        Reason.IDENTITY_CONFLICT,
    }
)
"""Reasons of deferrals that come from other services, or from changes while the request was being decided."""

_MAY_HAVE_WAITED: Final = frozenset({"", "Approve", "ApproveOnly", "Deny", "Fail"})
"""The results of a replay, which calls no other service, for such deferrals."""

_RESERVATIONS_REFUSALS: Final = (
    ("Deny", Reason.IDENTITY_CONFLICT),
    ("Fail", Reason.IDENTITY_CONFLICT),
    ("Fail", Reason.APPROVED_BY_OTHERS),
)


@dataclass(frozen=True, slots=True)
class Reproduced:
    """The replay gives the same decision with the same reason, and every part was replayed."""


@dataclass(frozen=True, slots=True)
class ReproducedInPart:
    """The replay gives the same decision, but some parts were taken from the log."""

    taken: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Differs:
    """The replay gives another decision."""

    why: str


Comparison: TypeAlias = Reproduced | ReproducedInPart | Differs


async def compare(line: DecisionLine, plugins: ReplayAttestors) -> Comparison:
    """Replay the line and compare the decisions."""
    logged = line.decision
    if (logged.kind, logged.reason) == ("Defer", Reason.INTERNAL_ERROR):
        return ReproducedInPart(("the internal error",))  # the log does not have its cause
    try:
        again = await replay(line, plugins)
    except (Inconsistent, InvalidValue) as error:
        return Differs(printable(str(error)))
    except Exception as error:  # noqa: BLE001 - a forged line must not stop the verification of the others
        return Differs(f"it cannot be replayed: {type(error).__name__}")
    if (again.kind, again.reason) == (logged.kind, logged.reason) or _fails_instead(logged, again):
        return ReproducedInPart(again.taken) if again.taken else Reproduced()
    if logged.kind == "Defer" and logged.reason in _FROM_OUTSIDE and again.kind in _MAY_HAVE_WAITED:
        return ReproducedInPart((*again.taken, f"the reason of the deferral, {logged.reason}"))
    if _refused_by_reservations(logged, again):
        return ReproducedInPart((*again.taken, "the reservations' refusal"))
    return Differs(_difference(logged, again))


def _fails_instead(logged: LoggedDecision, again: Replayed) -> bool:
    """An approved request cannot be denied. It fails instead, with the same reason or with ``ApprovedByOthers``."""
    return (
        logged.kind == "Fail"
        and again.kind in ("Deny", "Challenge")
        and logged.reason in (again.reason, Reason.APPROVED_BY_OTHERS)
    )


def _refused_by_reservations(logged: LoggedDecision, again: Replayed) -> bool:
    return (
        (logged.kind, logged.reason) in _RESERVATIONS_REFUSALS
        and again.kind == ""
        and again.message.endswith("the reservation")
    )


def _difference(logged: LoggedDecision, again: Replayed) -> str:
    given = f"{again.kind} {again.reason}" if again.kind else "no decision"
    detail = f": {again.message}" if again.message else ""
    return printable(f"logged is {logged.kind} {logged.reason}; the line's facts give {given}{detail}")
