"""A request that is approved already: by a controller that stopped before it published the certificate, or by another
client.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace

from signer.audit.decision_inputs import RepeatStage
from signer.authority import IssuingSet
from signer.decision.certificates import NotRepeatable, Signing, repeat, repeat_approved, signing_hash
from signer.decision.host_certificates import HostCertificateIssuer
from signer.decision.snapshot import Snapshot
from signer.model.cluster import ClusterKey, MachineView
from signer.model.decision import Approve, Decision, Fail, Refused
from signer.model.policy import ApprovalByOthers
from signer.model.reasons import Reason
from signer.model.record import AttestedNode, JournalEntry, Unjournaled, record_name
from signer.model.signing_request import SigningRequest
from signer.rules.machine import NoRecord, RepeatFacts, require_repeatable, the_machine
from signer.rules.shape import node_name_of
from signer.store.caches import Caches
from signer.store.records import Records


class ApprovedBefore:
    """Finds earlier approvals in the records of one cluster."""

    def __init__(
        self,
        key: ClusterKey,
        caches: Caches,
        records: Records,
        authority: Callable[[], Awaitable[IssuingSet]],
        signing: Signing,
        host_certificates: HostCertificateIssuer,
    ) -> None:
        """``authority`` reads the cluster's CA; it raises Deferred if there is none."""
        self._host_certificates = host_certificates
        self._key = key
        self._caches = caches
        self._records = records
        self._authority = authority
        self._signing = signing

    async def decision(self, request: SigningRequest, snapshot: Snapshot) -> Decision | NotRepeatable:
        """The journaled certificate, or a failure; otherwise NotRepeatable, and the request is decided as any other.

        Raises:
            Refused, Deferred: the record's Machine is missing, or being deleted and the request is no renewal; or there
                is no CA.
            ApiError: from the management cluster.
        """
        journaled = self.journaled(request)
        if isinstance(journaled, Unjournaled):
            # Another replica may have approved it before this replica's watch delivered the journal.
            journaled = await self._journaled_live(request)
        if not isinstance(journaled, Unjournaled):
            record, entry = journaled
            # Not repeatable if the CA has changed since: the request is attested and planned again.
            authority = await self._authority_to_repeat(request, record, snapshot)
            repeated = await repeat(request, record, entry, authority, snapshot.now, self._signing)
            return await self._with_host_certificates(repeated, request, snapshot, record)
        copied = await self._copied(request, snapshot)
        if not isinstance(copied, NotRepeatable):
            return copied
        if snapshot.policy.approval_by_others is ApprovalByOthers.REFUSE:
            return Fail(
                Reason.APPROVED_BY_OTHERS, "approved by another client, which the policy's approvalByOthers refuses"
            )
        return NotRepeatable()

    def journaled(self, request: SigningRequest) -> tuple[AttestedNode, JournalEntry] | Unjournaled:
        """The journal entry of exactly this CSR: it exists if a controller stopped between approval and certificate."""
        try:
            record = self._records.recorded(self._key, node_name_of(request))
        except Refused:
            return Unjournaled()
        if isinstance(record, NoRecord):
            return Unjournaled()
        entry = record.entry_for(request.header.uid, request.header.spec_digest)
        return entry if isinstance(entry, Unjournaled) else (record, entry)

    async def _journaled_live(self, request: SigningRequest) -> tuple[AttestedNode, JournalEntry] | Unjournaled:
        with contextlib.suppress(Refused):
            await self._records.refresh(self._key, record_name(self._key, node_name_of(request)))
        return self.journaled(request)

    async def _copied(self, request: SigningRequest, snapshot: Snapshot) -> Decision | NotRepeatable:
        """The decision for a copy of an approved request: it gets the certificate that was issued, whoever approved the
        copy.
        """
        try:
            record = self._records.recorded(self._key, node_name_of(request))
        except Refused:
            return NotRepeatable()
        if isinstance(record, NoRecord):
            return NotRepeatable()
        authority = await self._authority_to_repeat(request, record, snapshot)
        repeated = await repeat_approved(request, record, authority, snapshot.now, self._signing)
        return await self._with_host_certificates(repeated, request, snapshot, record)

    async def _with_host_certificates(
        self, repeated: Approve | NotRepeatable, request: SigningRequest, snapshot: Snapshot, record: AttestedNode
    ) -> Approve | NotRepeatable:
        if isinstance(repeated, NotRepeatable):
            return repeated
        again = await self._host_certificates.issue_again(request, snapshot.policy, record)
        return replace(repeated, host_certificates=again)

    async def _authority_to_repeat(
        self, request: SigningRequest, record: AttestedNode, snapshot: Snapshot
    ) -> IssuingSet:
        """The CA, if the record's Machine exists, and is not being deleted or the request is a renewal."""
        provider_id = record.machine.provider_id
        matched = self._caches.matching(self._key, provider_id)
        machine = self._caches.machine(record.machine)
        if not matched and isinstance(machine, MachineView):  # it shows no provider ID yet
            matched = (machine,)
        snapshot.decision_inputs.matched = matched
        snapshot.decision_inputs.repeat = RepeatStage(record)
        machine = the_machine(provider_id, matched)
        require_repeatable(RepeatFacts(request.header.username, snapshot.cluster, snapshot.policy, machine, record))
        authority = await self._authority()
        purpose = request.header.signer.purpose
        not_after = authority.signer_of(purpose).certificate.not_after
        snapshot.decision_inputs.repeat = RepeatStage(record, signing_hash(authority, purpose), not_after)
        return authority
