"""The CA and the attestor: from a request that was read to the identity that its evidence proves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Final

from attestors.contract import (
    AssertedIdentity,
    AttestationRequest,
    AttestorDescription,
    ChallengeIssued,
    ClaimedMachine,
    Denied,
    InvalidOutcome,
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
from signer.audit.decision_inputs import Answer, AnswerStage, Asks, ClaimStage, RequestStage
from signer.audit.recorded_calls import CallRecorder, RecordedManagementCluster
from signer.authority import IssuingSet
from signer.configuration import Configuration
from signer.decision.attestor_timing import AttestorTiming, AttestorTimings, TimedAwaitable
from signer.decision.authority_source import AuthoritySource, AuthorityUnavailable
from signer.decision.lookups import Lookups
from signer.decision.snapshot import Snapshot
from signer.kube.errors import ApiError
from signer.kube.supervision import was_told_to_end
from signer.model.bootstrap_token import NodeAsks, TokenAsks
from signer.model.cluster import MACHINE_KIND, ClusterKey, ClusterView, MachineView
from signer.model.decision import Deferred, Refused
from signer.model.reasons import Reason
from signer.model.record import MachineKey
from signer.model.signing_request import SigningRequest
from signer.rules import step_comparisons as compared
from signer.rules.claim import recorded_identity, requester_credential, role_of
from signer.rules.machine import the_machine
from signer.rules.plan import Note
from signer.rules.request import RequestFacts, claimed_provider_id
from signer.store.bootstrap_tokens import BootstrapTokens
from signer.store.caches import Caches

_LOG = logging.getLogger(__name__)
_ATTESTATION_SECONDS: Final = 30.0


class AttestorEnded(Exception):
    """In place of what an attestor raised that is no ``Exception``: nobody above is to end of it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a request claims, and what the management cluster says beside it, at one moment."""

    machine: MachineView | NoClaimedMachine
    """The Machine that has the claimed provider ID, or the name of its MachinePool."""
    asks: NodeAsks | TokenAsks
    """Who asks, with the trace of the bootstrap token."""
    attestation: AttestationRequest
    """What the attestor is told."""


class AttestationRequests:
    """The claims of one cluster's requests. It looks at caches only: nothing is waited for until an attestor asks."""

    def __init__(self, key: ClusterKey, caches: Caches, tokens: BootstrapTokens, lookups: Lookups) -> None:
        self._key = key
        self._caches = caches
        self._tokens = tokens
        self._lookups = lookups

    def machines(self, provider_id: str) -> tuple[MachineView, ...]:
        """Whatever in the Cluster has that provider ID."""
        return self._caches.matching(self._key, provider_id)

    def claim(
        self,
        request: SigningRequest,
        snapshot: Snapshot,
        provider: str,
        provider_id: str,
        machines: tuple[MachineView, ...],
    ) -> Claim:
        """The one Machine among ``machines``, and the request as the attestor ``provider`` sees it.

        No attestor hears of what the Cluster has not: provider IDs are invented by the thousand, and judging or asking
        a cloud about each would keep honest nodes waiting.

        Raises:
            Refused: neither a node nor a bootstrap token asks.
            Deferred: nothing in the Cluster has the provider ID, several have, or it cannot be told what is recorded
                for the Machine.
        """
        found = the_machine(provider_id, machines)
        machine = found if found.kind == MACHINE_KIND else NoClaimedMachine(pool=found.name)
        asks = self._tokens.asks(self._key, request.header.username)
        credential = requester_credential(asks, machine)
        asked = request.certificate_request
        attestation = AttestationRequest(
            provider_id=provider_id,
            evidence=request.evidence,
            binding=binding_format.compute(
                evidence_version=request.evidence.version,
                cluster=request.evidence.cluster,
                signer_name=request.header.signer,
                subject_public_key_info=asked.subject_public_key_info,
            ),
            cluster_namespace=self._key.namespace,
            cluster_name=self._key.name,
            csr_uid=request.header.uid,
            dns_names=asked.dns_names,
            ip_addresses=asked.ip_addresses,
            now=snapshot.now,
            machine=self._told_of(machine, provider, credential, snapshot.cluster),
            credential=credential,
            management=self._lookups.of(self._key, machine),
        )
        return Claim(machine, asks, attestation)

    def _told_of(
        self,
        machine: MachineView | NoClaimedMachine,
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
                authentic.of_machine(key),
                provider,
                credential=credential,
                cluster_created=cluster.created,
            ),
        )


