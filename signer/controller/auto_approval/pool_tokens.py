"""Extends the bootstrap tokens of MachinePools while auto-approval is removed.

Cluster API's kubeadm provider rotates a pool's token every few minutes, because with auto-approval each token can
create a node. Providers that cannot replace user data in time then boot machines with an expired token (proposal, user
story 2). Under Enforce, with auto-approval removed, a token alone gives no certificate, so the controller may extend
the token's Secret in the workload cluster. Extended Secrets are annotated, and cut back when the reason ends.
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
from signer.model.fields import format_time
from signer.model.policy import MachinePoolTokens, Mode, Policy
from signer.rules.bootstrap_token import Extend, NoChange, RemoveAnnotation, Shorten, TokenChange, token_change

_LOG = logging.getLogger(__name__)
MAXIMUM_SECRETS: Final = 5000
"""Maximum number of one cluster's bootstrap tokens; Cluster API creates one per Machine, for some minutes."""
_ROUNDS: Final = 3
"""Attempts when another client changes the Secrets concurrently."""


class Intent(enum.Enum):
    """What to do with the tokens of a cluster's MachinePools."""

    EXTEND = "extend"
    CUT_BACK = "cut back"


class LeaveCause(enum.Enum):
    """Why the tokens are left alone: the condition's reason."""

    PAUSED = "Paused"
    """The Cluster is paused or being deleted: another controller may be changing it."""
    AUTO_APPROVAL_UNKNOWN = "AutoApprovalUnknown"
    """It is unknown whether auto-approval is removed."""


@dataclass(frozen=True, slots=True)
class LeaveAlone:
    """Every token stays as it is; extended ones are not cut back, and expire by themselves."""

    cause: LeaveCause


def intent_of(policy: Policy, cluster: ClusterView, auto_approval_removed: PolicyCondition) -> Intent | LeaveAlone:
    """Extend if the policy asks for it, the mode is Enforce, and a stolen token's request is not auto-approved.

    Auto-approved renewal does not matter here, because a bootstrap token cannot renew.
    """
    if cluster.paused or cluster.deleting:
        return LeaveAlone(LeaveCause.PAUSED)
    if policy.machine_pool_tokens is not MachinePoolTokens.EXTEND or policy.mode is not Mode.ENFORCE:
        return Intent.CUT_BACK
    if auto_approval_removed.met is None:
        return LeaveAlone(LeaveCause.AUTO_APPROVAL_UNKNOWN)
    removed = auto_approval_removed.met or auto_approval_removed.reason == WAITING_FOR_ATTESTATION
    return Intent.EXTEND if removed else Intent.CUT_BACK


@dataclass(frozen=True, slots=True)
class Tended:
    """Every token is as intended."""

    alive: int
    """Valid tokens of MachinePools, which do not expire while they are extended."""
    extended: int
    """Tokens that were extended by this call."""
    cut_back: int
    """Unused tokens that were cut back by this call."""


@dataclass(frozen=True, slots=True)
class ExtensionEnded:
    """The reason to extend is gone, and every extended token was cut back."""

    cut_back: int
    """Tokens that were cut back by this call."""


@dataclass(frozen=True, slots=True)
class NothingToTend:
    """Extension is not requested, and no extended token is left."""


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """Nothing was read or changed; extended tokens stay extended."""

    cause: LeaveCause


@dataclass(frozen=True, slots=True)
class TokensNotKnown:
    """It is unknown which tokens the MachinePools use: nothing was extended or cut back."""

    cause: str


