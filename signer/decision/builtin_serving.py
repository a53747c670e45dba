"""Kubelets' own requests to ``kubernetes.io/kubelet-serving``: approved on the strength of a live record, never signed.

    request checks → record and Machine → serving checks → journal → approve

The approval is written into the record first: what was approved and is not recorded cannot be. After a crash between
the two the same request is judged again, and approved without a second entry.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from attestors.wire.names import NODE_USER_PREFIX
from signer.audit.decision_inputs import BuiltinStage, DecisionInputs, SnapshotStage
from signer.configuration import Configuration
from signer.decision.live_recheck import LiveRecheck, rests_on_cached_objects
from signer.decision.snapshot import Snapshot, Snapshots
from signer.model.certificate_kind import BUILTIN_KUBELET_SERVING
from signer.model.cluster import LONG_AGO, ClusterKey, MachineView
from signer.model.decision import ApproveOnly, Defer, Deferred, Deny, Ignore, LeftAlone, Refused
from signer.model.reasons import Reason
from signer.model.record import BUILTIN_APPROVALS, AttestedNode, BuiltinApproval, was_just_decided
from signer.model.reservation import Pair, ReservationSide
from signer.model.signing_request import BuiltinServingRequest, MalformedBuiltinServingRequest
from signer.rules import step_comparisons as compared
from signer.rules.builtin_serving import (
    AttestedMachine,
    BuiltinRequestFacts,
    BuiltinServingFacts,
    PairState,
    posted_at,
    refuse_malformed,
    the_attested_machine,
    waits_for,
)
from signer.rules.checks import BUILTIN_REQUEST_CHECKS, BUILTIN_SERVING_CHECKS, run_checks
from signer.rules.issuance import public_key_digest
from signer.rules.machine import MachineGone, NoRecord
from signer.rules.machine_comparisons import recorded_machine
from signer.rules.shape import node_name_of
from signer.rules.trace import SILENCE, Step, Trace
from signer.store.caches import Caches
from signer.store.conflicting_sans import conflicting_names
from signer.store.live_reads import LiveReads
from signer.store.records import RecordChanged, Records

_RECORD_ATTEMPTS: Final = 5
SETTLED_REQUESTS_ARE_KEPT: Final = timedelta(hours=1)
"""By a cluster (``pkg/controller/certificates/cleaner``). A record names every approved request that still exists."""


BuiltinDecision: TypeAlias = ApproveOnly | LeftAlone | Ignore

_KUBELETS: Final = 16_384
"""So many nodes' newest requests are remembered; more than a cluster has (Kubernetes, "Considerations for large
clusters": 5,000)."""


