"""Bootstrap tokens of MachinePools live as long as their pool, while nothing but attestation lets them in.

Cluster API's kubeadm provider rotates a pool's token every few minutes, because with automatic approval each token is
as good as a node; providers that cannot replace user data in time then boot machines with a token that has run out
(proposal, user story 2). Under Enforce, with automatic approval removed, a token alone is worth nothing, so its Secret
in the workload cluster may be kept from running out. What was extended is marked, and cut back when the reason ends.
"""

from __future__ import annotations

import base64
import contextlib
import enum
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias, assert_never

from signer.kube.calls import ListPatch
from signer.kube.client import JsonObject
from signer.kube.errors import ApiError, Conflict, Forbidden, NotFound
from signer.kube.resources import SECRETS
from signer.model.bootstrap_token import (
    EXTENDED_UNTIL_ANNOTATION,
    TOKEN_SECRET_NAMESPACE,
    TOKEN_SECRET_TYPE,
    InvalidTokenSecret,
    PoolTokenIDs,
    TokenSecret,
    TracingInterrupted,
    TracingOff,
    token_secret,
)
from signer.model.cluster import ClusterKey, ClusterView
from signer.model.condition import MACHINE_POOL_TOKENS_EXTENDED, WAITING_FOR_ATTESTATION, PolicyCondition
from signer.model.decision import printable
from signer.model.kubernetes_time import format_time
from signer.model.policy import MachinePoolTokens, Mode, Policy
from signer.rules.bootstrap_token import CutBack, Due, Extend, LeaveAsItIs, TakeMarkOff, due_for

_LOG = logging.getLogger(__name__)
MAXIMUM_SECRETS: Final = 5000
"""Bootstrap tokens of one cluster that are looked at; Cluster API makes one for each Machine, for some minutes."""
_ROUNDS: Final = 3
"""Each after another writer came first."""


class Intent(enum.Enum):
    """What is to become of the tokens of a cluster's MachinePools."""

    EXTEND = "extend"
    CUT_BACK = "cut back"


class LeaveCause(enum.Enum):
    """Why they are left alone: the condition's reason."""

    PAUSED = "Paused"
    """The Cluster is paused or being deleted: another controller may be at it."""
    AUTO_APPROVAL_UNKNOWN = "AutoApprovalUnknown"
    """Whether automatic approval is removed."""


@dataclass(frozen=True, slots=True)
class LeaveAlone:
    """Every token stays as it is: what was extended is not cut back, and runs out by itself."""

    cause: LeaveCause


def intent_of(policy: Policy, cluster: ClusterView, auto_approval_removed: PolicyCondition) -> Intent | LeaveAlone:
    """Extend while the policy says so, Enforce holds, and nothing approves a stolen token's request.

    That others may still renew without attestation is no matter: no token can.
    """
    if cluster.paused or cluster.deleting:
        return LeaveAlone(LeaveCause.PAUSED)
    if policy.machine_pool_tokens is not MachinePoolTokens.EXTEND or policy.mode is not Mode.ENFORCE:
        return Intent.CUT_BACK
    if auto_approval_removed.met is None:
        return LeaveAlone(LeaveCause.AUTO_APPROVAL_UNKNOWN)
    shut = auto_approval_removed.met or auto_approval_removed.reason == WAITING_FOR_ATTESTATION
    return Intent.EXTEND if shut else Intent.CUT_BACK


@dataclass(frozen=True, slots=True)
class Tended:
    """Done; every token is as it should be."""

    alive: int
    """Tokens of MachinePools that do not run out while they are looked after."""
    extended: int
    """Tokens whose expiration was moved on just now."""
    cut_back: int
    """Tokens of before whose extension was ended just now."""


@dataclass(frozen=True, slots=True)
class ExtensionEnded:
    """The reason to extend is gone: every extension was ended, and nothing is left to do."""

    cut_back: int
    """Tokens whose extension was ended just now."""


@dataclass(frozen=True, slots=True)
class NothingToTend:
    """Not asked for, and nothing of ours is left."""


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """Nothing was looked at, and nothing changed: what was extended before still lives as long."""

    cause: LeaveCause


