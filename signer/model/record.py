"""``AttestedNode``: the record of a Machine's identity, and the journal of the certificates that were approved for it.

The controller writes the journal entry of a certificate before it approves the CSR. The entry determines the
certificate (serial number, validity, CA). So after a crash, the controller issues that same certificate and no second
one.

The set of kinds of certificates is open: each part of the program declares the kinds of its certificates where it
defines them. A record may name a kind that this version does not know, because a newer version wrote it. No approval
depends on such a certificate, and :mod:`signer.model.certificates_in_use` reports its result as incomplete.
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
from signer.model.host_keys import NO_HOST_KEYS, AttestedHostKeys, NoHostKeys, ReportedTrust

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


_UNIDENTIFIED: Final = "machine:"
_TICK: Final = timedelta(seconds=1)
"""The resolution of times in the object."""
JOURNAL_ENTRIES: Final = 16
"""Maximum entries per record. Only a node that requests in a loop has more valid certificates."""
BUILTIN_APPROVALS: Final = 8
"""Maximum approvals of built-in serving requests per record."""
_LIKE_A_DIGEST: Final = re.compile(r"(?:^|\.)[0-9a-f]{64}\Z", re.ASCII)
_CLOCK_SKEW: Final = timedelta(minutes=5)
"""Maximum difference between the clocks of replicas."""
HELD_AFTER_END: Final = timedelta(minutes=10)
"""How long a node name is held after its last certificate expired. A server whose clock is slow may still accept that
certificate, and a request that was posted with it may still be pending.
"""


@dataclass(frozen=True, slots=True)
class AttestedIdentity:
    """An identity in records and reservations."""

    provider: str
    """The attestor that proved or asserted it."""
    identity: str
    security: Security

    @property
    def digest(self) -> str:
        """SHA-256 of attestor and identity, hexadecimal: the identity's name in reservations."""
        return _digest("identity", self.provider, self.identity)


@dataclass(frozen=True, slots=True)
class MachineKey:
    """The key of a Machine or of a pool's instance. It survives ``clusterctl move``, which changes UIDs.

    A Machine of a MachinePool has the same key as its instance. So a machine has one key before and after its Machine
    is created, and no second identity can get it under another key.

    A Machine that shows no provider ID yet has the key that it will have once it shows the claimed one. So its records
    and reservations stay valid when the claim turns out to be right.
    """

    cluster: ClusterKey
    kind: str
    name: str
    provider_id: str
    claimed_by: str = field(default="", compare=False)
    """UID of the Machine while its provider ID is only claimed. While the Machine of this UID shows no provider ID, it
    is the Machine of this key. Empty once the Machine shows the provider ID."""

    @classmethod
    def of(cls, machine: MachineView) -> MachineKey:
        """The key of an instance, or of a Machine whose provider ID is known or claimed."""
        if machine.owner_pool:
            return cls(machine.cluster, MACHINE_POOL_KIND, machine.owner_pool, machine.provider_id)
        if machine.claimed_provider_id:
            return cls(machine.cluster, machine.kind, machine.name, machine.claimed_provider_id, machine.uid)
        return cls(machine.cluster, machine.kind, machine.name, machine.provider_id)

    @property
    def is_claimed(self) -> bool:
        """Whether the Machine did not show the provider ID when this key was written."""
        return bool(self.claimed_by)

    def is_of_unidentified(self, machine: MachineView) -> bool:
        """Whether this is the key of ``machine``, which shows no provider ID."""
        return (
            self.is_claimed
            and (machine.cluster, machine.kind, machine.name, machine.uid)
            == (self.cluster, self.kind, self.name, self.claimed_by)
            and not (machine.provider_id or machine.provider_id_is_unreadable or machine.of_a_pool)
        )

    @property
    def digest(self) -> str:
        """SHA-256 of all parts, hexadecimal: the Machine's name in reservations."""
        return _digest("machine", self.cluster.namespace, self.cluster.name, self.kind, self.name, self.provider_id)

    def __str__(self) -> str:
        return machine_text(self.cluster, self.kind, self.name, self.provider_id)


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One certificate that the controller signs: the approved CSR, and the fields that determine the certificate."""

    kind: str
    """One of the kinds above, or one that this version does not know."""
    csr_name: str
    csr_uid: str
    spec_digest: str
    signer_name: str
    requester: str
    serial_number: int
    not_before: datetime
    not_after: datetime
    ca_cert_hash: str
    """The CA that signs it, in kubeadm's hash form. It shows when a CA is no longer needed."""
    evidence_ca_cert_hash: str
    """The CA that the evidence named, in the same form: the first CA that the node trusts."""
    certificate_digest: str
    """SHA-256 of the certificate's DER, hexadecimal. API servers name a client's credential by it."""
    public_key_digest: str
    """SHA-256 of the requested key's SubjectPublicKeyInfo, hexadecimal. Copies of a request share it."""
    created: datetime
    """The CSR's creation time by the workload API server's clock. It only orders requests."""
    decided: datetime

    @property
    def was_requested(self) -> bool:
        """Whether the CSR requested this certificate; False for one that was issued with it."""
        return self.kind in _REQUESTED_KINDS


