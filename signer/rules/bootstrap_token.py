"""Rules for bootstrap tokens: which Machine may use a token, and how long the tokens of MachinePools live.

A token restricts a first join to the Machine that it was made for. That is an additional check, never a proof: the
workload API server says which token was used, and Cluster API's contract does not require that each token is written
into a KubeadmConfig. So the check may deny or defer a request, and never speaks for it.
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

_RECHECK_AFTER: Final = timedelta(minutes=5)
_RECHECK_AFTER_INTERRUPTION: Final = timedelta(seconds=10)
"""Short, because a watch that resumes without changes wakes no deferred request."""
_NAMED_OWNERS: Final = 3

EXTEND_BELOW: Final = timedelta(hours=12)
"""A token is extended when less than this is left. Cluster API's kubeadm provider rotates a pool's token when less than
half of ``--bootstrap-token-ttl`` is left: 7.5 of 15 minutes by default. With a flag of more than a day, the provider
would rotate before this extends."""
EXTEND_TO: Final = timedelta(hours=24)
SHORTEN_TO: Final = timedelta(minutes=15)
"""The time that a machine that is booting has left to use the token; the provider's default lifetime."""


@dataclass(frozen=True, slots=True)
class TokenFacts:
    """The input of the bootstrap token check."""

    asks: NodeAsks | TokenAsks
    machine: MachineView
    """The Machine that the evidence proves."""
    policy: Policy


def token_is_the_machines(facts: TokenFacts) -> None:
    """The bootstrap token was made for this Machine, or for its MachinePool.

    Raises:
        Refused: the token was made for other owners.
        Deferred: the token's owner is unknown and the policy requires it, or tracing is interrupted.
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
            raise Deferred(Reason.MANAGEMENT_CLUSTER_UNREACHABLE, cause, _RECHECK_AFTER_INTERRUPTION)
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
        raise Deferred(Reason.BOOTSTRAP_TOKEN_UNTRACEABLE, message, _RECHECK_AFTER)


@dataclass(frozen=True, slots=True)
class Extend:
    """Write this expiration and the extension annotation."""

    until: datetime


@dataclass(frozen=True, slots=True)
class Shorten:
    """Write this expiration and remove the extension annotation."""

    until: datetime


@dataclass(frozen=True, slots=True)
class RemoveAnnotation:
    """Remove the extension annotation: the expiration is no longer ours, or is near enough."""


@dataclass(frozen=True, slots=True)
class NoChange:
    """Leave the Secret as it is."""


TokenChange: TypeAlias = Extend | Shorten | RemoveAnnotation | NoChange


def token_change(secret: TokenSecret, *, wanted: bool, now: datetime) -> TokenChange:
    """The change that a token's Secret needs. ``wanted``: a living MachinePool uses the token and may go on using it.

    An expired token is never extended: the provider makes a new one. A token that was never extended is not shortened.
    """
    if isinstance(secret.expiration, NeverExpires):
        return RemoveAnnotation() if secret.extension is not Extension.NONE and not wanted else NoChange()
    if wanted:
        is_due = secret.authenticates and now < secret.expiration < now + EXTEND_BELOW
        return Extend(now + EXTEND_TO) if is_due else NoChange()
    if secret.extension is Extension.NONE:
        return NoChange()
    if secret.extension is Extension.OURS and secret.expiration > now + SHORTEN_TO:
        return Shorten(now + SHORTEN_TO)
    return RemoveAnnotation()
