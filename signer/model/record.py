"""``AttestedNode``: which identity is this Machine, and the journal of the certificates that were allowed for it.

The journal entry of a certificate is written before its CSR is approved and holds everything that makes up the
certificate (serial number, validity, CA), so that the controller that continues after a crash issues that very
certificate and no second one.

The kinds of certificates that the journal names are an open set. A part of the program whose certificates are journaled
declares its kinds where it defines them, and no other part is changed for it. A record may still name a kind that this
program does not know, because a newer version wrote it: no approval rests on such a certificate, and the answer to
which certificates may be in use says that it is not complete (:mod:`signer.model.certificates_in_use`).
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

from attestors.contract import Security
from attestors.wire.names import NODE_USER_PREFIX, Purpose
from signer.model.cluster import LONG_AGO, MACHINE_POOL_KIND, ClusterKey, MachineView, machine_text

_KIND: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_DECLARED: Final[set[str]] = set()


class InvalidKind(ValueError):
    """The text is not a valid name of a kind, or was declared before."""


def check_kind(name: str) -> str:
    """Return ``name`` if it is a valid name of a kind, known or not.

    Raises:
        InvalidKind: it is not.
    """
    if not _KIND.fullmatch(name):
        raise InvalidKind("the name of a kind has 1 to 63 characters: lower-case letters, digits, inner hyphens")
    return name


def declare_kind(name: str) -> str:
    """Make a kind known. Each kind is declared once, where it is defined.

    Raises:
        InvalidKind: the name is not valid, or was declared before.
    """
    if check_kind(name) in _DECLARED:
        raise InvalidKind(f"kind {name} is declared twice")
    _DECLARED.add(name)
    return name


def is_known(kind: str) -> bool:
    """Whether this version knows the kind."""
    return kind in _DECLARED


KUBELET_CLIENT: Final = declare_kind("kubelet-client")
KUBELET_SERVING: Final = declare_kind("kubelet-serving")
BUILTIN_KUBELET_SERVING: Final = declare_kind("builtin-kubelet-serving")
"""Certificates of ``kubernetes.io/kubelet-serving``: the controller approves, kube-controller-manager signs."""

KUBELET_KINDS: Final[Mapping[Purpose, str]] = MappingProxyType(
    {Purpose.CLIENT: KUBELET_CLIENT, Purpose.SERVING: KUBELET_SERVING}
)
"""The kind of certificate that a CSR to one of our signers requests. Others may be issued with it."""


_TICK: Final = timedelta(seconds=1)
"""Times are written in whole seconds."""
JOURNAL_ENTRIES: Final = 16
"""Entries kept per record. Live certificates beyond it mean a node that asks in a loop."""
BUILTIN_APPROVALS: Final = 8
"""Approvals of built-in serving requests kept per record."""
_CLOCKS_DIFFER: Final = timedelta(minutes=5)
"""By how much the clocks of replicas may."""
HELD_AFTER_END: Final = timedelta(minutes=10)
"""For so long after its last certificate ran out a node name is held: a server whose clock is slow may accept that
certificate, and a request that was posted with it may be on its way.
"""


@dataclass(frozen=True, slots=True)
class AttestedIdentity:
    """An identity as records and reservations hold it."""

    provider: str
    """Which attestor said so."""
    identity: str
    security: Security

    @property
    def digest(self) -> str:
        """SHA-256 over attestor and identity, hexadecimal: the identity's name in reservations."""
        return _digest("identity", self.provider, self.identity)


@dataclass(frozen=True, slots=True)
class MachineKey:
    """Which Machine, or instance of a pool, in a form that outlives ``clusterctl move`` (which changes UIDs).

    A Machine of a MachinePool has the key of the instance that it stands for. So one piece of hardware has one key,
    whether its Machine is there, is not there yet, or never comes, and no second identity gets it under another.
    """

    cluster: ClusterKey
    kind: str
    name: str
    provider_id: str

    @classmethod
    def of(cls, machine: MachineView) -> MachineKey:
        """The key of an instance, or of a Machine whose provider ID is known."""
        if machine.owner_pool:
            return cls(machine.cluster, MACHINE_POOL_KIND, machine.owner_pool, machine.provider_id)
        return cls(machine.cluster, machine.kind, machine.name, machine.provider_id)

    @property
    def digest(self) -> str:
        """SHA-256 over all parts, hexadecimal: the Machine's name in reservations."""
        return _digest("machine", self.cluster.namespace, self.cluster.name, self.kind, self.name, self.provider_id)

    def __str__(self) -> str:
        return machine_text(self.cluster, self.kind, self.name, self.provider_id)


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One certificate that the controller signs: the CSR that it was allowed for, and what makes it up."""

    kind: str
    """See :mod:`signer.model.record`; perhaps one that this version does not know."""
    csr_name: str
    csr_uid: str
    spec_digest: str
    signer_name: str
    requester: str
    serial_number: int
    not_before: datetime
    not_after: datetime
    ca_cert_hash: str
    """The CA that signs it, in kubeadm's hash form: what tells when a CA is no longer needed."""
    evidence_ca_cert_hash: str
    """The CA that the evidence named, in the same form: the one that the running node trusts first."""
    certificate_digest: str
    """SHA-256 of the certificate's DER, hexadecimal: what API servers name a client's credential by."""
    public_key_digest: str
    """SHA-256 of the requested key's SubjectPublicKeyInfo, hexadecimal: copies of a request share it."""
    created: datetime
    """The CSR's creation time, as the workload cluster says; it only ever tells older from newer."""
    decided: datetime

    @property
    def is_what_was_asked_for(self) -> bool:
        """Whether it is the certificate that its CSR asked for, and not one that came with it."""
        return self.kind in _ASKED_FOR