class BuiltinServing:
    """Decides the built-in serving requests of one cluster."""

    def __init__(
        self,
        key: ClusterKey,
        configuration: Configuration,
        snapshots: Snapshots,
        caches: Caches,
        records: Records,
        live_reads: LiveReads,
        trace: Trace = SILENCE,
    ) -> None:
        self._key = key
        self._configuration = configuration
        self._snapshots = snapshots
        self._caches = caches
        self._records = records
        self._live_recheck = LiveRecheck(records, live_reads)
        self._trace = trace
        self._newest: dict[str, datetime] = {}
        """When a kubelet's newest request was posted, by its username."""

    async def decide(
        self, request: BuiltinServingRequest | MalformedBuiltinServingRequest, decision_inputs: DecisionInputs
    ) -> BuiltinDecision:
        """Judge one request, and journal it where it is to be approved. Only those of nodes are looked at.

        Raises:
            Refused, Deferred: from the first check that does not pass, where the policy has such requests decided.
            ApiError: from the management cluster.
        """
        if not request.header.username.startswith(NODE_USER_PREFIX):
            return Ignore()  # an administrator's own business; nobody approves those of others by themselves
        with self._trace.step(Step.POLICY) as note:
            snapshot = self._taken(decision_inputs)
            note(lambda: compared.policy(snapshot.policy))
        if isinstance(request, BuiltinServingRequest):
            self._remember(request)
        if not snapshot.policy.approves_builtin_serving:
            return LeftAlone(self._would_be(request, snapshot))
        request = self._readable(request)
        for _ in range(_RECORD_ATTEMPTS):
            attested = await self._judged_by_the_newest_record(request, snapshot)
            try:
                return await self._journal(request, attested, snapshot)
            except RecordChanged:
                snapshot = self._taken(decision_inputs)
        raise Deferred(Reason.RESERVATION_PENDING, "the record is contended; it is tried again")

    def _taken(self, decision_inputs: DecisionInputs) -> Snapshot:
        snapshot = replace(self._snapshots.take(), decision_inputs=decision_inputs)
        decision_inputs.snapshot = SnapshotStage(snapshot.cluster, snapshot.policy, snapshot.now)
        return snapshot

    def _would_be(
        self, request: BuiltinServingRequest | MalformedBuiltinServingRequest, snapshot: Snapshot
    ) -> ApproveOnly | Deny | Defer:
        try:
            return _approval(self._judge(self._readable(request), snapshot).record)
        except Refused as error:
            return error.deny
        except Deferred as error:
            return error.defer

    def _readable(self, request: BuiltinServingRequest | MalformedBuiltinServingRequest) -> BuiltinServingRequest:
        with self._trace.step(Step.READ) as note:
            note(lambda: compared.read(str(request.header.signer.value)))
            if isinstance(request, MalformedBuiltinServingRequest):
                raise refuse_malformed(request.message)
            return request

    async def _judged_by_the_newest_record(self, request: BuiltinServingRequest, snapshot: Snapshot) -> AttestedMachine:
        """Judged again after a live recheck where a check of the record or its Machine refuses."""
        try:
            return self._judge(request, snapshot)
        except Refused as error:
            if not rests_on_cached_objects(error):
                raise
            node_name = node_name_of(request)
            machine = self._machine_of(self._records.recorded(self._key, node_name))
            await self._live_recheck.look(error, self._key, node_name, machine, machine)
        return self._judge(request, snapshot)

    def _judge(self, request: BuiltinServingRequest, snapshot: Snapshot) -> AttestedMachine:
        """Everything that is checked, without a call."""
        run_checks(BUILTIN_REQUEST_CHECKS, BuiltinRequestFacts(request, snapshot.cluster), self._trace)
        node_name = node_name_of(request)
        record = self._records.recorded(self._key, node_name)
        machine = self._machine_of(record)
        snapshot.decision_inputs.builtin = BuiltinStage(record, machine)
        try:
            with self._trace.step(Step.RECORD) as note:
                note(lambda: recorded_machine(record, machine))
                attested = the_attested_machine(node_name, record, machine)
            run_checks(BUILTIN_SERVING_CHECKS, self._facts(request, node_name, attested, snapshot), self._trace)
        except Deferred as error:
            defer = error.defer
            raise Deferred(
                defer.reason, defer.message, defer.retry_after, waits_for=waits_for(node_name, record)
            ) from error
        return attested

    def _machine_of(self, record: AttestedNode | NoRecord) -> MachineView | MachineGone:
        return MachineGone() if isinstance(record, NoRecord) else self._caches.machine(record.machine)

    def _facts(
        self, request: BuiltinServingRequest, node_name: str, attested: AttestedMachine, snapshot: Snapshot
    ) -> BuiltinServingFacts:
        record, machine = attested.record, attested.machine
        dns_names, ip_addresses = request.certificate_request.dns_names, request.certificate_request.ip_addresses
        operator = self._configuration.attestor(record.identity.provider)
        facts = BuiltinServingFacts(
            node_name=node_name,
            dns_names=dns_names,
            ip_addresses=ip_addresses,
            credential=request.header.credential,
            created=posted_at(request),
            cluster=snapshot.cluster,
            policy=snapshot.policy,
            record=record,
            machine=machine,
            operator_allows=operator.allows(self._key.namespace),
            pair=self._standing(Pair(record.machine, record.identity)),
            conflicting_names=conflicting_names(self._caches, self._records, machine, dns_names, ip_addresses),
            now=snapshot.now,
        )
        snapshot.decision_inputs.builtin = BuiltinStage(
            record, machine, facts.operator_allows, facts.pair, facts.conflicting_names
        )
        return facts

    def _standing(self, pair: Pair) -> PairState:
        reservations, namespace = self._caches.reservations, self._caches.own_namespace
        sides = (reservations.get(namespace, pair.name(side)) for side in ReservationSide)
        stands = all(side is not None and side.pair == pair for side in sides)
        return PairState.RESERVED if stands else PairState.NOT_RESERVED

    async def _journal(
        self, request: BuiltinServingRequest, attested: AttestedMachine, snapshot: Snapshot
    ) -> ApproveOnly:
        header, record = request.header, attested.record
        if record.has_builtin_approval(header.uid, header.spec_digest):
            return _approval(record)
        with self._trace.step(Step.BUILTIN_JOURNAL):
            self._require_newest(request, snapshot)
            _require_room(record, snapshot)
        approved = BuiltinApproval(
            kind=BUILTIN_KUBELET_SERVING,
            csr_name=header.name,
            csr_uid=header.uid,
            spec_digest=header.spec_digest,
            public_key_digest=public_key_digest(request),
            created=posted_at(request),
            decided=snapshot.now.replace(microsecond=0),
        )
        await self._records.write(record.with_builtin_approval(approved), snapshot.cluster)
        return _approval(record)

    def _remember(self, request: BuiltinServingRequest) -> None:
        username, posted = request.header.username, posted_at(request)
        self._newest[username] = max(self._newest.pop(username, posted), posted)
        if len(self._newest) > _KUBELETS:
            del self._newest[next(iter(self._newest))]

    def _require_newest(self, request: BuiltinServingRequest, snapshot: Snapshot) -> None:
        """A kubelet posts another request every quarter of an hour, and waits for the newest alone: what it has given
        up must not use up the room in its record.

        What is dated ahead of our clock was posted nobody knows when: it makes no other request older.
        """
        newest = self._newest.get(request.header.username, LONG_AGO)
        if posted_at(request) < newest <= snapshot.now:
            raise Deferred(
                Reason.RESERVATION_PENDING,
                f"the kubelet of node {node_name_of(request)} has given this request up: it has posted another at "
                f"{newest:%Y-%m-%d %H:%M:%S} UTC",
            )


def _require_room(record: AttestedNode, snapshot: Snapshot) -> None:
    """An entry gives way to a new one only when its request is no longer there."""
    if len(record.builtin_approvals) < BUILTIN_APPROVALS:
        return
    oldest = record.builtin_approvals[0].decided
    if was_just_decided(oldest, SETTLED_REQUESTS_ARE_KEPT, snapshot.now):
        raise Deferred(
            Reason.RESERVATION_PENDING,
            f"node {record.node_name} asks too often: {BUILTIN_APPROVALS} of its serving requests were approved since "
            f"{oldest:%H:%M:%S} UTC",
            oldest + SETTLED_REQUESTS_ARE_KEPT - snapshot.now,
        )


def _approval(record: AttestedNode) -> ApproveOnly:
    return ApproveOnly(
        node_name=record.node_name,
        reason=Reason.ATTESTED,
        message=f"Attested by {record.identity.provider} at {record.last_attestation:%Y-%m-%dT%H:%M:%SZ}: "
        f"{record.machine} is node {record.node_name}",
    )