class Attestation:
    """Reads the CA of one cluster, and asks its attestors."""

    def __init__(
        self,
        key: ClusterKey,
        configuration: Configuration,
        authority_source: AuthoritySource,
        attestation_requests: AttestationRequests,
        timings: AttestorTimings,
    ) -> None:
        self._key = key
        self._configuration = configuration
        self._authority_source = authority_source
        self._attestation_requests = attestation_requests
        self._timings = timings

    def pre_filter(self, request: SigningRequest, snapshot: Snapshot, description: AttestorDescription) -> PreFiltered:
        """What the attestor can say without asking anybody: it only puts requests in order.

        Raises:
            Refused: the provider ID is not well formed, or the requester may not ask.
            Deferred: nothing in the Cluster has the provider ID, the attestor is not ready, or it cannot be told what
                is recorded for the Machine.
        """
        plugin: ServerPlugin = snapshot.attestors.ready(description.provider).server_plugin
        provider_id = claimed_provider_id(request)
        machines = self._attestation_requests.machines(provider_id)
        claim = self._attestation_requests.claim(request, snapshot, description.provider, provider_id, machines)
        with self._timings.of(description.provider, self._key):
            return plugin.pre_filter(claim.attestation)

    async def authority(self, *, not_before: float = float("-inf")) -> IssuingSet:
        """The cluster's CA.

        Raises:
            Deferred: there is none to sign with.
        """
        try:
            return await self._authority_source.authority(not_before=not_before)
        except AuthorityUnavailable as error:
            raise Deferred(Reason.CERTIFICATE_AUTHORITY_UNAVAILABLE, str(error)) from error

    def facts(
        self, request: SigningRequest, snapshot: Snapshot, description: AttestorDescription, authority: IssuingSet
    ) -> RequestFacts:
        """What the request checks look at."""
        namespace = self._key.namespace
        signing = authority.signer_of(request.header.signer.purpose).certificate
        facts = RequestFacts(
            request=request,
            cluster=snapshot.cluster,
            policy=snapshot.policy,
            attestor=description,
            insecure_allowed=self._configuration.insecure_allowed(namespace),
            operator_allows=self._configuration.attestor(description.provider).allows(namespace),
            ca_cert_hashes=authority.accepted_hashes,
            waiting_ca_cert_hashes=authority.waiting_hashes,
        )
        snapshot.decision_inputs.request = RequestStage(
            description,
            facts.insecure_allowed,
            facts.operator_allows,
            facts.ca_cert_hashes,
            signing.public_key_hash,
            signing.not_after,
            facts.waiting_ca_cert_hashes,
        )
        return facts

    def claim(self, request: SigningRequest, snapshot: Snapshot, provider: str, note: Note) -> Claim:
        """The Machine, and what the attestor is told of it, at one moment: nothing is waited for between the two.

        Raises:
            Refused: the provider ID is not well formed, or the requester may not ask.
            Deferred: nothing in the Cluster has the provider ID, several have, or it cannot be told what is recorded
                for the Machine.
        """
        provider_id = claimed_provider_id(request)
        machines = self._attestation_requests.machines(provider_id)
        note(lambda: compared.claim(provider_id, machines))
        if snapshot.audited:
            snapshot.decision_inputs.claimed = machines
        claim = self._attestation_requests.claim(request, snapshot, provider, provider_id, machines)
        if snapshot.audited:
            told = claim.attestation.machine
            recorded = told.recorded if isinstance(told, ClaimedMachine) else NoRecordedIdentity()
            identity = recorded.identity if isinstance(recorded, RecordedIdentity) else ""
            snapshot.decision_inputs.claim = ClaimStage(Asks.of(claim.asks), identity)
        return claim

    async def answer(
        self, attestation: AttestationRequest, request: SigningRequest, snapshot: Snapshot, note: Note
    ) -> VerifiedIdentity | AssertedIdentity | ChallengeIssued:
        """The attestor's answer.

        Raises:
            Refused, Deferred: it says no, or not yet, or it failed.
            ApiError: from the management cluster, through what the attestor was given to ask.
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
        limit = asyncio.timeout(_ATTESTATION_SECONDS)
        try:
            async with limit:
                return await (_noted(verify, attestation, snapshot) if snapshot.audited else verify(attestation))
        except BindingMismatch as error:
            raise Refused(Reason.BINDING_MISMATCH, str(error)) from error
        except MalformedEvidence as error:
            raise Refused(Reason.MALFORMED_EVIDENCE, str(error)) from error
        except (Deferred, Refused, ApiError):  # the core's own, through what it was given to ask
            raise
        except Exception as error:
            # A TimeoutError of its own, as of a socket, is a fault like others.
            if isinstance(error, TimeoutError) and limit.expired():
                raise Deferred(
                    Reason.ATTESTOR_UNAVAILABLE,
                    f"attestor {signer.provider} did not answer within {_ATTESTATION_SECONDS:.0f} seconds",
                ) from error
            raise self._fault_of(signer.provider, error) from error

    def _fault_of(self, provider: str, error: Exception) -> Deferred:
        """It is said whose fault it is; of the exception's own words only those of the contract."""
        fault = error.__cause__ if isinstance(error, AttestorEnded) else error
        _LOG.error("an attestor failed", exc_info=fault, extra={"cluster": str(self._key), "provider": provider})
        said = f": {error}" if isinstance(error, InvalidOutcome) else ""
        failed = f"attestor {provider} failed with {type(fault).__name__}{said}; see the controller's log"
        return Deferred(Reason.INTERNAL_ERROR, failed)


