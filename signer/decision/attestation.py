"""The CA and the attestor: from a parsed request to the identity that its evidence proves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Final, TypeVar

from attestors.contract import (
    AssertedIdentity,
    AttestationRequest,
    AttestorDescription,
    ChallengeIssued,
    ClaimedMachine,
    Denied,
    InvalidOutcome,
    MachineMatch,
    NoClaimedMachine,
    NoRecordedIdentity,
    NotProvableYet,
    Outcome,
    PreFiltered,
    RecordedIdentity,
    RequesterCredential,
    ServerPlugin,
    VerifiedIdentity,
)
from attestors.wire import binding as binding_format
from attestors.wire.binding import BindingMismatch
from attestors.wire.evidence import MalformedEvidence
from attestors.wire.names import Purpose
from signer.audit.decision_inputs import Answer, AnswerStage, Asks, ClaimStage, LeadStage, RequestStage
from signer.audit.recorded_calls import CallRecorder, RecordedManagementCluster
from signer.authority import IssuingSet
from signer.decision.attestor_set import AttestorTiming, AttestorTimings, TimedAwaitable
from signer.decision.authority_secrets import AuthorityUnavailable
from signer.decision.authority_sharing import AuthoritySharing
from signer.decision.authority_source import AuthoritySource
from signer.decision.cached_facts import MachineSearch
from signer.decision.lookups import ConfinedLookups, Lookups
from signer.decision.snapshot import Snapshot
from signer.kube.errors import ApiError
from signer.kube.supervision import is_task_ending
from signer.model.bootstrap_token import NodeAsks, TokenAsks
from signer.model.cluster import MACHINE_KIND, ClusterKey, ClusterView, MachineView
from signer.model.decision import Deferred, Refused
from signer.model.reasons import Reason
from signer.model.record import MachineKey
from signer.model.signing_request import SigningRequest
from signer.rules import step_comparisons as compared
from signer.rules.claim import recorded_identity, requester_credential, role_of
from signer.rules.machine import the_machine
from signer.rules.machine_match import MatchFacts, NotConsidered, found_machine
from signer.rules.nearest_machine import NearMachine, NoneNear
from signer.rules.plan import Note
from signer.rules.request import RequestFacts, claimed_provider_id
from signer.rules.shape import node_name_of
from signer.store.bootstrap_tokens import BootstrapTokens
from signer.store.caches import Caches

T = TypeVar("T")

_LOG = logging.getLogger(__name__)
_ATTESTATION_SECONDS: Final = 30.0


class AttestorEnded(Exception):
    """Replaces an attestor's error that is no ``Exception``, so that it does not end the calling task."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of a request, and the management cluster's data about it, at one moment."""

    machine: MachineView | NoClaimedMachine
    """The Machine that has the claimed provider ID, or the name of its MachinePool."""
    match: MachineMatch
    asks: NodeAsks | TokenAsks
    """The kind of requester, with the trace of the bootstrap token."""
    attestation: AttestationRequest
    """The request as passed to the attestor."""


class AttestationRequests:
    """The claims of one cluster's requests. Only caches are read here: no call is made before the attestor is asked."""

    def __init__(self, key: ClusterKey, caches: Caches, tokens: BootstrapTokens, lookups: Lookups) -> None:
        self._key = key
        self._caches = caches
        self._tokens = tokens
        self._lookups = lookups
        self._search = MachineSearch(key, caches, tokens)

    def match_facts(
        self, request: SigningRequest, node_name: str, snapshot: Snapshot, description: AttestorDescription
    ) -> MatchFacts:
        """The facts that lead to the claimed Machine.

        Raises:
            Refused: the provider ID is malformed, or the requester is not allowed.
            Deferred: the controller key is not available, or a newer one must be read first.
        """
        provider_id = claimed_provider_id(request)
        return self._search.facts(request.header.username, node_name, provider_id, snapshot.policy, description)

    def recorded_authorities(self) -> frozenset[str]:
        """The hashes of the CAs in the records of the cluster's nodes."""
        return self._caches.certificate_lives.authorities_of(self._key)

    def nearest(self, provider_id: str) -> NearMachine | NoneNear:
        """The Machine of the Cluster that nearly has that provider ID."""
        return self._caches.nearest(self._key, provider_id)

    def claim(self, request: SigningRequest, snapshot: Snapshot, provider: str, facts: MatchFacts) -> Claim:
        """The one Machine that ``facts`` lead to, and the request as passed to the attestor ``provider``.

        A provider ID that the Cluster does not have never reaches an attestor: thousands can be invented, and verifying
        each, or asking a cloud about each, would delay honest nodes.

        Raises:
            Refused: the requester is neither a node nor a bootstrap token.
            Deferred: no Machine of the Cluster has the provider ID, several have, or the record of the Machine cannot
                be verified yet.
        """
        found = found_machine(facts)
        machine = found.machine if found.machine.kind == MACHINE_KIND else NoClaimedMachine(pool=found.machine.name)
        credential = requester_credential(facts.asks, machine)
        asked = request.certificate_request
        attestation = AttestationRequest(
            provider_id=facts.provider_id,
            evidence=request.evidence,
            binding=binding_format.compute(
                evidence_version=request.evidence.version,
                cluster=request.evidence.cluster,
                signer_name=request.header.signer,
                subject_public_key_info=asked.subject_public_key_info,
            ),
            cluster_namespace=self._key.namespace,
            cluster_name=self._key.name,
            cluster_uid=snapshot.cluster.uid,
            csr_uid=request.header.uid,
            dns_names=asked.dns_names,
            ip_addresses=asked.ip_addresses,
            now=snapshot.now,
            machine=self._told_of(machine, found.match, provider, credential, snapshot.cluster),
            credential=credential,
            management=ConfinedLookups(self._lookups, self._key, machine),
        )
        return Claim(machine, found.match, facts.asks, attestation)

    def _told_of(
        self,
        machine: MachineView | NoClaimedMachine,
        match: MachineMatch,
        provider: str,
        credential: RequesterCredential,
        cluster: ClusterView,
    ) -> ClaimedMachine | NoClaimedMachine:
        if isinstance(machine, NoClaimedMachine):
            return machine
        authentic, key = self._caches.authentic, MachineKey.of(machine)
        authentic.require_all_known(key)
        return ClaimedMachine(
            name=machine.name,
            annotations=MappingProxyType(dict(machine.annotations)),
            role=role_of(machine),
            recorded=recorded_identity(
                machine,
                self._caches.authentic_reservations.backing(self._caches.records_of(machine)),
                provider,
                credential=credential,
                cluster_created=cluster.created,
            ),
            match=match,
        )


