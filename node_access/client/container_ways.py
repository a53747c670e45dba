"""Which way a command takes to a container: through the gateway, or to the sshd of its node. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, TypeAlias

from attestors.wire.ssh.principals import HostName
from node_access.client.container_files import (
    NO_GATEWAY,
    ContainerAccess,
    GatewayHop,
    NodeUnknown,
)
from node_access.client.errors import ClientFailed, WrongUse
from node_access.client.grants import NodeTarget, NoGateway
from node_access.client.words import node_name

_SHOWN: Final = 8


class Via(enum.Enum):
    """The two ways."""

    GATEWAY = "gateway"
    NODE = "node"


@dataclass(frozen=True, slots=True)
class AsGranted:
    """The gateway, if the grant's status names one; else the node."""


@dataclass(frozen=True, slots=True)
class OnNamedNode:
    """On the node that the person names."""

    node: HostName


WayChoice: TypeAlias = Via | OnNamedNode | AsGranted


@dataclass(frozen=True, slots=True)
class ThroughGateway:
    """ssh's destination, and what the person reads."""

    alias: str
    where: str


@dataclass(frozen=True, slots=True)
class OnNode:
    """The same; the sshd there forwards no ports."""

    alias: str
    where: str


ChosenWay: TypeAlias = ThroughGateway | OnNode


def way_choice(via: str, node: str) -> WayChoice:
    """What ``--via`` and ``--node`` say; both may be empty.

    Raises:
        WrongUse: they contradict each other, or the node's name is none.
    """
    if not node:
        return Via(via) if via else AsGranted()
    if via == Via.GATEWAY.value:
        raise WrongUse("--node is a node, and --via gateway goes to none: leave one of them out")
    return OnNamedNode(node_name(node))


def chosen_way(access: ContainerAccess, choice: WayChoice) -> ChosenWay:
    """The way that a command takes.

    Raises:
        ClientFailed: the grant does not open it; the message says what does.
    """
    match choice, access.gateway:
        case ((AsGranted() | Via.GATEWAY), GatewayHop(where)):
            return ThroughGateway(access.alias, f"through the gateway {where.address} port {where.port}")
        case Via.GATEWAY, NoGateway():
            raise ClientFailed(f"{NO_GATEWAY}; --via node goes to the node")
    if not access.nodes:
        raise ClientFailed(f"no node opens it: {access.why_no_node}; --via gateway goes through the gateway")
    found = _named(access, choice.node) if isinstance(choice, OnNamedNode) else access.runs_on
    if isinstance(found, NodeUnknown):
        raise ClientFailed(
            "it is not known on which node the Pod runs: name it by --node, as kubectl get pod -o wide shows it in the "
            "workload cluster"
        )
    return OnNode(access.node_alias(found.node), f"on node {found.node}, port {found.port}")


def _named(access: ContainerAccess, node: HostName) -> NodeTarget:
    for one in access.nodes:
        if one.node == node:
            return one
    names = [str(one.node) for one in access.nodes]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    raise ClientFailed(f"the grant's status names no node {node}; it has {', '.join(names[:_SHOWN])}{more}")


def nodes_in_use(access: ContainerAccess, aliases: tuple[str, ...]) -> tuple[HostName, ...]:
    """The nodes on which sessions may run: those of ``aliases``, and the usual one where there is no gateway."""
    usual = access.usual_way
    return tuple(one.node for one in access.nodes if one == usual or access.node_alias(one.node) in aliases)
