"""Checks of the Machine that an identity leads to, and of the records for it."""

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
from signer.model.serving_facts import ServingFacts
from signer.model.signing_request import Credential
from signer.rules.node_name import require_node_name

_RECHECK_AFTER: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class NoRecord:
    """There is no record for that node name in that cluster."""


@dataclass(frozen=True, slots=True)
class MachineGone:
    """The Machine that a record names no longer exists, or shows another provider ID than the record claims for it."""

    shows: str = ""
    """The other provider ID; empty if the Machine no longer exists."""


class MatchedFacts(Protocol):
    """The input of the checks that apply to every Machine, whether evidence or a record leads to it."""

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
    """The input of the checks of a Machine."""

    node_name: str
    """From the CSR's common name."""
    signer_name: str
    created: datetime
    """The CSR's creation time by the workload API server's clock. It can only make a check stricter."""
    public_key_digest: str
    """SHA-256 of the requested key, hexadecimal."""
    purpose: Purpose
    dns_names: tuple[str, ...]
    ip_addresses: tuple[IPAddress, ...]
    identity: AttestedIdentity
    proven: VerifiedIdentity | None
    """The attestor's outcome, for the names and addresses that it proves; None if it proved nothing."""
    cluster: ClusterView
    policy: Policy
    machine: MachineView
    record: AttestedNode | NoRecord
    """The record under that node name in that cluster."""
    recorded_machine: MachineView | MachineGone
    """The Machine that the record names, as it is now."""
    others_called_so: tuple[MachineView, ...]
    """Other Machines of the cluster, not being deleted, that have the node name as a name or in nodeRef. If the node
    has the name only by a domain of the policy, also those that have the same host in any domain.
    """
    other_names: tuple[AttestedNode, ...]
    """The records of this same Machine under other node names."""
    conflicting_names: frozenset[str]
    """The alternative names that belong to other Machines and nodes of the cluster, in canonical form."""
    serving: ServingFacts
    credential: Credential
    """The requester's credential, as far as the workload API server names it."""
    now: datetime


_RECHECK_AFTER_NO_MATCH: Final = timedelta(minutes=5)
"""Any change of a Machine with that provider ID wakes the requests that claim it; the timer is only a safety net."""


def the_machine(provider_id: str, machines: tuple[MachineView, ...]) -> MachineView:
    """The one Machine of this cluster with that provider ID.

    Raises:
        Deferred: none has it yet, or more than one has.
    """
    if not machines:
        raise Deferred(
            Reason.MACHINE_NOT_FOUND, f"no Machine has provider ID {provider_id} yet", _RECHECK_AFTER_NO_MATCH
        )
    if len(machines) > 1:
        names = ", ".join(sorted(f"{machine.kind} {machine.name}" for machine in machines)[:3])
        raise Deferred(
            Reason.MACHINE_AMBIGUOUS,
            f"several Machines have provider ID {provider_id}: {names}",
            _RECHECK_AFTER_NO_MATCH,
        )
    return machines[0]


def machine_is_of_this_cluster(facts: MachineFacts) -> None:
    """The Machine is of this cluster. Anything else is a bug in the controller."""
    if facts.machine.cluster != facts.cluster.key:
        raise Deferred(Reason.INTERNAL_ERROR, f"{facts.machine} is not of Cluster {facts.cluster.key}")


def machine_is_not_deleting(facts: MatchedFacts) -> None:
    """The Machine is not being deleted."""
    require_not_deleting(facts.machine)


def require_not_deleting(machine: MachineView) -> None:
    """The same check for a Machine alone.

    Raises:
        Refused: it is being deleted.
    """
    if machine.deleting:
        raise Refused(Reason.MACHINE_DELETING, f"{machine} is being deleted")


def machine_is_not_paused(facts: MatchedFacts) -> None:
    """The Machine is not paused. As in every Cluster API controller, a paused Machine waits."""
    if facts.machine.paused:
        raise Deferred(Reason.MACHINE_PAUSED, f"{facts.machine} is paused")


def machine_has_bootstrap_data(facts: MachineFacts) -> None:
    """The proposal's core check: the Machine has condition BootstrapReady (v1beta2: BootstrapConfigReady)."""
    if not facts.machine.bootstrap_ready:
        raise Deferred(Reason.MACHINE_NOT_READY, f"{facts.machine} has no bootstrap data yet")


