"""The nodes that a grant opens, as attested records and Machines show them now.

A name in a grant is a wish. It counts once an authentic record says which machine has that node name, and that Machine
exists. Addresses come from the Machine, which others write: they say where to connect to, and prove nothing. The client
believes the node's host certificate.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final, TypeAlias

from attestors.wire.ssh.container_names import Pod
from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.principals import HostAddress, HostName
from signer.access.parts import ReadyBastion, TargetNode, TargetsAnswer, TargetsFound, TargetsGone, TargetsUnknown
from signer.configuration import GatewayAddress
from signer.model.access import AccessGrant, AllNodes, Container, Nodes
from signer.model.access_policy import DEFAULT_NODE_PORT, AccessRules
from signer.model.addresses import ADDRESS_TYPES, Address
from signer.model.addresses import HostName as NamedHost
from signer.model.cluster import ClusterKey, ClusterView, MachineView
from signer.model.policy import Policy
from signer.model.record import AttestedNode, record_name
from signer.model.ssh_access import SSHSettings
from signer.rules.machine import MachineGone
from signer.ssh.available import NotAvailable, SSHAuthoritiesOf
from signer.ssh.client_files import ClientFilesRefused, ClusterHosts, known_hosts
from signer.store.caches import Caches

MAXIMUM_LISTED: Final = 256
"""Nodes that the status of a grant for every node names. Its certificate counts on the others, too."""
MAXIMUM_ADDRESSES: Final = 16
CONTAINER_PORT: Final = 2022
"""Of the sshd on nodes that opens containers (``node-access-containers-ssh.socket``)."""
_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class NotAttested:
    """No authentic record says which machine has that node name."""

    node: str


@dataclass(frozen=True, slots=True)
class NodeGone:
    """The Machine of the node does not exist any more."""

    node: str


FoundNode: TypeAlias = TargetNode | NotAttested | NodeGone


class GrantTargets:
    """Implements :class:`~signer.access.parts.Targets` by the caches."""

    def __init__(self, *, caches: Caches, authorities_of: SSHAuthoritiesOf) -> None:
        self._caches = caches
        self._authorities_of = authorities_of

    def of(self, grant: AccessGrant, was_found: bool) -> TargetsAnswer:
        """See Targets.

        Raises:
            Deferred: the controller key is not available, or the caches are out of touch.
        """
        self._caches.require_in_touch()
        if over := self._caches.over_limits.of(grant.cluster.namespace):
            return TargetsUnknown("; ".join(map(str, over)))
        cluster = self._caches.clusters.get(grant.cluster.namespace, grant.cluster.name)
        if cluster is None:
            return TargetsUnknown("there is no Cluster")
        match grant.target:
            case Container(of=Pod()):
                return TargetsFound(_for_containers(self._every_node(cluster)), every_node=True)
            case Container():
                return TargetsFound(())  # nodes know no workloads: there is the gateway alone
            case AllNodes():
                return TargetsFound(self._every_node(cluster), every_node=True)
            case Nodes(names):
                return answer_of(tuple(self._node(cluster, name) for name in names), was_found)

    def known_hosts(self, grant: AccessGrant, found: TargetsFound) -> tuple[str, ...]:
        """See Targets. None while the authorities are not available, or where the Cluster's name fits no
        certificate.
        """
        available = self._authorities_of(grant.cluster)
        if isinstance(available, NotAvailable):
            return ()
        try:
            text = known_hosts(ClusterHosts(grant.cluster, available.trust.host_authorities))
        except ClientFilesRefused:
            return ()
        return tuple(text.splitlines())

    def _node(self, cluster: ClusterView, name: str) -> FoundNode:
        record = self._caches.authentic.get(cluster.key.namespace, record_name(cluster.key, name))
        if not isinstance(record, AttestedNode):
            return NotAttested(name)
        return self._of_record(cluster, record)

    def _of_record(self, cluster: ClusterView, record: AttestedNode) -> FoundNode:
        name = record.node_name
        machine = self._caches.machine(record.machine)
        if isinstance(machine, MachineGone):
            return NodeGone(name)
        if not record.is_of(machine, cluster.created):
            return NotAttested(name)  # another machine of the same name, which has not attested
        return TargetNode(name, addresses_of(name, machine), self._port(cluster.key))

    def _every_node(self, cluster: ClusterView) -> tuple[TargetNode, ...]:
        """The nodes of the first Machines by name: a large cluster has more than anybody reads."""
        found: dict[str, TargetNode] = {}
        for machine in self._machines(cluster.key):
            for record in self._caches.records_of(machine):
                one = self._of_record(cluster, record)
                if isinstance(one, TargetNode):
                    found[one.node] = one
            if len(found) >= MAXIMUM_LISTED:
                break
        return tuple(found[name] for name in sorted(found)[:MAXIMUM_LISTED])

    def _machines(self, cluster: ClusterKey) -> Iterator[MachineView]:
        yield from sorted(self._caches.machines_of(cluster), key=attrgetter("name"))
        yield from self._caches.instances_of(cluster)

    def _port(self, cluster: ClusterKey) -> int:
        policy = self._caches.policies.get(cluster.namespace, cluster.name)
        if isinstance(policy, Policy) and isinstance(policy.ssh, SSHSettings):
            rules = policy.ssh.access
            if isinstance(rules, AccessRules):
                return rules.node_port
        return DEFAULT_NODE_PORT


def _for_containers(nodes: tuple[TargetNode, ...]) -> tuple[TargetNode, ...]:
    """The same machines, with the port of the sshd that opens containers."""
    return tuple(replace(one, port=CONTAINER_PORT) for one in nodes)


def answer_of(found: tuple[FoundNode, ...], was_found: bool) -> TargetsAnswer:
    """What the nodes that a grant names mean for it. Pure."""
    nodes = tuple(one for one in found if isinstance(one, TargetNode))
    if nodes:
        return TargetsFound(nodes)
    gone = [one.node for one in found if isinstance(one, NodeGone)]
    missing = [one.node for one in found if isinstance(one, NotAttested)]
    if was_found or not missing:
        return TargetsGone(f"no Machine is left of {_listed([*gone, *missing])}")
    return TargetsUnknown(f"not attested, or no node of this Cluster: {_listed(missing)}")


def addresses_of(name: str, machine: MachineView) -> tuple[str, ...]:
    """Where to connect to, the likeliest first; the node's own name where the Machine shows nothing."""
    found: dict[str, None] = {}
    for address_type in ADDRESS_TYPES:
        for one in machine.readable_addresses:
            if one.type == address_type:
                found.update(dict.fromkeys(_address(one.reading)))
    return tuple(found)[:MAXIMUM_ADDRESSES] or (name,)