@dataclass(frozen=True, slots=True)
class BuiltinApproval:
    """One certificate that another signer makes, because the controller approved the request for it.

    kube-controller-manager chooses its CA, serial number and lifetime, which no record can know. What is known of the
    certificate is its key: a node that serves with that key serves with it.
    """

    kind: str
    csr_name: str
    csr_uid: str
    spec_digest: str
    public_key_digest: str
    """SHA-256 of the requested key's SubjectPublicKeyInfo, hexadecimal."""
    created: datetime
    """The CSR's creation time, as the workload cluster says."""
    decided: datetime


_ASKED_FOR: Final = frozenset(KUBELET_KINDS.values())


@dataclass(frozen=True, slots=True)
class AttestedNode:
    """One record: an identity, its Machine, the node name that goes with them, and the journal."""

    machine: MachineKey
    machine_uid: str
    node_name: str
    identity: AttestedIdentity
    first_attestation: datetime
    last_attestation: datetime
    last_not_after: datetime
    """When the last certificate ever allowed by this record runs out, of whatever kind and identity; readers that ask
    whether the node name is taken ask :attr:`held_until`."""
    journal: Sequence[JournalEntry]
    """Newest last: a tuple, or :mod:`~signer.model.record_object`."""
    builtin_approvals: tuple[BuiltinApproval, ...] = ()
    dropped_not_after: datetime = LONG_AGO
    """When the last of those certificates runs out that had to leave the journal; long ago where none had to."""
    seal: str = field(default="", compare=False)
    """As it stands in the object; :mod:`signer.model.seal` says whether it is ours."""
    resource_version: str = ""
    uid: str = ""

    @property
    def name(self) -> str:
        """The object's name: one per node name and cluster, so that creating it is what takes a node name."""
        return record_name(self.machine.cluster, self.node_name)

    @property
    def held_until(self) -> datetime:
        """Until when this record holds its node name, for every reader of it."""
        return self.last_not_after + HELD_AFTER_END

    def is_own(self, entry: JournalEntry) -> bool:
        """Whether the certificate is of the identity that the record is about now: the journal goes on when a node name
        passes to another one, and what was allowed before is the former one's.
        """
        return entry.decided >= self.first_attestation

    def is_of(self, machine: MachineView, cluster_created: datetime) -> bool:
        """Whether a Machine with this record's key is the one that was attested, and was not made anew since.

        By ``clusterctl move``, or a restore, every Machine is made anew, and the Cluster with them: that changes
        nothing. An instance of a MachinePool is the same one whether its Machine is there or not.
        """
        if self.machine.kind == MACHINE_POOL_KIND or self.machine_uid == machine.uid:
            return True
        return self.last_attestation < cluster_created

    def entry_for(self, csr_uid: str, spec_digest: str) -> JournalEntry | Unjournaled:
        """What exactly that CSR with exactly that content asked for; the newest, if the CA changed meanwhile."""
        for entry in reversed(self.journal):
            if entry.csr_uid == csr_uid and entry.spec_digest == spec_digest and entry.is_what_was_asked_for:
                return entry
        return Unjournaled()

    def entries_for_key(self, public_key_digest: str, signer_name: str) -> tuple[JournalEntry, ...]:
        """What was allowed for that key at that signer, the newest first."""
        return tuple(
            entry
            for entry in reversed(self.journal)
            if entry.public_key_digest == public_key_digest
            and entry.signer_name == signer_name
            and entry.is_what_was_asked_for
        )

    @property
    def makes_way(self) -> JournalEntry | Unjournaled:
        """The entry that goes when another one comes; none while there is room.

        Never that of the last client certificate: with it the node asks for all others, however many.
        """
        if len(self.journal) < JOURNAL_ENTRIES:
            return Unjournaled()
        last = last_to_end(entry for entry in self.journal if entry.kind == KUBELET_CLIENT and self.is_own(entry))
        return next(entry for entry in self.journal if entry != last)

    def has_builtin_approval(self, csr_uid: str, spec_digest: str) -> bool:
        """Whether exactly that built-in serving request with exactly that content was journaled."""
        return any(
            one.csr_uid == csr_uid and one.spec_digest == spec_digest and one.kind == BUILTIN_KUBELET_SERVING
            for one in self.builtin_approvals
        )

    def with_builtin_approval(self, approval: BuiltinApproval) -> AttestedNode:
        """The record after one more built-in serving request was allowed; the oldest go when there are too many."""
        return replace(self, builtin_approvals=(*self.builtin_approvals, approval)[-BUILTIN_APPROVALS:])

    def with_entry(self, entry: JournalEntry, *, machine: MachineView, identity: AttestedIdentity) -> AttestedNode:
        """The record after one more attestation; when the journal is full, one entry makes way.

        Another identity under the same node name starts its own history; only the expiry and the journal go on. Whose
        an entry is shows in ``decided`` alone, so clocks of replicas, which may differ, are not relied upon for that:
        an identity's entries are never before its first attestation, and its predecessors' always are.
        """
        same = identity.digest == self.identity.digest
        going: JournalEntry | Unjournaled = Unjournaled()
        if same:
            first_attestation, going = self.first_attestation, self.makes_way
        else:  # whoever had the name before asks for nothing any more: the oldest entry goes
            first_attestation = max((entry.decided, *(former.decided + _TICK for former in self.journal)))
        if entry.decided < first_attestation:
            entry = replace(entry, decided=first_attestation)
        entries = (*(one for one in self.journal if one != going), entry)
        dropped = (*(() if isinstance(going, Unjournaled) else (going,)), *entries[:-JOURNAL_ENTRIES])
        return replace(
            self,
            machine=MachineKey.of(machine),
            machine_uid=machine.uid,
            identity=identity,
            first_attestation=first_attestation,
            last_attestation=max(self.last_attestation, entry.decided),
            last_not_after=max(self.last_not_after, entry.not_after),
            journal=entries[-JOURNAL_ENTRIES:],
            builtin_approvals=self.builtin_approvals if same else (),
            dropped_not_after=max((self.dropped_not_after, *(one.not_after for one in dropped))),
        )