class Attestation:
    """Reads the CA of one cluster, and asks its attestors."""

    def __init__(
        self,
        key: ClusterKey,
        authority_source: AuthoritySource,
        sharing: AuthoritySharing,
        attestation_requests: AttestationRequests,
        timings: AttestorTimings,
    ) -> None:
        self._key = key
        self._authority_source = authority_source
        self._sharing = sharing
        self._attestation_requests = attestation_requests
        self._timings = timings

    def pre_filter(self, request: SigningRequest, snapshot: Snapshot, description: AttestorDescription) -> PreFiltered:
        """The attestor's pre-filter, which makes no calls; it affects only the order of requests.

        Raises:
            Refused: the provider ID is malformed, or the requester is not allowed.
            Deferred: no Machine of the Cluster has the provider ID, the attestor is not ready, or the record of the
                Machine cannot be verified yet.
        """
        plugin: ServerPlugin = snapshot.attestors.ready(description.provider).server_plugin
        facts = self._attestation_requests.match_facts(request, node_name_of(request), snapshot, description)
        claim = self._attestation_requests.claim(request, snapshot, description.provider, facts)
        with self._timings.of(description.provider, self._key):
            return plugin.pre_filter(claim.attestation)

    async def authority(self, *, not_before: float = float("-inf")) -> IssuingSet:
        """The cluster's CA.

        Raises:
            Deferred: no CA is available.
        """
        try:
            return await self._authority_source.authority(not_before=not_before)
        except AuthorityUnavailable as error:
            raise Deferred(Reason.CERTIFICATE_AUTHORITY_UNAVAILABLE, str(error)) from error

    def facts(
        self, request: SigningRequest, snapshot: Snapshot, description: AttestorDescription, authority: IssuingSet
    ) -> RequestFacts:
        """The facts for the checks of the request.

        Raises:
            Deferred: the controller has not read the CAs of all Clusters yet; or the controller key is not available,
                and decides whether another Cluster has one of the CAs.
        """
        self._sharing.require_read()
        known = authority.waiting_hashes | self._attestation_requests.recorded_authorities()
        signing = authority.signer_of(request.header.signer.purpose).certificate
        facts = RequestFacts(
            request=request,
            cluster=snapshot.cluster,
            policy=snapshot.policy,
            attestor=description,
            insecure_allowed=snapshot.attestors.insecure_allowed,
            operator_allows=snapshot.attestors.operator_allows(description.provider),
            ca_cert_hashes=authority.accepted_hashes,
            shared=self._sharing.shared(authority),
            waiting_ca_cert_hashes=known - authority.accepted_hashes,
        )
        snapshot.decision_inputs.request = RequestStage(
            description,
            facts.insecure_allowed,
            facts.operator_allows,
            facts.ca_cert_hashes,
            signing.public_key_hash,
            signing.not_after,
            facts.waiting_ca_cert_hashes,
            facts.shared,
        )
        return facts

    def claim(
        self,
        request: SigningRequest,
        node_name: str,
        snapshot: Snapshot,
        description: AttestorDescription,
        note: Note,
    ) -> Claim:
        """The Machine and the request as passed to the attestor, at one moment: nothing is awaited between the two.

        Raises:
            Refused: the provider ID is malformed, or the requester is not allowed.
            Deferred: no Machine of the Cluster has the provider ID, several have, or the record of the Machine cannot
                be verified yet.
        """
        facts = self._attestation_requests.match_facts(request, node_name, snapshot, description)
        note(lambda: compared.claim(facts))
        if snapshot.audited:
            snapshot.decision_inputs.claimed = facts.machines
            snapshot.decision_inputs.claimed_lead = LeadStage.of(facts)
        if not facts.machines and isinstance(facts.lead, NotConsidered):
            the_machine(facts.provider_id, (), self._attestation_requests.nearest(facts.provider_id))
        claim = self._attestation_requests.claim(request, snapshot, description.provider, facts)
        if snapshot.audited:
            told = claim.attestation.machine
            recorded = told.recorded if isinstance(told, ClaimedMachine) else NoRecordedIdentity()
            identity = recorded.identity if isinstance(recorded, RecordedIdentity) else ""
            snapshot.decision_inputs.claim = ClaimStage(Asks.of(claim.asks), identity)
        return claim

    async def answer(
        self, attestation: AttestationRequest, request: SigningRequest, snapshot: Snapshot, note: Note
    ) -> VerifiedIdentity | AssertedIdentity | ChallengeIssued:
        """The attestor's outcome.

        Raises:
            Refused, Deferred: the attestor denies, cannot decide yet, or failed.
            ApiError: from the management cluster, through the attestor's lookups.
        """
        outcome = await self._ask(attestation, request, snapshot)
        note(lambda: compared.answer(outcome, attestation.provider_id))
        match outcome:
            case Denied():
                raise Refused(outcome.reason, outcome.message)
            case NotProvableYet():
                raise Deferred(outcome.reason, outcome.message, outcome.retry_after, grows=True)
            case ChallengeIssued() | VerifiedIdentity() | AssertedIdentity():
                return outcome

    async def _ask(self, attestation: AttestationRequest, request: SigningRequest, snapshot: Snapshot) -> Outcome:
        signer = request.header.signer
        plugin: ServerPlugin = snapshot.attestors.ready(signer.provider).server_plugin
        judged = plugin.verify_client if signer.purpose is Purpose.CLIENT else plugin.verify_serving
        verify = partial(_outcome_of, self._timings.of(signer.provider, self._key), judged)

        async def ask() -> Outcome:
            return await (_noted(verify, attestation, snapshot) if snapshot.audited else verify(attestation))

        try:
            return await self._within_time(signer.provider, ask)
        except BindingMismatch as error:
            raise Refused(Reason.BINDING_MISMATCH, str(error)) from error
        except MalformedEvidence as error:
            raise Refused(Reason.MALFORMED_EVIDENCE, str(error)) from error

    async def guarded(self, provider: str, call: Callable[[], Awaitable[T]]) -> T:
        """The result of another call of an attestor; its type is not checked.

        Raises:
            Deferred: the attestor failed, or did not answer in time.
        """
        timing = self._timings.of(provider, self._key)
        return await self._within_time(provider, lambda: _answer_of(timing, call))

    async def _within_time(self, provider: str, ask: Callable[[], Awaitable[T]]) -> T:
        limit = asyncio.timeout(_ATTESTATION_SECONDS)
        try:
            async with limit:
                return await ask()
        # The core's own errors, through the attestor's lookups; and those of evidence, which the caller handles.
        except (Deferred, Refused, ApiError, BindingMismatch, MalformedEvidence):
            raise
        except Exception as error:  # an attestor is a plugin, and may have any defect
            # A TimeoutError of the attestor itself, as of a socket, is a fault like others.
            if isinstance(error, TimeoutError) and limit.expired():
                raise Deferred(
                    Reason.ATTESTOR_UNAVAILABLE,
                    f"attestor {provider} did not answer within {_ATTESTATION_SECONDS:.0f} seconds",
                ) from error
            raise self._fault_of(provider, error) from error

    def _fault_of(self, provider: str, error: Exception) -> Deferred:
        """The deferral for a fault of an attestor. It names the attestor; of the exceptions, only the contract's own is
        quoted.
        """
        fault = error.__cause__ if isinstance(error, AttestorEnded) else error
        _LOG.error("an attestor failed", exc_info=fault, extra={"cluster": str(self._key), "provider": provider})
        said = f": {error}" if isinstance(error, InvalidOutcome) else ""
        failed = f"attestor {provider} failed with {type(fault).__name__}{said}; see the controller's log"
        return Deferred(Reason.INTERNAL_ERROR, failed)