def node_name_is_the_machines(facts: MachineFacts) -> None:
    """The CN's node name is one that this Machine's node may have.

    If this same identity was attested as that node before, the Machine or the policy has changed since. That is not the
    node's fault and can be corrected, so the request is deferred.
    """
    attested = facts.proven.node_names if facts.proven is not None else ()
    try:
        require_node_name(facts.node_name, facts.machine, facts.policy.node_names, attested)
    except Refused as error:
        if not _is_attested_as_that_node(facts):
            raise
        raise Deferred(
            Reason.NODE_NAME_MISMATCH,
            f"{error.deny.message}; it was attested as node {facts.node_name} before: correct the Machine's addresses, "
            "or nodeNames in the policy",
            _RECHECK_AFTER,
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
    """The Machine's nodeRef is empty or names this node. If it disagrees, an administrator has to look first."""
    if facts.machine.node_ref and facts.machine.node_ref != facts.node_name:
        raise Deferred(
            Reason.NODE_REF_DISAGREES,
            f"{facts.machine} has nodeRef {facts.machine.node_ref}, the request is for node {facts.node_name}",
            _RECHECK_AFTER,
        )


def node_name_is_free(facts: MachineFacts) -> None:
    """The node name has no record, this identity's record, or one whose certificates have expired."""
    record = facts.record
    if isinstance(record, NoRecord):
        return
    if record.machine.cluster != facts.cluster.key or record.node_name != facts.node_name:
        raise Deferred(
            Reason.NODE_NAME_BLOCKED,
            f"the record of another node has the name that the record of node {facts.node_name} needs",
            _RECHECK_AFTER,
        )
    if record.identity.digest == facts.identity.digest:
        return
    if isinstance(facts.recorded_machine, MachineView) and MachineKey.of(facts.recorded_machine) == record.machine:
        if record.machine == MachineKey.of(facts.machine):
            if facts.identity.security is Security.INSECURE and record.identity.security is Security.SECURE:
                raise Refused(
                    Reason.IDENTITY_CONFLICT,
                    f"{record.machine} was attested with proof, and this request has none",
                )
            return  # the same Machine under another identity: the reservations decide that
        if facts.recorded_machine.deleting:
            raise Deferred(
                Reason.NODE_NAME_BLOCKED,
                f"node {facts.node_name} belongs to {record.machine}, which is being deleted",
                _RECHECK_AFTER,
                waits_for=(record.machine.provider_id,),
            )
        raise Refused(
            Reason.IDENTITY_CONFLICT, f"node {facts.node_name} belongs to {record.machine}, not to {facts.machine}"
        )
    _require_expired(facts, record, f"the former {record.machine}")


def former_identity_has_run_out(facts: MachineFacts) -> None:
    """The certificates of another, secure identity that had the node name have expired.

    This check runs once identity and Machine are reserved for each other, which settles which identity has the Machine.
    The Machine may have been recreated with other hardware, while the former hardware is another Machine now: the two
    must not be the same node. Asserted identities do not block a name.
    """
    record = facts.record
    if isinstance(record, NoRecord) or record.identity.digest == facts.identity.digest:
        return
    if record.identity.security is Security.SECURE:
        _require_expired(facts, record, f"the identity that {record.machine} had before")


def _require_expired(facts: MachineFacts, record: AttestedNode, holder: str) -> None:
    if facts.policy.node_name_reuse is NodeNameReuse.IMMEDIATE or record.held_until <= facts.now:
        return
    raise Deferred(
        Reason.NODE_NAME_BLOCKED,
        f"certificates for node {facts.node_name} of {holder} may be in use until "
        f"{record.held_until:%Y-%m-%d %H:%M} UTC",
        min(record.held_until - facts.now, _RECHECK_AFTER),
        waits_for=(record.machine.provider_id,),
    )


def node_name_is_no_other_machines(facts: MachineFacts) -> None:
    """No other Machine of the cluster has the node name as a name or in nodeRef.

    A name without a record may be that of a running node, whose Machine joined before this controller was installed.
    The data may be wrong or change, so the check only defers. It does not apply to an identity that was attested under
    the name. A Machine whose nodeRef has the name ignores other Machines that merely report it as a name.
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
            f"{other} has the name {facts.node_name} too, as an address, in nodeRef or by a domain of the policy: it "
            "is not clear which Machine the node belongs to",
            _RECHECK_AFTER,
            waits_for=(other.provider_id,) if other.provider_id else (),
        )


def machine_has_one_node_name(facts: MachineFacts) -> None:
    """The Machine has no valid certificates under another node name.

    One Machine is one node. A machine must not collect node names by reporting another host name, nor keep those that
    it had before or that its hardware had as another Machine.
    """
    if holds_node_name(facts) or facts.policy.node_name_reuse is NodeNameReuse.IMMEDIATE:
        return
    for other in facts.other_names:
        if other.node_name != facts.node_name and other.held_until > facts.now:
            raise Deferred(
                Reason.NODE_NAME_BLOCKED,
                f"{facts.machine} is node {other.node_name}, whose certificates may be in use until "
                f"{other.held_until:%Y-%m-%d %H:%M} UTC",
                min(other.held_until - facts.now, _RECHECK_AFTER),
                waits_for=(f"{NODE_USER_PREFIX}{other.node_name}",),
            )


def holds_node_name(facts: MachineFacts) -> bool:
    """Whether a record holds the node name for this identity as this same Machine."""
    record = facts.record
    return isinstance(record, AttestedNode) and _is_attested_as_that_node(facts) and record.held_until > facts.now


def request_is_not_superseded(facts: MachineFacts) -> None:
    """No newer request of the same identity to the same signer was approved: no node waits for the older one.

    Copies of the request do not count: any user that can read it can post one, and they have the same key. Entries from
    the future do not count either: an API server whose clock was set back must not block its nodes.
    """
    record = facts.record
    if isinstance(record, NoRecord) or record.identity.digest != facts.identity.digest:
        return
    for entry in record.journal:
        if entry.signer_name != facts.signer_name or entry.public_key_digest == facts.public_key_digest:
            continue
        if facts.created < entry.created <= facts.now:
            raise Refused(Reason.SUPERSEDED, f"the newer CSR {entry.csr_name} of the same identity was approved")
