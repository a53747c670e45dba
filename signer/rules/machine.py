"""Checks of the Machine that an identity leads to, and of what was recorded for it before."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from attestors.contract import IPAddress, Security, VerifiedIdentity
from attestors.wire.names import NODE_USER_PREFIX, Purpose
from signer.model.cluster import ClusterView, MachineView
from signer.model.decision import Deferred, Refused
from signer.model.policy import NodeNameReuse, Policy
from signer.model.reasons import Reason
from signer.model.record import AttestedIdentity, AttestedNode, MachineKey
from signer.model.signing_request import Credential
from signer.rules.node_name import require_node_name

_LOOK_AGAIN: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class NoRecord:
    """Nothing was ever attested under that node name in that cluster."""


@dataclass(frozen=True, slots=True)
class MachineGone:
    """The Machine that a record names no longer exists."""


class MatchedFacts(Protocol):
    """What the checks look at that hold for every Machine, whatever led to it."""

    @property
    def node_name(self) -> str:
        """From the CSR's common name."""
        ...

    @property
    def machine(self) -> MachineView:
        """The Machine."""
        ...


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What the checks of a Machine look at."""

    node_name: str
    """From the CSR's common name."""
    signer_name: str
    created: datetime
    """The CSR's creation time, as the workload cluster says: it may only narrow."""
    public_key_digest: str
    """SHA-256 of the requested key, hexadecimal."""
    purpose: Purpose
    dns_names: tuple[str, ...]
    ip_addresses: tuple[IPAddress, ...]
    identity: AttestedIdentity
    proven: VerifiedIdentity | None
    """The attestor's outcome, for the names and addresses that it vouches for; None when it proved nothing."""
    cluster: ClusterView
    policy: Policy
    machine: MachineView
    record: AttestedNode | NoRecord
    """What is recorded under that node name in that cluster."""
    recorded_machine: MachineView | MachineGone
    """The Machine that the record names, as it is now."""
    others_called_so: tuple[MachineView, ...]
    """Other Machines of the cluster, not being deleted, that have the node name as a name, or that node."""
    other_names: tuple[AttestedNode, ...]
    """What is recorded for this very Machine under other node names."""
    conflicting_names: frozenset[str]
    """What of the alternative names belongs to the cluster's other Machines and nodes, each in its one spelling."""
    credential: Credential
    """What the requester authenticated with, as far as the workload API server says."""
    now: datetime


_UNKNOWN_LOOK_AGAIN: Final = timedelta(minutes=5)
"""Any change of a Machine with that provider ID wakes what claims it; looking on a timer is only a safety net."""


def the_machine(provider_id: str, machines: tuple[MachineView, ...]) -> MachineView:
    """The one Machine of this cluster with that provider ID.

    Raises:
        Deferred: none has it yet, or more than one has.
    """
    if not machines:
        raise Deferred(Reason.MACHINE_NOT_FOUND, f"no Machine has provider ID {provider_id} yet", _UNKNOWN_LOOK_AGAIN)
    if len(machines) > 1:
        names = ", ".join(sorted(f"{machine.kind} {machine.name}" for machine in machines)[:3])
        raise Deferred(
            Reason.MACHINE_AMBIGUOUS, f"several have provider ID {provider_id}: {names}", _UNKNOWN_LOOK_AGAIN
        )
    return machines[0]


def machine_is_of_this_cluster(facts: MachineFacts) -> None:
    """A Machine of another cluster here would be a defect of ours."""
    if facts.machine.cluster != facts.cluster.key:
        raise Deferred(Reason.INTERNAL_ERROR, f"{facts.machine} is not of Cluster {facts.cluster.key}")


def machine_is_not_deleting(facts: MatchedFacts) -> None:
    """A Machine that is going gets no further certificate."""
    require_not_deleting(facts.machine)


def require_not_deleting(machine: MachineView) -> None:
    """For a Machine that is judged outside of the other checks.

    Raises:
        Refused: it is being deleted.
    """
    if machine.deleting:
        raise Refused(Reason.MACHINE_DELETING, f"{machine} is being deleted")


def machine_is_not_paused(facts: MatchedFacts) -> None:
    """A paused Machine waits, as every Cluster API controller lets it."""
    if facts.machine.paused:
        raise Deferred(Reason.MACHINE_PAUSED, f"{facts.machine} is paused")


def machine_has_bootstrap_data(facts: MachineFacts) -> None:
    """The proposal's core check: the Machine has condition BootstrapReady (v1beta2: BootstrapConfigReady)."""
    if not facts.machine.bootstrap_ready:
        raise Deferred(Reason.MACHINE_NOT_READY, f"{facts.machine} has no bootstrap data yet")


def node_name_is_the_machines(facts: MachineFacts) -> None:
    """The CN's node name is one that this Machine's node may have.

    Where this very identity was attested as that node, its Machine or the policy has changed since, which is not the
    node's fault and may be corrected: it waits.
    """
    attested = facts.proven.node_names if facts.proven is not None else ()
    try:
        require_node_name(facts.node_name, facts.machine, facts.policy.node_name_source, attested)
    except Refused as error:
        if not _is_attested_as_that_node(facts):
            raise
        raise Deferred(
            Reason.NODE_NAME_MISMATCH,
            f"{error.deny.message}; it was attested as node {facts.node_name} before: correct the Machine's addresses, "
            "or nodeNameSource in the policy",
            _LOOK_AGAIN,
        ) from None


def _is_attested_as_that_node(facts: MachineFacts) -> bool:
    record = facts.record
    return (
        isinstance(record, AttestedNode)
        and record.node_name == facts.node_name
        and record.machine == MachineKey.of(facts.machine)
        and record.identity.digest == facts.identity.digest
    )


