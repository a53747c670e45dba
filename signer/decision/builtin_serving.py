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
from signer.audit.decision_inputs import Account, CaseStage, StockStage
from signer.configuration import Configuration
from signer.decision.live_recheck import SecondLook, rests_upon_what_is_known
from signer.decision.snapshot import Case, Cases
from signer.model.cluster import LONG_AGO, ClusterKey, MachineView
from signer.model.decision import ApproveOnly, Defer, Deferred, Deny, Ignore, LeftAlone, Refused
from signer.model.reasons import Reason
from signer.model.record import STOCK_APPROVALS, AttestedNode, StockApproval, was_just_decided
from signer.model.reservation import Pair, ReservationSide
from signer.model.signing_request import MalformedStockServingRequest, StockServingRequest
from signer.rules import step_comparisons as compared
from signer.rules.builtin_serving import (
    AttestedMachine,
    PairStanding,
    StockRequestFacts,
    StockServingFacts,
    posted_at,
    refuse_malformed,
    the_attested_machine,
    waits_for,
)
from signer.rules.checks import STOCK_REQUEST_CHECKS, STOCK_SERVING_CHECKS, run_checks
from signer.rules.machine import MachineGone, NoRecord
from signer.rules.machine_comparisons import recorded_machine
from signer.rules.shape import node_name_of
from signer.rules.trace import SILENCE, Step, Trace
from signer.store.caches import Inventory
from signer.store.conflicting_sans import held_by_others
from signer.store.live_reads import Existence
from signer.store.records import RecordChanged, Records

_RECORD_ATTEMPTS: Final = 5
SETTLED_REQUESTS_ARE_KEPT: Final = timedelta(hours=1)
"""By a cluster (``pkg/controller/certificates/cleaner``). A record names every approved request that still exists."""


StockDecision: TypeAlias = ApproveOnly | LeftAlone | Ignore

_KUBELETS: Final = 16_384
"""So many nodes' newest requests are remembered; more than a cluster has (Kubernetes, "Considerations for large
clusters": 5,000)."""


