"""The decision of a request to one of the controller's signers: one method for each stage of the plan.

The plan (``signer.rules.checks.REQUEST_PLAN``) defines the order, and the consequence of a refusal. This object keeps
each fact from the stage that finds it to those that need it; reading a fact too early fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from attestors.contract import AssertedIdentity, AttestorDescription, ChallengeIssued, MachineMatch, VerifiedIdentity
from signer.audit.decision_inputs import NOT_REACHED, DecisionInputs, SnapshotStage
from signer.authority import IssuingSet
from signer.decision.approval_seals import ApprovalSeals
from signer.decision.attestation import Attestation, Claim
from signer.decision.authority_trust import AuthorityTrust, TrustProof
from signer.decision.clocks import RequiredClocks
from signer.decision.former_instance import ask_whether_gone
from signer.decision.reserve_and_journal import ReserveAndJournal
from signer.decision.snapshot import Snapshot, Snapshots
from signer.model.cluster import ClusterKey, MachineView
from signer.model.decision import Challenge, Decision, Deferred, Refused
from signer.model.reasons import Reason
from signer.model.record import MachineKey, unidentified
from signer.model.signing_request import Condition, Malformed, SigningRequest
from signer.rules import step_comparisons as compared
from signer.rules.approval import Approver, judge_approval
from signer.rules.machine import (
    MachineFacts,
    NoRecord,
    NothingToProve,
    instance_to_prove_gone,
    require_proven_gone,
)
from signer.rules.plan import PROCEED, Note, Proceed
from signer.rules.request import (
    IdentityFacts,
    RequestFacts,
    operator_allows_the_attestor,
    policy_names_the_attestor,
    unsupported_version,
)
from signer.rules.shape import ClusterFacts, node_name_of
from signer.store.records import Records


@dataclass(frozen=True, slots=True)
class DecidesWith:
    """The dependencies of the decisions of one cluster."""

    key: ClusterKey
    snapshots: Snapshots
    records: Records
    approval_seals: ApprovalSeals
    clocks: RequiredClocks
    attestation: Attestation
    trust: AuthorityTrust
    reserve_and_journal: ReserveAndJournal
    monotonic: Callable[[], float]
    audited: bool

    def description(self, provider: str, snapshot: Snapshot) -> AttestorDescription:
        """The attestor's description of itself. A forbidden attestor is not imported: it is third-party code.

        Raises:
            Refused: the policy does not name it, or the operator does not allow it in this namespace.
            Deferred: it cannot be loaded.
        """
        policy_names_the_attestor(snapshot.policy, provider)
        allowed = snapshot.attestors.operator_allows(provider)
        operator_allows_the_attestor(provider, self.key.namespace, allowed=allowed)
        return snapshot.attestors.description(provider)


@dataclass(slots=True)
class RequestDecision:
    """Implements :class:`~signer.rules.supplies.RequestSupplies` for one request."""

    parts: DecidesWith
    parsed: SigningRequest | Malformed
    decision_inputs: DecisionInputs
    snapshot: Snapshot = field(init=False)
    description: AttestorDescription = field(init=False)
    request: SigningRequest = field(init=False)
    approver: Approver = field(default=Approver.NOBODY, init=False)
    authority_as_of: float = field(default=float("-inf"), init=False)
    ca: IssuingSet = field(init=False)
    node_name: str = field(init=False)
    """From the subject; set once the checks of the subject have passed."""
    claimed: Claim = field(init=False)
    outcome: VerifiedIdentity | AssertedIdentity = field(init=False)
    machine: MachineView = field(init=False)
    waits_for: tuple[str, ...] = field(default=(), init=False)
    """The Machine without provider ID, once it is found."""
    facts: MachineFacts = field(init=False)

    def waiting(self, error: Deferred) -> Deferred:
        """``error``, woken also by a change of the Machine without provider ID to which token or record led."""
        if not self.waits_for:
            return error
        defer = error.defer
        waits_for = tuple(dict.fromkeys((*defer.waits_for, *self.waits_for)))
        return Deferred(defer.reason, defer.message, defer.retry_after, waits_for=waits_for, grows=defer.grows)

    async def policy(self, note: Note) -> Proceed:
        """See RequestSupplies."""
        parts = self.parts
        taken = replace(parts.snapshots.take(), decision_inputs=self.decision_inputs, audited=parts.audited)
        note(lambda: compared.policy(taken.policy))
        self.snapshot = taken
        self.decision_inputs.snapshot = SnapshotStage(taken.cluster, taken.policy, taken.now)
        return PROCEED

    async def cluster_facts(self) -> ClusterFacts:
        """See RequestSupplies."""
        return self.snapshot

    async def clocks(self, note: Note) -> Proceed:
        """See RequestSupplies."""
        note(lambda: compared.clocks(self.snapshot.now))
        await self.parts.clocks.require_agree(self.snapshot.now)
        return PROCEED

    async def records_listed(self, note: Note) -> Proceed:
        """See RequestSupplies."""
        note(lambda: compared.records_listed(self.parts.key))
        await self.parts.records.require_listed(self.parts.key)
        return PROCEED

    async def attestor(self, note: Note) -> Proceed:
        """See RequestSupplies."""
        provider = self.parsed.header.signer.provider
        note(lambda: compared.attestor(provider, self.snapshot.policy))
        self.description = self.parts.description(provider, self.snapshot)
        return PROCEED

    async def read(self, note: Note) -> Proceed:
        """See RequestSupplies."""
        parsed = self.parsed
        note(lambda: compared.read(str(parsed.header.signer)))
        if isinstance(parsed, SigningRequest):
            self.request = parsed
            return PROCEED
        if parsed.reason is Reason.UNSUPPORTED_VERSION:
            raise unsupported_version(self.description)
        raise Refused(parsed.reason, parsed.message)

    def is_approved(self) -> bool:
        """See RequestSupplies."""
        return Condition.APPROVED in self.parsed.header.conditions

    async def approved_before(self, note: Note) -> Proceed | Decision:
        """See RequestSupplies."""
        approver = self.approver = self.decision_inputs.approver = self.parts.approval_seals.approver(
            self.request.header
        )
        note(lambda: compared.approved_before(approver, self.snapshot.policy))
        return judge_approval(approver, self.snapshot.policy)

    async def authority(self, note: Note) -> Proceed:
        """See RequestSupplies."""
        self.ca = await self.parts.attestation.authority(not_before=self.authority_as_of)
        signing = self.ca.signer_of(self.request.header.signer.purpose).certificate
        note(lambda: compared.authority(signing.public_key_hash, signing.not_after, self.snapshot.now))
        return PROCEED

    async def request_facts(self) -> RequestFacts:
        """See RequestSupplies."""
        return self.parts.attestation.facts(self.request, self.snapshot, self.description, self.ca)

    async def recheck_authority(self, error: Refused | Deferred) -> None:
        """Read the CA again, in case it has just changed: a stale cached CA must never cause a denial.

        Any other refusal is final and not worth a call: the requester chooses which CA it names.
        """
        if not isinstance(error, Refused) or error.deny.reason is not Reason.CLUSTER_MISMATCH:
            raise error
        self.authority_as_of = self.parts.monotonic()

    async def trusted(self, note: Note) -> Proceed:
        """See RequestSupplies."""
        note(lambda: compared.trusted(self.ca.client.certificate.public_key_hash))
        match self.parts.trust.proof:
            case TrustProof(authority, uid) if authority is self.ca and uid == self.snapshot.cluster.uid:
                return PROCEED
        await self.parts.trust.require_trusted(self.ca)
        return PROCEED

    async def claim(self, note: Note) -> Proceed:
        """See RequestSupplies."""
        self.node_name = node_name_of(self.request)
        self.claimed = self.parts.attestation.claim(self.request, self.node_name, self.snapshot, self.description, note)
        machine = self.claimed.machine
        if isinstance(machine, MachineView) and self.claimed.match is not MachineMatch.PROVIDER_ID:
            self.waits_for = (unidentified(machine.name),)
        return PROCEED

    async def attest(self, note: Note) -> Proceed | Decision:
        """See RequestSupplies."""
        attestation = self.claimed.attestation
        outcome = await self.parts.attestation.answer(attestation, self.request, self.snapshot, note)
        if isinstance(outcome, ChallengeIssued):
            return Challenge(outcome.challenge)
        self.outcome = outcome
        return PROCEED

    async def identity_facts(self) -> IdentityFacts:
        """See RequestSupplies."""
        attestation = self.claimed.attestation
        return IdentityFacts(attestation.provider_id, attestation.binding, self.description, self.outcome)

    async def unchanged(self, note: Note) -> Proceed:
        """See RequestSupplies."""
        note(lambda: compared.unchanged(self.parts.key))
        self.parts.reserve_and_journal.require_unchanged(self.snapshot)
        self.decision_inputs.reserved = False
        self.decision_inputs.former_instance = NOT_REACHED
        self.decision_inputs.host_keys = NOT_REACHED
        return PROCEED

    async def match(self, note: Note) -> Proceed:
        """See RequestSupplies."""
        self.machine = self.parts.reserve_and_journal.match(
            self.request.header.username,
            self.node_name,
            self.outcome.provider_id,
            self.claimed,
            self.snapshot,
            self.description,
            note,
        )
        return PROCEED

    async def machine_facts(self) -> MachineFacts:
        """See RequestSupplies."""
        self.facts = self.parts.reserve_and_journal.facts(
            self.request, self.node_name, self.snapshot, self.description, self.outcome, self.machine
        )
        return self.facts

    async def recheck_machine(self, error: Refused | Deferred) -> None:
        """See RequestSupplies."""
        await self.parts.reserve_and_journal.recheck_machine(error, self.facts)

    async def former_machine_gone(self, note: Note) -> Proceed:
        """See RequestSupplies."""
        note(lambda: compared.former_machine(MachineKey.of(self.machine), self.facts.record))
        await self.parts.reserve_and_journal.require_gone(self.facts)
        return PROCEED

    async def token(self, note: Note) -> Proceed:
        """See RequestSupplies."""
        await self.parts.reserve_and_journal.require_own_token(self.request, self.snapshot, self.machine, note)
        return PROCEED

    async def former_instance_gone(self, note: Note) -> Proceed:
        """See RequestSupplies."""
        former, record = instance_to_prove_gone(self.facts), self.facts.record
        if isinstance(former, NothingToProve) or isinstance(record, NoRecord):
            note(lambda: compared.former_instance(NothingToProve(), NothingToProve()))
            return PROCEED
        parts, provider = self.parts, self.description.provider
        termination = await ask_whether_gone(former, record.machine, provider, self.snapshot, parts.attestation)
        note(lambda: compared.former_instance(former, termination))
        self.facts = require_proven_gone(self.facts, termination)
        return PROCEED

    async def reserve(self, note: Note) -> Proceed:
        """See RequestSupplies."""
        await self.parts.reserve_and_journal.reserve(self.facts, note)
        self.decision_inputs.reserved = True
        return PROCEED

    async def reserved_facts(self) -> MachineFacts:
        """See RequestSupplies."""
        return self.facts

    async def recheck_record(self, error: Refused | Deferred) -> None:
        """See RequestSupplies."""
        await self.parts.reserve_and_journal.recheck_record(error, self.facts)

    async def journal(self, note: Note) -> Decision:
        """See RequestSupplies."""
        del note
        approve = await self.parts.reserve_and_journal.journal(self.request, self.facts, self.snapshot, self.ca)
        seal = self.parts.approval_seals.seal(self.request.header)
        return replace(approve, annotations=_annotations(self.outcome, seal if self._is_own_approval else {}))

    @property
    def _is_own_approval(self) -> bool:
        return self.approver is not Approver.ANOTHER_CLIENT


def _annotations(outcome: VerifiedIdentity | AssertedIdentity, seal: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType({**(outcome.annotations if isinstance(outcome, VerifiedIdentity) else {}), **seal})
