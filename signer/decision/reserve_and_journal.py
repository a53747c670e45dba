"""Match, reserve and journal: from a proven identity to the certificate that its Machine's node may have."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from itertools import chain, islice
from types import MappingProxyType
from typing import Final

from attestors.contract import AssertedIdentity, Security, VerifiedIdentity
from signer.audit.decision_inputs import Asks, MachineStage
from signer.audit.machine_facts import machine_facts
from signer.authority import IssuingSet
from signer.decision.attestation import Attested
from signer.decision.certificates import (
    SIGNING_BY_KEY,
    NotRepeatable,
    Signing,
    approval,
    journal_entry,
    plan,
    repeat,
    repeat_for_key,
)
from signer.decision.live_recheck import LiveRecheck, rests_on_cached_objects
from signer.decision.snapshot import Snapshot, Snapshots
from signer.model.cluster import ClusterKey, MachineView
from signer.model.decision import Approve, Deferred, Refused
from signer.model.reasons import Reason
from signer.model.record import (
    AttestedIdentity,
    AttestedNode,
    JournalEntry,
    MachineKey,
    new_record,
    record_name,
    was_just_decided,
)
from signer.model.reservation import Pair
from signer.model.signing_request import SigningRequest
from signer.rules import step_comparisons as compared
from signer.rules.checks import MACHINE_CHECKS, run_checks
from signer.rules.claim import require_as_told
from signer.rules.machine import (
    MachineFacts,
    MachineGone,
    NoRecord,
    former_identity_has_run_out,
    has_that_name,
    the_machine,
)
from signer.rules.shape import node_name_of
from signer.rules.trace import SILENCE, Step, Trace
from signer.store.bootstrap_tokens import BootstrapTokens
from signer.store.caches import Caches
from signer.store.conflicting_sans import conflicting_names
from signer.store.records import RecordChanged, Records
from signer.store.reservation_rebuild import ReservationRebuild
from signer.store.reservations import Reservations

_RECORD_ATTEMPTS: Final = 5
_MOST_OTHERS: Final = 8
"""Machines of one name that a decision looks at."""
_JOURNAL_SPAN: Final = timedelta(minutes=1)
"""A journal that was filled faster than this still holds requests between approval and certificate."""


class ReserveAndJournal:
    """Admits proven identities of one cluster."""

    def __init__(
        self,
        key: ClusterKey,
        snapshots: Snapshots,
        caches: Caches,
        reservations: Reservations,
        records: Records,
        tokens: BootstrapTokens,
        *,
        signing: Signing = SIGNING_BY_KEY,
        trace: Trace = SILENCE,
    ) -> None:
        self._key = key
        self._snapshots = snapshots
        self._caches = caches
        self._reservations = reservations
        self._rebuild = ReservationRebuild(caches, reservations)
        self._records = records
        self._live_recheck = LiveRecheck(records, reservations.live_reads)
        self._tokens = tokens
        self._signing = signing
        self._trace = trace
        self._being_named: set[MachineKey] = set()
        """Machines for which a node name is being recorded that they did not have."""

    async def run(self, request: SigningRequest, snapshot: Snapshot, attested: Attested) -> Approve:
        """Match, reserve and journal; again from the match when somebody else wrote the record first.

        Raises:
            Refused, Deferred: from the first check that does not pass.
            ApiError: from the management cluster.
        """
        outcome = attested.outcome
        identity = AttestedIdentity(attested.description.provider, outcome.identity, attested.description.security)
        for _ in range(_RECORD_ATTEMPTS):
            self._require_unchanged(snapshot)
            snapshot.decision_inputs.reserved = False
            machine = self._matched(attested, snapshot)
            facts = await self._checked(request, snapshot, attested, identity, machine)
            await self._require_gone(facts)
            await self._require_own_token(request, snapshot, machine)
            await self._reserve(facts)
            snapshot.decision_inputs.reserved = True
            try:
                with self._trace.step(Step.JOURNAL):
                    await self._require_former_identity_run_out(facts)
                    approve = await self._journal(request, facts, snapshot, attested.authority)
                return replace(approve, annotations=_annotations(outcome))
            except RecordChanged:
                continue
        raise Deferred(Reason.RESERVATION_PENDING, "the record is contended; it is tried again")

    def _require_unchanged(self, snapshot: Snapshot) -> None:
        """Raises Deferred: the Cluster or its policy has changed, or has been away."""
        self._snapshots.require_unchanged(snapshot)
        self._records.require_still_listed(self._key)

    def _matched(self, attested: Attested, snapshot: Snapshot) -> MachineView:
        provider_id = attested.outcome.provider_id
        with self._trace.step(Step.MATCH) as note:
            machines = snapshot.decision_inputs.matched = self._caches.matching(self._key, provider_id)
            note(lambda: compared.match(provider_id, machines))
            machine = the_machine(provider_id, machines)
            require_as_told(attested.told, machine)
            return machine

    async def _require_own_token(self, request: SigningRequest, snapshot: Snapshot, machine: MachineView) -> None:
        username = request.header.username
        if snapshot.audited:
            snapshot.decision_inputs.token = Asks.of(self._tokens.asks(self._key, username), machine)
        with self._trace.step(Step.TOKEN) as note:
            note(lambda: compared.token(self._tokens.asks(self._key, username), machine))
            await self._tokens.require_the_machines(username, machine, snapshot.policy)

    async def _reserve(self, facts: MachineFacts) -> None:
        """Reserve the pair; what was reserved before, and only its record says so, first."""
        machine, record = facts.machine, facts.record
        # A Machine re-created under its old name, or moved by clusterctl, is looked up anew.
        of_this_machine = isinstance(record, AttestedNode) and record.machine_uid == machine.uid
        pair = Pair(MachineKey.of(machine), facts.identity)
        with self._trace.step(Step.RESERVE) as note:
            stood = self._reservations.cached(pair)
            note(lambda: compared.pair(pair, "reserved" if stood else "not reserved before"))
            await self._rebuild.rebuild(pair)
            await self._reservations.reserve(pair, record if of_this_machine else NoRecord())

    async def _checked(
        self,
        request: SigningRequest,
        snapshot: Snapshot,
        attested: Attested,
        identity: AttestedIdentity,
        machine: MachineView,
    ) -> MachineFacts:
        """Run the checks of the Machine; again after a live recheck where one of them refuses."""
        facts = self._facts(request, snapshot, attested, identity, machine)
        try:
            run_checks(MACHINE_CHECKS, facts, self._trace)
        except Refused as error:
            if not rests_on_cached_objects(error):
                raise
            await self._live_recheck.look(error, self._key, facts.node_name, machine, facts.recorded_machine)
            facts = self._facts(request, snapshot, attested, identity, machine)
            run_checks(MACHINE_CHECKS, facts, self._trace)
        return facts

    async def _require_gone(self, facts: MachineFacts) -> None:
        """Where the name's record is another identity's, its Machine must be gone, and not only from the cache.

        Raises:
            Deferred: it is there.
            ApiError: from the management cluster.
        """
        record = facts.record
        if isinstance(record, NoRecord) or record.identity.digest == facts.identity.digest:
            return
        if isinstance(facts.recorded_machine, MachineGone) and not await self._reservations.live_reads.is_gone(
            record.machine
        ):
            raise Deferred(
                Reason.RESERVATION_PENDING, f"{record.machine} is there, and is not known yet", timedelta(seconds=1)
            )

    async def _require_former_identity_run_out(self, facts: MachineFacts) -> None:
        """By a live recheck at the record: somebody may have deleted it a moment ago, to let the new hardware in.

        Raises:
            Deferred: it has not.
            RecordChanged: the record is another one.
            ApiError: from the management cluster.
        """
        try:
            former_identity_has_run_out(facts)
        except Deferred:
            await self._records.refresh(self._key, record_name(self._key, facts.node_name))
            if self._records.recorded(self._key, facts.node_name) != facts.record:
                raise RecordChanged(facts.node_name) from None
            raise

    def _facts(
        self,
        request: SigningRequest,
        snapshot: Snapshot,
        attested: Attested,
        identity: AttestedIdentity,
        machine: MachineView,
    ) -> MachineFacts:
        node_name = node_name_of(request)
        record = self._records.recorded(self._key, node_name)
        found = snapshot.decision_inputs.machine = MachineStage(
            record,
            self._recorded_machine(record),
            self._others_called(machine, node_name),
            self._caches.authentic.of_machine(MachineKey.of(machine)),
            self._held_by_others(request, machine),
        )
        return machine_facts(
            request,
            identity,
            attested.outcome,
            machine,
            found,
            cluster=snapshot.cluster,
            policy=snapshot.policy,
            now=snapshot.now,
        )

    def _recorded_machine(self, record: AttestedNode | NoRecord) -> MachineView | MachineGone:
        return MachineGone() if isinstance(record, NoRecord) else self._caches.machine(record.machine)

    def _others_called(self, machine: MachineView, node_name: str) -> tuple[MachineView, ...]:
        """Those whose node it is before those that are only called so; a few of them say as much as all."""
        caches = self._caches
        others = filter(None, (caches.machines.get(*key) for key in caches.names.others_called(machine, node_name)))
        instances = chain.from_iterable(
            caches.machines_with(self._key, provider_id)
            for provider_id in sorted(caches.names.instances_called(machine, node_name))
        )
        return tuple(islice((other for other in chain(others, instances) if not other.deleting), _MOST_OTHERS))

    def _held_by_others(self, request: SigningRequest, machine: MachineView) -> frozenset[str]:
        asked = request.certificate_request
        return conflicting_names(self._caches, self._records, machine, asked.dns_names, asked.ip_addresses)

    async def _journal(
        self, request: SigningRequest, facts: MachineFacts, snapshot: Snapshot, authority: IssuingSet
    ) -> Approve:
        """What was looked at must still be so when the entry is written: a move may have begun, the Machine be gone."""
        record = facts.record
        if not isinstance(record, NoRecord):
            issued = await self._issued_before(request, facts, record, authority)
            if not isinstance(issued, NotRepeatable):
                self._require_still(snapshot, facts)
                return issued
            going = record.makes_way
            if isinstance(going, JournalEntry) and was_just_decided(going.decided, _JOURNAL_SPAN, facts.now):
                raise Deferred(
                    Reason.RESERVATION_PENDING, f"node {facts.node_name} asks too often at once", _JOURNAL_SPAN
                )
        issuance = plan(request, facts, authority)
        certificate = await self._signing.sign(issuance, authority)
        entry = journal_entry(request, facts, issuance, certificate, authority)
        if isinstance(record, NoRecord):
            wanted = new_record(facts.machine, facts.node_name, facts.identity, entry)
        else:
            wanted = record.with_entry(entry, machine=facts.machine, identity=facts.identity)
        self._require_still(snapshot, facts)
        with self._one_new_name(facts):
            written = await self._records.write(wanted, facts.cluster)
        return approval(written, wanted.journal[-1], certificate)

    @contextlib.contextmanager
    def _one_new_name(self, facts: MachineFacts) -> Iterator[None]:
        """A Machine with two names may ask for both at once: each name's record is an object of its own.

        Whoever takes over the record of a former node is new to that name, too, even if that was its own.

        Raises:
            Deferred: another name is being recorded.
            RecordChanged: another was recorded since the names were judged.
        """
        if has_that_name(facts):
            yield
            return
        machine = MachineKey.of(facts.machine)
        if machine in self._being_named:
            raise Deferred(
                Reason.RESERVATION_PENDING, f"a node name of {machine} is being recorded", timedelta(seconds=0.1)
            )
        if self._caches.authentic.of_machine(machine) != facts.other_names:
            raise RecordChanged(facts.node_name)
        self._being_named.add(machine)
        try:
            yield
        finally:
            self._being_named.discard(machine)

    async def _issued_before(
        self, request: SigningRequest, facts: MachineFacts, record: AttestedNode, authority: IssuingSet
    ) -> Approve | NotRepeatable:
        """The certificate that was journaled for this request, before a restart or by another replica; or its key's."""
        entry = record.entry_for(request.header.uid, request.header.spec_digest)
        if isinstance(entry, JournalEntry):
            repeated = await repeat(request, record, entry, authority, facts.now, self._signing)
            if not isinstance(repeated, NotRepeatable):
                return repeated
        return await repeat_for_key(request, facts, record, authority, self._signing)

    def _require_still(self, snapshot: Snapshot, facts: MachineFacts) -> None:
        """Nothing that was judged has changed since.

        A secure attestor's pair may displace an insecure one at any moment, also just before its owner hears that it
        has it (:mod:`signer.store.reservations`). Where both ask for one node name, its record lets in only one of the
        two; where the Machine has several names, only this look keeps the insecure one out.

        Raises:
            Deferred: the Cluster or its policy has.
            RecordChanged: the Machine has, or its reservation was taken away; it is judged again.
        """
        self._require_unchanged(snapshot)
        key, identity = MachineKey.of(facts.machine), facts.identity
        displaced = identity.security is Security.INSECURE and not self._reservations.cached(Pair(key, identity))
        if displaced or self._caches.machine(key) != facts.machine:
            raise RecordChanged(facts.node_name)


def _annotations(outcome: VerifiedIdentity | AssertedIdentity) -> Mapping[str, str]:
    return MappingProxyType(dict(outcome.annotations) if isinstance(outcome, VerifiedIdentity) else {})
