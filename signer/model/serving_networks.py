"""Networks whose addresses nodes may have in serving certificates although no Machine lists them.

Some addresses stand in no Machine: those of a VLAN, an overlay or a floating IP (Cluster API's Hetzner provider, issue
2095). A policy names networks, and the operator's configuration bounds them for each namespace.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any, Final, TypeAlias

IPNetwork: TypeAlias = IPv4Network | IPv6Network

MAXIMUM_NETWORKS: Final = 16
"""In one list."""
_NETWORK: Final = re.compile(r"[0-9a-f.:]{2,39}/[0-9]{1,3}")


class InvalidNetworks(ValueError):
    """A list of networks is invalid. The message continues a sentence that begins with the list's name."""


@dataclass(frozen=True, slots=True)
class OperatorNetworks:
    """The bounds that the operator sets. By default, no policy may name a network."""

    everywhere: tuple[IPNetwork, ...] = ()
    """For the policies of every namespace."""
    by_namespace: Mapping[str, tuple[IPNetwork, ...]] = field(default_factory=dict)
    """Further ones for the policies of one namespace."""

    def allows(self, network: IPNetwork, namespace: str) -> bool:
        """Whether a policy in that namespace may name the network: one of the operator's networks contains it."""
        return any(_contains(own, network) for own in (*self.everywhere, *self.by_namespace.get(namespace, ())))

    def allowed(self, networks: tuple[IPNetwork, ...], namespace: str) -> tuple[IPNetwork, ...]:
        """Those of a policy's networks that the operator allows."""
        return tuple(network for network in networks if self.allows(network, namespace))


NO_NETWORKS: Final = OperatorNetworks()


def parse_networks(value: Any) -> tuple[IPNetwork, ...]:
    """Read a list of networks such as ``10.0.1.0/24``; a missing list is empty.

    Raises:
        InvalidNetworks: it is none, too long, or an item is not the first address of a network and its prefix length.
    """
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MAXIMUM_NETWORKS:
        raise InvalidNetworks(f"must be a list of at most {MAXIMUM_NETWORKS} networks")
    return tuple(map(_network, value))


def _network(value: Any) -> IPNetwork:
    try:
        if isinstance(value, str) and _NETWORK.fullmatch(value):
            return ip_network(value)
    except ValueError:
        pass  # host bits, or a prefix length that is too large
    raise InvalidNetworks("must hold networks such as 10.0.1.0/24: the first address and the prefix length")


def _contains(outer: IPNetwork, inner: IPNetwork) -> bool:
    if isinstance(outer, IPv4Network):
        return isinstance(inner, IPv4Network) and inner.subnet_of(outer)
    return isinstance(inner, IPv6Network) and inner.subnet_of(outer)
