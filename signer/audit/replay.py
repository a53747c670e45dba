"""Judges a logged decision again: the same checks in the same order, over what the account holds.

The order is the adjudicator's (``signer.decision.decider``). Nothing is asked of anybody and nothing is believed
of the line but what the controller saw: the request is parsed again, every check runs again, the attestor judges the
evidence again with the answers of that day.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from attestors.contract import AssertedIdentity, ChallengeIssued, Denied, NotProvableYet, Security, VerifiedIdentity
from attestors.wire.names import SignerName, parse_signer_name
from attestors.wire.provider_id import InvalidOID, read_oids
from signer.audit.attestor_replay import answered
from signer.audit.consistency import require_about, require_consistent, require_same_request
from signer.audit.decision_inputs import DecisionInputs, NotReached, RequestStage, SnapshotStage
from signer.audit.decision_line import WHOLE_REQUEST, DecisionLine, NoEntry
from signer.audit.errors import DecisionInputsEnd, Inconsistent
from signer.audit.issued import require_issued, require_repeated
from signer.audit.machine_facts import machine_facts
from signer.audit.replay_attestors import ReplayAttestors
from signer.model.cluster import MachineView
from signer.model.csr_header import Condition, NotOurs
from signer.model.decision import Deferred, Refused
from signer.model.policy import ApprovalByOthers
from signer.model.reasons import Reason
from signer.model.record import AttestedIdentity, Unjournaled
from signer.model.signing_request import (
    BuiltinServingRequest,
    Malformed,
    MalformedBuiltinServingRequest,
    Settled,
    SigningRequest,
    parse_signing_request,
)
from signer.rules.bootstrap_token import TokenFacts, token_is_the_machines
from signer.rules.builtin_serving import (
    BuiltinRequestFacts,
    BuiltinServingFacts,
    posted_at,
    refuse_malformed,
    the_attested_machine,
)
from signer.rules.checks import (
    BUILTIN_REQUEST_CHECKS,
    BUILTIN_SERVING_CHECKS,
    IDENTITY_CHECKS,
    MACHINE_CHECKS,
    REQUEST_CHECKS,
    run_checks,
)
from signer.rules.claim import require_as_told
from signer.rules.identity import IdentityFacts
from signer.rules.machine import former_identity_has_run_out, the_machine
from signer.rules.request import (
    RequestFacts,
    claimed_provider_id,
    not_allowed,
    policy_names_the_attestor,
    unsupported_version,
)
from signer.rules.shape import cluster_is_not_deleting, cluster_is_not_paused, node_name_of

Stage = TypeVar("Stage")


@dataclass(frozen=True, slots=True)
class Replayed:
    """What the line's facts give today."""

    kind: str
    """Of a decision; empty where the decision inputs end before one."""
    reason: str
    message: str
    taken: tuple[str, ...]
    """What was not made again, but taken from the line, each in a few words."""


async def replay(line: DecisionLine, plugins: ReplayAttestors) -> Replayed:
    """Judge it again.

    Raises:
        Inconsistent: the line contradicts itself.
    """
    require_consistent(line)
    judging = _Judging(line, plugins)
    kind = reason = message = ""
    try:
        kind, reason = await judging.decide()
    except Refused as error:
        kind, reason, message = "Deny", str(error.deny.reason), error.deny.message
    except Deferred as error:
        kind, reason, message = "Defer", str(error.defer.reason), error.defer.message
    except DecisionInputsEnd as error:
        message = str(error)
    return Replayed(kind, reason, message, tuple(judging.taken))


