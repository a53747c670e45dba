"""Checks of the Machine that an identity leads to, and of what was recorded for it before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final

from attestors.contract import IPAddress, Security, VerifiedIdentity
from attestors.wire.names import Purpose
from signer.model.cluster import ClusterView, MachineView
from signer.model.decision import Deferred, Refused
from signer.model.policy import NodeNameReuse, Policy
from signer.model.reasons import Reason
from signer.model.record import AttestedIdentity, AttestedNode, MachineKey
from signer.rules.node_name import is_node_name, node_names

_LOOK_AGAIN: Final = timedelta(minutes=5)
_NEVER_DNS_NAMES: Final = ("kubernetes", "localhost")


@dataclass(frozen=True, slots=True)
class NoRecord:
    """Nothing was ever attested under that node name in that cluster."""


@dataclass(frozen=True, slots=True)
class MachineGone:
    """The Machine that a record names no longer exists."""


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What the checks of a Machine look at."""

    node_name: str
    """From the CSR's common name."""
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
    addresses_of_others: frozenset[str]
    """Addresses of the cluster's other Machines, lower case."""
    now: datetime


def the_machine(provider_id: str, machines: tuple[MachineView, ...]) -> MachineView:
    """The one Machine of this cluster with that provider ID.

    Raises:
        Deferred: none has it yet, or more than one has.
    """
    if not machines:
        raise Deferred(Reason.MACHINE_NOT_FOUND, f"no Machine has provider ID {provider_id} yet")
    if len(machines) > 1:
        names = ", ".join(sorted(machine.name for machine in machines)[:3])
        raise Deferred(Reason.MACHINE_AMBIGUOUS, f"several Machines have provider ID {provider_id}: {names}")
    return machines[0]


def machine_is_of_this_cluster(facts: MachineFacts) -> None:
    """A Machine of another cluster here would be a defect of ours."""
    if facts.machine.cluster != facts.cluster.key:
        raise Deferred(Reason.INTERNAL_ERROR, f"{facts.machine} is not of Cluster {facts.cluster.key}")


def machine_is_not_deleting(facts: MachineFacts) -> None:
    """A Machine that is going gets no further certificate."""
    require_not_deleting(facts.machine)


def require_not_deleting(machine: MachineView) -> None:
    """For a Machine that is judged outside of the other checks.

    Raises:
        Refused: it is being deleted.
    """
    if machine.deleting:
        raise Refused(Reason.MACHINE_DELETING, f"{machine} is being deleted")


def machine_is_not_paused(facts: MachineFacts) -> None:
    """A paused Machine waits, as every Cluster API controller lets it."""
    if facts.machine.paused:
        raise Deferred(Reason.MACHINE_PAUSED, f"{facts.machine} is paused")


def machine_has_bootstrap_data(facts: MachineFacts) -> None:
    """The proposal's core check: the Machine has condition BootstrapReady (v1beta2: BootstrapConfigReady)."""
    if not facts.machine.bootstrap_ready:
        raise Deferred(Reason.MACHINE_NOT_READY, f"{facts.machine} has no bootstrap data yet")


def node_name_is_the_machines(facts: MachineFacts) -> None:
    """The CN's node name is one that this Machine's node may have."""
    attested = facts.proven.node_names if facts.proven is not None else ()
    names = node_names(facts.machine, facts.policy.node_name_source, attested)
    if facts.node_name not in names:
        raise Refused(
            Reason.NODE_NAME_MISMATCH,
            f"the request asks for node {facts.node_name}; {facts.machine} is node {' or '.join(names)}",
        )


def node_ref_agrees(facts: MachineFacts) -> None:
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
            )
        raise Refused(
            Reason.IDENTITY_CONFLICT, f"node {facts.node_name} belongs to {record.machine}, not to {facts.machine}"
        )
    if facts.policy.node_name_reuse is NodeNameReuse.IMMEDIATE or record.last_not_after <= facts.now:
        return
    raise Deferred(
        Reason.NODE_NAME_BLOCKED,
        f"certificates for node {facts.node_name} of the former {record.machine} are valid until "
        f"{record.last_not_after:%Y-%m-%d %H:%M} UTC",
        min(record.last_not_after - facts.now, _LOOK_AGAIN),
    )


def alternative_names_are_the_machines(facts: MachineFacts) -> None:
    """Every DNS name and address of a serving certificate belongs to this Machine, and none to anybody else.

    The kubelet serving CA is the API server's CA too, so a name of the control plane would make a false API server.
    """
    if facts.purpose is not Purpose.SERVING:
        return
    for dns_name in facts.dns_names:
        _require(_dns_name_is_permitted(dns_name, facts), dns_name, facts)
    for address in facts.ip_addresses:
        _require(_ip_address_is_permitted(address, facts), str(address), facts)


def _require(permitted: bool, name: str, facts: MachineFacts) -> None:
    if not permitted:
        raise Refused(
            Reason.INVALID_SUBJECT_ALTERNATIVE_NAMES, f"alternative name {name} does not belong to {facts.machine}"
        )


def _dns_name_is_permitted(dns_name: str, facts: MachineFacts) -> bool:
    if not is_node_name(dns_name) or dns_name.split(".")[0] in _NEVER_DNS_NAMES:
        return False
    # A name in status.addresses may be written with its root dot; the request's has none, or it were no node name.
    if dns_name == facts.cluster.control_plane_host.lower().removesuffix("."):
        return False
    if dns_name in facts.addresses_of_others or f"{dns_name}." in facts.addresses_of_others:
        return False
    own = {address.address.lower().removesuffix(".") for address in facts.machine.addresses}
    proven = facts.proven.dns_names if facts.proven is not None else ()
    return dns_name == facts.node_name or dns_name in own or dns_name in proven


def _ip_address_is_permitted(address: IPAddress, facts: MachineFacts) -> bool:
    never: tuple[Callable[[IPAddress], bool], ...] = (
        lambda candidate: candidate.is_loopback,
        lambda candidate: candidate.is_unspecified,
        lambda candidate: candidate.is_multicast,
        lambda candidate: candidate.is_link_local,
        lambda candidate: getattr(candidate, "ipv4_mapped", None) is not None,
        lambda candidate: any(candidate in network for network in facts.cluster.service_networks),
    )
    if any(is_never(address) for is_never in never):
        return False
    if _same_address(facts.cluster.control_plane_host, address):
        return False
    if any(_same_address(other, address) for other in facts.addresses_of_others):
        return False
    proven = facts.proven.ip_addresses if facts.proven is not None else ()
    return address in proven or any(_same_address(own.address, address) for own in facts.machine.addresses)


def _same_address(text: str, address: IPAddress) -> bool:
    try:
        return ip_address(text) == address
    except ValueError:
        return False