@dataclass(frozen=True, slots=True)
class TokensNotKnown:
    """Which tokens the MachinePools use is not known: nothing was extended and nothing cut back."""

    cause: str


@dataclass(frozen=True, slots=True)
class GrantMissing:
    """The kubeconfig's user may not do this in the workload cluster."""

    verb: str
    """On Secrets in namespace kube-system."""
    message: str


@dataclass(frozen=True, slots=True)
class Unfinished:
    """Something failed on the way; the next turn goes on."""

    message: str


Outcome: TypeAlias = Tended | ExtensionEnded | NothingToTend | LeftAlone | TokensNotKnown | GrantMissing | Unfinished

_LEFT_ALONE: Final[Mapping[LeaveCause, str]] = {
    LeaveCause.PAUSED: "the Cluster is paused or being deleted",
    LeaveCause.AUTO_APPROVAL_UNKNOWN: "it is not known whether automatic approval is removed",
}


def condition_of(outcome: Outcome) -> PolicyCondition:
    """The policy's condition; of use only where the policy asks for extension."""
    kind = MACHINE_POOL_TOKENS_EXTENDED
    match outcome:
        case Tended():
            return PolicyCondition(kind, True, "Extended", f"bootstrap tokens kept from running out: {outcome.alive}")
        case ExtensionEnded() | NothingToTend():
            return PolicyCondition(
                kind,
                False,
                "AutoApprovalNotRemoved",
                "bootstrap tokens are rotated as always until mode Enforce has removed automatic approval",
            )
        case LeftAlone(cause):
            return PolicyCondition(
                kind, None, cause.value, f"{_LEFT_ALONE[cause]}: bootstrap tokens are left as they are, extended or not"
            )
        case TokensNotKnown():
            return PolicyCondition(kind, False, "BootstrapTokensNotTraceable", printable(outcome.cause))
        case GrantMissing():
            return PolicyCondition(
                kind,
                False,
                "Forbidden",
                printable(
                    f"the kubeconfig's user needs verb {outcome.verb} on secrets in namespace "
                    f"{TOKEN_SECRET_NAMESPACE} of the workload cluster: {outcome.message}"
                ),
            )
        case Unfinished():
            return PolicyCondition(kind, None, "WorkloadClusterUnreachable", printable(outcome.message))
        case never:
            assert_never(never)


class PoolTokens:
    """Looks after the bootstrap tokens of one workload cluster's MachinePools. One turn at a time."""

    def __init__(self, key: ClusterKey, *, now: Callable[[], datetime]) -> None:
        self._key = key
        self._now = now
        self._at_rest = False
        self._has_extended = False

    async def tend(
        self, client: ListPatch, intent: Intent | LeaveAlone, tokens: PoolTokenIDs | TracingOff | TracingInterrupted
    ) -> Outcome:
        """One turn; to be taken every minute, and when a KubeadmConfig of a MachinePool changes.

        The first must come within half of the provider's lifetime of a token. ``client`` is the workload cluster's;
        whatever it answers ends here.
        """
        if isinstance(intent, LeaveAlone):
            return LeftAlone(intent.cause)
        if intent is Intent.CUT_BACK and self._at_rest:
            return NothingToTend()
        if intent is Intent.CUT_BACK:
            wanted: frozenset[str] = frozenset()
        elif isinstance(tokens, PoolTokenIDs):
            wanted, self._at_rest = tokens.token_ids, False
        else:
            return TokensNotKnown(tokens.cause)
        outcome = await self._turn(client, wanted)
        return self._ended(outcome) if intent is Intent.CUT_BACK else outcome

    def _ended(self, outcome: Outcome) -> Outcome:
        """What a turn that only cuts back comes to."""
        self._at_rest = True
        if isinstance(outcome, Tended):
            return ExtensionEnded(outcome.cut_back) if outcome.cut_back else NothingToTend()
        if isinstance(outcome, GrantMissing) and outcome.verb == "list" and not self._has_extended:
            # Who may not even list has most probably never extended anything, and is not asked for it.
            _LOG.info(
                "bootstrap tokens were not looked at", extra={"cluster": str(self._key), "detail": outcome.message}
            )
            return NothingToTend()
        self._at_rest = False
        return outcome

    async def _turn(self, client: ListPatch, wanted: frozenset[str]) -> Outcome:
        extended = cut_back = 0
        for _ in range(_ROUNDS):
            try:
                secrets = await _token_secrets(client)
            except Forbidden as error:
                return GrantMissing("list", str(error))
            except (ApiError, TooManySecrets) as error:
                return Unfinished(str(error))
            alive, contended, now = 0, False, self._now()
            for secret in secrets:
                due = due_for(secret, wanted=secret.token_id in wanted, now=now)
                alive += secret.token_id in wanted and _is_alive(secret, due, now)
                if isinstance(due, LeaveAsItIs):
                    continue
                self._has_extended |= isinstance(due, Extend)  # before the answer, which may be lost
                try:
                    await client.patch(SECRETS.object(secret.name, TOKEN_SECRET_NAMESPACE), _patch(secret, due))
                except (Conflict, NotFound):
                    contended = True
                except Forbidden as error:
                    return GrantMissing("patch", str(error))
                except ApiError as error:
                    return Unfinished(str(error))
                else:
                    extended += isinstance(due, Extend)
                    cut_back += isinstance(due, CutBack)
                    _LOG.info(_DONE[type(due)], extra={"cluster": str(self._key), "secret": secret.name})
            if not contended:
                return Tended(alive, extended, cut_back)
        return Unfinished("the bootstrap tokens' Secrets are being changed by others")