@dataclass(frozen=True, slots=True)
class Unjournaled:
    """There is no journal entry for that CSR."""


def last_to_end(entries: Iterable[JournalEntry]) -> JournalEntry | Unjournaled:
    """The one that runs out last; of several such the newest. ``entries`` are newest last."""
    return max(reversed(tuple(entries)), key=lambda entry: entry.not_after, default=Unjournaled())


def was_just_decided(decided: datetime, span: timedelta, now: datetime) -> bool:
    """Whether that was less than ``span`` ago.

    What is dated further ahead than clocks differ was decided while a clock was ahead, and nobody knows when: it must
    not hold anybody up until that date has come.
    """
    return now - span < decided <= now + _CLOCKS_DIFFER


def record_name(cluster: ClusterKey, node_name: str) -> str:
    """``<cluster>.<node>``; with a digest for the node where that would be ambiguous (dots) or too long."""
    name = f"{cluster.name}.{node_name}"
    if len(name) <= 253 and "." not in cluster.name:
        return name
    return f"{cluster.name[:180].rstrip('-.')}.{_digest('node', cluster.name, node_name)}"


def new_record(machine: MachineView, node_name: str, identity: AttestedIdentity, entry: JournalEntry) -> AttestedNode:
    """The first record of a Machine."""
    return AttestedNode(
        machine=MachineKey.of(machine),
        machine_uid=machine.uid,
        node_name=node_name,
        identity=identity,
        first_attestation=entry.decided,
        last_attestation=entry.decided,
        last_not_after=entry.not_after,
        journal=(entry,),
    )


# One judgement asks for the names of the same record and pair a dozen times.
@functools.lru_cache(maxsize=1024)
def _digest(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode("utf-8")
        digest.update(len(encoded).to_bytes(8, "big"))
        digest.update(encoded)
    return digest.hexdigest()


def record_of(node_name: str) -> str:
    """A node's record among the provider IDs that requests wait for, which have another form."""
    return f"{NODE_USER_PREFIX}{node_name}"