async def _outcome_of(
    timing: AttestorTiming, verify: Callable[[AttestationRequest], Awaitable[Outcome]], attestation: AttestationRequest
) -> Outcome:
    """The attestor's outcome, after a check of its type: not every attestor is type-checked."""
    outcome = await _answer_of(timing, lambda: verify(attestation))
    if not isinstance(outcome, Outcome):
        raise Deferred(
            Reason.INTERNAL_ERROR, f"attestor {timing.provider} returned {type(outcome).__name__}, which is no outcome"
        )
    return outcome


async def _answer_of(timing: AttestorTiming, call: Callable[[], Awaitable[T]]) -> T:
    try:
        with timing:
            judging: object = call()
        if not isinstance(judging, Awaitable):
            raise Deferred(
                Reason.INTERNAL_ERROR,
                f"attestor {timing.provider}: what it verifies with is not async; write async def",
            )
        answer: T = await TimedAwaitable(judging, timing)
        return answer
    except SystemExit as error:  # a command-line library may raise it: it would end the controller
        raise AttestorEnded(type(error).__name__) from error
    except BaseException as error:
        # Perhaps the cancellation of a task that the attestor's requests share, or a panic of Rust code.
        if isinstance(error, Exception) or is_task_ending(error):
            raise
        raise AttestorEnded(type(error).__name__) from error


async def _noted(
    verify: Callable[[AttestationRequest], Awaitable[Outcome]], attestation: AttestationRequest, snapshot: Snapshot
) -> Outcome:
    """The attestor's outcome; its own calls are recorded for the audit log."""
    recorded_calls = CallRecorder()
    recorded_management = RecordedManagementCluster(attestation.management, recorded_calls)
    answer = Answer("CancelledError")
    try:
        outcome = await verify(replace(attestation, recorded_calls=recorded_calls, management=recorded_management))
        answer = Answer.of(outcome)
        return outcome
    except (BindingMismatch, MalformedEvidence) as error:
        answer = Answer(type(error).__name__, message=str(error))
        raise
    except Exception as error:  # every failure is recorded
        answer = Answer(type(error).__name__)  # never its message
        raise
    finally:
        snapshot.decision_inputs.answer = AnswerStage(answer, tuple(recorded_calls.recorded))