async def _outcome_of(
    timing: AttestorTiming, verify: Callable[[AttestationRequest], Awaitable[Outcome]], attestation: AttestationRequest
) -> Outcome:
    """The attestor's answer, if it is one: not every attestor is type-checked, and a ``return`` is forgotten."""
    try:
        with timing:
            judging: object = verify(attestation)
        if not isinstance(judging, Awaitable):
            raise Deferred(
                Reason.INTERNAL_ERROR,
                f"attestor {timing.provider}: what it verifies with is not async; write async def",
            )
        outcome = await TimedAwaitable(judging, timing)
    except SystemExit as error:  # of a library for command lines: it would end the controller, for every cluster
        raise AttestorEnded(type(error).__name__) from error
    except BaseException as error:
        # A cancelled task of its own, which others of its requests may share; a panic of Rust.
        if isinstance(error, Exception) or was_told_to_end(error):
            raise
        raise AttestorEnded(type(error).__name__) from error
    if not isinstance(outcome, Outcome):
        raise Deferred(
            Reason.INTERNAL_ERROR, f"attestor {timing.provider} returned {type(outcome).__name__}, which is no outcome"
        )
    return outcome


async def _noted(
    verify: Callable[[AttestationRequest], Awaitable[Outcome]], attestation: AttestationRequest, snapshot: Snapshot
) -> Outcome:
    """The attestor's answer, with what it was answered itself, for the audit log."""
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
    except Exception as error:
        answer = Answer(type(error).__name__)  # whatever its message holds
        raise
    finally:
        snapshot.decision_inputs.answer = AnswerStage(answer, tuple(recorded_calls.recorded))
