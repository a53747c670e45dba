"""Supplies the plan of a request to one of our signers with logged facts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from attestors.contract import AssertedIdentity, ChallengeIssued, Denied, NotProvableYet, Security, VerifiedIdentity
from attestors.wire.binding import Binding
from signer.audit.attestor_replay import answered, terminated
from signer.audit.decision_inputs import DecisionInputs, LeadStage, NotReached, RequestStage, SnapshotStage
from signer.audit.decision_line import WHOLE_REQUEST, DecisionLine
from signer.audit.errors import DecisionInputsEnd, Inconsistent
from signer.audit.issued import require_issued
from signer.audit.machine_facts import machine_facts
from signer.audit.replay_attestors import ReplayAttestors
from signer.model.bootstrap_token import NodeAsks, NodeRequester, TokenAsks, requester_of
from signer.model.cluster import MachineView
from signer.model.decision import Deferred, Refused
from signer.model.reasons import Reason
from signer.model.record import AttestedIdentity
from signer.model.signing_request import (
    Condition,
    Malformed,
    SigningRequest,
)
from signer.rules.approval import judge_approval
from signer.rules.claim import TokenFacts, require_as_told, token_is_the_machines
from signer.rules.machine import (
    MachineFacts,
    NoRecord,
    NothingToProve,
    instance_to_prove_gone,
    require_proven_gone,
)
from signer.rules.machine_match import (
    FoundMachine,
    Lead,
    MatchFacts,
    NotConsidered,
    considers_leads,
    found_machine,
    require_found_as_before,
)
from signer.rules.plan import PROCEED, Note, Proceed
from signer.rules.request import (
    IdentityFacts,
    RequestFacts,
    claimed_provider_id,
    not_allowed,
    policy_names_the_attestor,
    unsupported_version,
)
from signer.rules.shape import ClusterFacts, node_name_of

Stage = TypeVar("Stage")


@dataclass(slots=True)
class ReplayedRequest:
    """Implements :class:`~signer.rules.supplies.RequestSupplies` for a logged request.

    Facts that only an API server knows, such as whether the records were listed, are not logged: such a step passes. If
    it deferred the request, the reason is taken from the line (:mod:`signer.audit.comparison`).
    """

    line: DecisionLine
    parsed: SigningRequest | Malformed
    plugins: ReplayAttestors
    taken: list[str]
    snapshot: SnapshotStage = field(init=False)
    request: SigningRequest = field(init=False)
    stage: RequestStage = field(init=False)
    claimed: FoundMachine = field(init=False)
    binding: Binding = field(init=False)
    outcome: VerifiedIdentity | AssertedIdentity = field(init=False)
    machine: MachineView = field(init=False)
    facts: MachineFacts = field(init=False)

    @property
    def decision_inputs(self) -> DecisionInputs:
        """The logged inputs."""
        return self.line.decision_inputs

    async def policy(self, note: Note) -> Proceed:
        """See RequestSupplies."""
        self.snapshot = reached(self.decision_inputs.snapshot, "the Cluster and its policy")
        return PROCEED

    async def cluster_facts(self) -> ClusterFacts:
        """See RequestSupplies."""
        return self.snapshot

    async def clocks(self, note: Note) -> Proceed:
        """See RequestSupplies."""
        return PROCEED

    async def records_listed(self, note: Note) -> Proceed:
        """See RequestSupplies."""
        return PROCEED

    async def attestor(self, note: Note) -> Proceed:
        """The controller does not load an attestor that its configuration does not allow, and denies the request.

        The log has no other trace of that configuration, so this denial is taken from the line.
        """
        provider = self.parsed.header.signer.provider
        policy_names_the_attestor(self.snapshot.policy, provider)
        message = not_allowed(provider, self.snapshot.policy.cluster.namespace)
        if isinstance(self.decision_inputs.request, NotReached) and self.line.decision.message.endswith(message):
            self.taken.append("that the operator does not allow the attestor")
            raise Refused(Reason.ATTESTOR_NOT_AUTHORIZED, message)
        return PROCEED

    async def read(self, note: Note) -> Proceed:
        """See RequestSupplies."""
        if isinstance(self.parsed, SigningRequest):
            self.request = self.parsed
            return PROCEED
        if WHOLE_REQUEST in self.line.request.redacted:
            self.taken.append("why the request is malformed")
            raise Refused(self.line.decision.reason, "")
        if self.parsed.reason is Reason.UNSUPPORTED_VERSION:
            raise unsupported_version(reached(self.decision_inputs.request, "the attestor").attestor)
        raise Refused(self.parsed.reason, self.parsed.message)

    def is_approved(self) -> bool:
        """See RequestSupplies."""
        return Condition.APPROVED in self.parsed.header.conditions

    async def approved_before(self, note: Note) -> Proceed | tuple[str, str]:
        """See RequestSupplies."""
        judged = judge_approval(reached(self.decision_inputs.approver, "who approved it"), self.snapshot.policy)
        return judged if isinstance(judged, Proceed) else ("Fail", str(judged.reason))

    async def authority(self, note: Note) -> Proceed:
        """See RequestSupplies."""
        self.stage = reached(self.decision_inputs.request, "the request checks")
        return PROCEED

    async def request_facts(self) -> RequestFacts:
        """See RequestSupplies."""
        return RequestFacts(
            request=self.request,
            cluster=self.snapshot.cluster,
            policy=self.snapshot.policy,
            attestor=self.stage.attestor,
            insecure_allowed=self.stage.insecure_allowed,
            operator_allows=self.stage.operator_allows,
            ca_cert_hashes=self.stage.ca_cert_hashes,
            shared=self.stage.shared,
            waiting_ca_cert_hashes=self.stage.waiting_ca_cert_hashes,
        )

    async def recheck_authority(self, error: Refused | Deferred) -> None:
        """The logged facts are those after any recheck of the CA."""
        raise error

    async def trusted(self, note: Note) -> Proceed:
        """See RequestSupplies."""
        return PROCEED

    async def claim(self, note: Note) -> Proceed:
        """See RequestSupplies."""
        machines = reached(self.decision_inputs.claimed, "the claimed Machine")
        provider_id = claimed_provider_id(self.request)
        self.claimed = self._found(provider_id, machines, self.decision_inputs.claimed_lead)
        return PROCEED

    def _found(
        self, provider_id: str, machines: tuple[MachineView, ...], stage: LeadStage | NotReached
    ) -> FoundMachine:
        """The Machine by the logged facts.

        Raises:
            Refused, Deferred: as in the decision.
            Inconsistent: a Machine has another provider ID, or policy or attestor do not allow the logged lead.
        """
        _require_provider_id(provider_id, machines)
        lead: Lead = NotConsidered()
        asks: NodeAsks | TokenAsks = NodeAsks()
        considered = not machines and considers_leads(self.snapshot.policy, self.stage.attestor)
        if considered and isinstance(stage, NotReached):
            raise DecisionInputsEnd("the Machine that token or record lead to")
        if not isinstance(stage, NotReached):
            if not considered:
                raise Inconsistent("policy, attestor or Machines allow no match but by provider ID")
            lead, asks = stage.lead(), stage.asks.asks()
            if isinstance(asks, NodeAsks) is not isinstance(requester_of(self.request.header.username), NodeRequester):
                raise Inconsistent("the logged requester is of another kind than the request's")
        node_name, cluster = node_name_of(self.request), self.snapshot.cluster.key
        return found_machine(MatchFacts(provider_id, node_name, cluster, machines, asks, lead))

    async def attest(self, note: Note) -> Proceed | tuple[str, str]:
        """See RequestSupplies."""
        outcome, self.binding = await answered(self.line, self.request, self.claimed, self.plugins, self.taken)
        match outcome:
            case Denied():
                raise Refused(outcome.reason, outcome.message)
            case NotProvableYet():
                raise Deferred(outcome.reason, outcome.message, outcome.retry_after)
            case ChallengeIssued():
                return "Challenge", str(Reason.CHALLENGE_ISSUED)
            case VerifiedIdentity() | AssertedIdentity():
                self.outcome = outcome
                return PROCEED

    async def identity_facts(self) -> IdentityFacts:
        """See RequestSupplies."""
        claimed = claimed_provider_id(self.request)
        return IdentityFacts(claimed, self.binding, self.stage.attestor, self.outcome)

    async def unchanged(self, note: Note) -> Proceed:
        """See RequestSupplies."""
        return PROCEED

    async def match(self, note: Note) -> Proceed:
        """See RequestSupplies."""
        matched = reached(self.decision_inputs.matched, "the Machine")
        found = self._found(self.outcome.provider_id, matched, self.decision_inputs.matched_lead)
        self.machine = found.machine
        require_as_told(self.claimed.machine, self.machine)
        require_found_as_before(self.claimed.match, found)
        return PROCEED

    async def machine_facts(self) -> MachineFacts:
        """See RequestSupplies."""
        attestor = self.stage.attestor
        self.facts = machine_facts(
            self.request,
            node_name_of(self.request),
            AttestedIdentity(attestor.provider, self.outcome.identity, attestor.security),
            self.outcome,
            self.machine,
            reached(self.decision_inputs.machine, "the Machine's record"),
            cluster=self.snapshot.cluster,
            policy=self.snapshot.policy,
            now=self.snapshot.now,
        )
        return self.facts

    async def recheck_machine(self, error: Refused | Deferred) -> None:
        """The logged facts are those after any recheck."""
        raise error

    async def former_machine_gone(self, note: Note) -> Proceed:
        """See RequestSupplies."""
        return PROCEED

    async def token(self, note: Note) -> Proceed:
        """See RequestSupplies."""
        asks = reached(self.decision_inputs.token, "the bootstrap token").asks()
        token_is_the_machines(TokenFacts(asks, self.machine, self.snapshot.policy))
        return PROCEED

    async def former_instance_gone(self, note: Note) -> Proceed:
        """See RequestSupplies."""
        former, record = instance_to_prove_gone(self.facts), self.facts.record
        if isinstance(former, NothingToProve) or isinstance(record, NoRecord):
            return PROCEED
        stage = reached(self.decision_inputs.former_instance, "whether the former instance is gone")
        provider = self.request.header.signer.provider
        termination = await terminated(
            record, stage, provider, self.plugins.of(provider, self.snapshot.policy), self.taken
        )
        self.facts = require_proven_gone(self.facts, termination)
        return PROCEED

    async def reserve(self, note: Note) -> Proceed:
        """See RequestSupplies."""
        if not self.decision_inputs.reserved:
            raise DecisionInputsEnd("the reservation")
        return PROCEED

    async def reserved_facts(self) -> MachineFacts:
        """See RequestSupplies."""
        return self.facts

    async def recheck_record(self, error: Refused | Deferred) -> None:
        """The logged facts are those after any recheck."""
        raise error

    async def journal(self, note: Note) -> tuple[str, str]:
        """See RequestSupplies."""
        require_issued(self.line, self.request, self.facts, self.stage)
        return _approved(self.stage.attestor.security)


def _approved(security: Security) -> tuple[str, str]:
    return "Approve", str(Reason.ATTESTED if security is Security.SECURE else Reason.ASSERTED)


def _require_provider_id(provider_id: str, machines: tuple[MachineView, ...]) -> None:
    if any((machine.provider_id or machine.claimed_provider_id) != provider_id for machine in machines):
        raise Inconsistent(f"a Machine logged for provider ID {provider_id} has another one")


def reached(stage: Stage | NotReached, name: str) -> Stage:
    """The stage of the decision inputs.

    Raises:
        DecisionInputsEnd: the decision ended before it.
    """
    if isinstance(stage, NotReached):
        raise DecisionInputsEnd(name)
    return stage
