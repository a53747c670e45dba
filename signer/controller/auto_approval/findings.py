"""Inputs and findings of an auto-approval check, and the condition that reports them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from signer.controller.auto_approval.workload_grants import TokenGroups
from signer.controller.status.renewal_coverage import MAXIMUM_UNATTESTED
from signer.model import condition as condition_types
from signer.model.auto_approval import ApprovalSubresource, ClusterIdentity, shown
from signer.model.cluster import ClusterView
from signer.model.condition import PolicyCondition
from signer.model.decision import printable
from signer.model.policy import Policy
from signer.rules.auto_approval import AllowedReview, Grant, RemovableGrant, ReportedGrant, grants_that_explain

_NAMES_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class Situation:
    """Inputs of a check."""

    policy: Policy
    cluster: ClusterView
    ca_cert_hash: str
    """The public key hash by which nodes pin the cluster's CA."""
    unattested: Sequence[str]
    """Names of the Machines that would lose renewal: no attestor that renews has attested them."""
    token_groups: TokenGroups
    """Sets of groups of bootstrap tokens, as observed in CSRs."""

    def __post_init__(self) -> None:
        _ = self.owner

    @property
    def owner(self) -> ClusterIdentity:
        """The owner of removed and restored grants. Raises ValueError without the Cluster's UID or the hash of a CA."""
        return ClusterIdentity(self.cluster.key, self.cluster.uid, self.ca_cert_hash)


@dataclass(slots=True)
class Findings:
    """The findings of one check of a cluster under Enforce."""

    grants: dict[str, Grant] = field(default_factory=dict)
    """By the binding's name, including removed ones."""
    removed: set[str] = field(default_factory=set)
    failures: list[tuple[str, str]] = field(default_factory=list)
    """Reason and message of each removal that failed."""
    notes: list[str] = field(default_factory=list)


def is_untouchable(cluster: ClusterView) -> bool:
    """Whether the Cluster is paused or being deleted, and so may be about to move: the controller changes nothing."""
    return cluster.paused or cluster.deleting


def is_expected(opening: AllowedReview, unattested: Sequence[str]) -> bool:
    """Whether this is auto-approved renewal that a Machine still needs."""
    return opening.subresource is ApprovalSubresource.SELFNODECLIENT and bool(unattested)


# The first reason that applies becomes the condition's reason.
_REASONS: Final = (
    "Paused",
    "RemovedGrantsNotKept",
    "Forbidden",
    "GrantedByOtherBinding",
    "GrantedByAuthorizer",
    "RemovalPending",
    condition_types.WAITING_FOR_ATTESTATION,
)


def conclusion(situation: Situation, findings: Findings, openings: Sequence[AllowedReview]) -> PolicyCondition:
    """Condition ``AutoApprovalRemoved`` of a cluster under Enforce; ``openings`` are the API server's answers."""
    machines = listed(situation.unattested)
    if not openings:
        notes = list(findings.notes)
        if machines:
            notes.insert(0, f"these Machines are not attested and cannot renew: {machines}")
        return condition(True, "Removed", "; ".join(["the API server approves nothing without attestation", *notes]))
    unexpected = [opening for opening in openings if not is_expected(opening, situation.unattested)]
    waiting = [
        grant.binding.name
        for grant in findings.grants.values()
        if situation.unattested
        and isinstance(grant, RemovableGrant)
        and ApprovalSubresource.SELFNODECLIENT in grant.subresources
    ]
    causes = [*findings.failures, *_causes(unexpected, findings.grants.values(), waiting)]
    if len(unexpected) < len(openings):
        text = (
            f"renewal without attestation stays until these Machines are attested: {machines}; attest their nodes, "
            "which adopts the existing ones"
        )
        causes.append((condition_types.WAITING_FOR_ATTESTATION, text))
    if is_untouchable(situation.cluster):
        causes.append(("Paused", "the Cluster is paused or being deleted, so nothing is removed"))
    causes.sort(key=lambda item: _REASONS.index(item[0]))
    messages = list(dict.fromkeys(message for _, message in causes))
    return condition(False, causes[0][0], "; ".join([*messages, *findings.notes]))


def _causes(
    openings: Iterable[AllowedReview], grants: Iterable[Grant], waiting: Sequence[str]
) -> list[tuple[str, str]]:
    """Reason and message for each binding that causes an opening: why it is open, and what to do.

    ``openings`` contains no expected renewal. ``waiting`` names bindings that stay as long as renewal does.
    """
    found: list[tuple[str, str]] = []
    known = tuple(grants)
    for opening in openings:
        explaining = grants_that_explain(opening, known)
        reported = [grant for grant in explaining if isinstance(grant, ReportedGrant)]
        found += [("GrantedByOtherBinding", _blamed(grant)) for grant in reported]
        if explaining and not reported:
            kept = [grant for grant in explaining if grant.binding.name in waiting]
            found += [("GrantedByOtherBinding", _waits_with_renewal(grant)) for grant in kept]
            if not kept:
                found += [_still_in_effect(name) for name in sorted(grant.binding.name for grant in explaining)]
        elif not explaining:
            because = f" ({opening.explanation})" if opening.explanation else ""
            found.append(
                (
                    "GrantedByAuthorizer",
                    f"{printable(opening.identity.label[:300])} may create {opening.subresource.resource}, and no "
                    f"ClusterRoleBinding that was read grants it{because}: check the API server's authorizers",
                )
            )
    return list(dict.fromkeys(found))


def _still_in_effect(name: str) -> tuple[str, str]:
    return "RemovalPending", f"ClusterRoleBinding {shown(name)} is removed, or will be, and still in effect"


def _waits_with_renewal(grant: Grant) -> str:
    """Message for a binding that grants both: first certificates are worse than the renewal it is kept for."""
    binding = grant.binding
    return (
        f"ClusterRoleBinding {shown(binding.name)} of ClusterRole {shown(binding.role_name)} grants first certificates "
        f"and renewal together to {listed(map(str, binding.subjects))}, and is left while renewal is: until then they "
        f"get first certificates of any node. Bind {ApprovalSubresource.SELFNODECLIENT.resource} apart, and delete it"
    )


def _blamed(grant: ReportedGrant) -> str:
    binding = grant.binding
    return (
        f"ClusterRoleBinding {shown(binding.name)} of ClusterRole {shown(binding.role_name)} grants "
        f"{' and '.join(sorted(one.resource for one in grant.subresources))} to {listed(map(str, binding.subjects))}; "
        f"it is not removed, because {grant.obstacle.value}: take that right, or the subject, away"
    )


def listed(names: Iterable[str], *, most: int = MAXIMUM_UNATTESTED) -> str:
    """The first names and the number of others; "at least" once ``most`` names were collected."""
    every = list(names)
    at_least = "at least " if len(every) >= most else ""
    more = f" and {at_least}{len(every) - _NAMES_SHOWN} more" if len(every) > _NAMES_SHOWN else ""
    return ", ".join(printable(name[:600]) for name in every[:_NAMES_SHOWN]) + more


def condition(met: bool | None, reason: str, message: str) -> PolicyCondition:
    """Condition ``AutoApprovalRemoved``."""
    return PolicyCondition(condition_types.AUTO_APPROVAL_REMOVED, met, reason, printable(message))
