"""The Machine that a request claims: by its provider ID, or, where the Machine shows none yet, by token or record.

Metal3, BYOH and older CAPD write ``spec.providerID`` only once the Node has registered. Such a Machine is found by the
bootstrap token that was made for it, if the policy has ``bootstrapTokens.matchMachines: WithoutProviderID``. The token
proves nothing: it narrows the request to one Machine, and the attestor must prove an identity that is named for this
Machine or its host. The provider ID of the request is recorded as claimed. Renewals find the Machine by that record,
until the Machine shows a provider ID. If the Machine then shows another one, its node gets no more certificates.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeAlias

from attestors.contract import AttestorDescription, MachineMatch
from signer.model.bootstrap_token import NodeAsks, TokenAsks, TracedTo, TracingInterrupted, Untraceable
from signer.model.cluster import MACHINE_KIND, ClusterKey, MachineView
from signer.model.decision import Deferred
from signer.model.policy import MatchMachines, Policy
from signer.model.reasons import Reason
from signer.model.record import AttestedNode, record_of, unidentified
from signer.rules.claim import require_token_of_machine_alone
from signer.rules.machine import MachineGone, NoRecord, the_machine

_RECHECK_AFTER: Final = timedelta(minutes=5)
"""Changes of the Machine and of KubeadmConfigs wake the request; the timer is only a safety net."""
_RECHECK_AFTER_UNTRACED: Final = timedelta(seconds=10)
"""A KubeadmConfig that is not known yet names no Machine whose change would wake the request."""
_RECHECK_AFTER_CHANGE: Final = timedelta(seconds=0.1)
_SHOWN_HOLDERS: Final = 3


@dataclass(frozen=True, slots=True)
class NotConsidered:
    """Only the provider ID counts: Machines show it, or policy or attestor allow no other match."""


@dataclass(frozen=True, slots=True)
class OtherLead:
    """The Machine to which the bootstrap token or the node's record leads."""

    machine: MachineView | MachineGone
    """The Machine of that name, as it is now; gone also if the token or record leads to no Machine."""
    record: AttestedNode | NoRecord
    """The record of the node name, if a node requests."""
    holders: tuple[str, ...]
    """Other Machines that have the claimed provider ID, or claimed it before; sorted."""


Lead: TypeAlias = OtherLead | NotConsidered


@dataclass(frozen=True, slots=True)
class MatchFacts:
    """The input of :func:`found_machine`, at one moment."""

    provider_id: str
    """As the request claims it."""
    node_name: str
    cluster: ClusterKey
    machines: tuple[MachineView, ...]
    """The Machines and instances of the Cluster that show the provider ID."""
    asks: NodeAsks | TokenAsks
    lead: Lead


@dataclass(frozen=True, slots=True)
class FoundMachine:
    """The Machine, and how it was found."""

    machine: MachineView
    match: MachineMatch


def considers_leads(policy: Policy, attestor: AttestorDescription) -> bool:
    """Whether policy and attestor allow a match by anything but a provider ID that the Machine shows."""
    return policy.match_machines is MatchMachines.WITHOUT_PROVIDER_ID and attestor.attests_without_provider_id


def found_machine(facts: MatchFacts) -> FoundMachine:
    """The one Machine that the request claims.

    Raises:
        Deferred: no Machine can be told, or several can; the Machine shows another provider ID; or another Machine has
            the claimed one.
    """
    lead = facts.lead
    if facts.machines or isinstance(lead, NotConsidered):
        return FoundMachine(the_machine(facts.provider_id, facts.machines), MachineMatch.PROVIDER_ID)
    if isinstance(facts.asks, TokenAsks):
        machine, match = _by_token(facts, facts.asks, lead), MachineMatch.BOOTSTRAP_TOKEN
    else:
        machine, match = _by_record(facts, lead), MachineMatch.RECORD
    require_not_taken(facts.provider_id, machine, lead.holders)
    return FoundMachine(machine.claiming(facts.provider_id), match)


def require_not_taken(provider_id: str, machine: MachineView, holders: tuple[str, ...]) -> None:
    """No other Machine has the claimed provider ID, or claimed it before.

    Raises:
        Deferred: another one has it.
    """
    if holders:
        shown = ", ".join(holders[:_SHOWN_HOLDERS]) + (" and others" if len(holders) > _SHOWN_HOLDERS else "")
        raise Deferred(
            Reason.PROVIDER_ID_TAKEN,
            f"{machine} shows no provider ID, and the claimed {provider_id} is that of {shown}",
            _RECHECK_AFTER,
            waits_for=(unidentified(machine.name),),
        )


