"""From a Machine to the names its node may have.

Nothing of this comes from the node or from the workload cluster: ``status.nodeRef`` is what a kubelet chose.
Providers differ (reference: each infrastructure provider's cloud-init template), so the cluster's policy may choose.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from signer.model.cluster import MACHINE_POOL_KIND, MachineView
from signer.model.decision import Deferred, Refused
from signer.model.policy import NodeNameSource
from signer.model.reasons import Reason

# What a provider's image gives the kubelet as its name, by the provider ID's scheme: an address type of the Machine,
# or the infrastructure machine's name. AWS: private DNS name. Docker: the container's host name. Azure: the VM's name.
_ADDRESS_CONVENTIONS: Final = {"aws": "InternalDNS", "docker": "Hostname"}
_INFRASTRUCTURE_NAME_SCHEMES: Final = frozenset({"azure"})
# For instances of MachinePools, which have neither: the provider ID's last segment. Docker: the container's name.
_LAST_SEGMENT_SCHEMES: Final = frozenset({"docker"})

_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_NODE_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
MAXIMUM_NODE_NAME_CHARACTERS: Final = 253


def is_node_name(text: str) -> bool:
    """Whether ``text`` is a DNS-1123 subdomain, as ``ValidateNodeName`` wants (``pkg/apis/core/validation``)."""
    return len(text) <= MAXIMUM_NODE_NAME_CHARACTERS and _NODE_NAME.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class NodeNames:
    """The names that a Machine's node may have, as far as they are known."""

    names: tuple[str, ...]
    """Never empty."""
    final: bool
    """Whether any other name is wrong for good; else it may still turn out to be right."""


def require_node_name(node_name: str, machine: MachineView, source: NodeNameSource, attested: tuple[str, ...]) -> None:
    """``node_name`` is one that the node of ``machine`` may have.

    Raises:
        Refused: it is another's, or nobody's.
        Deferred: the Machine's names are not known yet.
    """
    known = node_names(machine, source, attested)
    if node_name in known.names:
        return
    if known.final:
        raise Refused(
            Reason.NODE_NAME_MISMATCH,
            f"the request asks for node {node_name}; {machine} is node {' or '.join(known.names)}",
        )
    raise Deferred(
        Reason.MACHINE_ADDRESSES_UNKNOWN,
        f"the request asks for node {node_name}; {machine} has no Hostname address (yet), and its node is "
        f"{' or '.join(known.names)} as long as it has none: where that is wrong, set nodeNameSource in the policy",
    )


def node_names(machine: MachineView, source: NodeNameSource, attested: tuple[str, ...]) -> NodeNames:
    """The names that the node of ``machine`` may have.

    ``attested`` are names that the attestor proved for this machine; with the automatic source they come first.

    Raises:
        Deferred: none is known yet.
    """
    if source is NodeNameSource.PROVIDER_ID:
        return NodeNames((_last_segment(machine),), final=True)
    if source is NodeNameSource.AUTOMATIC:
        proven = tuple(name for name in attested if is_node_name(name))
        return NodeNames(proven, final=True) if proven else _conventional(machine)
    if machine.kind == MACHINE_POOL_KIND:
        raise _instance_without_name(machine)
    if source is NodeNameSource.MACHINE_NAME:
        return NodeNames((machine.name,), final=True)
    if source is NodeNameSource.INFRASTRUCTURE_MACHINE_NAME:
        return NodeNames((_infrastructure_name(machine),), final=True)
    hostnames = _named_addresses(machine, "Hostname")
    # As below: a Hostname may come later, and an InternalDNS that is there first is no ground to deny it.
    return NodeNames(hostnames or _addresses(machine, "InternalDNS"), final=bool(hostnames))


def _conventional(machine: MachineView) -> NodeNames:
    """By the convention of the provider that the provider ID's scheme names."""
    scheme = machine.provider_id.partition("://")[0]
    if machine.kind == MACHINE_POOL_KIND:
        if scheme in _LAST_SEGMENT_SCHEMES:
            return NodeNames((_last_segment(machine),), final=True)
        raise _instance_without_name(machine)
    if scheme in _INFRASTRUCTURE_NAME_SCHEMES:
        return NodeNames((_infrastructure_name(machine),), final=True)
    if scheme in _ADDRESS_CONVENTIONS:
        return NodeNames(_addresses(machine, _ADDRESS_CONVENTIONS[scheme]), final=True)
    if not machine.addresses:
        raise _addresses_unknown(machine)
    hostnames = _named_addresses(machine, "Hostname")
    # Addresses may come in stages, and after `clusterctl move` they come anew. Until there is a Hostname the Machine's
    # own name is a permission, and no ground to deny a node that knows its name earlier than Cluster API does. Nothing
    # says that a Machine has all of its addresses: condition InfrastructureReady comes before the first one.
    return NodeNames(hostnames, final=True) if hostnames else NodeNames((machine.name,), final=False)


def _last_segment(machine: MachineView) -> str:
    """What stands behind the provider ID's last slash, where that is a node name."""
    segment = machine.provider_id.rpartition("/")[2]
    if not is_node_name(segment):
        raise Deferred(
            Reason.MACHINE_ADDRESSES_UNKNOWN,
            f"the last segment of provider ID {machine.provider_id} is no node name: set another nodeNameSource in the "
            "policy, or use an attestor that proves node names",
        )
    return segment


def _instance_without_name(machine: MachineView) -> Deferred:
    return Deferred(
        Reason.MACHINE_ADDRESSES_UNKNOWN,
        f"nothing tells the node name of {machine}, which has no Machine: set nodeNameSource: ProviderID in the policy "
        "where the provider names nodes so, or nodeNameSource: Automatic with an attestor that proves node names",
    )


def _addresses(machine: MachineView, wanted: str) -> tuple[str, ...]:
    names = _named_addresses(machine, wanted)
    if not names:
        raise _addresses_unknown(machine)
    return names


def _named_addresses(machine: MachineView, wanted: str) -> tuple[str, ...]:
    names = (address.address.lower().removesuffix(".") for address in machine.addresses if address.type == wanted)
    return tuple(name for name in dict.fromkeys(names) if is_node_name(name))


def _infrastructure_name(machine: MachineView) -> str:
    if not machine.infrastructure_name:
        raise Deferred(Reason.MACHINE_ADDRESSES_UNKNOWN, f"{machine} has no infrastructureRef yet")
    return machine.infrastructure_name


def _addresses_unknown(machine: MachineView) -> Deferred:
    return Deferred(
        Reason.MACHINE_ADDRESSES_UNKNOWN,
        f"{machine} has no address that gives its node's name yet; the infrastructure provider sets status.addresses",
    )