def node_ref_agrees(facts: MatchedFacts) -> None:
    """nodeRef never decides, but one that disagrees is looked at by a person first."""
    if facts.machine.node_ref and facts.machine.node_ref != facts.node_name:
        raise Deferred(
            Reason.NODE_REF_DISAGREES,
            f"{facts.machine} has nodeRef {facts.machine.node_ref}, the request asks for node {facts.node_name}",
            _LOOK_AGAIN,
        )


def node_name_is_free(facts: MachineFacts) -> None:
    """What is recorded under the node name is this identity, or nothing, or has run out."""
    record = facts.record
    if isinstance(record, NoRecord):
        return
    if record.machine.cluster != facts.cluster.key or record.node_name != facts.node_name:
        raise Deferred(
            Reason.NODE_NAME_BLOCKED, f"another record has the name of node {facts.node_name}'s", _LOOK_AGAIN
        )
    if record.identity.digest == facts.identity.digest:
        return
    if isinstance(facts.recorded_machine, MachineView) and MachineKey.of(facts.recorded_machine) == record.machine:
        if record.machine == MachineKey.of(facts.machine):
            if facts.identity.security is Security.INSECURE and record.identity.security is Security.SECURE:
                raise Refused(Reason.IDENTITY_CONFLICT, f"{record.machine} was attested: not without proof")
            return  # the same Machine under another identity: the reservations decide that
        if facts.recorded_machine.deleting:
            raise Deferred(
                Reason.NODE_NAME_BLOCKED,
                f"node {facts.node_name} belongs to {record.machine}, which is being deleted",
                _LOOK_AGAIN,
                waits_for=(record.machine.provider_id,),
            )
        raise Refused(
            Reason.IDENTITY_CONFLICT, f"node {facts.node_name} belongs to {record.machine}, not to {facts.machine}"
        )
    _require_run_out(facts, record, f"the former {record.machine}")


def former_identity_has_run_out(facts: MachineFacts) -> None:
    """To be asked once identity and Machine are reserved for each other, which says whose the Machine is now.

    It may have been made anew around other hardware, while the former is another Machine: that must not be the same
    node. What was only asserted gives way at once.
    """
    record = facts.record
    if isinstance(record, NoRecord) or record.identity.digest == facts.identity.digest:
        return
    if record.identity.security is Security.SECURE:
        _require_run_out(facts, record, f"the identity that {record.machine} had before")


def _require_run_out(facts: MachineFacts, record: AttestedNode, whose: str) -> None:
    if facts.policy.node_name_reuse is NodeNameReuse.IMMEDIATE or record.held_until <= facts.now:
        return
    raise Deferred(
        Reason.NODE_NAME_BLOCKED,
        f"certificates for node {facts.node_name} of {whose} may be in use until "
        f"{record.held_until:%Y-%m-%d %H:%M} UTC",
        min(record.held_until - facts.now, _LOOK_AGAIN),
        waits_for=(record.machine.provider_id,),
    )


def node_name_is_nobody_elses(facts: MachineFacts) -> None:
    """A name that was never attested may be a running node's all the same: of a Machine that joined before us.

    What says so may be wrong or change, and can only make a request wait. Whoever has the name by attestation keeps it,
    and a Machine whose node runs under that name waits for no other that merely reports it.
    """
    record = facts.record
    if isinstance(record, AttestedNode) and record.identity.digest == facts.identity.digest:
        return
    runs_there = facts.machine.node_ref == facts.node_name
    for other in facts.others_called_so:
        if runs_there and other.node_ref != facts.node_name:
            continue
        raise Deferred(
            Reason.NODE_NAME_BLOCKED,
            f"{other} has that name, or node {facts.node_name} is its: it is not clear whose node that is",
            _LOOK_AGAIN,
            waits_for=(other.provider_id,) if other.provider_id else (),
        )


def machine_has_one_node_name(facts: MachineFacts) -> None:
    """One Machine is one node: what a machine reports as its host name must not collect names for it.

    Nor those that it had before, or that its hardware had as another Machine.
    """
    if has_that_name(facts) or facts.policy.node_name_reuse is NodeNameReuse.IMMEDIATE:
        return
    for other in facts.other_names:
        if other.node_name != facts.node_name and other.held_until > facts.now:
            raise Deferred(
                Reason.NODE_NAME_BLOCKED,
                f"{facts.machine} is node {other.node_name}, whose certificates may be in use until "
                f"{other.held_until:%Y-%m-%d %H:%M} UTC",
                min(other.held_until - facts.now, _LOOK_AGAIN),
                waits_for=(f"{NODE_USER_PREFIX}{other.node_name}",),
            )


def has_that_name(facts: MachineFacts) -> bool:
    """Whether the name is held for this identity as this very Machine: it is new to neither."""
    record = facts.record
    return isinstance(record, AttestedNode) and _is_attested_as_that_node(facts) and record.held_until > facts.now


def request_is_not_superseded(facts: MachineFacts) -> None:
    """No newer request of the same identity to the same signer was allowed: nobody waits for the older one any more.

    Copies of the very request, which anybody can post who sees it, do not count: they ask for the same key. Nor does an
    entry from the future: an API server whose clock was set back must not block its nodes.
    """
    record = facts.record
    if isinstance(record, NoRecord) or record.identity.digest != facts.identity.digest:
        return
    for entry in record.journal:
        if entry.signer_name != facts.signer_name or entry.public_key_digest == facts.public_key_digest:
            continue
        if facts.created < entry.created <= facts.now:
            raise Refused(Reason.SUPERSEDED, f"the newer CSR {entry.csr_name} of the same identity was approved")
