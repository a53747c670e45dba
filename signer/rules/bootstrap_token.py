"""Rules about bootstrap tokens: whose requests one may be used for, and how long those of MachinePools live.

A token narrows a first join to the Machine that it was made for. That is an additional sign only, never a proof: which
token asks is the workload API server's word, and that Cluster API writes each token into a KubeadmConfig is no rule of
its contract. So the check refuses, or says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias, assert_never

from signer.model.bootstrap_token import (
    Extension,
    NeverExpires,
    NodeAsks,
    TokenAsks,
    TokenOwner,
    TokenSecret,
    TracedTo,
    TracingInterrupted,
    TracingOff,
    Untraceable,
)
from signer.model.cluster import MachineView
from signer.model.decision import Deferred, Refused
from signer.model.policy import Policy, UntraceableTokens
from signer.model.reasons import Reason

_LOOK_AGAIN: Final = timedelta(minutes=5)
_INTERRUPTED_LOOK_AGAIN: Final = timedelta(seconds=10)
"""Nobody is woken by a collection that is watched again and has not changed."""
_NAMED_OWNERS: Final = 3

EXTEND_BELOW: Final = timedelta(hours=12)
"""Cluster API's provider rotates a pool's token when less than half of its own lifetime is left: 7.5 minutes of 15 by
default (``--bootstrap-token-ttl``). With more than a day for that flag, it would rotate before this extends."""
EXTEND_TO: Final = timedelta(hours=24)
CUT_BACK_TO: Final = timedelta(minutes=15)
"""What is left to a machine that is just booting; the provider's default lifetime."""


@dataclass(frozen=True, slots=True)
class TokenFacts:
    """What the check of the bootstrap token looks at."""

    asks: NodeAsks | TokenAsks
    machine: MachineView
    """Whom the evidence proves."""
    policy: Policy


def token_is_the_machines(facts: TokenFacts) -> None:
    """A token that was made for another Machine was taken from there; one of the Machine's own pool is its own.

    Raises:
        Refused: it was made for others.
        Deferred: it cannot be told whose it is, and the policy wants to know; or at this moment nobody can tell.
    """
    if isinstance(facts.asks, NodeAsks):
        return
    match facts.asks.trace:
        case TracedTo(owners):
            _require_owner(owners, facts.machine)
        case Untraceable():
            _require_allowed(facts, f"no KubeadmConfig of Cluster {facts.machine.cluster} holds the bootstrap token")
        case TracingOff(cause):
            _require_allowed(facts, f"bootstrap tokens are not traced: {cause}")
        case TracingInterrupted(cause):
            raise Deferred(Reason.MANAGEMENT_CLUSTER_UNREACHABLE, cause, _INTERRUPTED_LOOK_AGAIN)
        case never:
            assert_never(never)


def _require_owner(owners: frozenset[TokenOwner], machine: MachineView) -> None:
    if any(owner.is_owner_of(machine) for owner in owners):
        return
    names = sorted({str(owner) for owner in owners})
    made_for = " and ".join(names[:_NAMED_OWNERS]) + (" and others" if len(names) > _NAMED_OWNERS else "")
    raise Refused(
        Reason.BOOTSTRAP_TOKEN_MISMATCH,
        f"the bootstrap token was made for {made_for}; the evidence proves {machine}",
    )


def _require_allowed(facts: TokenFacts, message: str) -> None:
    if facts.policy.untraceable_tokens is not UntraceableTokens.ALLOW:
        raise Deferred(Reason.BOOTSTRAP_TOKEN_UNTRACEABLE, message, _LOOK_AGAIN)


@dataclass(frozen=True, slots=True)
class Extend:
    """Write this expiration, and our mark with it."""

    until: datetime


@dataclass(frozen=True, slots=True)
class CutBack:
    """Write this expiration, and take our mark off."""

    until: datetime


@dataclass(frozen=True, slots=True)
class TakeMarkOff:
    """The expiration is not ours any more, or near enough; our mark has nothing to say."""


@dataclass(frozen=True, slots=True)
class LeaveAsItIs:
    """Nothing is due."""


Due: TypeAlias = Extend | CutBack | TakeMarkOff | LeaveAsItIs


def due_for(secret: TokenSecret, *, wanted: bool, now: datetime) -> Due:
    """What is due for a bootstrap token; ``wanted`` says that a living MachinePool uses it, and may go on using it.

    A token that has run out stays so: its owner's provider makes a new one. What was never extended is never shortened.
    """
    if isinstance(secret.expiration, NeverExpires):
        return TakeMarkOff() if secret.extension is not Extension.NONE and not wanted else LeaveAsItIs()
    if wanted:
        is_due = secret.authenticates and now < secret.expiration < now + EXTEND_BELOW
        return Extend(now + EXTEND_TO) if is_due else LeaveAsItIs()
    if secret.extension is Extension.NONE:
        return LeaveAsItIs()
    if secret.extension is Extension.OURS and secret.expiration > now + CUT_BACK_TO:
        return CutBack(now + CUT_BACK_TO)
    return TakeMarkOff()
