"""Shuts the side door of one workload cluster, proves that it is shut, and says so in a condition.

Enforce removes the bindings by which the stock signer approves kubelet CSRs without attestation, and keeps them for the
day on which the cluster leaves Enforce. Whether the door is shut is never concluded from what was removed: the API
server is asked. What is open in spite of that is named, and left to a person.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import SystemRandom
from typing import Final, Protocol

from signer.controller import conditions as condition_types
from signer.controller.conditions import PolicyCondition
from signer.controller.standing import MAXIMUM_UNATTESTED
from signer.controller.workload_grants import (
    AuthorizerFailed,
    CannotBeProven,
    MissingGrant,
    TokenGroups,
    TokensUnread,
    WorkloadCalls,
    missing_grant,
    openings_of,
    read_grants,
    read_token_groups,
)
from signer.kube.backoff import Backoff
from signer.kube.client import JsonObject
from signer.kube.errors import ApiError, Conflict, Forbidden, NotFound
from signer.kube.resources import CLUSTER_ROLE_BINDINGS
from signer.model.cluster import ClusterView
from signer.model.decision import printable
from signer.model.kept_grants import GrantsNotKept, OtherGenerations
from signer.model.policy import Mode, Policy
from signer.model.side_door import ClusterIdentity, Door, UnreadableGrant, shown
from signer.rules.side_door import (
    Grant,
    Opening,
    RemovableGrant,
    ReportedGrant,
    ReviewedIdentity,
    TooManyIdentities,
    due_removals,
    grants_that_explain,
    reviewed_identities,
)
from signer.store import giving_back
from signer.store.removed_grants import RemovedGrants

_LOG = logging.getLogger(__name__)

SURVEY_TIMEOUT_SECONDS: Final = 120.0
"""One look at one cluster; every call has its own, shorter, bound."""
_ROUNDS: Final = 3
"""How often the bindings are listed again because one changed while it was removed."""
_SETTLING: Final = Backoff(base_seconds=0.1, maximum_seconds=2.0, jitter=0.5)
_SETTLING_LOOKS: Final = 6
"""RBAC answers from a cache that follows the bindings; after a removal its "yes" may be a moment old."""
_NAMES_SHOWN: Final = 8


class Client(WorkloadCalls, giving_back.WorkloadCalls, Protocol):
    """The calls that are used of :class:`~signer.kube.client.Client`."""

    async def delete(self, path: str, *, uid: str | None = None, resource_version: str | None = None) -> JsonObject:
        """See Client."""
        ...


@dataclass(frozen=True, slots=True)
class Situation:
    """What a survey rests on."""

    policy: Policy
    cluster: ClusterView
    ca_cert_hash: str
    """The hash by which the cluster's nodes know its CA."""
    unattested: Sequence[str]
    """Names of the Machines that would lose renewal: no attestor that renews has attested them."""
    token_groups: TokenGroups
    """The sets of groups of bootstrap tokens, as CSRs have shown them."""

    def __post_init__(self) -> None:
        _ = self.owner

    @property
    def owner(self) -> ClusterIdentity:
        """Whose grants are removed and given back. Raises ValueError without the hash of a CA."""
        return ClusterIdentity(self.cluster.key, self.ca_cert_hash)


@dataclass(slots=True)
class _Findings:
    """What one look at an enforcing cluster found."""

    grants: dict[str, Grant] = field(default_factory=dict)
    """By the binding's name; those that were removed too."""
    removed: set[str] = field(default_factory=set)
    failures: list[tuple[str, str]] = field(default_factory=list)
    """Reason and message for what was due and is not removed."""
    notes: list[str] = field(default_factory=list)


