"""Comparisons for the steps between the checks. Only ``explain`` calls them."""

from __future__ import annotations

from datetime import datetime

from attestors.contract import (
    AssertedIdentity,
    ChallengeIssued,
    Denied,
    InstanceGone,
    NotProvableYet,
    Outcome,
    Termination,
    VerifiedIdentity,
)
from signer.model.bootstrap_token import (
    NodeAsks,
    TokenAsks,
    Trace,
    TracedTo,
    TracingInterrupted,
    TracingOff,
    Untraceable,
)
from signer.model.cluster import ClusterKey, MachineView
from signer.model.floors import below_floors
from signer.model.policy import ApprovalByOthers, Policy
from signer.model.record import AttestedIdentity, AttestedNode, MachineKey
from signer.model.reservation import Pair
from signer.rules.approval import Approver
from signer.rules.comparison import Comparison, listed
from signer.rules.machine import MachineGone, NoRecord, NothingToProve
from signer.rules.machine_match import MatchFacts, NotConsidered, OtherLead


def read(signer_name: str) -> Comparison:
    """``read``."""
    return Comparison(signer_name, "a signer of an installed attestor; three PEM blocks, or one for a built-in signer")


def policy(found: Policy) -> Comparison:
    """``policy``."""
    raised = f", {below_floors(found.shortfalls)}" if found.shortfalls else ""
    return Comparison(f"NodeAttestationPolicy {found.cluster}, mode {found.mode.value}{raised}", "a valid one")


def clocks(now: datetime) -> Comparison:
    """``clocks``."""
    return Comparison(_moment(now), "the time of both API servers, within two minutes")


def records_listed(cluster: ClusterKey) -> Comparison:
    """``records_listed``."""
    return Comparison("listed", f"the records of Cluster {cluster}")


def attestor(provider: str, found: Policy) -> Comparison:
    """``attestor``."""
    return Comparison(provider, f"one of the policy's: {listed(one.provider for one in found.authorized_attestors)}")


def approved_before(approver: Approver, found: Policy) -> Comparison:
    """``approved_before``."""
    return Comparison(
        f"approved by {approver.value}",
        f"{Approver.THIS_CONTROLLER.value}, or approvalByOthers: {ApprovalByOthers.HONOR.value} "
        f"(it is {found.approval_by_others.value})",
    )


def authority(public_key_hash: str, not_after: datetime, now: datetime) -> Comparison:
    """``authority``."""
    return Comparison(f"{public_key_hash}, valid until {not_after:%Y-%m-%d %H:%M UTC}", f"valid at {_moment(now)}")


def trusted(public_key_hash: str) -> Comparison:
    """``trusted``."""
    return Comparison(public_key_hash, "a CA whose client certificates the API server accepts")


def claim(facts: MatchFacts) -> Comparison:
    """``claim``."""
    return _claimed(facts)


def _claimed(facts: MatchFacts) -> Comparison:
    lead = facts.lead
    if facts.machines or isinstance(lead, NotConsidered):
        return Comparison(listed(facts.machines), f"one with provider ID {facts.provider_id}")
    by = "bootstrap token" if isinstance(facts.asks, TokenAsks) else "record"
    led_to = f"none, and the {by} leads to {_lead_text(lead)}"
    return Comparison(led_to, f"one with provider ID {facts.provider_id}, or without any")


def _lead_text(lead: OtherLead) -> str:
    if isinstance(lead.machine, MachineGone):
        return "none"
    shows = f"shows {lead.machine.provider_id}" if lead.machine.provider_id else "shows none"
    return f"{lead.machine}, which {shows}"


def answer(outcome: Outcome, claimed_provider_id: str) -> Comparison:
    """``attest``. A challenge is for the node alone, so it is not shown."""
    return Comparison(_outcome_text(outcome), f"proof of {claimed_provider_id} for this request")


def _outcome_text(outcome: Outcome) -> str:
    match outcome:
        case VerifiedIdentity():
            return f"proves {outcome.identity} on {outcome.provider_id}"
        case AssertedIdentity():
            return f"asserts {outcome.identity} on {outcome.provider_id}"
        case ChallengeIssued():
            return "accepted so far: a challenge is issued"
        case Denied() | NotProvableYet():
            return f"{outcome.reason}: {outcome.message}"


def unchanged(cluster: ClusterKey) -> Comparison:
    """``unchanged``."""
    return Comparison("unchanged", f"Cluster and NodeAttestationPolicy {cluster} as first read")


def former_machine(machine: MachineKey, record: AttestedNode | NoRecord) -> Comparison:
    """``former_machine_gone``."""
    if isinstance(record, NoRecord) or record.machine == machine:
        return Comparison("no other Machine", "checked only if another Machine had the node name")
    return Comparison(str(record.machine), "a Machine that the API server does not have")


def former_instance(former: AttestedIdentity | NothingToProve, termination: Termination | NothingToProve) -> Comparison:
    """``former_instance_gone``."""
    if isinstance(former, NothingToProve) or isinstance(termination, NothingToProve):
        return Comparison("nothing to prove", "asked only with nodeNameReuse: WhenFormerInstanceIsGone")
    found = "gone" if isinstance(termination, InstanceGone) else termination.message
    return Comparison(found, f"{former.identity} is gone")


def match(facts: MatchFacts) -> Comparison:
    """``match``."""
    return _claimed(facts)


def token(asks: NodeAsks | TokenAsks, machine: MachineView) -> Comparison:
    """``token``."""
    if isinstance(asks, NodeAsks):
        return Comparison("a node, no token", "checked for tokens only")
    return Comparison(_trace_text(asks.trace), str(machine))


def _trace_text(trace: Trace) -> str:
    match trace:
        case TracedTo(owners):
            return f"made for {listed(sorted(str(owner) for owner in owners))}"
        case Untraceable():
            return "no KubeadmConfig of the Cluster holds it"
        case TracingOff(cause) | TracingInterrupted(cause):
            return f"not traced: {cause}"


def pair(wanted: Pair, standing: str) -> Comparison:
    """``reserve``."""
    return Comparison(standing, f"{wanted.machine} for {wanted.identity.identity}")


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M UTC}"