@dataclass(slots=True)
class _Judging:
    line: DecisionLine
    plugins: ReplayAttestors
    taken: list[str] = field(default_factory=list)

    @property
    def decision_inputs(self) -> DecisionInputs:
        return self.line.decision_inputs

    async def decide(self) -> tuple[str, str]:
        request = self.line.request
        providers = self.plugins.registry.providers | self._requested_provider() | self._named_providers()
        try:
            oids = read_oids(request.provider_id_oid)
        except InvalidOID as error:
            raise Inconsistent(f"the provider ID was looked for under no OID: {error}") from error
        parsed = parse_signing_request(request.manifest(), providers, oids)
        if isinstance(parsed, NotOurs | Settled):
            raise Inconsistent("the request is none that is decided")
        require_same_request(self.line, parsed, self.plugins)
        if isinstance(parsed, BuiltinServingRequest | MalformedBuiltinServingRequest):
            return self._builtin(parsed)
        snapshot = _reached(self.decision_inputs.snapshot, "the Cluster and its policy")
        cluster_is_not_paused(snapshot)
        cluster_is_not_deleting(snapshot)
        policy_names_the_attestor(snapshot.policy, parsed.header.signer.provider)
        self._require_allowed(parsed.header.signer.provider, snapshot)
        if isinstance(parsed, Malformed):
            return self._malformed(parsed)
        if Condition.APPROVED in parsed.header.conditions:
            journaled = self._repeats(parsed)
            if self._was_repeated():
                require_repeated(self.line, parsed, _reached(self.decision_inputs.repeat, "the record"), snapshot.now)
                return "Approve", self._reason_of_approval()
            if not journaled and snapshot.policy.approval_by_others is ApprovalByOthers.REFUSE:
                return "Fail", str(Reason.APPROVED_BY_OTHERS)
        return await self._attest(parsed, snapshot)

    def _requested_provider(self) -> frozenset[str]:
        """Installed where it was decided, though perhaps neither here nor named by the policy."""
        signer = parse_signer_name(str(self.line.request.spec.get("signerName", "")))
        return frozenset({signer.provider}) if isinstance(signer, SignerName) else frozenset()

    def _named_providers(self) -> frozenset[str]:
        snapshot = self.decision_inputs.snapshot
        if isinstance(snapshot, NotReached):
            return frozenset()
        return frozenset(attestor.provider for attestor in snapshot.policy.authorized_attestors)

    def _require_allowed(self, provider: str, snapshot: SnapshotStage) -> None:
        """An attestor that the operator does not allow is not loaded, and its request not looked at any further.

        Raises:
            Refused: that is what the line says. What the operator allowed then stands nowhere else.
        """
        message = not_allowed(provider, snapshot.policy.cluster.namespace)
        if isinstance(self.decision_inputs.request, NotReached) and self.line.decision.message.endswith(message):
            self.taken.append("that the operator does not allow the attestor")
            raise Refused(Reason.ATTESTOR_NOT_AUTHORIZED, message)

    def _malformed(self, parsed: Malformed) -> tuple[str, str]:
        if WHOLE_REQUEST in self.line.request.redacted:
            self.taken.append("how the request was read")
            return "Deny", self.line.decision.reason
        if parsed.reason is Reason.UNSUPPORTED_VERSION:
            raise unsupported_version(_reached(self.decision_inputs.request, "the attestor").attestor)
        raise Refused(parsed.reason, parsed.message)

    def _repeats(self, request: SigningRequest) -> bool:
        """Whether the record holds exactly this request: we approved it before.

        Raises:
            Refused: its Machine is being deleted.
        """
        repeat = self.decision_inputs.repeat
        if isinstance(repeat, NotReached):
            return False
        machines = _reached(self.decision_inputs.matched, "the record's Machine")
        machine = _the_machine(repeat.record.machine.provider_id, machines)
        if machine.deleting:
            raise Refused(Reason.MACHINE_DELETING, f"{machine} is being deleted")
        entry = repeat.record.entry_for(request.header.uid, self.line.request.spec_digest)
        return not isinstance(entry, Unjournaled)

    def _was_repeated(self) -> bool:
        attested = not isinstance(self.decision_inputs.request, NotReached)
        repeat, entry = self.decision_inputs.repeat, self.line.decision.entry
        return not (attested or isinstance(repeat, NotReached) or isinstance(entry, NoEntry))

    def _reason_of_approval(self) -> str:
        repeat = _reached(self.decision_inputs.repeat, "the record")
        return str(Reason.ATTESTED if repeat.record.identity.security is Security.SECURE else Reason.ASSERTED)

    # Ours

    async def _attest(self, request: SigningRequest, snapshot: SnapshotStage) -> tuple[str, str]:
        stage = _reached(self.decision_inputs.request, "the request checks")
        run_checks(REQUEST_CHECKS, _request_facts(request, snapshot, stage))
        provider_id = claimed_provider_id(request)
        claimed = _the_machine(provider_id, _reached(self.decision_inputs.claimed, "the claimed Machine"))
        outcome, binding = await answered(self.line, request, claimed, self.plugins, self.taken)
        match outcome:
            case Denied():
                raise Refused(outcome.reason, outcome.message)
            case NotProvableYet():
                raise Deferred(outcome.reason, outcome.message, outcome.retry_after)
            case ChallengeIssued():
                return "Challenge", str(Reason.CHALLENGE_ISSUED)
            case VerifiedIdentity() | AssertedIdentity():
                run_checks(IDENTITY_CHECKS, IdentityFacts(provider_id, binding, stage.attestor, outcome))
        return self._admit(request, snapshot, stage, outcome, claimed)

    def _admit(
        self,
        request: SigningRequest,
        snapshot: SnapshotStage,
        stage: RequestStage,
        outcome: VerifiedIdentity | AssertedIdentity,
        claimed: MachineView,
    ) -> tuple[str, str]:
        matched = _reached(self.decision_inputs.matched, "the Machine")
        machine = _the_machine(outcome.provider_id, matched)
        require_as_told(claimed, machine)
        found = _reached(self.decision_inputs.machine, "the Machine's record")
        identity = AttestedIdentity(stage.attestor.provider, outcome.identity, stage.attestor.security)
        facts = machine_facts(
            request,
            identity,
            outcome,
            machine,
            found,
            cluster=snapshot.cluster,
            policy=snapshot.policy,
            now=snapshot.now,
        )
        run_checks(MACHINE_CHECKS, facts)
        token = _reached(self.decision_inputs.token, "the bootstrap token")
        token_is_the_machines(TokenFacts(token.asks(), machine, snapshot.policy))
        if not self.decision_inputs.reserved:
            raise DecisionInputsEnd("the reservation")
        former_identity_has_run_out(facts)
        require_issued(self.line, request, facts, stage)
        secure = stage.attestor.security is Security.SECURE
        return "Approve", str(Reason.ATTESTED if secure else Reason.ASSERTED)

    # The built-in serving signer's

    def _builtin(self, parsed: BuiltinServingRequest | MalformedBuiltinServingRequest) -> tuple[str, str]:
        snapshot = _reached(self.decision_inputs.snapshot, "the Cluster and its policy")
        with _left_alone(snapshot) as left:
            left.kind, left.reason = "ApproveOnly", self._builtin_reason(parsed, snapshot)
        if left.instead_of != self.line.decision.instead_of:
            raise Inconsistent(f"without the policy it would have been {left.instead_of or left.kind}")
        return left.kind, left.reason

    def _builtin_reason(
        self, parsed: BuiltinServingRequest | MalformedBuiltinServingRequest, snapshot: SnapshotStage
    ) -> str:
        if isinstance(parsed, MalformedBuiltinServingRequest):
            raise refuse_malformed(parsed.message)
        run_checks(BUILTIN_REQUEST_CHECKS, BuiltinRequestFacts(parsed, snapshot.cluster))
        found = _reached(self.decision_inputs.builtin, "the node's record")
        node_name = node_name_of(parsed)
        require_about(self.line, node_name)
        attested = the_attested_machine(node_name, found.record, found.machine)
        run_checks(
            BUILTIN_SERVING_CHECKS,
            BuiltinServingFacts(
                node_name=node_name,
                dns_names=parsed.certificate_request.dns_names,
                ip_addresses=parsed.certificate_request.ip_addresses,
                credential=parsed.header.credential,
                created=posted_at(parsed),
                cluster=snapshot.cluster,
                policy=snapshot.policy,
                record=attested.record,
                machine=attested.machine,
                operator_allows=found.operator_allows,
                pair=found.pair,
                conflicting_names=found.conflicting_names,
                now=snapshot.now,
            ),
        )
        return str(Reason.ATTESTED)


