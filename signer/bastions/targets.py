"""Which addresses and ports a bastion may reach: the operator decides, and no tenant.

A Bastion's targets come from the addresses of Machines and from a policy, both of which tenants write. Without these
bounds a tenant could let the operator's bastion connect to any host of the operator's networks. Pure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.options import parse_network
from node_access.bastions.contract import Bastion, IPAddress, Network, Target

PRIVATE_NETWORKS: Final[tuple[Network, ...]] = tuple(
    map(ipaddress.ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"))
)
"""RFC 1918, RFC 6598 and RFC 4193. Whatever the networks are, no loopback, link-local or multicast address and no
metadata service of a cloud is a target (:class:`node_access.bastions.contract.Target`).
"""
SSH_PORT: Final = 22
MAXIMUM_NETWORKS: Final = 64
MAXIMUM_PORTS: Final = 16
_MAXIMUM_PORT: Final = 65535
_MAXIMUM_CHARACTERS: Final = 43
_SHOWN: Final = 4


class TargetNotAllowed(Exception):
    """The operator does not allow a target; the message says which setting would."""


@dataclass(frozen=True, slots=True)
class OperatorTargets:
    """The operator's bounds."""

    networks: tuple[Network, ...] = PRIVATE_NETWORKS
    """For Bastions of every namespace that ``networks_by_namespace`` does not have."""
    networks_by_namespace: Mapping[str, tuple[Network, ...]] = field(default_factory=dict)
    ports: frozenset[int] = frozenset({SSH_PORT})
    """For Bastions of every namespace that ``ports_by_namespace`` does not have."""
    ports_by_namespace: Mapping[str, frozenset[int]] = field(default_factory=dict)

    def networks_in(self, namespace: str) -> tuple[Network, ...]:
        """The networks for Bastions of that namespace."""
        return self.networks_by_namespace.get(namespace, self.networks)

    def ports_in(self, namespace: str) -> frozenset[int]:
        """The ports for Bastions of that namespace."""
        return self.ports_by_namespace.get(namespace, self.ports)


@dataclass(frozen=True, slots=True)
class Bounded:
    """A bastion within the operator's bounds."""

    bastion: Bastion
    left_out: tuple[IPAddress, ...]
    """Addresses outside. Each is of a machine that has another one within."""


def within(bastion: Bastion, allowed: OperatorTargets) -> Bounded:
    """The bastion with those of its targets' addresses that the operator allows.

    Raises:
        TargetNotAllowed: a target's port is not allowed, or none of its addresses.
    """
    namespace = bastion.reference.namespace
    networks, ports = allowed.networks_in(namespace), allowed.ports_in(namespace)
    refused = sorted({target.port for target in bastion.targets} - ports)
    if refused:
        raise TargetNotAllowed(
            f"the operator does not allow the port {_listed(refused)} of nodes: add it to targetPorts in the "
            "configuration of the bastion controller"
        )
    inside = [(target, _inside(target, networks)) for target in bastion.targets]
    outside = [address for target, addresses in inside if not addresses for address in target.addresses]
    if outside:
        raise TargetNotAllowed(
            f"the operator does not allow the address {_listed(outside)} of nodes: add a network with it to "
            "targetNetworks in the configuration of the bastion controller"
        )
    left_out = {address for target, addresses in inside for address in target.addresses if address not in addresses}
    kept = tuple(replace(target, addresses=addresses) for target, addresses in inside)
    return Bounded(replace(bastion, targets=kept), tuple(sorted(left_out, key=lambda one: (one.version, int(one)))))


def left_out_message(left_out: tuple[IPAddress, ...]) -> str:
    """What a status says of addresses outside; empty without one."""
    return f"It does not reach {_listed(left_out)}, outside the operator's targetNetworks." if left_out else ""


def parse_target_networks(value: Any) -> tuple[Network, ...]:
    """Read a list of networks in canonical form. An empty one allows no target.

    Raises:
        ValueError: it is none. The message continues a sentence that begins with the list's name.
    """
    if not isinstance(value, list) or len(value) > MAXIMUM_NETWORKS:
        raise ValueError(f"must be a list of at most {MAXIMUM_NETWORKS} networks")
    return tuple(map(_network, value))


def parse_target_ports(value: Any) -> frozenset[int]:
    """Read a list of ports.

    Raises:
        ValueError: it is none. The message continues a sentence that begins with the list's name.
    """
    if not isinstance(value, list) or not 1 <= len(value) <= MAXIMUM_PORTS:
        raise ValueError(f"must be a list of 1 to {MAXIMUM_PORTS} ports")
    if not all(type(one) is int and 1 <= one <= _MAXIMUM_PORT for one in value):
        raise ValueError(f"must hold whole numbers from 1 to {_MAXIMUM_PORT}")
    return frozenset(value)


def _network(value: Any) -> Network:
    form = "must hold networks in canonical form, such as 10.0.1.0/24 or fd00:7::/32"
    if not isinstance(value, str) or len(value) > _MAXIMUM_CHARACTERS:
        raise ValueError(form)
    try:
        network = parse_network(value)
    except SSHRefused:
        raise ValueError(form) from None
    if isinstance(network, ipaddress.IPv6Network) and network.network_address.ipv4_mapped is not None:
        raise ValueError("must hold networks of IPv4 without ::ffff:")
    return network


def _inside(target: Target, networks: tuple[Network, ...]) -> tuple[IPAddress, ...]:
    return tuple(one for one in target.addresses if any(one in network for network in networks))


def _listed(values: list[int] | list[IPAddress] | tuple[IPAddress, ...]) -> str:
    shown = ", ".join(map(str, values[:_SHOWN]))
    return f"{shown} and {len(values) - _SHOWN} more" if len(values) > _SHOWN else shown