def require_found_as_before(match: MachineMatch, found: FoundMachine) -> None:
    """The Machine was found in the way of which the attestor was told.

    Raises:
        Deferred: it shows a provider ID now, or the requester's token or record leads to it no longer.
    """
    if found.match is not match:
        raise Deferred(
            Reason.RESERVATION_PENDING,
            f"{found.machine} changed while the request was being decided",
            _RECHECK_AFTER_CHANGE,
        )


def _by_token(facts: MatchFacts, asks: TokenAsks, lead: OtherLead) -> MachineView:
    machine, trace = lead.machine, asks.trace
    if isinstance(trace, TracedTo) and isinstance(machine, MachineView):
        require_token_of_machine_alone(asks, machine)
        _require_unidentified(facts, machine)
        return machine
    if isinstance(trace, TracingInterrupted):
        raise Deferred(Reason.MANAGEMENT_CLUSTER_UNREACHABLE, trace.cause, _RECHECK_AFTER_UNTRACED)
    if isinstance(trace, TracedTo):
        owners = sorted(map(str, trace.owners))
        cause = f"it was made for {' and '.join(owners[:_SHOWN_HOLDERS])}, which is not one Machine that exists"
    elif isinstance(trace, Untraceable):
        cause = f"no KubeadmConfig of Cluster {facts.cluster} holds it"
    else:
        cause = f"bootstrap tokens are not traced: {trace.cause}"
    raise Deferred(
        Reason.MACHINE_NOT_FOUND,
        f"no Machine has provider ID {facts.provider_id} yet, and the bootstrap token leads to none: {cause}",
        _RECHECK_AFTER_UNTRACED,
    )


def _by_record(facts: MatchFacts, lead: OtherLead) -> MachineView:
    record, machine = lead.record, lead.machine
    if isinstance(record, NoRecord) or not _is_claim_of(record, facts):
        return the_machine(facts.provider_id, ())
    if isinstance(machine, MachineGone) or machine.uid != record.machine.claimed_by:
        raise Deferred(
            Reason.MACHINE_NOT_FOUND,
            f"no Machine has provider ID {facts.provider_id} yet, and {record.machine}, as which node "
            f"{facts.node_name} was attested with it, no longer exists",
            _RECHECK_AFTER,
            waits_for=(record_of(facts.node_name), unidentified(record.machine.name)),
        )
    _require_unidentified(facts, machine)
    return machine


def _is_claim_of(record: AttestedNode, facts: MatchFacts) -> bool:
    """Whether the record is of this node, and has the request's provider ID as a claim."""
    key = record.machine
    return (
        key.is_claimed
        and key.kind == MACHINE_KIND
        and (key.cluster, record.node_name, key.provider_id) == (facts.cluster, facts.node_name, facts.provider_id)
    )


def _require_unidentified(facts: MatchFacts, machine: MachineView) -> None:
    """The Machine is one of this Cluster and of no MachinePool, and shows no provider ID."""
    waits_for = (unidentified(machine.name),)
    if machine.provider_id or machine.provider_id_is_unreadable:
        raise provider_ids_disagree(machine, facts.provider_id)
    if machine.cluster != facts.cluster:
        raise Deferred(
            Reason.MACHINE_NOT_FOUND,
            f"{machine} is not of Cluster {facts.cluster}",
            _RECHECK_AFTER,
            waits_for=waits_for,
        )
    if machine.kind != MACHINE_KIND or machine.of_a_pool:
        raise Deferred(
            Reason.MACHINE_NOT_FOUND,
            f"{machine} shows no provider ID, and is of a MachinePool, whose Machines share a bootstrap token",
            _RECHECK_AFTER,
            waits_for=waits_for,
        )


def provider_ids_disagree(machine: MachineView, claimed: str) -> Deferred:
    """The deferral of a node whose Machine shows another provider ID than the node claims."""
    shown = machine.provider_id or "one that cannot be read"
    return Deferred(
        Reason.PROVIDER_ID_DISAGREES,
        f"{machine} shows provider ID {shown}, and its node claims {claimed}",
        _RECHECK_AFTER,
        waits_for=(unidentified(machine.name), *((machine.provider_id,) if machine.provider_id else ())),
    )
