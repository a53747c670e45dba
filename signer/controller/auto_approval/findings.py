"""What a look at a auto-approval rests on, what it finds, and what is said of it in a condition."""

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
from signer.rules.auto_approval import Grant, Opening, RemovableGrant, ReportedGrant, grants_that_explain

_NAMES_SHOWN: Final = 8


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
        """Whose grants are removed and restored. Raises ValueError without the Cluster's UID or the hash of a CA."""
        return ClusterIdentity(self.cluster.key, self.cluster.uid, self.ca_cert_hash)


@dataclass(slots=True)
class Findings:
    """What one look at an enforcing cluster found."""

    grants: dict[str, Grant] = field(default_factory=dict)
    """By the binding's name; those that were removed too."""
    removed: set[str] = field(default_factory=set)
    failures: list[tuple[str, str]] = field(default_factory=list)
    """Reason and message for what was due and is not removed."""
    notes: list[str] = field(default_factory=list)


def hands_off(cluster: ClusterView) -> bool:
    """A paused Cluster is not touched, nor one that is being deleted: it may be about to move."""
    return cluster.paused or cluster.deleting


def is_expected(opening: Opening, unattested: Sequence[str]) -> bool:
    """Renewal stays open while a Machine needs it."""
    return opening.subresource is ApprovalSubresource.SELFNODECLIENT and bool(unattested)


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


def conclusion(situation: Situation, findings: Findings, openings: Sequence[Opening]) -> PolicyCondition:
    """Condition ``AutoApprovalRemoved`` of a cluster under Enforce, where the API server says that these are open."""
    machines = listed(situation.unattested)
    if not openings:
        notes = list(findings.notes)
        if machines:
            notes.insert(0, f"these Machines are not attested and cannot renew: {machines}")
        return condition(True, "Removed", "; ".join(["the API server approves nothing without attestation", *notes]))
    wide_open = [opening for opening in openings if not is_expected(opening, situation.unattested)]
    waiting = [
        grant.binding.name
        for grant in findings.grants.values()
        if situation.unattested
        and isinstance(grant, RemovableGrant)
        and ApprovalSubresource.SELFNODECLIENT in grant.subresources
    ]
    said = [*findings.failures, *_causes(wide_open, findings.grants.values(), waiting)]
    if len(wide_open) < len(openings):
        text = (
            f"renewal without attestation stays until these Machines are attested: {machines}; let their nodes ask "
            "through attestation, or replace them"
        )
        said.append((condition_types.WAITING_FOR_ATTESTATION, text))
    if hands_off(situation.cluster):
        said.append(("Paused", "the Cluster is paused or being deleted, so nothing is removed"))
    said.sort(key=lambda item: _REASONS.index(item[0]))
    messages = list(dict.fromkeys(message for _, message in said))
    return condition(False, said[0][0], "; ".join([*messages, *findings.notes]))


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
                    f"{printable(opening.identity.label[:300])} may create {opening.subresource.resource}, and no "
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
    """The first of them, and how many more there are; there may be more than ``most``, of which nobody knows."""
    every = list(names)
    at_least = "at least " if len(every) >= most else ""
    more = f" and {at_least}{len(every) - _NAMES_SHOWN} more" if len(every) > _NAMES_SHOWN else ""
    return ", ".join(printable(name[:600]) for name in every[:_NAMES_SHOWN]) + more


def condition(met: bool | None, reason: str, message: str) -> PolicyCondition:
    """Condition ``AutoApprovalRemoved``."""
    return PolicyCondition(condition_types.AUTO_APPROVAL_REMOVED, met, reason, printable(message))
