"""Decides one CSR: from its object to a Decision.

The stages and their order are in ``signer.rules.checks``. This module never writes to the workload cluster;
``signer.controller.requests.publisher`` publishes the decision.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from attestors.contract import PreFiltered
from attestors.registry import Registry
from signer.audit.decision_inputs import DecisionInputs
from signer.configuration import Configuration
from signer.decision.approval_seals import ApprovalSeals
from signer.decision.attestation import Attestation, AttestationRequests
from signer.decision.attestor_set import AttestorSet, AttestorTimings
from signer.decision.authority_sharing import AuthoritySharing
from signer.decision.authority_source import AuthoritySource
from signer.decision.authority_trust import AuthorityTrust
from signer.decision.builtin_serving import BuiltinServing
from signer.decision.cached_facts import ServingFactsSource
from signer.decision.certificates import (
    SIGNING_BY_KEY,
    Signing,
)
from signer.decision.clocks import RequiredClocks
from signer.decision.host_certificates import (
    SWITCHED_OFF,
    HostCertificateIssuer,
    HostCertificateSwitch,
)
from signer.decision.lookups import Lookups
from signer.decision.pre_filter import flow_of_parsed
from signer.decision.request_decision import DecidesWith, RequestDecision
from signer.decision.reserve_and_journal import ReserveAndJournal
from signer.decision.snapshot import Snapshot, Snapshots
from signer.kube.client import JsonObject
from signer.kube.errors import ApiError, ServerError, TooManyRequests
from signer.kube.supervision import isolated
from signer.model.cluster import ClusterKey
from signer.model.control_plane_names import ControlPlaneReport
from signer.model.decision import Approve, Challenge, Decision, Defer, Deferred, Deny, Fail, Ignore, Refused, printable
from signer.model.flow import Flow, PriorityLevel, requester_of
from signer.model.host_keys import HostCertificatesIssued
from signer.model.policy import Policy
from signer.model.reasons import Reason
from signer.model.service_networks import ServicesReport
from signer.model.signing_request import (
    NO_CLAIM,
    BuiltinServingRequest,
    MalformedBuiltinServingRequest,
    NotOurs,
    Parsed,
    Settled,
    SigningRequest,
    parse_signing_request,
    peek_claimed_provider_id,
)
from signer.rules.approval import Approver
from signer.rules.checks import decide_request
from signer.rules.plan import SILENCE, Trace
from signer.store.bootstrap_tokens import BootstrapTokens
from signer.store.caches import Caches
from signer.store.records import RecordChanged, Records
from signer.store.reservations import Reservations

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DecidedRequest:
    """A parsed CSR and the decision."""

    parsed: Parsed
    decision: Decision
    decision_inputs: DecisionInputs = field(default_factory=DecisionInputs, repr=False, compare=False)
    """The inputs of the decision."""


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
        trust: AuthorityTrust,
        services_report: ServicesReport,
        control_plane: ControlPlaneReport,
        clocks: RequiredClocks,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
        host_certificates: HostCertificateSwitch = SWITCHED_OFF,
        signing: Signing = SIGNING_BY_KEY,
        trace: Trace = SILENCE,
        audited: bool = False,
    ) -> None:
        """``trace`` receives every check and step. Only a dry run passes one, or another ``signing``."""
        self._key = key
        self._configuration = configuration
        self._providers = registry.providers
        self._caches = caches
        self._snapshots = Snapshots(key, configuration, registry, caches, now, monotonic)
        self._trace = trace
        self._attestation = Attestation(
            key,
            authority_source,
            AuthoritySharing(key, caches, configuration.authorities.shared_by),
            AttestationRequests(key, caches, tokens, lookups),
            timings,
        )
        serving = ServingFactsSource(
            caches, configuration.serving_networks, services_report, control_plane, configuration.reserved_names
        )
        issuer = HostCertificateIssuer(key, host_certificates, caches, records, serving, monotonic)
        self._host_certificates = issuer
        self._approval_seals = ApprovalSeals(key, caches.authentic)
        self._parts = DecidesWith(
            key=key,
            snapshots=self._snapshots,
            records=records,
            approval_seals=self._approval_seals,
            clocks=clocks,
            attestation=self._attestation,
            trust=trust,
            reserve_and_journal=ReserveAndJournal(
                key,
                self._snapshots,
                caches,
                reservations,
                records,
                tokens,
                serving=serving,
                host_certificates=issuer,
                signing=signing,
            ),
            monotonic=monotonic,
            audited=audited,
        )
        self._builtin_serving = BuiltinServing(
            key,
            configuration,
            self._snapshots,
            caches,
            records,
            reservations.live_reads,
            serving,
            clocks,
            timings,
            trace,
        )

    async def decide(self, manifest: Mapping[str, Any]) -> DecidedRequest:
        """Decide one CSR. It fails closed: any error or unexpected fault becomes a Defer."""
        parsed: Parsed = NotOurs()
        decision_inputs = DecisionInputs()
        try:
            parsed = parse_signing_request(manifest, self._providers, self._configuration.provider_id_oids)
            decision = await self._decided(parsed, decision_inputs)
        except Deferred as error:
            decision = error.defer
        except ApiError as error:
            decision = deferral_of(Reason.MANAGEMENT_CLUSTER_UNREACHABLE, error)
        except Exception as error:  # noqa: BLE001 - fail closed: an unexpected fault never approves and never denies
            _LOG.error("unexpected fault while deciding", exc_info=error, extra={"cluster": str(self._key)})
            decision = Defer(Reason.INTERNAL_ERROR, f"unexpected {type(error).__name__}; see the controller's log")
        return DecidedRequest(parsed, decision, decision_inputs)

    async def answered(self, decision: Approve) -> None:
        """Call this once the workload API server has taken the answer. What cannot be recorded of it is logged: the
        node's next request makes up for it.
        """
        if not isinstance(decision.host_certificates, HostCertificatesIssued):
            return
        try:
            await self._host_certificates.answered(decision.node_name, decision.host_certificates)
        except (ApiError, Deferred, RecordChanged) as error:
            _LOG.warning(
                "the record does not show that the node can read its host certificates",
                extra={"cluster": str(self._key), "node": decision.node_name, "error": printable(str(error))},
            )

    def _failed_if_approved(self, parsed: Parsed, decision: Decision) -> Decision:
        """Approved and Denied exclude each other: a request that is approved already, by any client, can only fail,
        with the cause in the message.
        """
        if not isinstance(decision, Deny | Challenge) or isinstance(parsed, NotOurs):
            return decision
        approver = self._approval_seals.approver(parsed.header)
        if approver is Approver.NOBODY:
            return decision
        if isinstance(decision, Challenge):
            return Fail(Reason.APPROVED_BY_OTHERS, "approved by another client before its challenge was answered")
        if approver is Approver.THIS_CONTROLLER:
            return Fail(decision.reason, f"approved by us before this changed: {decision.message}")
        return Fail(Reason.APPROVED_BY_OTHERS, f"approved by another client. {decision.reason}: {decision.message}")

    def peek(self, manifest: JsonObject) -> Flow:
        """The flow in which a CSR waits before it is pre-filtered, by its claim. Never raises; about 0.03 ms of CPU
        time.
        """
        provider_id = NO_CLAIM
        with isolated(self._not_read):
            provider_id = peek_claimed_provider_id(manifest, self._providers, self._configuration.provider_id_oids)
        return self._placed(Flow(PriorityLevel.UNFILTERED, requester_of(manifest), provider_id))

    def _placed(self, flow: Flow) -> Flow:
        if not flow.provider_id or self._caches.matching(self._key, flow.provider_id):
            return flow
        return Flow(PriorityLevel.UNKNOWN_MACHINE, flow.requester, flow.provider_id)

    def pre_filter(self, manifest: JsonObject) -> Flow:
        """The flow in which a CSR waits; never raises."""
        requester = requester_of(manifest)
        with isolated(self._not_read):
            try:
                parsed = parse_signing_request(manifest, self._providers, self._configuration.provider_id_oids)
                snapshot = self._snapshots.take()
            except Deferred:
                return Flow(PriorityLevel.UNFILTERED, requester)
            return self._placed(flow_of_parsed(requester, parsed, partial(self._pre_filter, snapshot)))
        return Flow(PriorityLevel.REFUSED, requester)  # an unfiltered one would be retried

    def _not_read(self, error: BaseException) -> None:
        """Log a fault of ours, which must not end the watch that calls."""
        _LOG.error("unexpected fault while reading", exc_info=error, extra={"cluster": str(self._key)})

    def _pre_filter(self, snapshot: Snapshot, request: SigningRequest) -> PreFiltered:
        provider = request.header.signer.provider
        return self._attestation.pre_filter(request, snapshot, self._parts.description(provider, snapshot))

    def attestors(self, policy: Policy) -> AttestorSet:
        """The attestors under this policy."""
        return self._snapshots.attestors(policy)

    async def _decided(self, parsed: Parsed, decision_inputs: DecisionInputs) -> Decision:
        try:
            decision = await self._decide(parsed, decision_inputs)
        except Refused as error:
            decision = error.deny
        return self._failed_if_approved(parsed, decision)

    async def _decide(self, parsed: Parsed, decision_inputs: DecisionInputs) -> Decision:
        if isinstance(parsed, NotOurs | Settled):
            return Ignore()
        if isinstance(parsed, BuiltinServingRequest | MalformedBuiltinServingRequest):
            return await self._builtin_serving.decide(parsed, decision_inputs)
        deciding = RequestDecision(self._parts, parsed, decision_inputs)
        try:
            return await decide_request(deciding, self._trace)
        except Deferred as error:
            raise deciding.waiting(error) from error


def deferral_of(reason: Reason, error: ApiError) -> Defer:
    """Wait for an API server: for the time it requests (Retry-After), or with the controller's own backoff."""
    pause = error.retry_after_seconds if isinstance(error, TooManyRequests | ServerError) else None
    return Defer(reason, printable(str(error)), timedelta(seconds=pause) if pause else None)
