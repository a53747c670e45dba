"""Match, reserve and journal: from a proven identity to the certificate for the Machine's node."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import chain, islice
from typing import Final

from attestors.contract import (
    AssertedIdentity,
    AttestorDescription,
    Security,
    VerifiedIdentity,
)
from signer.audit.decision_inputs import Asks, HostKeysStage, LeadStage, MachineStage
from signer.audit.machine_facts import machine_facts
from signer.authority import IssuingSet
from signer.decision.attestation import Claim
from signer.decision.cached_facts import MachineSearch, ServingFactsSource
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
from signer.decision.host_certificates import HostCertificateIssuer
from signer.decision.live_recheck import LiveRecheck, rests_on_cached_objects
from signer.decision.snapshot import Snapshot, Snapshots
from signer.model.cluster import ClusterKey, MachineView
from signer.model.decision import Approve, Deferred, Refused
from signer.model.host_keys import HostCertificateReason, HostCertificates, HostCertificatesRefused
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
from signer.model.reservation import Attested, Pair
from signer.model.signing_request import SigningRequest
from signer.rules import step_comparisons as compared
from signer.rules.claim import require_as_told
from signer.rules.machine import (
    MachineFacts,
    MachineGone,
    NoRecord,
    holds_node_name,
    is_being_deleted,
)
from signer.rules.machine_match import found_machine, require_found_as_before, require_not_taken
from signer.rules.node_name import is_derived
from signer.rules.plan import Note
from signer.store.bootstrap_tokens import BootstrapTokens
from signer.store.caches import Caches
from signer.store.records import RecordChanged, Records, conflicting_names
from signer.store.reservation_rebuild import ReservationRebuild
from signer.store.reservations import Reservations

_MOST_OTHERS: Final = 8
"""Maximum number of Machines of one name that a decision reads."""
_JOURNAL_SPAN: Final = timedelta(minutes=1)
"""A journal that was filled faster than this still holds requests between approval and certificate."""


def _note_host_keys(snapshot: Snapshot, stage: HostKeysStage) -> None:
    snapshot.decision_inputs.host_keys = stage


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
        serving: ServingFactsSource,
        host_certificates: HostCertificateIssuer,
        signing: Signing = SIGNING_BY_KEY,
    ) -> None:
        self._key = key
        self._host_certificates = host_certificates
        self._serving = serving
        self._snapshots = snapshots
        self._caches = caches
        self._reservations = reservations
        self._rebuild = ReservationRebuild(caches, reservations)
        self._records = records
        self._live_recheck = LiveRecheck(records, reservations.live_reads)
        self._tokens = tokens
        self._search = MachineSearch(key, caches, tokens)
        self._signing = signing
        self._being_named: set[MachineKey] = set()
        """Machines for which a new node name is being recorded."""

    def require_unchanged(self, snapshot: Snapshot) -> None:
        """Raises Deferred if the Cluster or its policy has changed, or was deleted and created again."""
        self._snapshots.require_unchanged(snapshot)
        self._records.require_still_listed(self._key)

    def match(
        self,
        username: str,
        node_name: str,
        provider_id: str,
        claim: Claim,
        snapshot: Snapshot,
        description: AttestorDescription,
        note: Note,
    ) -> MachineView:
        """The Machine that has the proven provider ID now, or to which token or record lead.

        Raises:
            Deferred: no Machine has it, several have, or the Machine differs from the one passed to the attestor.
        """
        facts = self._search.facts(username, node_name, provider_id, snapshot.policy, description)
        snapshot.decision_inputs.matched = facts.machines
        if snapshot.audited:
            snapshot.decision_inputs.matched_lead = LeadStage.of(facts)
        note(lambda: compared.match(facts))
        found = found_machine(facts)
        require_as_told(claim.machine, found.machine)
        require_found_as_before(claim.match, found)
        return found.machine

    async def require_own_token(
        self, request: SigningRequest, snapshot: Snapshot, machine: MachineView, note: Note
    ) -> None:
        """Check that the bootstrap token was made for that Machine.

        Raises:
            Refused, Deferred: it was made for another, or its owner cannot be determined.
            ApiError: from the management cluster.
        """
        username = request.header.username
        if snapshot.audited:
            snapshot.decision_inputs.token = Asks.of(self._tokens.asks(self._key, username), machine)
        note(lambda: compared.token(self._tokens.asks(self._key, username), machine))
        await self._tokens.require_token_of_machine(username, machine, snapshot.policy)

    async def reserve(self, facts: MachineFacts, note: Note) -> None:
        """Reserve the pair, after a rebuild of reservations that only records name.

        Raises:
            Refused, Deferred: the identity, its hardware or the Machine is reserved for another.
            ApiError: from the management cluster.
        """
        machine, record = facts.machine, facts.record
        # For a Machine created again under its old name, or moved by clusterctl, the reservation is read again.
        of_this_machine = isinstance(record, AttestedNode) and record.machine_uid == machine.uid
        pair = Pair(MachineKey.of(machine), facts.identity)
        stood = self._reservations.cached(pair)
        note(lambda: compared.pair(pair, "reserved" if stood else "not reserved before"))
        await self._rebuild.rebuild(pair)
        hardware = _hardware_of(pair, facts.proven)
        basis = Attested(facts.cluster.uid, machine.uid, facts.now.replace(microsecond=0))
        # Hardware of another Machine is refused before the identity is reserved: a refused request reserves nothing.
        for other in filter(self._reservations.is_of_others, hardware):
            await self._reservations.reserve(other, NoRecord(), basis)
        await self._reservations.reserve(pair, record if of_this_machine else NoRecord(), basis)
        for other in hardware:
            if not (stood and self._reservations.is_cached_as_written_now(other, basis)):
                await self._reservations.reserve(other, NoRecord(), basis)

    async def recheck_machine(self, error: Refused | Deferred, facts: MachineFacts) -> None:
        """Read the objects on which a refusal is based from the API server, before it denies.

        Raises:
            Refused, Deferred: ``error``, if it is based on no such object; or a Machine differs from the cached one.
            ApiError: from the management cluster.
        """
        if not (isinstance(error, Refused) and rests_on_cached_objects(error)):
            raise error
        await self._live_recheck.look(error, self._key, facts.node_name, facts.machine, facts.recorded_machine)

    async def require_gone(self, facts: MachineFacts) -> None:
        """If the record of the node name has another identity, its Machine must be gone from the API server, not only
        from the cache.

        Raises:
            Deferred: the Machine exists.
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
        """Read the record from the API server: an operator may have deleted it to admit new hardware.

        Raises:
            Refused, Deferred: ``error``, if the record is unchanged.
            RecordChanged: the record has changed.
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
        """The current facts for the checks of the Machine.

        Raises:
            Deferred: the controller key is not available, or a newer one must be read first.
        """
        record = self._records.recorded(self._key, node_name)
        found = snapshot.decision_inputs.machine = MachineStage(
            record,
            self._recorded_machine(record),
            self._others_called(
                machine,
                node_name,
                is_derived(
                    node_name,
                    machine,
                    snapshot.policy.node_names,
                    outcome.node_names if isinstance(outcome, VerifiedIdentity) else (),
                ),
            ),
            self._caches.records_of(machine),
            self._held_by_others(request, machine),
            self._serving.facts(snapshot.policy, machine, request.certificate_request),
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

    def _others_called(self, machine: MachineView, node_name: str, derived: bool) -> tuple[MachineView, ...]:
        """Other Machines with that node name: first those whose node has it, then those that have the name themselves,
        and if the name is derived, those that have its host. A few suffice.
        """
        caches = self._caches
        keys = caches.names.other_machines_named(machine, node_name)
        provider_ids = caches.names.other_instances_named(machine, node_name)
        if derived:
            keys = tuple(dict.fromkeys((*keys, *caches.names.other_machines_with_host(machine, node_name))))
            provider_ids |= caches.names.other_instances_with_host(machine, node_name)
        others = filter(None, (caches.machines.get(*key) for key in keys))
        instances = chain.from_iterable(
            caches.machines_with(self._key, provider_id) for provider_id in sorted(provider_ids)
        )
        return tuple(islice(chain(others, instances), _MOST_OTHERS))

    def _held_by_others(self, request: SigningRequest, machine: MachineView) -> frozenset[str]:
        asked = request.certificate_request
        return conflicting_names(self._caches, self._records, machine, asked.dns_names, asked.ip_addresses)

    async def journal(
        self, request: SigningRequest, facts: MachineFacts, snapshot: Snapshot, authority: IssuingSet
    ) -> Approve:
        """Write the journal entry, if the facts are still current: a move may have begun, or the Machine be gone.

        Raises:
            Refused, Deferred: no certificate can be planned, the node asks too often, or the Cluster has changed.
            RecordChanged: another client wrote the record first, or the Machine has changed.
            ApiError: from the management cluster.
        """
        record = facts.record
        if not isinstance(record, NoRecord):
            issued = await self._issued_before(request, facts, record, authority)
            if not isinstance(issued, NotRepeatable):
                self._require_still(snapshot, facts)
                again = await self._host_certificates_again(request, facts, snapshot, record)
                return replace(issued, host_certificates=again)
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
        host_keys = self._host_certificates.plan(request, facts, partial(_note_host_keys, snapshot))
        wanted = self._host_certificates.recorded(host_keys, request, facts, wanted)
        with self._one_new_name(facts), self._host_certificates.recording(host_keys):
            written = await self._records.write(wanted, facts.cluster)
        approve = replace(
            approval(written, wanted.journal[-1], certificate),
            host_certificates=await self._host_certificates.issue(host_keys, written),
        )
        if not is_being_deleted(facts):
            return approve
        end = f"{issuance.not_after:%Y-%m-%d %H:%M} UTC"
        return replace(
            approve, message=f"{approve.message}, which is being deleted; the certificate is valid until {end}"
        )

    async def _host_certificates_again(
        self, request: SigningRequest, facts: MachineFacts, snapshot: Snapshot, record: AttestedNode
    ) -> HostCertificates:
        """Those that were journaled with the certificate. If none were, a reason that holds now says more."""
        again = await self._host_certificates.issue_again(request, facts, record)
        if isinstance(again, HostCertificatesRefused) and again.reason is HostCertificateReason.NOT_JOURNALED:
            planned = self._host_certificates.plan(request, facts, partial(_note_host_keys, snapshot))
            if isinstance(planned, HostCertificatesRefused):
                return planned
        return again

    @contextlib.contextmanager
    def _one_new_name(self, facts: MachineFacts) -> Iterator[None]:
        """Record one new name of a Machine at a time: it may request two at once, and each name has its own record.

        A Machine that takes over the record of a former node counts as new to that name, even if that was its own.

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
        if self._caches.records_of(facts.machine) != facts.other_names:
            raise RecordChanged(facts.node_name)
        self._being_named.add(machine)
        try:
            yield
        finally:
            self._being_named.discard(machine)

    async def _issued_before(
        self, request: SigningRequest, facts: MachineFacts, record: AttestedNode, authority: IssuingSet
    ) -> Approve | NotRepeatable:
        """The certificate that was journaled for this request, before a restart or by another replica; or that of its
        key.
        """
        entry = record.entry_for(request.header.uid, request.header.spec_digest)
        if isinstance(entry, JournalEntry):
            repeated = await repeat(request, facts, record, entry, authority, self._signing)
            if not isinstance(repeated, NotRepeatable):
                return repeated
        return await repeat_for_key(request, facts, record, authority, self._signing)

    def _require_still(self, snapshot: Snapshot, facts: MachineFacts) -> None:
        """Check that the decided facts are unchanged.

        A pair of a secure attestor may displace an insecure one at any moment, even just before the insecure owner
        learns that it has the pair (:mod:`signer.store.reservations`). If both request one node name, its record admits
        only one of the two; if the Machine has several names, only this check stops the insecure one.

        Raises:
            Deferred: the Cluster or its policy has changed, or another Machine has the claimed provider ID.
            RecordChanged: the Machine has changed, or its reservation was displaced; the request is decided again.
        """
        self.require_unchanged(snapshot)
        key, identity = MachineKey.of(facts.machine), facts.identity
        if facts.machine.claimed_provider_id:
            holders = self._caches.holders(key.provider_id, facts.machine)
            require_not_taken(key.provider_id, facts.machine, holders)
        displaced = identity.security is Security.INSECURE and not self._reservations.cached(Pair(key, identity))
        if displaced or self._caches.machine(key) != facts.machine:
            raise RecordChanged(facts.node_name)


def _hardware_of(pair: Pair, proven: VerifiedIdentity | None) -> tuple[Pair, ...]:
    """The pairs of the Machine and its hardware, as far as the attestor names that apart from the identity."""
    if proven is None:
        return ()
    named = (pair.of_hardware(proven.hardware),) if proven.hardware else ()
    return (*named, pair.of_hardware_identity(proven.hardware_identity)) if proven.hardware_identity else named
