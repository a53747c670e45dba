"""What the status of a grant with certificates says about the ways to its targets. Pure."""

from __future__ import annotations

from typing import Any, Final

from signer.access.containers.nodes import NodeHint, RunsOn
from signer.access.parts import IssuanceFacts, NoBastion, ReadyBastion, TargetNode
from signer.access.targets import bastion_known_hosts, gateway_known_hosts
from signer.configuration import GatewayAddress, NamedGateway
from signer.model.access import Container

MAXIMUM_SHOWN_TARGETS: Final = 64
WITHOUT_WAYS: Final[dict[str, Any]] = {
    "certificates": [],
    "knownHosts": [],
    "ingress": None,
    "gateway": None,
    "containerNode": None,
}
"""Of a grant that has ended."""


def ways_of(facts: IssuanceFacts, hosts: tuple[str, ...], named: NamedGateway, hint: NodeHint) -> dict[str, Any]:
    """Addresses and host keys. ``hosts`` are the ``known_hosts`` lines of the Cluster's nodes.

    The node of the hint counts only if it is an attested one of the grant, whose address the Machine has. It comes
    first, so that it is among those that are shown.
    """
    nodes, hinted = facts.targets.nodes, tuple(one for one in facts.targets.nodes if hint == RunsOn(one.node))
    shown = (*hinted, *(one for one in nodes if one not in hinted))[:MAXIMUM_SHOWN_TARGETS]
    lines, bastion = hosts, facts.bastion
    ingress: dict[str, Any] | None = None
    if isinstance(bastion, ReadyBastion):
        ingress = dict(bastion.ingress)
        lines = (*lines, *bastion_known_hosts(facts.grant, bastion))
    gateway: dict[str, Any] | None = None
    is_through_gateway = isinstance(facts.grant.target, Container) and isinstance(bastion, NoBastion)
    if isinstance(named, GatewayAddress) and is_through_gateway:
        gateway = {"host": str(named.host), "port": named.port}
        lines = (*lines, *gateway_known_hosts(facts.grant, named))
    return {
        "targets": [_target(one) for one in shown],
        "containerNode": hinted[0].node if hinted else None,
        "ingress": ingress,
        "gateway": gateway,
        "knownHosts": list(lines),
    }


def _target(node: TargetNode) -> dict[str, Any]:
    return {"node": node.node, "addresses": list(node.addresses), "port": node.port}


__all__ = ["MAXIMUM_SHOWN_TARGETS", "WITHOUT_WAYS", "ways_of"]
