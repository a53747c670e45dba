"""One CSR, from its object to a Decision.

    parse → request checks → attest → identity checks → match → machine checks → reserve → journal

Nothing here writes to the workload cluster; what it returns is published by ``signer.controller.requests.publisher``.
The order of all checks stands in ``signer.rules.checks``.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from attestors.contract import AttestorDescription, ChallengeIssued, PreFiltered
from attestors.registry import Registry
from signer.audit.decision_inputs import DecisionInputs, RepeatStage, SnapshotStage
from signer.authority import IssuingSet
from signer.configuration import Configuration
from signer.decision.attestation import Attestation
from signer.decision.attestation_request import AttestationRequests
from signer.decision.attestor_set import AttestorSet
from signer.decision.attestor_timing import AttestorTimings
from signer.decision.authority_source import AuthoritySource
from signer.decision.builtin_serving import BuiltinServing
from signer.decision.certificates import (
    SIGNING_BY_KEY,
    NotRepeatable,
    Signing,
    repeat,
    repeat_approved,
    signing_hash,
)
from signer.decision.lookups import Lookups
from signer.decision.pre_filter import flow_of_parsed, requester_of
from signer.decision.reserve_and_journal import ReserveAndJournal
from signer.decision.snapshot import Snapshot, Snapshots
from signer.kube.client import JsonObject
from signer.kube.errors import ApiError, ServerError, TooManyRequests
from signer.model.cluster import ClusterKey
from signer.model.csr_header import Condition, NotOurs
from signer.model.decision import Challenge, Decision, Defer, Deferred, Deny, Fail, Ignore, Refused, printable
from signer.model.flow import Flow, PriorityLevel
from signer.model.policy import ApprovalByOthers, Policy
from signer.model.reasons import Reason
from signer.model.record import AttestedNode, JournalEntry, Unjournaled, record_name
from signer.model.signing_request import (
    NO_CLAIM,
    BuiltinServingRequest,
    Malformed,
    MalformedBuiltinServingRequest,
    Parsed,
    Settled,
    SigningRequest,
    parse_signing_request,
    peek_claimed_provider_id,
)
from signer.rules import step_comparisons as compared
from signer.rules.checks import CLUSTER_CHECKS, run_checks
from signer.rules.machine import NoRecord, require_not_deleting, the_machine
from signer.rules.request import operator_allows_the_attestor, policy_names_the_attestor, unsupported_version
from signer.rules.shape import node_name_of
from signer.rules.trace import SILENCE, Step, Trace
from signer.store.bootstrap_tokens import BootstrapTokens
from signer.store.caches import Caches
from signer.store.records import Records
from signer.store.reservations import Reservations

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DecidedRequest:
    """A CSR as it was read, and what was decided."""

    parsed: Parsed
    decision: Decision
    decision_inputs: DecisionInputs = field(default_factory=DecisionInputs, repr=False, compare=False)
    """What it rests upon."""


class Decider:
    """Decides the CSRs of one workload cluster."""

    def __init__(
        self,
        key: ClusterKey,
        *,
        configuration: Configuration,
        registry: Registry,
        caches: Caches,
        reservations: Reservations,
        records: Records,
        tokens: BootstrapTokens,
        lookups: Lookups,
        timings: AttestorTimings,
        authority_source: AuthoritySource,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
        signing: Signing = SIGNING_BY_KEY,
        trace: Trace = SILENCE,
        audited: bool = False,
    ) -> None:
        """``trace`` is told of every check and step; only who explains decisions gives one, or another ``signing``."""
        self._key = key
        self._audited = audited
        self._configuration = configuration
        self._registry = registry
        self._caches = caches
        self._records = records
        self._snapshots = Snapshots(key, configuration, registry, caches, now, monotonic)
        attestation_requests = AttestationRequests(key, caches, tokens, lookups)
        self._signing = signing
        self._trace = trace
        self._attestation = Attestation(
            key, configuration, authority_source, attestation_requests, timings, monotonic, trace
        )
        self._reserve_and_journal = ReserveAndJournal(
            key, self._snapshots, caches, reservations, records, tokens, signing=signing, trace=trace
        )
        self._builtin_serving = BuiltinServing(
            key, configuration, self._snapshots, caches, records, reservations.live_reads, trace
        )

    async def decide(self, manifest: Mapping[str, Any]) -> DecidedRequest:
        """Decide one CSR. This is the one place that fails closed: whatever goes wrong here is a Defer."""
        parsed: Parsed = NotOurs()
        decision_inputs = DecisionInputs()
        try:
            parsed = parse_signing_request(manifest, self._registry.providers, self._configuration.provider_id_oids)
            decision = await self._decide(parsed, decision_inputs)
        except Refused as error:
            decision = error.deny
        except Deferred as error:
            decision = error.defer
        except ApiError as error:
            decision = deferral_of(Reason.MANAGEMENT_CLUSTER_UNREACHABLE, error)
        except Exception as error:  # noqa: BLE001 - fail closed: an unexpected fault never approves and never denies
            _LOG.error("unexpected fault while deciding", exc_info=error, extra={"cluster": str(self._key)})
            decision = Defer(Reason.INTERNAL_ERROR, f"unexpected {type(error).__name__}; see the controller's log")
        return DecidedRequest(parsed, self._failed_if_approved(parsed, decision), decision_inputs)

    def _failed_if_approved(self, parsed: Parsed, decision: Decision) -> Decision:
        """Approved and Denied exclude each other: what is approved already, by whomever, can only fail; it says why."""
        if not isinstance(decision, Deny | Challenge) or not _is_approved(parsed):
            return decision
        if isinstance(decision, Challenge):
            return Fail(Reason.APPROVED_BY_OTHERS, "approved by somebody else before its challenge was answered")
        if isinstance(parsed, SigningRequest) and not isinstance(self._journaled(parsed), Unjournaled):
            return Fail(decision.reason, f"approved by us before this changed: {decision.message}")
        return Fail(Reason.APPROVED_BY_OTHERS, f"approved by somebody else. {decision.reason}: {decision.message}")

    def peek(self, manifest: JsonObject) -> Flow:
        """The flow that a CSR waits in before it is pre-filtered, by what it claims; never raises. About 0.03 ms of
        CPU."""
        provider_id = NO_CLAIM
        try:
            provider_id = peek_claimed_provider_id(
                manifest, self._registry.providers, self._configuration.provider_id_oids
            )
        except Exception as error:  # noqa: BLE001 - here is the watch: one request's fault must not end its cluster's task
            _LOG.error("unexpected fault while reading", exc_info=error, extra={"cluster": str(self._key)})
        return self._placed(Flow(PriorityLevel.UNFILTERED, requester_of(manifest), provider_id))

    def _placed(self, flow: Flow) -> Flow:
        if not flow.provider_id or self._caches.matching(self._key, flow.provider_id):
            return flow
        return Flow(PriorityLevel.UNKNOWN_MACHINE, flow.requester, flow.provider_id)

    def pre_filter(self, manifest: JsonObject) -> Flow:
        """The flow that a CSR waits in; never raises."""
        requester = requester_of(manifest)
        try:
            parsed = parse_signing_request(manifest, self._registry.providers, self._configuration.provider_id_oids)
            snapshot = self._snapshots.take()
        except Deferred:
            return Flow(PriorityLevel.UNFILTERED, requester)
        except Exception as error:  # noqa: BLE001 - as in ``peek``; unfiltered, it would be looked at again and again
            _LOG.error("unexpected fault while reading", exc_info=error, extra={"cluster": str(self._key)})
            return Flow(PriorityLevel.REFUSED, requester)
        return self._placed(flow_of_parsed(requester, parsed, partial(self._pre_filter, snapshot)))

    def _pre_filter(self, snapshot: Snapshot, request: SigningRequest) -> PreFiltered:
        provider = request.header.signer.provider
        return self._attestation.pre_filter(request, snapshot, self._description(provider, snapshot))

    def attestors(self, policy: Policy) -> AttestorSet:
        """The attestors under this policy."""
        return self._snapshots.attestors(policy)

    async def _decide(self, parsed: Parsed, decision_inputs: DecisionInputs) -> Decision:
        if isinstance(parsed, NotOurs | Settled):
            return Ignore()
        if isinstance(parsed, BuiltinServingRequest | MalformedBuiltinServingRequest):
            return await self._builtin_serving.decide(parsed, decision_inputs)
        with self._trace.step(Step.POLICY) as note:
            snapshot = replace(self._snapshots.take(), decision_inputs=decision_inputs, audited=self._audited)
            note(lambda: compared.policy(snapshot.policy))
        decision_inputs.snapshot = SnapshotStage(snapshot.cluster, snapshot.policy, snapshot.now)
        run_checks(CLUSTER_CHECKS, snapshot, self._trace)
        await self._records.require_listed(self._key)
        description = self._described(parsed, snapshot)
        request = self._readable(parsed, description)
        if Condition.APPROVED in request.header.conditions:
            with self._trace.step(Step.APPROVED_BEFORE):
                decided = await self._decide_approved(request, snapshot)
            if not isinstance(decided, NotRepeatable):
                return decided
        outcome = await self._attestation.attest(request, snapshot, description)
        if isinstance(outcome, ChallengeIssued):
            return Challenge(outcome.challenge)
        return await self._reserve_and_journal.run(request, snapshot, outcome)

    def _described(self, parsed: SigningRequest | Malformed, snapshot: Snapshot) -> AttestorDescription:
        provider = parsed.header.signer.provider
        with self._trace.step(Step.ATTESTOR) as note:
            note(lambda: compared.attestor(provider, snapshot.policy))
            return self._description(provider, snapshot)

    def _description(self, provider: str, snapshot: Snapshot) -> AttestorDescription:
        """What the attestor says of itself. One that may not be used here is not imported: its code is third parties'.

        Raises:
            Refused: the policy does not name it, or the operator does not allow it in this namespace.
            Deferred: it cannot be loaded.
        """
        policy_names_the_attestor(snapshot.policy, provider)
        operator_allows_the_attestor(
            provider, self._key.namespace, allowed=self._configuration.attestor(provider).allows(self._key.namespace)
        )
        return snapshot.attestors.description(provider)

    def _readable(self, parsed: SigningRequest | Malformed, description: AttestorDescription) -> SigningRequest:
        with self._trace.step(Step.READ) as note:
            note(lambda: compared.read(str(parsed.header.signer)))
            if isinstance(parsed, SigningRequest):
                return parsed
            if parsed.reason is Reason.UNSUPPORTED_VERSION:
                raise unsupported_version(description)
            raise Refused(parsed.reason, parsed.message)

    async def _decide_approved(self, request: SigningRequest, snapshot: Snapshot) -> Decision | NotRepeatable:
        """One that has its approval: by us, before a controller stopped; or by somebody else."""
        journaled = self._journaled(request)
        if isinstance(journaled, Unjournaled):
            # Another replica may have approved it a moment ago, before our watch showed its journal.
            journaled = await self._journaled_live(request)
        if not isinstance(journaled, Unjournaled):
            record, entry = journaled
            # Not repeatable when the CA has changed since: attested again, and planned anew.
            authority = await self._authority_to_repeat(request, record, snapshot)
            return await repeat(request, record, entry, authority, snapshot.now, self._signing)
        copied = await self._copied(request, snapshot)
        if not isinstance(copied, NotRepeatable):
            return copied
        if snapshot.policy.approval_by_others is ApprovalByOthers.REFUSE:
            return Fail(
                Reason.APPROVED_BY_OTHERS, "approved by somebody else, which the policy's approvalByOthers refuses"
            )
        return NotRepeatable()

    async def _copied(self, request: SigningRequest, snapshot: Snapshot) -> Decision | NotRepeatable:
        """A copy of a request that was allowed: what it gets is out already, whoever approved the copy."""
        try:
            record = self._records.recorded(self._key, node_name_of(request))
        except Refused:
            return NotRepeatable()
        if isinstance(record, NoRecord):
            return NotRepeatable()
        authority = await self._authority_to_repeat(request, record, snapshot)
        return await repeat_approved(request, record, authority, snapshot.now, self._signing)

    async def _authority_to_repeat(
        self, request: SigningRequest, record: AttestedNode, snapshot: Snapshot
    ) -> IssuingSet:
        """The CA, where the record's Machine is still there and to stay."""
        provider_id = record.machine.provider_id
        matched = snapshot.decision_inputs.matched = self._caches.matching(self._key, provider_id)
        snapshot.decision_inputs.repeat = RepeatStage(record)
        require_not_deleting(the_machine(provider_id, matched))
        authority = await self._attestation.authority()
        purpose = request.header.signer.purpose
        not_after = authority.signer_of(purpose).certificate.not_after
        snapshot.decision_inputs.repeat = RepeatStage(record, signing_hash(authority, purpose), not_after)
        return authority

    def _journaled(self, request: SigningRequest) -> tuple[AttestedNode, JournalEntry] | Unjournaled:
        """What the journal holds for exactly this CSR: where a controller stopped between approval and certificate."""
        try:
            record = self._records.recorded(self._key, node_name_of(request))
        except Refused:
            return Unjournaled()
        if isinstance(record, NoRecord):
            return Unjournaled()
        entry = record.entry_for(request.header.uid, request.header.spec_digest)
        return entry if isinstance(entry, Unjournaled) else (record, entry)

    async def _journaled_live(self, request: SigningRequest) -> tuple[AttestedNode, JournalEntry] | Unjournaled:
        with contextlib.suppress(Refused):
            await self._records.refresh(self._key, record_name(self._key, node_name_of(request)))
        return self._journaled(request)


def deferral_of(reason: Reason, error: ApiError) -> Defer:
    """Wait for an API server: as long as it asks for (Retry-After), or with our own backoff where that says nothing."""
    pause = error.retry_after_seconds if isinstance(error, TooManyRequests | ServerError) else None
    return Defer(reason, printable(str(error)), timedelta(seconds=pause) if pause else None)


def _is_approved(parsed: Parsed) -> bool:
    return not isinstance(parsed, NotOurs) and Condition.APPROVED in parsed.header.conditions
