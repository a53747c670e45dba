"""Kubelets' own requests to ``kubernetes.io/kubelet-serving``: approved on the basis of a valid record, never signed
here.

The stages and their order are in ``signer.rules.checks``.

The approval is written into the record first, so no approval is unrecorded. After a crash between the two, the same
request is decided again, and approved without a second entry.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from attestors.wire.names import NODE_USER_PREFIX
from signer.audit.decision_inputs import BuiltinStage, DecisionInputs, SnapshotStage
from signer.configuration import Configuration
from signer.decision.attestor_set import AttestorTimings
from signer.decision.cached_facts import ServingFactsSource
from signer.decision.clocks import RequiredClocks
from signer.decision.identity_standing import ask_standing
from signer.decision.live_recheck import LiveRecheck, rests_on_cached_objects
from signer.decision.snapshot import Snapshot, Snapshots
from signer.model.cluster import LONG_AGO, ClusterKey, MachineView
from signer.model.decision import ApproveOnly, Deferred, Ignore, LeftAlone, Refused
from signer.model.flow import MAXIMUM_REQUESTER_CHARACTERS
from signer.model.reasons import Reason
from signer.model.record import (
    BUILTIN_APPROVALS,
    BUILTIN_KUBELET_SERVING,
    AttestedNode,
    BuiltinApproval,
    record_name,
    was_just_decided,
)
from signer.model.reservation import Pair
from signer.model.signing_request import BuiltinServingRequest, Credential, MalformedBuiltinServingRequest
from signer.rules import step_comparisons as compared
from signer.rules.builtin_serving import (
    AttestedMachine,
    BuiltinRequestFacts,
    BuiltinServingFacts,
    PairState,
    StandingFacts,
    pair_state,
    posted_at,
    refuse_malformed,
    the_attested_machine,
    waits_for,
)
from signer.rules.checks import decide_builtin_serving
from signer.rules.machine import MachineGone, NoRecord
from signer.rules.machine_comparisons import recorded_machine
from signer.rules.plan import PROCEED, SILENCE, Note, Proceed, Trace
from signer.rules.request import public_key_digest
from signer.rules.shape import ClusterFacts, node_name_of
from signer.store.authentic_reservations import Reserved
from signer.store.caches import Caches
from signer.store.live_reads import LiveReads
from signer.store.records import Records, conflicting_names

SETTLED_REQUESTS_ARE_KEPT: Final = timedelta(hours=1)
"""By a cluster (``pkg/controller/certificates/cleaner``). A record names every approved request that still exists."""


BuiltinDecision: TypeAlias = ApproveOnly | LeftAlone | Ignore

_KUBELETS: Final = 16_384
"""Maximum number of kubelets whose newest request is remembered; more than a cluster has (Kubernetes, "Considerations
for large clusters": 5,000)."""


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
        serving: ServingFactsSource,
        clocks: RequiredClocks,
        timings: AttestorTimings,
        trace: Trace = SILENCE,
    ) -> None:
        self._key = key
        self.clocks = clocks
        self._timings = timings
        self._serving = serving
        self._configuration = configuration
        self.snapshots = snapshots
        self._caches = caches
        self._records = records
        self._live_recheck = LiveRecheck(records, live_reads)
        self.trace = trace
        self._newest: dict[tuple[str, Credential], datetime] = {}
        """Creation time of each kubelet's newest request, by username and credential: a foreign certificate for the
        node's name, as kube-controller-manager may have issued it, makes no request of the node older.
        """

    async def decide(
        self, request: BuiltinServingRequest | MalformedBuiltinServingRequest, decision_inputs: DecisionInputs
    ) -> BuiltinDecision:
        """Decide one request, and journal it if it is to be approved. Only nodes' requests are decided.

        Raises:
            Refused, Deferred: from the first check that fails, if the policy has such requests decided.
            ApiError: from the management cluster.
        """
        if not request.header.username.startswith(NODE_USER_PREFIX):
            return Ignore()  # an administrator's own request; no controller approves it automatically
        deciding = BuiltinServingDecision(self, request, decision_inputs)
        try:
            approve = await decide_builtin_serving(deciding, self.trace)
        except Refused as error:
            if not deciding.is_left_alone:
                raise
            return LeftAlone(error.deny)
        except Deferred as error:
            waiting = deciding.waiting(error)
            if not deciding.is_left_alone:
                raise waiting from error
            return LeftAlone(waiting.defer)
        return LeftAlone(approve) if deciding.is_left_alone else approve

    async def require_listed(self) -> None:
        """Make sure that the cache has the records of the Cluster, which may just have appeared or been unpaused.

        Raises:
            ApiError: they cannot be listed.
        """
        await self._records.require_listed(self._key)

    def require_unchanged(self, snapshot: Snapshot) -> None:
        """Check that Cluster and policy are unchanged: the workload API server can hold a decision up, by its answer
        about its clock.

        Raises:
            Deferred: they have changed.
        """
        self.snapshots.require_unchanged(snapshot)

    def recorded(self, node_name: str) -> tuple[AttestedNode | NoRecord, MachineView | MachineGone]:
        """The record of that node name, and the Machine that it names.

        Raises:
            Deferred: the controller key is not available, or a newer one must be read first.
        """
        record = self._records.recorded(self._key, node_name)
        return record, MachineGone() if isinstance(record, NoRecord) else self._caches.machine(record.machine)

    async def recheck(self, error: Refused, node_name: str) -> None:
        """Read the objects on which a refusal is based from the API server.

        Raises:
            Deferred: the Machine differs from the cached one.
            ApiError: from the management cluster.
        """
        _, machine = self.recorded(node_name)
        await self._live_recheck.look(error, self._key, node_name, machine, machine)

    def facts(
        self, request: BuiltinServingRequest, node_name: str, attested: AttestedMachine, snapshot: Snapshot
    ) -> BuiltinServingFacts:
        """The current facts for the checks of the attestation."""
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
            pair=self._pair_state(record, machine, snapshot.cluster.uid),
            conflicting_names=conflicting_names(self._caches, self._records, machine, dns_names, ip_addresses),
            serving=self._serving.facts(snapshot.policy, machine, request.certificate_request),
            now=snapshot.now,
        )
        snapshot.decision_inputs.builtin = BuiltinStage(
            record, machine, facts.operator_allows, facts.pair, facts.conflicting_names, facts.serving
        )
        return facts

    def standing_facts(self, record: AttestedNode, snapshot: Snapshot) -> StandingFacts:
        """The attestor's answer about the recorded identity.

        Raises:
            Deferred: the attestor cannot be asked, or failed.
        """
        hardware = self._caches.authentic_reservations.hardware_of(Pair(record.machine, record.identity))
        return StandingFacts(record, hardware, ask_standing(record.identity, hardware, snapshot, self._timings))

    async def refresh(self, node_name: str) -> None:
        """Read the record of that node name from the API server.

        Raises:
            ApiError: from the management cluster.
        """
        await self._records.refresh(self._key, record_name(self._key, node_name))

    def _pair_state(self, record: AttestedNode, machine: MachineView, cluster_uid: str) -> PairState:
        if self._caches.authentic.newest.is_of_former_identity(record):
            return PairState.ATTESTED_SINCE
        found = self._caches.authentic_reservations.of(Pair(record.machine, record.identity))
        return pair_state(found.bases if isinstance(found, Reserved) else (), record, machine, cluster_uid)

    async def journal(
        self, request: BuiltinServingRequest, node_name: str, attested: AttestedMachine, snapshot: Snapshot
    ) -> ApproveOnly:
        """Write the approval into the record, unless the record has it.

        Raises:
            Deferred: the kubelet has abandoned the request, or the record is full.
            RecordChanged: another client wrote the record first.
            ApiError: from the management cluster.
        """
        header, record = request.header, attested.record
        if record.has_builtin_approval(header.uid, header.spec_digest):
            return approval(record)
        self._require_newest(request, node_name, snapshot)
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
        return approval(record)

    def remember(self, request: BuiltinServingRequest) -> None:
        """Remember the creation time of a kubelet's newest request. A hostile API server may send a longer name than a
        node has, which is denied.
        """
        header, posted = request.header, posted_at(request)
        if len(header.username) > MAXIMUM_REQUESTER_CHARACTERS:
            return
        asks = header.username, header.credential
        self._newest[asks] = max(self._newest.pop(asks, posted), posted)
        if len(self._newest) > _KUBELETS:
            del self._newest[next(iter(self._newest))]

    def _require_newest(self, request: BuiltinServingRequest, node_name: str, snapshot: Snapshot) -> None:
        """A kubelet creates another request every quarter of an hour, and waits only for the newest. Abandoned requests
        must not fill its record.

        A request dated in the future has an unknown creation time, so it does not make others older.
        """
        newest = self._newest.get((request.header.username, request.header.credential), LONG_AGO)
        if posted_at(request) < newest <= snapshot.now:
            raise Deferred(
                Reason.RESERVATION_PENDING,
                f"the kubelet of node {node_name} has given this request up: it has posted another at "
                f"{newest:%Y-%m-%d %H:%M:%S} UTC",
            )