@dataclass(frozen=True, slots=True)
class BuiltinApproval:
    """One certificate that kube-controller-manager signs, because this controller approved the request.

    kube-controller-manager chooses its CA, serial number and lifetime, so the record holds only its key. A node that
    serves with that key uses the certificate.
    """

    kind: str
    csr_name: str
    csr_uid: str
    spec_digest: str
    public_key_digest: str
    """SHA-256 of the requested key's SubjectPublicKeyInfo, hexadecimal."""
    created: datetime
    """The CSR's creation time by the workload API server's clock."""
    decided: datetime


_REQUESTED_KINDS: Final = frozenset(KUBELET_KINDS.values())


@dataclass(frozen=True, slots=True)
class AttestedNode:
    """One record: an identity, its Machine, their node name, and the journal."""

    machine: MachineKey
    machine_uid: str
    node_name: str
    identity: AttestedIdentity
    first_attestation: datetime
    last_attestation: datetime
    last_not_after: datetime
    """When the last certificate of this record expires, of any kind and identity. To find out whether the node name is
    taken, use :attr:`held_until`."""
    journal: Sequence[JournalEntry]
    """Newest last: a tuple, or :mod:`~signer.model.record_object`."""
    builtin_approvals: tuple[BuiltinApproval, ...] = ()
    dropped_not_after: datetime = LONG_AGO
    """When the last certificate that was dropped from the journal expires; :data:`LONG_AGO` if none was."""
    ssh: AttestedHostKeys | ReportedTrust | NoHostKeys = NO_HOST_KEYS
    """The host keys of the node's sshd and their certificates, or only the trust that it reported."""
    seal: str = field(default="", compare=False)
    """``spec.seal``; :mod:`signer.model.seal` verifies it."""
    resource_version: str = ""
    uid: str = ""

    @property
    def name(self) -> str:
        """The object's name. There is one per node name and cluster, so creating the object takes the node name."""
        return record_name(self.machine.cluster, self.node_name)

    @property
    def held_until(self) -> datetime:
        """The time until which this record holds its node name."""
        return self.last_not_after + HELD_AFTER_END

    def is_own(self, entry: JournalEntry) -> bool:
        """Whether the certificate is of the record's present identity. The journal also has entries of former ones."""
        return entry.decided >= self.first_attestation

    def is_of(self, machine: MachineView, cluster_created: datetime) -> bool:
        """Whether a Machine with this record's key is the one that was attested, and was not recreated since.

        ``clusterctl move`` and a restore recreate every Machine together with the Cluster; those Machines still count.
        An instance of a MachinePool is the same before and after its Machine is created.
        """
        if self.machine.kind == MACHINE_POOL_KIND or self.machine_uid == machine.uid:
            return True
        return self.last_attestation < cluster_created

    def is_disproven_by(self, machine: MachineView) -> bool:
        """Whether the record claims another provider ID for that Machine than the Machine shows."""
        shows_one = bool(machine.provider_id) or machine.provider_id_is_unreadable
        return (
            self.machine.is_claimed
            and self.machine.claimed_by == machine.uid
            and shows_one
            and self.machine.provider_id != machine.provider_id
        )

    def entry_for(self, csr_uid: str, spec_digest: str) -> JournalEntry | Unjournaled:
        """The entry of exactly that CSR with exactly that content; the newest, if the CA has changed meanwhile."""
        for entry in reversed(self.journal):
            if entry.csr_uid == csr_uid and entry.spec_digest == spec_digest and entry.was_requested:
                return entry
        return Unjournaled()

    def entries_for_key(self, public_key_digest: str, signer_name: str) -> tuple[JournalEntry, ...]:
        """The entries for that key at that signer, newest first."""
        return tuple(
            entry
            for entry in reversed(self.journal)
            if entry.public_key_digest == public_key_digest and entry.signer_name == signer_name and entry.was_requested
        )

    @property
    def next_dropped(self) -> JournalEntry | Unjournaled:
        """The entry that the next entry of the same identity replaces; none while the journal is not full.

        It is never that of the last client certificate, with which the node requests all others.
        """
        if len(self.journal) < JOURNAL_ENTRIES:
            return Unjournaled()
        last = last_to_end(entry for entry in self.journal if entry.kind == KUBELET_CLIENT and self.is_own(entry))
        return next(entry for entry in self.journal if entry != last)

    def has_builtin_approval(self, csr_uid: str, spec_digest: str) -> bool:
        """Whether the approval of exactly that built-in serving request with exactly that content is journaled."""
        return any(
            one.csr_uid == csr_uid and one.spec_digest == spec_digest and one.kind == BUILTIN_KUBELET_SERVING
            for one in self.builtin_approvals
        )

    def with_builtin_approval(self, approval: BuiltinApproval) -> AttestedNode:
        """The record with one more approval of a built-in serving request. Beyond the limit, the oldest is dropped."""
        return replace(self, builtin_approvals=(*self.builtin_approvals, approval)[-BUILTIN_APPROVALS:])

    def with_entry(self, entry: JournalEntry, *, machine: MachineView, identity: AttestedIdentity) -> AttestedNode:
        """The record after one more attestation. A full journal drops one entry.

        Another identity under the same node name starts a new history: only expiry and journal continue. ``decided``
        alone tells the identities' entries apart. As clocks of replicas differ, it is adjusted: an identity's entries
        are never before its first attestation, and entries of former identities always are.
        """
        same = identity.digest == self.identity.digest
        going: JournalEntry | Unjournaled = Unjournaled()
        if same:
            first_attestation, going = self.first_attestation, self.next_dropped
        else:  # the former identity requests nothing more: the oldest entry is dropped
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
            ssh=self.ssh if same else NO_HOST_KEYS,
            dropped_not_after=max((self.dropped_not_after, *(one.not_after for one in dropped))),
        )


