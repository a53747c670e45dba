"""From a Machine to the names its node may have.

Nothing of this comes from the node or from the workload cluster: ``status.nodeRef`` is what a kubelet chose.
Providers differ (reference: each infrastructure provider's cloud-init template), so the cluster's policy may choose.
"""

from __future__ import annotations

import re
from typing import Final

from signer.model.cluster import MachineView
from signer.model.decision import Deferred
from signer.model.policy import NodeNameSource
from signer.model.reasons import Reason

# What a provider's image gives the kubelet as its name, by the provider ID's scheme: an address type of the Machine,
# or the infrastructure machine's name. AWS: private DNS name. Docker: the container's host name. Azure: the VM's name.
_ADDRESS_CONVENTIONS: Final = {"aws": "InternalDNS", "docker": "Hostname"}
_INFRASTRUCTURE_NAME_SCHEMES: Final = frozenset({"azure"})

_NODE_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?")
MAXIMUM_NODE_NAME_CHARACTERS: Final = 253


def is_node_name(text: str) -> bool:
    """Whether ``text`` is a DNS-1123 subdomain, as ``ValidateNodeName`` wants (``pkg/apis/core/validation``)."""
    return (
        len(text) <= MAXIMUM_NODE_NAME_CHARACTERS
        and _NODE_NAME.fullmatch(text) is not None
        and all(label and not label.startswith("-") and not label.endswith("-") for label in text.split("."))
    )


def node_names(machine: MachineView, source: NodeNameSource, attested: tuple[str, ...]) -> tuple[str, ...]:
    """The names that the node of ``machine`` may have; never empty.

    ``attested`` are names that the attestor proved for this machine; with the automatic source they come first.

    Raises:
        Deferred: the addresses are not known yet.
    """
    if source is NodeNameSource.MACHINE_NAME:
        return (machine.name,)
    if source is NodeNameSource.INFRASTRUCTURE_MACHINE_NAME:
        return (_infrastructure_name(machine),)
    if source is NodeNameSource.MACHINE_ADDRESS:
        return _addresses(machine, ("Hostname", "InternalDNS"))
    proven = tuple(name for name in attested if is_node_name(name))
    if proven:
        return proven
    scheme = machine.provider_id.partition("://")[0]
    if scheme in _INFRASTRUCTURE_NAME_SCHEMES:
        return (_infrastructure_name(machine),)
    if scheme in _ADDRESS_CONVENTIONS:
        return _addresses(machine, (_ADDRESS_CONVENTIONS[scheme],))
    if not machine.addresses:
        raise _addresses_unknown(machine)
    hostnames = _named_addresses(machine, ("Hostname",))
    return hostnames or (machine.name,)


def _addresses(machine: MachineView, types: tuple[str, ...]) -> tuple[str, ...]:
    names = _named_addresses(machine, types)
    if not names:
        raise _addresses_unknown(machine)
    return names


def _named_addresses(machine: MachineView, types: tuple[str, ...]) -> tuple[str, ...]:
    for wanted in types:
        names = tuple(
            address.address.lower().removesuffix(".") for address in machine.addresses if address.type == wanted
        )
        names = tuple(name for name in dict.fromkeys(names) if is_node_name(name))
        if names:
            return names
    return ()


def _infrastructure_name(machine: MachineView) -> str:
    if not machine.infrastructure_name:
        raise Deferred(Reason.MACHINE_ADDRESSES_UNKNOWN, f"{machine} has no infrastructureRef yet")
    return machine.infrastructure_name


def _addresses_unknown(machine: MachineView) -> Deferred:
    return Deferred(
        Reason.MACHINE_ADDRESSES_UNKNOWN,
        f"{machine} has no address that gives its node's name yet; the infrastructure provider sets status.addresses",
    )