_DONE: Final[Mapping[type[Due], str]] = {
    Extend: "extended the bootstrap token of a MachinePool",
    CutBack: "cut back the bootstrap token of a MachinePool",
    TakeMarkOff: "no longer look after the bootstrap token of a MachinePool",
}


class TooManySecrets(Exception):
    """More bootstrap tokens than are looked at."""


async def _token_secrets(client: ListPatch) -> tuple[TokenSecret, ...]:
    """All bootstrap tokens of the cluster, their secret halves dropped page by page.

    Raises:
        TooManySecrets: more than ``MAXIMUM_SECRETS``.
        ApiError: they cannot be listed.
    """
    found: list[TokenSecret] = []
    listed = 0
    selector: dict[str, str | int | bool] = {"fieldSelector": f"type={TOKEN_SECRET_TYPE}"}
    async for page in client.list_pages(SECRETS.collection(TOKEN_SECRET_NAMESPACE), selector):
        listed += len(page["items"])
        if listed > MAXIMUM_SECRETS:
            raise TooManySecrets(f"the workload cluster has more than {MAXIMUM_SECRETS} bootstrap tokens")
        found += _read(page["items"])
        del page  # the next one may be long in coming
    return tuple(found)


def _read(items: Iterable[object]) -> list[TokenSecret]:
    found: list[TokenSecret] = []
    for item in items:
        if isinstance(item, Mapping):
            with contextlib.suppress(InvalidTokenSecret):
                found.append(token_secret(item))
    return found


def _is_alive(secret: TokenSecret, due: Due, now: datetime) -> bool:
    if not secret.authenticates:
        return False
    return isinstance(due, Extend) or not isinstance(secret.expiration, datetime) or secret.expiration > now


def _patch(secret: TokenSecret, due: Extend | CutBack | TakeMarkOff) -> JsonObject:
    """A merge patch of the very Secret that was read: with its resourceVersion, or it fails."""
    mark: str | None = None  # removes the annotation
    data: dict[str, Any] = {}
    if not isinstance(due, TakeMarkOff):
        until = format_time(due.until)
        data = {"data": {"expiration": base64.b64encode(until.encode("ascii")).decode("ascii")}}
        mark = until if isinstance(due, Extend) else None
    metadata = {"resourceVersion": secret.resource_version, "annotations": {EXTENDED_UNTIL_ANNOTATION: mark}}
    return {"metadata": metadata, **data}
