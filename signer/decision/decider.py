"""One CSR, from its object to a Decision.

    parse → request checks → attest → identity checks → match → machine checks → reserve → journal

Nothing here writes to the workload cluster; what it returns is published by ``signer.controller.requests.publisher``. The order
of all checks stands in ``signer.rules.checks``.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from attestors.contract import AttestorDescription, ChallengeIssued, Screened
from attestors.registry import Registry
from signer.audit.decision_inputs import Account, CaseStage, RepeatStage
from signer.authority import Authority
from signer.configuration import Configuration
from signer.decision.attestation import Attestation
from signer.decision.attestation_request import Claims
from signer.decision.attestor_set import AttestorSet
from signer.decision.attestor_timing import AttestorTurns
from signer.decision.authority_source import AuthoritySource
from signer.decision.builtin_serving import StockServing
from signer.decision.certificates import (
    SIGNING_BY_KEY,
    NotRepeatable,
    Signing,
    repeat,
    repeat_approved,
    signing_hash,
)
from signer.decision.lookups import Lookups
from signer.decision.pre_filter import lane_found, requester_of
from signer.decision.reserve_and_journal import Admission
from signer.decision.snapshot import Case, Cases
from signer.kube.client import JsonObject
from signer.kube.errors import ApiError, ServerError, TooManyRequests
from signer.model.cluster import ClusterKey
from signer.model.csr_header import Condition, NotOurs
from signer.model.decision import Challenge, Decision, Defer, Deferred, Deny, Fail, Ignore, Refused, printable
from signer.model.flow import Lane, Screening
from signer.model.peek import NO_CLAIM, claim_at_a_glance
from signer.model.policy import ApprovalByOthers, Policy
from signer.model.reasons import Reason
from signer.model.record import AttestedNode, JournalEntry, Unjournaled, record_name
from signer.model.signing_request import (
    Malformed,
    MalformedStockServingRequest,
    Parsed,
    Settled,
    SigningRequest,
    StockServingRequest,
    parse_signing_request,
)
from signer.rules import step_comparisons as compared
from signer.rules.checks import CLUSTER_CHECKS, run_checks
from signer.rules.machine import NoRecord, require_not_deleting, the_machine
from signer.rules.request import operator_allows_the_attestor, policy_names_the_attestor, unsupported_version
from signer.rules.shape import node_name_of
from signer.rules.trace import SILENCE, Step, Trace
from signer.store.bootstrap_tokens import BootstrapTokens
from signer.store.caches import Inventory
from signer.store.records import Records
from signer.store.reservations import Reservations

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Adjudication:
    """A CSR as it was read, and what was decided."""

    parsed: Parsed
    decision: Decision
    account: Account = field(default_factory=Account, repr=False, compare=False)
    """What it rests upon."""


class Adjudicator:
    """Decides the CSRs of one workload cluster."""

    def __init__(
        self,
        key: ClusterKey,
        *,
        configuration: Configuration,
        registry: Registry,
        inventory: Inventory,
        reservations: Reservations,
        records: Records,
        tokens: BootstrapTokens,
        lookups: Lookups,
        turns: AttestorTurns,
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
        self._inventory = inventory
        self._records = records
        self._cases = Cases(key, configuration, registry, inventory, now, monotonic)
        claims = Claims(key, inventory, tokens, lookups)
        self._signing = signing
        self._trace = trace
        self._attestation = Attestation(key, configuration, authority_source, claims, turns, monotonic, trace)
        self._admission = Admission(
            key, self._cases, inventory, reservations, records, tokens, signing=signing, trace=trace
        )
        self._stock_serving = StockServing(
            key, configuration, self._cases, inventory, records, reservations.existence, trace
        )

    async def adjudicate(self, manifest: Mapping[str, Any]) -> Adjudication:
        """Decide one CSR. This is the one place that fails closed: whatever goes wrong here is a Defer."""
        parsed: Parsed = NotOurs()
        account = Account()
        try:
            parsed = parse_signing_request(manifest, self._registry.providers, self._configuration.provider_id_oids)
            decision = await self._decide(parsed, account)
        except Refused as error:
            decision = error.deny
        except Deferred as error:
            decision = error.defer
        except ApiError as error:
            decision = deferral_of(Reason.MANAGEMENT_CLUSTER_UNREACHABLE, error)
        except Exception as error:  # noqa: BLE001 - fail closed: an unexpected fault never approves and never denies
            _LOG.error("unexpected fault while deciding", exc_info=error, extra={"cluster": str(self._key)})
            decision = Defer(Reason.INTERNAL_ERROR, f"unexpected {type(error).__name__}; see the controller's log")
        return Adjudication(parsed, self._failed_if_approved(parsed, decision), account)

    def _failed_if_approved(self, parsed: Parsed, decision: Decision) -> Decision:
        """Approved and Denied exclude each other: what is approved already, by whomever, can only fail; it says why."""
        if not isinstance(decision, Deny | Challenge) or not _is_approved(parsed):
            return decision
        if isinstance(decision, Challenge):
            return Fail(Reason.APPROVED_BY_OTHERS, "approved by somebody else before its challenge was answered")
        if isinstance(parsed, SigningRequest) and not isinstance(self._journaled(parsed), Unjournaled):
            return Fail(decision.reason, f"approved by us before this changed: {decision.message}")
        return Fail(Reason.APPROVED_BY_OTHERS, f"approved by somebody else. {decision.reason}: {decision.message}")

    def glance(self, manifest: JsonObject) -> Lane:
        """The lane that a CSR waits in before it is screened, by what it claims; never raises. About 0.03 ms of CPU."""
        provider_id = NO_CLAIM
        try:
            provider_id = claim_at_a_glance(manifest, self._registry.providers, self._configuration.provider_id_oids)
        except Exception as error:  # noqa: BLE001 - here is the watch: one request's fault must not end its cluster's task
            _LOG.error("unexpected fault while reading", exc_info=error, extra={"cluster": str(self._key)})
        return self._placed(Lane(Screening.UNSCREENED, requester_of(manifest), provider_id))

    def _placed(self, lane: Lane) -> Lane:
        if not lane.provider_id or self._inventory.matching(self._key, lane.provider_id):
            return lane
        return Lane(Screening.UNKNOWN_MACHINE, lane.requester, lane.provider_id)

    def screen(self, manifest: JsonObject) -> Lane:
        """The lane that a CSR waits in; never raises."""
        requester = requester_of(manifest)
        try:
            parsed = parse_signing_request(manifest, self._registry.providers, self._configuration.provider_id_oids)
            case = self._cases.take()
        except Deferred:
            return Lane(Screening.UNSCREENED, requester)
        except Exception as error:  # noqa: BLE001 - as in ``glance``; unscreened, it would be looked at again and again
            _LOG.error("unexpected fault while reading", exc_info=error, extra={"cluster": str(self._key)})
            return Lane(Screening.REFUSED, requester)
        return self._placed(lane_found(requester, parsed, partial(self._screen, case)))

    def _screen(self, case: Case, request: SigningRequest) -> Screened:
        provider = request.envelope.signer.provider
        return self._attestation.screen(request, case, self._description(provider, case))

    def attestors(self, policy: Policy) -> AttestorSet:
        """The attestors under this policy."""
        return self._cases.attestors(policy)

    async def _decide(self, parsed: Parsed, account: Account) -> Decision:
        if isinstance(parsed, NotOurs | Settled):
            return Ignore()
        if isinstance(parsed, StockServingRequest | MalformedStockServingRequest):
            return await self._stock_serving.decide(parsed, account)
        with self._trace.step(Step.POLICY) as note:
            case = replace(self._cases.take(), account=account, audited=self._audited)
            note(lambda: compared.policy(case.policy))
        account.case = CaseStage(case.cluster, case.policy, case.now)
        run_checks(CLUSTER_CHECKS, case, self._trace)
        await self._records.require_listed(self._key)
        description = self._described(parsed, case)
        request = self._readable(parsed, description)
        if Condition.APPROVED in request.envelope.conditions:
            with self._trace.step(Step.APPROVED_BEFORE):
                decided = await self._decide_approved(request, case)
            if not isinstance(decided, NotRepeatable):
                return decided
        outcome = await self._attestation.attest(request, case, description)
        if isinstance(outcome, ChallengeIssued):
            return Challenge(outcome.challenge)
        return await self._admission.admit(request, case, outcome)

    def _described(self, parsed: SigningRequest | Malformed, case: Case) -> AttestorDescription:
        provider = parsed.envelope.signer.provider
        with self._trace.step(Step.ATTESTOR) as note:
            note(lambda: compared.attestor(provider, case.policy))
            return self._description(provider, case)

    def _description(self, provider: str, case: Case) -> AttestorDescription:
        """What the attestor says of itself. One that may not be used here is not imported: its code is third parties'.

        Raises:
            Refused: the policy does not name it, or the operator does not allow it in this namespace.
            Deferred: it cannot be loaded.
        """
        policy_names_the_attestor(case.policy, provider)
        operator_allows_the_attestor(
            provider, self._key.namespace, allowed=self._configuration.attestor(provider).allows(self._key.namespace)
        )
        return case.attestors.description(provider)

    def _readable(self, parsed: SigningRequest | Malformed, description: AttestorDescription) -> SigningRequest:
        with self._trace.step(Step.READ) as note:
            note(lambda: compared.read(str(parsed.envelope.signer)))
            if isinstance(parsed, SigningRequest):
                return parsed
            if parsed.reason is Reason.UNSUPPORTED_VERSION:
                raise unsupported_version(description)
            raise Refused(parsed.reason, parsed.message)

    async def _decide_approved(self, request: SigningRequest, case: Case) -> Decision | NotRepeatable:
        """One that has its approval: by us, before a controller stopped; or by somebody else."""
        journaled = self._journaled(request)
        if isinstance(journaled, Unjournaled):
            # Another replica may have approved it a moment ago, before our watch showed its journal.
            journaled = await self._journaled_live(request)
        if not isinstance(journaled, Unjournaled):
            record, entry = journaled
            # Not repeatable when the CA has changed since: attested again, and planned anew.
            authority = await self._authority_to_repeat(record, case)
            return await repeat(request, record, entry, authority, case.now, self._signing)
        copied = await self._copied(request, case)
        if not isinstance(copied, NotRepeatable):
            return copied
        if case.policy.approval_by_others is ApprovalByOthers.REFUSE:
            return Fail(
                Reason.APPROVED_BY_OTHERS, "approved by somebody else, which the policy's approvalByOthers refuses"
            )
        return NotRepeatable()

    async def _copied(self, request: SigningRequest, case: Case) -> Decision | NotRepeatable:
        """A copy of a request that was allowed: what it gets is out already, whoever approved the copy."""
        try:
            record = self._records.recorded(self._key, node_name_of(request))
        except Refused:
            return NotRepeatable()
        if isinstance(record, NoRecord):
            return NotRepeatable()
        authority = await self._authority_to_repeat(record, case)
        return await repeat_approved(request, record, authority, case.now, self._signing)

    async def _authority_to_repeat(self, record: AttestedNode, case: Case) -> Authority:
        """The CA, where the record's Machine is still there and to stay."""
        provider_id = record.machine.provider_id
        matched = case.account.matched = self._inventory.matching(self._key, provider_id)
        case.account.repeat = RepeatStage(record)
        require_not_deleting(the_machine(provider_id, matched))
        authority = await self._attestation.authority()
        not_after = authority.signing.certificate.not_after
        case.account.repeat = RepeatStage(record, signing_hash(authority), not_after)
        return authority

    def _journaled(self, request: SigningRequest) -> tuple[AttestedNode, JournalEntry] | Unjournaled:
        """What the journal holds for exactly this CSR: where a controller stopped between approval and certificate."""
        try:
            record = self._records.recorded(self._key, node_name_of(request))
        except Refused:
            return Unjournaled()
        if isinstance(record, NoRecord):
            return Unjournaled()
        entry = record.entry_for(request.envelope.uid, request.envelope.spec_digest)
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
    return not isinstance(parsed, NotOurs) and Condition.APPROVED in parsed.envelope.conditions