def _address(reading: object) -> tuple[str, ...]:
    """The address as a certificate could name it; empty for one that none could."""
    try:
        if isinstance(reading, Address):
            address = ipaddress.ip_address(reading.text)
            return (str(HostAddress(address)),) if is_of_a_node(address) else ()
        if isinstance(reading, NamedHost):
            return (str(HostName(reading.text)),)
    except SSHRefused:
        pass
    return ()


def is_of_a_node(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether it may be a node's: not the address of whatever machine connects, nor of a service of its network."""
    return not (address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast)


def bastion_known_hosts(grant: AccessGrant, bastion: ReadyBastion) -> tuple[str, ...]:
    """The bastion's host keys as lines, under a name that no other machine has: its address may be another's later."""
    return tuple(f"node-access-bastion-{grant.metadata.uid} {key_line(one)}" for one in bastion.host_keys)


def gateway_known_hosts(grant: AccessGrant, gateway: GatewayAddress) -> tuple[str, ...]:
    """The gateway's host keys as lines, under a name that no other machine has."""
    return tuple(f"node-access-gateway-{grant.metadata.uid} {key_line(one)}" for one in gateway.host_keys)


def _listed(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown


__all__ = [
    "CONTAINER_PORT",
    "MAXIMUM_LISTED",
    "FoundNode",
    "GrantTargets",
    "NodeGone",
    "NotAttested",
    "addresses_of",
    "answer_of",
    "bastion_known_hosts",
    "gateway_known_hosts",
    "is_of_a_node",
]