class StockServing:
    """Decides the stock serving requests of one cluster."""

    def __init__(
        self,
        key: ClusterKey,
        configuration: Configuration,
        cases: Cases,
        inventory: Inventory,
        records: Records,
        existence: Existence,
        trace: Trace = SILENCE,
    ) -> None:
        self._key = key
        self._configuration = configuration
        self._cases = cases
        self._inventory = inventory
        self._records = records
        self._second_look = SecondLook(records, existence)
        self._trace = trace
        self._newest: dict[str, datetime] = {}
        """When a kubelet's newest request was posted, by its username."""

    async def decide(
        self, request: StockServingRequest | MalformedStockServingRequest, account: Account
    ) -> StockDecision:
        """Judge one request, and journal it where it is to be approved. Only those of nodes are looked at.

        Raises:
            Refused, Deferred: from the first check that does not pass, where the policy has such requests decided.
            ApiError: from the management cluster.
        """
        if not request.envelope.username.startswith(NODE_USER_PREFIX):
            return Ignore()  # an administrator's own business; nobody approves those of others by themselves
        with self._trace.step(Step.POLICY) as note:
            case = self._taken(account)
            note(lambda: compared.policy(case.policy))
        if isinstance(request, StockServingRequest):
            self._remember(request)
        if not case.policy.approves_stock_serving:
            return LeftAlone(self._would_be(request, case))
        request = self._readable(request)
        for _ in range(_RECORD_ATTEMPTS):
            attested = await self._judged_by_the_newest_record(request, case)
            try:
                return await self._journal(request, attested, case)
            except RecordChanged:
                case = self._taken(account)
        raise Deferred(Reason.RESERVATION_PENDING, "the record is contended; it is tried again")

    def _taken(self, account: Account) -> Case:
        case = replace(self._cases.take(), account=account)
        account.case = CaseStage(case.cluster, case.policy, case.now)
        return case

    def _would_be(
        self, request: StockServingRequest | MalformedStockServingRequest, case: Case
    ) -> ApproveOnly | Deny | Defer:
        try:
            return _approval(self._judge(self._readable(request), case).record)
        except Refused as error:
            return error.deny
        except Deferred as error:
            return error.defer

    def _readable(self, request: StockServingRequest | MalformedStockServingRequest) -> StockServingRequest:
        with self._trace.step(Step.READ) as note:
            note(lambda: compared.read(str(request.envelope.signer.value)))
            if isinstance(request, MalformedStockServingRequest):
                raise refuse_malformed(request.message)
            return request

    async def _judged_by_the_newest_record(self, request: StockServingRequest, case: Case) -> AttestedMachine:
        """Judged again after a second look where a check of the record or its Machine refuses."""
        try:
            return self._judge(request, case)
        except Refused as error:
            if not rests_upon_what_is_known(error):
                raise
            node_name = node_name_of(request)
            machine = self._machine_of(self._records.recorded(self._key, node_name))
            await self._second_look.look(error, self._key, node_name, machine, machine)
        return self._judge(request, case)

    def _judge(self, request: StockServingRequest, case: Case) -> AttestedMachine:
        """Everything that is checked, without a call."""
        run_checks(STOCK_REQUEST_CHECKS, StockRequestFacts(request, case.cluster), self._trace)
        node_name = node_name_of(request)
        record = self._records.recorded(self._key, node_name)
        machine = self._machine_of(record)
        case.account.stock = StockStage(record, machine)
        try:
            with self._trace.step(Step.RECORD) as note:
                note(lambda: recorded_machine(record, machine))
                attested = the_attested_machine(node_name, record, machine)
            run_checks(STOCK_SERVING_CHECKS, self._facts(request, node_name, attested, case), self._trace)
        except Deferred as error:
            defer = error.defer
            raise Deferred(
                defer.reason, defer.message, defer.retry_after, waits_for=waits_for(node_name, record)
            ) from error
        return attested

    def _machine_of(self, record: AttestedNode | NoRecord) -> MachineView | MachineGone:
        return MachineGone() if isinstance(record, NoRecord) else self._inventory.machine(record.machine)

    def _facts(
        self, request: StockServingRequest, node_name: str, attested: AttestedMachine, case: Case
    ) -> StockServingFacts:
        record, machine = attested.record, attested.machine
        dns_names, ip_addresses = request.certificate_request.dns_names, request.certificate_request.ip_addresses
        operator = self._configuration.attestor(record.identity.provider)
        facts = StockServingFacts(
            node_name=node_name,
            dns_names=dns_names,
            ip_addresses=ip_addresses,
            credential=request.envelope.credential,
            created=posted_at(request),
            cluster=case.cluster,
            policy=case.policy,
            record=record,
            machine=machine,
            operator_allows=operator.allows(self._key.namespace),
            pair=self._standing(Pair(record.machine, record.identity)),
            held_by_others=held_by_others(self._inventory, self._records, machine, dns_names, ip_addresses),
            now=case.now,
        )
        case.account.stock = StockStage(record, machine, facts.operator_allows, facts.pair, facts.held_by_others)
        return facts

    def _standing(self, pair: Pair) -> PairStanding:
        reservations, namespace = self._inventory.reservations, self._inventory.own_namespace
        sides = (reservations.get(namespace, pair.name(side)) for side in ReservationSide)
        stands = all(side is not None and side.pair == pair for side in sides)
        return PairStanding.RESERVED if stands else PairStanding.NOT_RESERVED

    async def _journal(self, request: StockServingRequest, attested: AttestedMachine, case: Case) -> ApproveOnly:
        envelope, record = request.envelope, attested.record
        if record.has_stock_approval(envelope.uid, envelope.spec_digest):
            return _approval(record)
        with self._trace.step(Step.STOCK_JOURNAL):
            self._require_newest(request, case)
            _require_room(record, case)
        entry = StockApproval(envelope.name, envelope.uid, envelope.spec_digest, case.now.replace(microsecond=0))
        await self._records.write(record.with_stock_approval(entry), case.cluster)
        return _approval(record)

    def _remember(self, request: StockServingRequest) -> None:
        username, posted = request.envelope.username, posted_at(request)
        self._newest[username] = max(self._newest.pop(username, posted), posted)
        if len(self._newest) > _KUBELETS:
            del self._newest[next(iter(self._newest))]

    def _require_newest(self, request: StockServingRequest, case: Case) -> None:
        """A kubelet posts another request every quarter of an hour, and waits for the newest alone: what it has given
        up must not use up the room in its record.

        What is dated ahead of our clock was posted nobody knows when: it makes no other request older.
        """
        newest = self._newest.get(request.envelope.username, LONG_AGO)
        if posted_at(request) < newest <= case.now:
            raise Deferred(
                Reason.RESERVATION_PENDING,
                f"the kubelet of node {node_name_of(request)} has given this request up: it has posted another at "
                f"{newest:%Y-%m-%d %H:%M:%S} UTC",
            )


def _require_room(record: AttestedNode, case: Case) -> None:
    """An entry gives way to a new one only when its request is no longer there."""
    if len(record.stock_approvals) < STOCK_APPROVALS:
        return
    oldest = record.stock_approvals[0].decided
    if was_just_decided(oldest, SETTLED_REQUESTS_ARE_KEPT, case.now):
        raise Deferred(
            Reason.RESERVATION_PENDING,
            f"node {record.node_name} asks too often: {STOCK_APPROVALS} of its serving requests were approved since "
            f"{oldest:%H:%M:%S} UTC",
            oldest + SETTLED_REQUESTS_ARE_KEPT - case.now,
        )


def _approval(record: AttestedNode) -> ApproveOnly:
    return ApproveOnly(
        node_name=record.node_name,
        reason=Reason.ATTESTED,
        message=f"Attested by {record.identity.provider} at {record.last_attestation:%Y-%m-%dT%H:%M:%SZ}: "
        f"{record.machine} is node {record.node_name}",
    )