@dataclass(frozen=True, slots=True)
class GrantMissing:
    """The kubeconfig's user may not do this in the workload cluster."""

    verb: str
    """Verb on Secrets in namespace kube-system."""
    message: str


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A call failed; the next reconciliation continues."""

    message: str


Outcome: TypeAlias = Tended | ExtensionEnded | NothingToTend | LeftAlone | TokensNotKnown | GrantMissing | Unfinished

_LEAVE_CAUSES: Final[Mapping[LeaveCause, str]] = {
    LeaveCause.PAUSED: "the Cluster is paused or being deleted",
    LeaveCause.AUTO_APPROVAL_UNKNOWN: "it is not known whether automatic approval is removed",
}


def condition_of(outcome: Outcome) -> PolicyCondition:
    """The policy's condition; only meaningful if the policy asks for extension."""
    kind = MACHINE_POOL_TOKENS_EXTENDED
    match outcome:
        case Tended():
            return PolicyCondition(kind, True, "Extended", f"bootstrap tokens kept from expiring: {outcome.alive}")
        case ExtensionEnded() | NothingToTend():
            return PolicyCondition(
                kind,
                False,
                "AutoApprovalNotRemoved",
                "bootstrap tokens are rotated as usual until mode Enforce has removed automatic approval",
            )
        case LeftAlone(cause):
            return PolicyCondition(
                kind,
                None,
                cause.value,
                f"{_LEAVE_CAUSES[cause]}: bootstrap tokens are left as they are, extended or not",
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
    """Extends and cuts back the bootstrap tokens of one workload cluster's MachinePools. Not for concurrent calls."""

    def __init__(self, key: ClusterKey, *, now: Callable[[], datetime]) -> None:
        self._key = key
        self._now = now
        self._is_idle = False
        self._has_extended = False

    async def tend(
        self, client: ListPatch, intent: Intent | LeaveAlone, tokens: PoolTokenIDs | TracingOff | TracingInterrupted
    ) -> Outcome:
        """Reconcile the tokens once. Call it every minute, and when a KubeadmConfig of a MachinePool changes.

        The first call must come within half of a token's lifetime as set by the provider. ``client`` is the workload
        cluster's; its errors become outcomes.
        """
        if isinstance(intent, LeaveAlone):
            return LeftAlone(intent.cause)
        if intent is Intent.CUT_BACK and self._is_idle:
            return NothingToTend()
        if intent is Intent.CUT_BACK:
            wanted: frozenset[str] = frozenset()
        elif isinstance(tokens, PoolTokenIDs):
            wanted, self._is_idle = tokens.token_ids, False
        else:
            return TokensNotKnown(tokens.cause)
        outcome = await self._reconcile_secrets(client, wanted)
        return self._ended(outcome) if intent is Intent.CUT_BACK else outcome

    def _ended(self, outcome: Outcome) -> Outcome:
        """The outcome of a reconciliation that only cuts back."""
        self._is_idle = True
        if isinstance(outcome, Tended):
            return ExtensionEnded(outcome.cut_back) if outcome.cut_back else NothingToTend()
        if isinstance(outcome, GrantMissing) and outcome.verb == "list" and not self._has_extended:
            # Without permission to list, the controller most probably never extended anything: ask for no grant.
            _LOG.info("bootstrap tokens were not checked", extra={"cluster": str(self._key), "detail": outcome.message})
            return NothingToTend()
        self._is_idle = False
        return outcome

    async def _reconcile_secrets(self, client: ListPatch, wanted: frozenset[str]) -> Outcome:
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
                due = token_change(secret, wanted=secret.token_id in wanted, now=now)
                alive += secret.token_id in wanted and _is_alive(secret, due, now)
                if isinstance(due, NoChange):
                    continue
                self._has_extended |= isinstance(due, Extend)  # before the response, which may be lost
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
                    cut_back += isinstance(due, Shorten)
                    _LOG.info(_DONE[type(due)], extra={"cluster": str(self._key), "secret": secret.name})
            if not contended:
                return Tended(alive, extended, cut_back)
        return Unfinished("other clients keep changing the bootstrap tokens' Secrets")


_DONE: Final[Mapping[type[TokenChange], str]] = {
    Extend: "extended the bootstrap token of a MachinePool",
    Shorten: "cut back the bootstrap token of a MachinePool",
    RemoveAnnotation: "no longer manage the bootstrap token of a MachinePool",
}


class TooManySecrets(Exception):
    """The cluster has more bootstrap tokens than ``MAXIMUM_SECRETS``."""


async def _token_secrets(client: ListPatch) -> tuple[TokenSecret, ...]:
    """All bootstrap tokens of the cluster, without their secret parts, which are dropped page by page.

    Raises:
        TooManySecrets: there are more than ``MAXIMUM_SECRETS``.
        ApiError: from the workload cluster.
    """
    found: list[TokenSecret] = []
    listed = 0
    selector: dict[str, str | int | bool] = {"fieldSelector": f"type={TOKEN_SECRET_TYPE}"}
    async for page in client.list_pages(SECRETS.collection(TOKEN_SECRET_NAMESPACE), selector):
        listed += len(page["items"])
        if listed > MAXIMUM_SECRETS:
            raise TooManySecrets(f"the workload cluster has more than {MAXIMUM_SECRETS} bootstrap tokens")
        found += _read(page["items"])
        del page  # free its memory: the next page may take long
    return tuple(found)


def _read(items: Iterable[object]) -> list[TokenSecret]:
    found: list[TokenSecret] = []
    for item in items:
        if isinstance(item, Mapping):
            with contextlib.suppress(InvalidTokenSecret):
                found.append(token_secret(item))
    return found


def _is_alive(secret: TokenSecret, due: TokenChange, now: datetime) -> bool:
    if not secret.authenticates:
        return False
    return isinstance(due, Extend) or not isinstance(secret.expiration, datetime) or secret.expiration > now


def _patch(secret: TokenSecret, due: Extend | Shorten | RemoveAnnotation) -> JsonObject:
    """A merge patch with the resourceVersion that was read, so that it fails if the Secret has changed."""
    mark: str | None = None  # removes the annotation
    data: dict[str, Any] = {}
    if not isinstance(due, RemoveAnnotation):
        until = format_time(due.until)
        data = {"data": {"expiration": base64.b64encode(until.encode("ascii")).decode("ascii")}}
        mark = until if isinstance(due, Extend) else None
    metadata = {"resourceVersion": secret.resource_version, "annotations": {EXTENDED_UNTIL_ANNOTATION: mark}}
    return {"metadata": metadata, **data}
