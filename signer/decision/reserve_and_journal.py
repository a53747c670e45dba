"""Match, reserve and journal: from a proven identity to the certificate that its Machine's node may have."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from itertools import chain, islice
from typing import Final

from attestors.contract import (
    AssertedIdentity,
    AttestorDescription,
    NoClaimedMachine,
    Security,
    VerifiedIdentity,
)
from signer.audit.decision_inputs import Asks, MachineStage
from signer.audit.machine_facts import machine_facts
from signer.authority import IssuingSet
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
from signer.rules.claim import require_as_told
from signer.rules.machine import (
    MachineFacts,
    MachineGone,
    NoRecord,
    holds_node_name,
    the_machine,
)
from signer.rules.plan import Note
from signer.store.bootstrap_tokens import BootstrapTokens
from signer.store.caches import Caches
from signer.store.conflicting_sans import conflicting_names
from signer.store.records import RecordChanged, Records
from signer.store.reservation_rebuild import ReservationRebuild
from signer.store.reservations import Reservations

_MOST_OTHERS: Final = 8
"""Machines of one name that a decision looks at."""
_JOURNAL_SPAN: Final = timedelta(minutes=1)
"""A journal that was filled faster than this still holds requests between approval and certificate."""


class ReserveAndJournal:
    """Matches, reserves and journals for one cluster; each method is one stage of the plan, or a part of one."""

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
        self._being_named: set[MachineKey] = set()
        """Machines for which a node name is being recorded that they did not have."""

    def require_unchanged(self, snapshot: Snapshot) -> None:
        """Raises Deferred: the Cluster or its policy has changed, or has been away."""
        self._snapshots.require_unchanged(snapshot)
        self._records.require_still_listed(self._key)

    def match(
        self, provider_id: str, told: MachineView | NoClaimedMachine, snapshot: Snapshot, note: Note
    ) -> MachineView:
        """The Machine that has the proven provider ID now.

        Raises:
            Deferred: none has it, several have, or it is not as the attestor was told.
        """
        machines = snapshot.decision_inputs.matched = self._caches.matching(self._key, provider_id)
        note(lambda: compared.match(provider_id, machines))
        machine = the_machine(provider_id, machines)
        require_as_told(told, machine)
        return machine

    async def require_own_token(
        self, request: SigningRequest, snapshot: Snapshot, machine: MachineView, note: Note
    ) -> None:
        """The bootstrap token was made for that Machine.

        Raises:
            Refused, Deferred: it was made for another, or it cannot be told.
            ApiError: from the management cluster.
        """
        username = request.header.username
        if snapshot.audited:
            snapshot.decision_inputs.token = Asks.of(self._tokens.asks(self._key, username), machine)
        note(lambda: compared.token(self._tokens.asks(self._key, username), machine))
        await self._tokens.require_the_machines(username, machine, snapshot.policy)

    async def reserve(self, facts: MachineFacts, note: Note) -> None:
        """Reserve the pair; what was reserved before, and only its record says so, first.

        Raises:
            Refused, Deferred: identity or Machine is reserved for another.
            ApiError: from the management cluster.
        """
        machine, record = facts.machine, facts.record
        # A Machine re-created under its old name, or moved by clusterctl, is looked up anew.
        of_this_machine = isinstance(record, AttestedNode) and record.machine_uid == machine.uid
        pair = Pair(MachineKey.of(machine), facts.identity)
        stood = self._reservations.cached(pair)
        note(lambda: compared.pair(pair, "reserved" if stood else "not reserved before"))
        await self._rebuild.rebuild(pair)
        await self._reservations.reserve(pair, record if of_this_machine else NoRecord())

    async def recheck_machine(self, error: Refused | Deferred, facts: MachineFacts) -> None:
        """Look at what a refusal rests upon in the API server itself, before it denies.

        Raises:
            Refused, Deferred: ``error``, which rests upon nothing there; or a Machine is not as it is known here.
            ApiError: from the management cluster.
        """
        if not (isinstance(error, Refused) and rests_on_cached_objects(error)):
            raise error
        await self._live_recheck.look(error, self._key, facts.node_name, facts.machine, facts.recorded_machine)

    async def require_gone(self, facts: MachineFacts) -> None:
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

    async def recheck_record(self, error: Refused | Deferred, facts: MachineFacts) -> None:
        """Look at the record itself: somebody may have deleted it a moment ago, to let the new hardware in.

        Raises:
            Refused, Deferred: ``error``; the record is as it was.
            RecordChanged: the record is another one.
            ApiError: from the management cluster.
        """
        await self._records.refresh(self._key, record_name(self._key, facts.node_name))
        if self._records.recorded(self._key, facts.node_name) != facts.record:
            raise RecordChanged(facts.node_name) from None
        raise error

    def facts(
        self,
        request: SigningRequest,
        node_name: str,
        snapshot: Snapshot,
        description: AttestorDescription,
        outcome: VerifiedIdentity | AssertedIdentity,
        machine: MachineView,
    ) -> MachineFacts:
        """What the checks of the Machine look at, as it is now.

        Raises:
            Deferred: the controller key is not available, or there is a newer one.
        """
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
            node_name,
            AttestedIdentity(description.provider, outcome.identity, description.security),
            outcome,
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

    async def journal(
        self, request: SigningRequest, facts: MachineFacts, snapshot: Snapshot, authority: IssuingSet
    ) -> Approve:
        """What was looked at must still be so when the entry is written: a move may have begun, the Machine be gone.

        Raises:
            Refused, Deferred: no certificate can be planned, the node asks too often, or the Cluster has changed.
            RecordChanged: somebody else wrote the record first, or the Machine has changed.
            ApiError: from the management cluster.
        """
        record = facts.record
        if not isinstance(record, NoRecord):
            issued = await self._issued_before(request, facts, record, authority)
            if not isinstance(issued, NotRepeatable):
                self._require_still(snapshot, facts)
                return issued
            going = record.next_dropped
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
        if holds_node_name(facts):
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
        self.require_unchanged(snapshot)
        key, identity = MachineKey.of(facts.machine), facts.identity
        displaced = identity.security is Security.INSECURE and not self._reservations.cached(Pair(key, identity))
        if displaced or self._caches.machine(key) != facts.machine:
            raise RecordChanged(facts.node_name)