@dataclass(slots=True)
class BuiltinServingDecision:
    """Implements :class:`~signer.rules.supplies.BuiltinSupplies` for one request.

    If the policy ignores such requests, this determines the decision without any call to an API server or any write.
    """

    parts: BuiltinServing
    parsed: BuiltinServingRequest | MalformedBuiltinServingRequest
    decision_inputs: DecisionInputs
    is_left_alone: bool = field(default=False, init=False)
    snapshot: Snapshot = field(init=False)
    request: BuiltinServingRequest = field(init=False)
    node_name: str = field(init=False)
    """From the subject; set once the checks of the subject have passed."""
    looking_at: AttestedNode | NoRecord | None = field(default=None, init=False)
    """The record whose attestation is being checked; None before and afterwards."""
    attested: AttestedMachine = field(init=False)

    def waiting(self, error: Deferred) -> Deferred:
        """``error``, with the changes that may resolve it if the request waits for a record or its Machine."""
        if self.looking_at is None:
            return error
        defer = error.defer
        return Deferred(
            defer.reason,
            defer.message,
            defer.retry_after,
            waits_for=waits_for(self.node_name, self.looking_at),
            grows=defer.grows,
        )

    async def policy(self, note: Note) -> Proceed:
        """See BuiltinSupplies."""
        taken = replace(self.parts.snapshots.take(), decision_inputs=self.decision_inputs)
        note(lambda: compared.policy(taken.policy))
        self.snapshot = taken
        self.decision_inputs.snapshot = SnapshotStage(taken.cluster, taken.policy, taken.now)
        if isinstance(self.parsed, BuiltinServingRequest):
            self.parts.remember(self.parsed)
        self.is_left_alone = not taken.policy.approves_builtin_serving
        return PROCEED

    async def cluster_facts(self) -> ClusterFacts:
        """See BuiltinSupplies."""
        return self.snapshot

    async def clocks(self, note: Note) -> Proceed:
        """See BuiltinSupplies."""
        note(lambda: compared.clocks(self.snapshot.now))
        await self.parts.clocks.require_agree(self.snapshot.now)
        return PROCEED

    async def read(self, note: Note) -> Proceed:
        """See BuiltinSupplies."""
        note(lambda: compared.read(str(self.parsed.header.signer.value)))
        if isinstance(self.parsed, MalformedBuiltinServingRequest):
            raise refuse_malformed(self.parsed.message)
        self.request = self.parsed
        return PROCEED

    async def request_facts(self) -> BuiltinRequestFacts:
        """See BuiltinSupplies."""
        return BuiltinRequestFacts(self.request, self.snapshot.cluster)

    async def record(self, note: Note) -> Proceed:
        """See BuiltinSupplies."""
        self.node_name = node_name_of(self.request)
        if not self.is_left_alone:
            await self.parts.require_listed()
        record, machine = self.parts.recorded(self.node_name)
        self.looking_at = record
        self.decision_inputs.builtin = BuiltinStage(record, machine)
        note(lambda: recorded_machine(record, machine))
        self.attested = the_attested_machine(self.node_name, record, machine)
        return PROCEED

    async def serving_facts(self) -> BuiltinServingFacts:
        """See BuiltinSupplies."""
        return self.parts.facts(self.request, self.node_name, self.attested, self.snapshot)

    async def recheck_record(self, error: Refused | Deferred) -> None:
        """See BuiltinSupplies."""
        if self.is_left_alone or not (isinstance(error, Refused) and rests_on_cached_objects(error)):
            raise error
        self.looking_at = None
        await self.parts.recheck(error, self.node_name)

    async def standing_facts(self) -> StandingFacts:
        """See BuiltinSupplies."""
        return self.parts.standing_facts(self.attested.record, self.snapshot)

    async def recheck_standing(self, error: Refused | Deferred) -> None:
        """See BuiltinSupplies."""
        if self.is_left_alone or isinstance(error, Deferred):
            raise error
        self.looking_at = None
        await self.parts.refresh(self.node_name)

    async def journal(self, note: Note) -> ApproveOnly:
        """See BuiltinSupplies."""
        del note
        self.looking_at = None
        if self.is_left_alone:
            return approval(self.attested.record)
        self.parts.require_unchanged(self.snapshot)
        return await self.parts.journal(self.request, self.node_name, self.attested, self.snapshot)


def _require_room(record: AttestedNode, snapshot: Snapshot) -> None:
    """A full record drops its oldest entry for a new one only if that entry's request no longer exists."""
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


def approval(record: AttestedNode) -> ApproveOnly:
    """The decision that lets kube-controller-manager sign."""
    return ApproveOnly(
        node_name=record.node_name,
        reason=Reason.ATTESTED,
        message=f"Attested by {record.identity.provider} at {record.last_attestation:%Y-%m-%dT%H:%M:%SZ}: "
        f"{record.machine} is node {record.node_name}",
    )
