"""The expiry of each cluster's node certificates: the time that remains if no more are issued.

A node counts if an authentic AttestedNode exists and its Machine, or instance of a MachinePool, exists and is not being
deleted. If several records name one Machine, the one whose certificate expires last counts. The cost of a change of a
record or Machine does not depend on the number of records; a cluster's summary is computed again only when it is read
after a change.

The journals also tell the CAs under which the cluster's certificates were issued, and which the nodes' evidence named.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from attestors.contract import Security
from signer.model.certificates_in_use import EVER, certificates_in_use
from signer.model.cluster import ClusterKey, MachineView
from signer.model.record import KUBELET_CLIENT, AttestedNode, JournalEntry, MachineKey
from signer.rules.machine import MachineGone, NoRecord
from signer.store.cache import ObjectKey

OVERDUE_SHARE: Final = 0.15
"""A renewal is overdue when this share of the certificate's lifetime remains; nodes renew at 0.2.

A share rather than a time: a policy's certificates may be valid for an hour or for a year.
"""


@dataclass(frozen=True, slots=True)
class _Life:
    machine: MachineKey
    not_after: float
    renewal_overdue: tuple[float, ...]
    """When the renewal becomes overdue; empty if the attestor does not renew."""


@dataclass(frozen=True, slots=True)
class NodeCertificates:
    """The last client certificates of one cluster's nodes. Times are Unix time, in ascending order."""

    ends: tuple[float, ...] = ()
    """When the certificates expire."""
    renewing_ends: tuple[float, ...] = ()
    """When the certificates that can be renewed expire."""
    overdue: tuple[float, ...] = ()
    """When the renewals of those become overdue."""

    def count_expired(self, now: float) -> int:
        """Number of nodes whose last certificate has expired."""
        return bisect_right(self.ends, now)

    def count_overdue(self, now: float) -> int:
        """Number of nodes whose renewal is overdue and still possible."""
        return bisect_right(self.overdue, now) - bisect_right(self.renewing_ends, now)

    def outage_budget(self, now: float) -> tuple[float, ...]:
        """The next expiry of a valid certificate, if no more are issued; empty if no certificate is valid."""
        return self.ends[self.count_expired(now) :][:1]


@dataclass(slots=True)
class _Lineage:
    """The CAs in the journals of one cluster's records."""

    records: int = 0
    hashes: frozenset[str] = frozenset()


class CertificateLives:
    """Follows records and Machines; the caches report each change."""

    def __init__(self, machine: Callable[[MachineKey], MachineView | MachineGone]) -> None:
        """``machine`` returns the current Machine of a key."""
        self._machine = machine
        self._lives: dict[ClusterKey, dict[ObjectKey, _Life]] = {}
        self._summed: dict[ClusterKey, NodeCertificates] = {}
        self._lineages: dict[ClusterKey, _Lineage] = {}

    def record_changed(self, key: ObjectKey, before: AttestedNode | NoRecord, after: AttestedNode | NoRecord) -> None:
        """An authentic record was written, replaced or deleted."""
        self._follow_authorities(before, after)
        if isinstance(before, AttestedNode):
            cluster = before.machine.cluster
            lives = self._lives.get(cluster, {})
            lives.pop(key, None)
            if not lives:  # also if no record of the cluster has a client certificate in its journal
                self._lives.pop(cluster, None)
            self._summed.pop(cluster, None)
        if isinstance(after, AttestedNode):
            cluster = after.machine.cluster
            entry = certificates_in_use((after,), EVER, KUBELET_CLIENT).last
            if isinstance(entry, JournalEntry):
                self._lives.setdefault(cluster, {})[key] = _life(after, entry)
            self._summed.pop(cluster, None)

    def _follow_authorities(self, before: AttestedNode | NoRecord, after: AttestedNode | NoRecord) -> None:
        if isinstance(after, AttestedNode):
            lineage = self._lineages.setdefault(after.machine.cluster, _Lineage())
            lineage.records += 1
            new = after.journal if isinstance(before, NoRecord) else after.journal[-1:]
            for entry in new:
                if not lineage.hashes >= {entry.ca_cert_hash, entry.evidence_ca_cert_hash}:
                    lineage.hashes |= {entry.ca_cert_hash, entry.evidence_ca_cert_hash}
        if isinstance(before, AttestedNode):
            lineage = self._lineages[before.machine.cluster]
            lineage.records -= 1
            if not lineage.records:
                del self._lineages[before.machine.cluster]

    def authorities_of(self, cluster: ClusterKey) -> frozenset[str]:
        """The discovery hashes of the CAs that certificates of the cluster's nodes were issued under, or that their
        evidence named. Those of a deleted record may be among them.
        """
        lineage = self._lineages.get(cluster)
        return frozenset() if lineage is None else lineage.hashes

    def machines_changed(self, clusters: Iterable[ClusterKey]) -> None:
        """Machines or instances of those clusters were added, changed or deleted."""
        for cluster in clusters:
            self._summed.pop(cluster, None)

    def of(self, cluster: ClusterKey) -> NodeCertificates:
        """The certificates of the cluster's nodes."""
        summed = self._summed.get(cluster)
        if summed is None:
            summed = self._add_up(cluster)
            if cluster in self._lives:  # no summary is kept for clusters without records
                self._summed[cluster] = summed
        return summed

    def _add_up(self, cluster: ClusterKey) -> NodeCertificates:
        last: dict[MachineKey, _Life] = {}
        for life in list(self._lives.get(cluster, {}).values()):
            before = last.get(life.machine)
            if (before is None or before.not_after < life.not_after) and self._exists(life.machine):
                last[life.machine] = life
        renewing = [life for life in last.values() if life.renewal_overdue]
        return NodeCertificates(
            tuple(sorted(life.not_after for life in last.values())),
            tuple(sorted(life.not_after for life in renewing)),
            tuple(sorted(moment for life in renewing for moment in life.renewal_overdue)),
        )

    def _exists(self, key: MachineKey) -> bool:
        machine = self._machine(key)
        return isinstance(machine, MachineView) and not machine.deleting


def _life(record: AttestedNode, entry: JournalEntry) -> _Life:
    overdue: tuple[float, ...] = ()
    if record.identity.security is Security.SECURE:
        left: timedelta = (entry.not_after - entry.not_before) * OVERDUE_SHARE
        overdue = ((entry.not_after - left).timestamp(),)
    return _Life(record.machine, entry.not_after.timestamp(), overdue)