class SideDoor:
    """The side door of one workload cluster."""

    def __init__(self, removed: RemovedGrants) -> None:
        self._removed = removed
        self._random = SystemRandom()
        self.removed_at_last_look: dict[str, str] = {}
        """Names of the bindings, and their UIDs."""

    async def survey(self, client: Client, situation: Situation) -> PolicyCondition:
        """Do what the policy's mode asks for, and return the condition ``AutoApprovalRemoved``."""
        self.removed_at_last_look.clear()
        try:
            async with asyncio.timeout(SURVEY_TIMEOUT_SECONDS):
                if situation.policy.mode is Mode.ENFORCE:
                    return await self._enforce(client, situation)
                return await self._observe(client, situation)
        except MissingGrant as error:
            return _condition(None, "Forbidden", str(error))
        except CannotBeProven as error:
            return _condition(None, error.reason, f"it cannot be proven that automatic approval is removed: {error}")
        except TooManyIdentities as error:
            return _condition(None, "TooManyGrants", f"it cannot be proven that automatic approval is removed: {error}")
        except UnreadableGrant as error:
            return _condition(None, "UnreadableGrant", f"it cannot be read who is approved automatically: {error}")
        except ApiError as error:
            return _condition(None, type(error).__name__, f"the workload cluster cannot be asked: {error}")
        except TimeoutError:
            return _condition(
                None, "TimedOut", f"the workload cluster answered too slowly: {SURVEY_TIMEOUT_SECONDS:.0f} s"
            )

    # Observe

    async def _observe(self, client: Client, situation: Situation) -> PolicyCondition:
        observing = "mode Observe leaves kubeadm's automatic approval as it is"
        if _hands_off(situation.cluster):
            return _condition(False, "Observing", observing)
        try:
            restored = await self._removed.restore(situation.owner, client)
        except (GrantsNotKept, ApiError) as error:
            return _condition(
                False, "RestorationIncomplete", f"{observing}; what Enforce removed is not back yet: {error}"
            )
        incomplete: list[str] = []
        if restored.not_restored:
            incomplete.append(f"not given back: {_listed([str(one) for one in restored.not_restored])}")
        if isinstance(restored.others, OtherGenerations):
            incomplete.append(str(restored.others))
        if incomplete:
            return _condition(False, "RestorationIncomplete", "; ".join([observing, *incomplete]))
        return _condition(False, "Observing", observing)

    # Enforce

    async def _enforce(self, client: Client, situation: Situation) -> PolicyCondition:
        findings = _Findings()
        await self._remove_what_is_due(client, situation, findings)
        groups = set(situation.token_groups)
        tokens = await read_token_groups(client)
        if isinstance(tokens, TokensUnread):
            findings.notes.append(f"groups of bootstrap tokens are known from requests only: {tokens.cause}")
        else:
            groups |= tokens
        identities = reviewed_identities(findings.grants.values(), sorted(groups, key=sorted))
        openings = await self._openings(client, identities, situation, findings)
        return _conclusion(situation, findings, openings)

    async def _openings(
        self, client: Client, identities: Sequence[ReviewedIdentity], situation: Situation, findings: _Findings
    ) -> tuple[Opening, ...]:
        """The openings; those that are known where an authorizer fails, if first certificates are among them.

        That door is open then, whatever the others would have been answered. Renewal alone says nothing of it; nor does
        what a removal has shut meanwhile, for the others were not asked.
        """
        failure: AuthorizerFailed | None = None
        try:
            openings = await openings_of(client, identities)
        except AuthorizerFailed as error:
            openings, failure = error.openings, error
        if findings.removed:
            openings = await self._settled(client, openings, situation.unattested)
        if failure is not None:
            if not any(opening.door is Door.NODECLIENT for opening in openings):
                raise failure
            findings.notes.append(str(failure))
        return openings

    async def _remove_what_is_due(self, client: Client, situation: Situation, findings: _Findings) -> None:
        for _ in range(_ROUNDS):
            grants = await read_grants(client)
            findings.grants |= {grant.binding.name: grant for grant in grants}
            findings.failures.clear()
            due = due_removals(grants, situation.unattested)
            if not due or _hands_off(situation.cluster):
                return
            try:
                await self._removed.keep(situation.owner, [grant.binding for grant in due])
            except GrantsNotKept as error:
                findings.failures.append(("RemovedGrantsNotKept", f"nothing is removed that cannot be kept: {error}"))
                return
            conflicts = [grant for grant in due if not await self._remove(client, situation.owner, grant, findings)]
            if not conflicts:
                return

    async def _remove(self, client: Client, owner: ClusterIdentity, grant: RemovableGrant, findings: _Findings) -> bool:
        """Delete the very binding that was kept; False where it has changed, and must be looked at again."""
        binding = grant.binding
        path = CLUSTER_ROLE_BINDINGS.object(binding.name)
        try:
            await client.delete(path, uid=binding.uid, resource_version=binding.resource_version)
        except NotFound:
            return True
        except Conflict:
            findings.failures.append(("RemovalPending", f"ClusterRoleBinding {shown(binding.name)} keeps changing"))
            return False
        except Forbidden as error:
            findings.failures.append(("Forbidden", missing_grant("delete", CLUSTER_ROLE_BINDINGS, error)))
            return True
        except ApiError as error:
            findings.failures.append(("RemovalPending", f"ClusterRoleBinding {shown(binding.name)}: {error}"))
            return True
        findings.removed.add(binding.name)
        self.removed_at_last_look[binding.name] = binding.uid
        _LOG.info(
            "removed a grant of automatic approval",
            extra={
                "cluster": str(owner),
                "binding": shown(binding.name),
                "doors": sorted(door.value for door in grant.doors),
            },
        )
        return True

    async def _settled(
        self, client: Client, openings: tuple[Opening, ...], unattested: Sequence[str]
    ) -> tuple[Opening, ...]:
        """Ask again, for a few seconds, about what should be shut by now."""
        for attempt in range(_SETTLING_LOOKS):
            expected = [one for one in openings if _is_expected(one, unattested)]
            if len(expected) == len(openings):
                break
            await asyncio.sleep(_SETTLING.delay(attempt, self._random))
            still = [
                again
                for opening in openings
                if opening not in expected
                for again in await openings_of(client, [opening.identity], [opening.door])
            ]
            openings = (*expected, *still)
        return openings


