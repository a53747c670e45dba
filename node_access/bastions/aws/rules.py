"""Rules of security groups, as sets: what is too much, and what is missing."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from node_access.bastions.contract import IPAddress, Network


@dataclass(frozen=True, slots=True, order=True)
class Rule:
    """One rule: a protocol, a range of ports, and one source or destination."""

    protocol: str
    """``tcp``; ``-1`` for all."""
    first: int
    last: int
    peer: str
    """A network, the ID of a group, or that of a prefix list."""

    def permission(self) -> dict[str, Any]:
        """As EC2's ``IpPermission``."""
        stated: dict[str, Any] = {"IpProtocol": self.protocol}
        if self.protocol != "-1":
            stated |= {"FromPort": self.first, "ToPort": self.last}
        if self.peer.startswith("sg-"):
            return stated | {"UserIdGroupPairs": [{"GroupId": self.peer}]}
        if self.peer.startswith("pl-"):
            return stated | {"PrefixListIds": [{"PrefixListId": self.peer}]}
        if ":" in self.peer:
            return stated | {"Ipv6Ranges": [{"CidrIpv6": self.peer}]}
        return stated | {"IpRanges": [{"CidrIp": self.peer}]}


def rules_of(permissions: Iterable[Mapping[str, Any]]) -> frozenset[Rule]:
    """The rules that EC2 describes."""
    found: set[Rule] = set()
    for one in permissions:
        peers = [
            *(entry["CidrIp"] for entry in one.get("IpRanges", ())),
            *(entry["CidrIpv6"] for entry in one.get("Ipv6Ranges", ())),
            *(entry["GroupId"] for entry in one.get("UserIdGroupPairs", ())),
            *(entry["PrefixListId"] for entry in one.get("PrefixListIds", ())),
        ]
        ports = one.get("FromPort", -1), one.get("ToPort", -1)
        found |= {Rule(one["IpProtocol"], *ports, peer) for peer in peers}
    return frozenset(found)


def from_networks(networks: Iterable[Network], port: int) -> frozenset[Rule]:
    """TCP from these networks to one port."""
    return frozenset(Rule("tcp", port, port, str(network)) for network in networks)


def to_destinations(destinations: Iterable[tuple[IPAddress, int]]) -> frozenset[Rule]:
    """TCP to these addresses, each with its port."""
    return frozenset(Rule("tcp", port, port, str(ipaddress.ip_network(address))) for address, port in destinations)
