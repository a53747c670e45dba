"""The request checks and the attestor: from a request that was read to the identity that its evidence proves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
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
    ServerPlugin,
    VerifiedIdentity,
)
from attestors.wire.binding import BindingMismatch
from attestors.wire.evidence import MalformedEvidence
from attestors.wire.names import Purpose
from signer.audit.decision_inputs import Answer, AnswerStage, Asks, ClaimStage, RequestStage
from signer.audit.recorded_calls import CallRecorder, RecordedManagementCluster
from signer.authority import IssuingSet
from signer.configuration import Configuration
from signer.decision.attestation_request import AttestationRequests
from signer.decision.attestor_timing import AttestorTiming, AttestorTimings, TimedAwaitable
from signer.decision.authority_source import AuthoritySource, AuthorityUnavailable
from signer.decision.snapshot import Snapshot
from signer.kube.errors import ApiError
from signer.kube.supervision import was_told_to_end
from signer.model.cluster import ClusterKey, MachineView
from signer.model.decision import Deferred, Refused
from signer.model.reasons import Reason
from signer.model.signing_request import SigningRequest
from signer.rules import step_comparisons as compared
from signer.rules.checks import IDENTITY_CHECKS, REQUEST_CHECKS, run_checks
from signer.rules.identity import IdentityFacts
from signer.rules.request import RequestFacts, claimed_provider_id
from signer.rules.trace import SILENCE, Step, Trace

_LOG = logging.getLogger(__name__)
_ATTESTATION_SECONDS: Final = 30.0


class AttestorEnded(Exception):
    """In place of what an attestor raised that is no ``Exception``: nobody above is to end of it."""


@dataclass(frozen=True, slots=True)
class Attested:
    """What the evidence proved, and what the cluster had at that moment."""

    outcome: VerifiedIdentity | AssertedIdentity
    description: AttestorDescription
    authority: IssuingSet
    """Its CA."""
    told: MachineView | NoClaimedMachine
    """The Machine that the attestor was told of."""


class Attestation:
    """Runs the request checks of one cluster, and asks its attestors."""

    def __init__(
        self,
        key: ClusterKey,
        configuration: Configuration,
        authority_source: AuthoritySource,
        attestation_requests: AttestationRequests,
        timings: AttestorTimings,
        monotonic: Callable[[], float],
        trace: Trace = SILENCE,
    ) -> None:
        self._key = key
        self._configuration = configuration
        self._authority_source = authority_source
        self._attestation_requests = attestation_requests
        self._timings = timings
        self._monotonic = monotonic
        self._trace = trace

    async def attest(
        self, request: SigningRequest, snapshot: Snapshot, description: AttestorDescription
    ) -> Attested | ChallengeIssued:
        """Judge request and evidence.

        Raises:
            Refused, Deferred: from the first check that does not pass, or from the attestor's answer.
        """
        authority = await self._checked(request, snapshot, description)
        told, attestation = self._claimed(request, snapshot, description)
        outcome = await self._answer(attestation, request, snapshot)
        if isinstance(outcome, ChallengeIssued):
            return outcome
        facts = IdentityFacts(attestation.provider_id, attestation.binding, description, outcome)
        run_checks(IDENTITY_CHECKS, facts, self._trace)
        return Attested(outcome, description, authority, told)

    def pre_filter(self, request: SigningRequest, snapshot: Snapshot, description: AttestorDescription) -> PreFiltered:
        """What the attestor can say without asking anybody: it only puts requests in order.

        Raises:
            Refused: the provider ID is not well formed, or the requester may not ask.
            Deferred: nothing in the Cluster has the provider ID, the attestor is not ready, or it cannot be told what
                is recorded for the Machine.
        """
        plugin: ServerPlugin = snapshot.attestors.ready(description.provider).server_plugin
        asked = self._attestation_requests.attestation_request(request, snapshot, description.provider)
        with self._timings.of(description.provider, self._key):
            return plugin.pre_filter(asked)

    async def authority(self, *, not_before: float = float("-inf")) -> IssuingSet:
        """The cluster's CA.

        Raises:
            Deferred: there is none to sign with.
        """
        try:
            return await self._authority_source.authority(not_before=not_before)
        except AuthorityUnavailable as error:
            raise Deferred(Reason.CERTIFICATE_AUTHORITY_UNAVAILABLE, str(error)) from error

    async def _checked(
        self, request: SigningRequest, snapshot: Snapshot, description: AttestorDescription
    ) -> IssuingSet:
        with self._trace.step(Step.AUTHORITY) as note:
            authority = await self.authority()
            if self._names_another(request, snapshot, description, authority):
                # Perhaps the CA was changed a moment ago: what we keep being old must never be a denial.
                authority = await self.authority(not_before=self._monotonic())
            signing = authority.signer_of(request.header.signer.purpose).certificate
            note(lambda: compared.authority(signing.public_key_hash, signing.not_after, snapshot.now))
        self._check(request, snapshot, description, authority)
        return authority

    def _names_another(
        self, request: SigningRequest, snapshot: Snapshot, description: AttestorDescription, authority: IssuingSet
    ) -> bool:
        """Whether nothing stands against the request but that it names another CA than ours as we know it.

        What is refused in any case is not worth a call: whoever asks chooses what CA to name.
        """
        if request.evidence.cluster.text in authority.accepted_hashes:
            return False
        try:
            run_checks(REQUEST_CHECKS, self._facts(request, snapshot, description, authority))
        except (Refused, Deferred) as error:
            return isinstance(error, Refused) and error.deny.reason is Reason.CLUSTER_MISMATCH
        return False

    def _claimed(
        self, request: SigningRequest, snapshot: Snapshot, description: AttestorDescription
    ) -> tuple[MachineView | NoClaimedMachine, AttestationRequest]:
        """The Machine, and what the attestor is told of it, at one moment: nothing is waited for between the two."""
        if snapshot.audited:
            snapshot.decision_inputs.claimed = self._attestation_requests.machines(request)
        with self._trace.step(Step.CLAIM) as note:
            told = self._attestation_requests.machine(request)
            note(lambda: compared.claim(claimed_provider_id(request), told))
            attestation = self._attestation_requests.attestation_request(request, snapshot, description.provider)
        if snapshot.audited:
            machine = attestation.machine
            recorded = machine.recorded if isinstance(machine, ClaimedMachine) else NoRecordedIdentity()
            identity = recorded.identity if isinstance(recorded, RecordedIdentity) else ""
            snapshot.decision_inputs.claim = ClaimStage(Asks.of(self._attestation_requests.asks(request)), identity)
        return told, attestation

    def _check(
        self, request: SigningRequest, snapshot: Snapshot, description: AttestorDescription, authority: IssuingSet
    ) -> None:
        facts = self._facts(request, snapshot, description, authority)
        signing = authority.signer_of(request.header.signer.purpose).certificate
        snapshot.decision_inputs.request = RequestStage(
            description,
            facts.insecure_allowed,
            facts.operator_allows,
            facts.ca_cert_hashes,
            signing.public_key_hash,
            signing.not_after,
            facts.waiting_ca_cert_hashes,
        )
        run_checks(REQUEST_CHECKS, facts, self._trace)

    def _facts(
        self, request: SigningRequest, snapshot: Snapshot, description: AttestorDescription, authority: IssuingSet
    ) -> RequestFacts:
        return RequestFacts(
            request=request,
            cluster=snapshot.cluster,
            policy=snapshot.policy,
            attestor=description,
            insecure_allowed=self._configuration.insecure_allowed(self._key.namespace),
            operator_allows=self._configuration.attestor(description.provider).allows(self._key.namespace),
            ca_cert_hashes=authority.accepted_hashes,
            waiting_ca_cert_hashes=authority.waiting_hashes,
        )

    async def _answer(
        self, attestation: AttestationRequest, request: SigningRequest, snapshot: Snapshot
    ) -> VerifiedIdentity | AssertedIdentity | ChallengeIssued:
        with self._trace.step(Step.ATTEST) as note:
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
        snapshot.decision_inputs.answer = AnswerStage(answer, tuple(recorded_calls.noted))