@dataclass(slots=True)
class _Left:
    kind: str = ""
    reason: str = ""
    instead_of: str = ""


@contextmanager
def _left_alone(snapshot: SnapshotStage) -> Iterator[_Left]:
    """Where the policy leaves such requests alone, that is the decision, for the reason that would have been given."""
    left = _Left()
    if snapshot.policy.approves_builtin_serving:
        yield left
        return
    try:
        yield left
        left.instead_of = left.kind
    except Refused as error:
        left.instead_of, left.reason = "Deny", str(error.deny.reason)
    except Deferred as error:
        left.instead_of, left.reason = "Defer", str(error.defer.reason)
    left.kind = "LeftAlone"


def _the_machine(provider_id: str, machines: tuple[MachineView, ...]) -> MachineView:
    if any(machine.provider_id != provider_id for machine in machines):
        raise Inconsistent(f"a Machine is taken for provider ID {provider_id} that has another one")
    return the_machine(provider_id, machines)


def _reached(stage: Stage | NotReached, name: str) -> Stage:
    if isinstance(stage, NotReached):
        raise DecisionInputsEnd(name)
    return stage


def _request_facts(request: SigningRequest, snapshot: SnapshotStage, stage: RequestStage) -> RequestFacts:
    return RequestFacts(
        request=request,
        cluster=snapshot.cluster,
        policy=snapshot.policy,
        attestor=stage.attestor,
        insecure_allowed=stage.insecure_allowed,
        operator_allows=stage.operator_allows,
        ca_cert_hashes=stage.ca_cert_hashes,
        waiting_ca_cert_hashes=stage.waiting_ca_cert_hashes,
    )