@dataclass(frozen=True, slots=True)
class Unjournaled:
    """There is no journal entry for that CSR."""


def last_to_end(entries: Iterable[JournalEntry]) -> JournalEntry | Unjournaled:
    """The entry that expires last; of several with the same end, the newest. ``entries`` are newest last."""
    return max(reversed(tuple(entries)), key=lambda entry: entry.not_after, default=Unjournaled())


def was_just_decided(decided: datetime, span: timedelta, now: datetime) -> bool:
    """Whether ``decided`` was less than ``span`` ago.

    A time further in the future than clocks differ comes from a wrong clock. It does not count, because it would
    otherwise block requests until that time.
    """
    return now - span < decided <= now + _CLOCK_SKEW


def record_name(cluster: ClusterKey, node_name: str) -> str:
    """``<cluster>.<node>``, or ``<cluster>.<digest>`` if that would be too long, or ambiguous because of dots.

    Two nodes of a namespace never have the same name here: a node that is called like a digest gets one, too.
    """
    name = f"{cluster.name}.{node_name}"
    if len(name) <= 253 and "." not in cluster.name and not _LIKE_A_DIGEST.search(node_name):
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


# One decision needs the names of the same record and pair a dozen times.
@functools.lru_cache(maxsize=1024)
def _digest(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode("utf-8")
        digest.update(len(encoded).to_bytes(8, "big"))
        digest.update(encoded)
    return digest.hexdigest()


def unidentified(machine_name: str) -> str:
    """The key of a Machine without provider ID among the keys that requests wait for. A provider ID of this form wakes
    requests in vain, and does nothing else.
    """
    return f"{_UNIDENTIFIED}{machine_name}"


def unidentified_name(key: str) -> str:
    """The Machine's name in a key of :func:`unidentified`; empty for any other key."""
    return key.removeprefix(_UNIDENTIFIED) if key.startswith(_UNIDENTIFIED) else ""


def record_of(node_name: str) -> str:
    """The key of a node's record among the keys that requests wait for. As for :func:`unidentified`, a provider ID of
    this form only wakes requests in vain.
    """
    return f"{NODE_USER_PREFIX}{node_name}"
