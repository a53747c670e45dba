"""The state of every Machine of one cluster: whether its node renews by attestation, until when, and why not."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from attestors.registry import Registry
from signer.controller.status.policy_status import Permits
from signer.controller.status.renewal_coverage import Attested, MachineCoverage, RenewalCoverage, Unattested
from signer.controller.workload_access import NOT_READABLE
from signer.explain.found_requests import FoundRequest
from signer.model.certificates_in_use import EVER, certificates_in_use
from signer.model.cluster import ClusterKey, MachineView
from signer.model.decision import Deferred, printable
from signer.model.node_attested import valid_until
from signer.model.record import KUBELET_CLIENT, AttestedNode, JournalEntry
from signer.store.caches import Caches
from signer.store.node_certificates import OVERDUE_SHARE


class MachineState(enum.Enum):
    """Whether a Machine's node renews by attestation."""

    ATTESTED = "Attested"
    OVERDUE = "Overdue"
    """It is attested, and has not renewed although it should have."""
    UNATTESTED = "Unattested"
    STARTING = "Starting"
    """It has no node yet."""
    UNKNOWN = "Unknown"
    """What is needed to tell cannot be read here. Nothing is wrong with the Machine."""


@dataclass(frozen=True, slots=True)
class LastCertificate:
    """The client certificate of a Machine's node that expires last; all texts are printable."""

    node: str
    attestor: str
    not_after: datetime
    authority: str
    """The CA that signed it, in kubeadm's hash form; empty if the journal does not tell."""


@dataclass(frozen=True, slots=True)
class NoCertificate:
    """No certificate of the Machine's node is known."""


@dataclass(frozen=True, slots=True)
class MachineStatus:
    """The state of one Machine, or of an instance of a MachinePool."""

    machine: MachineView
    state: MachineState
    reason: str
    """Why it is in that state; empty if it is attested."""
    certificate: LastCertificate | NoCertificate = NoCertificate()

    @property
    def node(self) -> str:
        """The node's name; empty while it is not known."""
        certificate = self.certificate
        return printable(certificate.node if isinstance(certificate, LastCertificate) else self.machine.node_ref)

    @property
    def needs_attention(self) -> bool:
        """Whether a person should look at the Machine."""
        return self.state in (MachineState.OVERDUE, MachineState.UNATTESTED)


def machine_statuses(
    key: ClusterKey, caches: Caches, registry: Registry, permits: Permits, now: Callable[[], datetime]
) -> tuple[MachineStatus, ...]:
    """The state of each Machine whose node runs or may come, sorted by name. It is unknown where it cannot be read."""
    try:
        caches.authentic.require_keys()
        found = RenewalCoverage(key, registry=registry, caches=caches, permits=permits, now=now).all()
        return tuple(_status(one, caches, registry, now()) for one in found)
    except Deferred as error:
        why = printable(f"{NOT_READABLE}: {error.defer.message}")
        machines = sorted(_machines(key, caches), key=lambda one: (one.name, one.provider_id))
        return tuple(MachineStatus(machine, MachineState.UNKNOWN, why) for machine in machines)


def with_last_requests(
    machines: tuple[MachineStatus, ...], last: Mapping[str, FoundRequest]
) -> tuple[MachineStatus, ...]:
    """The reasons with the state of the last request that claims each provider ID, where a Machine needs attention.

    Of an attested Machine it says nothing: a copy of its request, or another machine's, may have been denied.
    """
    return tuple(
        replace(one, reason=printable(f"{last[one.machine.provider_id].state}; {one.reason}"))
        if one.needs_attention and one.machine.provider_id in last
        else one
        for one in machines
    )


def _machines(key: ClusterKey, caches: Caches) -> Iterator[MachineView]:
    yield from caches.machines_of(key)
    yield from caches.instances_of(key)


def _status(one: MachineCoverage, caches: Caches, registry: Registry, now: datetime) -> MachineStatus:
    records = caches.records_of(one.machine)
    if isinstance(one, Attested):
        state = MachineState.OVERDUE if _is_overdue(one.record, now) else MachineState.ATTESTED
        reason = f"less than {OVERDUE_SHARE:.0%} of its lifetime left" if state is MachineState.OVERDUE else ""
        return MachineStatus(one.machine, state, reason, _certificate(one.record))
    if not isinstance(one, Unattested):
        return MachineStatus(one.machine, MachineState.STARTING, "has no node yet")
    if not records:
        return MachineStatus(one.machine, MachineState.UNATTESTED, printable(one.why))
    record = max(records, key=valid_until)
    if record.identity.provider not in registry.providers:
        # Whether such a node renews, only an installation with the attestor can tell.
        why = printable(f"{NOT_READABLE}: attestor {record.identity.provider} is not installed")
        return MachineStatus(one.machine, MachineState.UNKNOWN, why, _certificate(record))
    return MachineStatus(one.machine, MachineState.UNATTESTED, printable(one.why), _certificate(record))


def _certificate(record: AttestedNode) -> LastCertificate:
    entry = certificates_in_use((record,), EVER, KUBELET_CLIENT).last
    authority = entry.ca_cert_hash if isinstance(entry, JournalEntry) else ""
    return LastCertificate(
        printable(record.node_name), printable(record.identity.provider), valid_until(record), printable(authority)
    )


def _is_overdue(record: AttestedNode, now: datetime) -> bool:
    """Whether the last certificate should have been renewed by now, as the metric counts it."""
    entry = certificates_in_use((record,), EVER, KUBELET_CLIENT).last
    if not isinstance(entry, JournalEntry):
        return False
    return entry.not_after - now <= OVERDUE_SHARE * (entry.not_after - entry.not_before)