def _hands_off(cluster: ClusterView) -> bool:
    """A paused Cluster is not touched, nor one that is being deleted: it may be about to move."""
    return cluster.paused or cluster.deleting


def _is_expected(opening: Opening, unattested: Sequence[str]) -> bool:
    """Renewal stays open while a Machine needs it."""
    return opening.door is Door.SELFNODECLIENT and bool(unattested)


# What is said

# The first of these that applies is the condition's reason.
_REASONS: Final = (
    "Paused",
    "RemovedGrantsNotKept",
    "Forbidden",
    "GrantedByOtherBinding",
    "GrantedByAuthorizer",
    "RemovalPending",
    condition_types.WAITING_FOR_ATTESTATION,
)


def _conclusion(situation: Situation, findings: _Findings, openings: Sequence[Opening]) -> PolicyCondition:
    machines = _listed(situation.unattested)
    if not openings:
        notes = list(findings.notes)
        if machines:
            notes.insert(0, f"these Machines are not attested and cannot renew: {machines}")
        return _condition(True, "Removed", "; ".join(["the API server approves nothing without attestation", *notes]))
    wide_open = [opening for opening in openings if not _is_expected(opening, situation.unattested)]
    waiting = [
        grant.binding.name
        for grant in findings.grants.values()
        if situation.unattested and isinstance(grant, RemovableGrant) and Door.SELFNODECLIENT in grant.doors
    ]
    said = [*findings.failures, *_causes(wide_open, findings.grants.values(), waiting)]
    if len(wide_open) < len(openings):
        text = (
            f"renewal without attestation stays until these Machines are attested: {machines}; let their nodes ask "
            "through attestation, or replace them"
        )
        said.append((condition_types.WAITING_FOR_ATTESTATION, text))
    if _hands_off(situation.cluster):
        said.append(("Paused", "the Cluster is paused or being deleted, so nothing is removed"))
    said.sort(key=lambda item: _REASONS.index(item[0]))
    messages = list(dict.fromkeys(message for _, message in said))
    return _condition(False, said[0][0], "; ".join([*messages, *findings.notes]))


def _causes(openings: Iterable[Opening], grants: Iterable[Grant], waiting: Sequence[str]) -> list[tuple[str, str]]:
    """Why reviews say yes, and what to do: reason and message, once for each binding that is to blame.

    ``openings`` has none that only renewal was left open for; ``waiting`` are bindings that stay with renewal.
    """
    found: list[tuple[str, str]] = []
    known = tuple(grants)
    for opening in openings:
        explaining = grants_that_explain(opening, known)
        reported = [grant for grant in explaining if isinstance(grant, ReportedGrant)]
        found += [("GrantedByOtherBinding", _blamed(grant)) for grant in reported]
        if explaining and not reported:
            kept_open = [grant for grant in explaining if grant.binding.name in waiting]
            found += [("GrantedByOtherBinding", _waits_with_renewal(grant)) for grant in kept_open]
            if not kept_open:
                found += [_still_in_effect(name) for name in sorted(grant.binding.name for grant in explaining)]
        elif not explaining:
            because = f" ({opening.explanation})" if opening.explanation else ""
            found.append(
                (
                    "GrantedByAuthorizer",
                    f"{printable(opening.identity.label[:300])} may create {opening.door.resource}, and no "
                    f"ClusterRoleBinding that was read grants it{because}: look at the API server's authorizers",
                )
            )
    return list(dict.fromkeys(found))


def _still_in_effect(name: str) -> tuple[str, str]:
    return "RemovalPending", f"ClusterRoleBinding {shown(name)} is removed, or to be removed, and still in effect"


def _waits_with_renewal(grant: Grant) -> str:
    """Of a binding of both doors; what it opens is worse than the renewal that it is left for."""
    binding = grant.binding
    return (
        f"ClusterRoleBinding {shown(binding.name)} of ClusterRole {shown(binding.role_name)} grants first certificates "
        f"and renewal together to {_listed(map(str, binding.subjects))}, and is left while renewal is: until then they "
        f"get first certificates of any node. Bind {Door.SELFNODECLIENT.resource} apart, and delete it"
    )


def _blamed(grant: ReportedGrant) -> str:
    binding = grant.binding
    return (
        f"ClusterRoleBinding {shown(binding.name)} of ClusterRole {shown(binding.role_name)} grants "
        f"{' and '.join(sorted(door.resource for door in grant.doors))} to {_listed(map(str, binding.subjects))}; "
        f"it is not removed, because {grant.obstacle.value}: take that right, or the subject, away"
    )


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    at_least = "at least " if len(every) >= MAXIMUM_UNATTESTED else ""
    more = f" and {at_least}{len(every) - _NAMES_SHOWN} more" if len(every) > _NAMES_SHOWN else ""
    return ", ".join(printable(name[:600]) for name in every[:_NAMES_SHOWN]) + more


def _condition(met: bool | None, reason: str, message: str) -> PolicyCondition:
    return PolicyCondition(condition_types.AUTO_APPROVAL_REMOVED, met, reason, printable(message))
