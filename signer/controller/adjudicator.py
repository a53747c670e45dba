"""One CSR, from its object to a Decision.

    parse → request checks → attest → identity checks → match → machine checks → reserve → journal

Nothing here writes to the workload cluster; what it returns is published by ``signer.controller.publisher``. The order
of all checks stands in ``signer.rules.checks``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from attestors.contract import (
    AssertedIdentity,
    AttestationRequest,
    AttestorDescription,
    ChallengeIssued,
    Denied,
    NotProvableYet,
    Outcome,
    VerifiedIdentity,
)
from attestors.registry import Registry
from attestors.wire import binding as binding_format
from attestors.wire.binding import BindingMismatch
from attestors.wire.evidence import MalformedEvidence
from attestors.wire.names import Purpose
from signer.authority import Authority
from signer.controller.attestor_set import AttestorSet
from signer.controller.authority_source import AuthoritySource, AuthorityUnavailable
from signer.controller.configuration import Configuration
from signer.controller.planning import approval, fits, plan
from signer.kube.errors import ApiError, ServerError, TooManyRequests
from signer.model.cluster import ClusterKey, ClusterView, MachineView
from signer.model.decision import Approve, Challenge, Decision, Defer, Deferred, Deny, Fail, Ignore, Refused, printable
from signer.model.policy import ApprovalByOthers, Policy
from signer.model.reasons import Reason
from signer.model.record import (
    JOURNAL_ENTRIES,
    AttestedIdentity,
    AttestedNode,
    JournalEntry,
    MachineKey,
    Unjournaled,
    new_record,
    record_name,
)
from signer.model.reservation import Pair
from signer.model.signing_request import (
    Condition,
    Malformed,
    NotOurs,
    Parsed,
    RequestEnvelope,
    Settled,
    SigningRequest,
    parse_signing_request,
)
from signer.rules.checks import IDENTITY_CHECKS, MACHINE_CHECKS, REQUEST_CHECKS, run_checks
from signer.rules.identity import IdentityFacts
from signer.rules.machine import MachineFacts, MachineGone, NoRecord, require_not_deleting, the_machine
from signer.rules.request import (
    RequestFacts,
    claimed_provider_id,
    node_name_of,
    policy_names_the_attestor,
    unsupported_version,
)
from signer.store.inventory import Inventory, UnreadablePolicy
from signer.store.records import RecordChanged, Records
from signer.store.reservations import Reservations

_LOG = logging.getLogger(__name__)
_ATTESTATION_SECONDS: Final = 30.0
_RECORD_ATTEMPTS: Final = 5
_BROKEN_SECONDS: Final = 60.0
"""What kept an attestor from being prepared, such as a file that was not there yet, may have passed after this long."""
_JOURNAL_SPAN: Final = timedelta(minutes=1)
"""A journal that was filled faster than this still holds requests between approval and certificate."""


@dataclass(frozen=True, slots=True)
class Adjudication:
    """A CSR as it was read, and what was decided."""

    parsed: Parsed
    decision: Decision


@dataclass(frozen=True, slots=True)
class _Case:
    """What one adjudication reads: taken once, so that all its checks judge the same world."""

    cluster: ClusterView
    policy: Policy
    attestors: AttestorSet
    now: datetime


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
        authority_source: AuthoritySource,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        self._key = key
        self._configuration = configuration
        self._registry = registry
        self._inventory = inventory
        self._reservations = reservations
        self._records = records
        self._authority_source = authority_source
        self._now = now
        self._monotonic = monotonic
        self._attestors: AttestorSet | None = None
        self._attestors_made = 0.0

    async def adjudicate(self, manifest: Mapping[str, Any]) -> Adjudication:
        """Decide one CSR. This is the one place that fails closed: whatever goes wrong here is a Defer."""
        parsed: Parsed = NotOurs()
        try:
            parsed = parse_signing_request(manifest, self._registry.providers, self._configuration.provider_id_oid)
            decision = await self._decide(parsed)
        except Refused as error:
            decision = error.deny
        except Deferred as error:
            decision = error.defer
        except ApiError as error:
            decision = deferral_of(Reason.MANAGEMENT_CLUSTER_UNREACHABLE, error)
        except Exception as error:  # noqa: BLE001 - fail closed: an unexpected fault never approves and never denies
            _LOG.error("unexpected fault while deciding", exc_info=error, extra={"cluster": str(self._key)})
            decision = Defer(Reason.INTERNAL_ERROR, f"unexpected {type(error).__name__}; see the controller's log")
        return Adjudication(parsed, self._failed_if_approved(parsed, decision))

    def _failed_if_approved(self, parsed: Parsed, decision: Decision) -> Decision:
        """Approved and Denied exclude each other: what is approved already, by whomever, can only fail; it says why."""
        if not isinstance(decision, Deny | Challenge) or not _is_approved(parsed):
            return decision
        if isinstance(decision, Challenge):
            return Fail(Reason.APPROVED_BY_OTHERS, "approved by somebody else before its challenge was answered")
        if isinstance(parsed, SigningRequest) and not isinstance(self._journaled(parsed), Unjournaled):
            return Fail(decision.reason, f"approved by us before this changed: {decision.message}")
        return Fail(Reason.APPROVED_BY_OTHERS, f"approved by somebody else. {decision.reason}: {decision.message}")

    def attestors(self, policy: Policy) -> AttestorSet:
        """The attestors under this policy; kept while the policy stays the same and none of them is broken."""
        kept = self._attestors
        if kept is None or kept.policy != policy or (kept.any_broken and self._is_old(self._attestors_made)):
            kept = self._attestors = AttestorSet(policy, self._configuration, self._registry)
            self._attestors_made = self._monotonic()
        return kept

    def _is_old(self, made: float) -> bool:
        return self._monotonic() - made > _BROKEN_SECONDS

    async def _decide(self, parsed: Parsed) -> Decision:
        if isinstance(parsed, NotOurs | Settled):
            return Ignore()
        case = self._case()
        envelope = parsed.envelope
        if case.cluster.paused:
            raise Deferred(Reason.CLUSTER_PAUSED, f"Cluster {self._key} is paused")
        policy_names_the_attestor(case.policy, envelope.signer.provider)
        description = case.attestors.description(envelope.signer.provider)
        if isinstance(parsed, Malformed):
            if parsed.reason is Reason.UNSUPPORTED_VERSION:
                raise unsupported_version(description)
            raise Refused(parsed.reason, parsed.message)
        if Condition.APPROVED in envelope.conditions:
            journaled = self._journaled(parsed)
            if isinstance(journaled, Unjournaled):
                # Another replica may have approved it a moment ago, before our watch showed its journal.
                journaled = await self._journaled_live(parsed)
            if not isinstance(journaled, Unjournaled):
                record, entry = journaled
                provider_id = record.machine.provider_id
                require_not_deleting(the_machine(provider_id, self._inventory.machines_with(self._key, provider_id)))
                if fits(entry, await self._authority(), case.now):
                    return approval(record, entry)
                # Approved by us, and the CA has changed since: attested again below, and planned anew.
            elif case.policy.approval_by_others is ApprovalByOthers.REFUSE:
                return Fail(
                    Reason.APPROVED_BY_OTHERS,
                    "approved by somebody else, which the policy's approvalByOthers refuses",
                )
        return await self._attest(parsed, case, description)

    def _case(self) -> _Case:
        self._inventory.require_in_touch()
        cluster = self._inventory.clusters.get(self._key.namespace, self._key.name)
        policy = self._inventory.policies.get(self._key.namespace, self._key.name)
        if cluster is None or policy is None:
            raise Deferred(Reason.POLICY_INVALID, f"Cluster {self._key} or its NodeAttestationPolicy is gone")
        if isinstance(policy, UnreadablePolicy):
            raise Deferred(Reason.POLICY_INVALID, f"NodeAttestationPolicy {self._key}: {policy.message}")
        return _Case(cluster, policy, self.attestors(policy), self._now())

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

    async def _attest(self, request: SigningRequest, case: _Case, description: AttestorDescription) -> Decision:
        authority = await self._authority()
        if request.evidence.cluster.text not in authority.ca_certificate_hashes:
            # Perhaps the CA was changed a moment ago: what we keep being old must never be a denial.
            authority = await self._authority(not_before=self._monotonic())
        run_checks(
            REQUEST_CHECKS,
            RequestFacts(
                request=request,
                cluster=case.cluster,
                policy=case.policy,
                attestor=description,
                insecure_allowed=self._configuration.insecure_allowed(self._key.namespace),
                operator_allows=self._configuration.attestor(description.provider).allows(self._key.namespace),
                ca_cert_hashes=authority.ca_certificate_hashes,
            ),
        )
        provider_id = claimed_provider_id(request)
        binding = binding_format.compute(
            evidence_version=request.evidence.version,
            cluster=request.evidence.cluster,
            signer_name=request.envelope.signer,
            subject_public_key_info=request.certificate_request.subject_public_key_info,
        )
        attestation = AttestationRequest(
            provider_id=provider_id,
            evidence=request.evidence,
            binding=binding,
            cluster_namespace=self._key.namespace,
            cluster_name=self._key.name,
            csr_uid=request.envelope.uid,
            dns_names=request.certificate_request.dns_names,
            ip_addresses=request.certificate_request.ip_addresses,
            now=case.now,
        )
        outcome = await self._ask(attestation, request.envelope, case.attestors)
        match outcome:
            case Denied():
                raise Refused(outcome.reason, outcome.message)
            case NotProvableYet():
                raise Deferred(outcome.reason, outcome.message, outcome.retry_after)
            case ChallengeIssued():
                return Challenge(outcome.challenge)
            case VerifiedIdentity() | AssertedIdentity():
                run_checks(IDENTITY_CHECKS, IdentityFacts(provider_id, binding, description, outcome))
                return await self._allow(request, case, outcome, description, authority)

    async def _authority(self, *, not_before: float = float("-inf")) -> Authority:
        try:
            return await self._authority_source.authority(not_before=not_before)
        except AuthorityUnavailable as error:
            raise Deferred(Reason.CERTIFICATE_AUTHORITY_UNAVAILABLE, str(error)) from error

    async def _ask(self, attestation: AttestationRequest, envelope: RequestEnvelope, attestors: AttestorSet) -> Outcome:
        half = attestors.ready(envelope.signer.provider).controller_half
        verify = half.verify_client if envelope.signer.purpose is Purpose.CLIENT else half.verify_serving
        try:
            async with asyncio.timeout(_ATTESTATION_SECONDS):
                return await verify(attestation)
        except BindingMismatch as error:
            raise Refused(Reason.BINDING_MISMATCH, str(error)) from error
        except MalformedEvidence as error:
            raise Refused(Reason.MALFORMED_EVIDENCE, str(error)) from error
        except TimeoutError as error:
            raise Deferred(
                Reason.ATTESTOR_UNAVAILABLE,
                f"attestor {envelope.signer.provider} did not answer within {_ATTESTATION_SECONDS:.0f} seconds",
            ) from error

    async def _allow(
        self,
        request: SigningRequest,
        case: _Case,
        outcome: VerifiedIdentity | AssertedIdentity,
        description: AttestorDescription,
        authority: Authority,
    ) -> Decision:
        """Match, reserve and journal; again from the match when somebody else wrote the record first."""
        identity = AttestedIdentity(description.provider, outcome.identity, description.security)
        for _ in range(_RECORD_ATTEMPTS):
            self._require_unchanged(case)
            machine = the_machine(outcome.provider_id, self._inventory.machines_with(self._key, outcome.provider_id))
            facts = self._machine_facts(request, case, outcome, identity, machine)
            run_checks(MACHINE_CHECKS, facts)
            record = facts.record
            # A Machine re-created under its old name, or moved by clusterctl, is looked up anew.
            of_this_machine = isinstance(record, AttestedNode) and record.machine_uid == machine.uid
            await self._reservations.reserve(
                Pair(MachineKey.of(machine), identity), record if of_this_machine else NoRecord()
            )
            try:
                return await self._journal(request, facts, authority)
            except RecordChanged:
                continue
        raise Deferred(Reason.RESERVATION_PENDING, "the record is contended; it is tried again")

    def _require_unchanged(self, case: _Case) -> None:
        """Attesting may take long, and a Cluster that is paused meanwhile is being moved to another controller."""
        current = self._case()
        if (current.cluster, current.policy) != (case.cluster, case.policy):
            raise Deferred(
                Reason.RESERVATION_PENDING,
                "the Cluster or its policy changed while the request was judged",
                timedelta(seconds=0.1),
            )

    def _machine_facts(
        self,
        request: SigningRequest,
        case: _Case,
        outcome: VerifiedIdentity | AssertedIdentity,
        identity: AttestedIdentity,
        machine: MachineView,
    ) -> MachineFacts:
        node_name = node_name_of(request)
        record = self._records.recorded(self._key, node_name)
        purpose = request.envelope.signer.purpose
        return MachineFacts(
            node_name=node_name,
            purpose=purpose,
            dns_names=request.certificate_request.dns_names,
            ip_addresses=request.certificate_request.ip_addresses,
            identity=identity,
            proven=outcome if isinstance(outcome, VerifiedIdentity) else None,
            cluster=case.cluster,
            policy=case.policy,
            machine=machine,
            record=record,
            recorded_machine=self._recorded_machine(record),
            addresses_of_others=self._addresses_of_others(machine) if purpose is Purpose.SERVING else frozenset(),
            now=case.now,
        )

    def _recorded_machine(self, record: AttestedNode | NoRecord) -> MachineView | MachineGone:
        if isinstance(record, NoRecord):
            return MachineGone()
        return self._inventory.machines.get(self._key.namespace, record.machine.name) or MachineGone()

    def _addresses_of_others(self, machine: MachineView) -> frozenset[str]:
        return frozenset(
            address.address.lower()
            for other in self._inventory.machines_of(self._key)
            if other.name != machine.name
            for address in other.addresses
        )

    async def _journal(self, request: SigningRequest, facts: MachineFacts, authority: Authority) -> Approve:
        envelope, record = request.envelope, facts.record
        if not isinstance(record, NoRecord):
            entry = record.entry_for(envelope.uid, envelope.spec_digest)
            # Written by us before a restart, or by another replica at this moment: issue that very certificate.
            if isinstance(entry, JournalEntry) and fits(entry, authority, facts.now):
                return approval(record, entry)
            if len(record.journal) == JOURNAL_ENTRIES and record.journal[0].decided > facts.now - _JOURNAL_SPAN:
                raise Deferred(
                    Reason.RESERVATION_PENDING, f"node {facts.node_name} asks too often at once", _JOURNAL_SPAN
                )
        entry = plan(request, facts, authority)
        if isinstance(record, NoRecord):
            wanted = new_record(facts.machine, facts.node_name, facts.identity, entry)
        else:
            wanted = record.with_entry(entry, machine=facts.machine, identity=facts.identity)
        return approval(await self._records.write(wanted, facts.cluster), entry)


def deferral_of(reason: Reason, error: ApiError) -> Defer:
    """Wait for an API server: as long as it asks for (Retry-After), or with our own backoff where that says nothing."""
    pause = error.retry_after_seconds if isinstance(error, TooManyRequests | ServerError) else None
    return Defer(reason, printable(str(error)), timedelta(seconds=pause) if pause else None)


def _is_approved(parsed: Parsed) -> bool:
    return not isinstance(parsed, NotOurs) and Condition.APPROVED in parsed.envelope.conditions
