"""From a Machine to the names its node may have.

Nothing of this comes from the node or from the workload cluster: ``status.nodeRef`` is what a kubelet chose.
Providers differ (reference: each infrastructure provider's cloud-init template), so the cluster's policy may choose.
"""

from __future__ import annotations

import enum
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

# An instance of a scale set whose orchestration mode is Uniform: its number is decimal. It is called by the scale set's
# prefix for computer names, which Cluster API's Azure provider makes the scale set's own name, and by its number to the
# base 36 in six digits (Azure, "Understand names and instance IDs for Azure Virtual Machine Scale Set VMs").
_SCALE_SET_INSTANCE: Final = re.compile(
    r"azure://.*/(?i:virtualMachineScaleSets)/([-.a-zA-Z0-9]+)/(?i:virtualMachines)/(0|[1-9][0-9]{0,9})"
)
_BASE_36: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_BASE_36_DIGITS: Final = 6

# What a host calls itself before anybody has given it a name, as an inspected one does: "localhost.localdomain".
_NAMES_OF_EVERY_HOST: Final = frozenset({"localhost", "localhost4", "localhost6"})

_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_NODE_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
MAXIMUM_NODE_NAME_CHARACTERS: Final = 253


def is_node_name(text: str) -> bool:
    """Whether ``text`` is a DNS-1123 subdomain, as ``ValidateNodeName`` wants (``pkg/apis/core/validation``)."""
    return len(text) <= MAXIMUM_NODE_NAME_CHARACTERS and _NODE_NAME.fullmatch(text) is not None


class OtherNames(enum.Enum):
    """Whether a name that is not among a Machine's may still turn out to be right."""

    WRONG = enum.auto()
    """For good: the names were proven or chosen, or are what the platform shows."""
    UNKNOWN = enum.auto()
    """The names are a guess, until the Machine shows a Hostname address."""
    WRONG_BUT_FOR_THE_DOMAIN = enum.auto()
    """The same host may be called so in another domain: the Machine's InternalDNS addresses decide."""


@dataclass(frozen=True, slots=True)
class NodeNames:
    """The names that a Machine's node may have, as far as they are known."""

    names: tuple[str, ...]
    """Never empty."""
    others: OtherNames


def require_node_name(node_name: str, machine: MachineView, source: NodeNameSource, attested: tuple[str, ...]) -> None:
    """``node_name`` is one that the node of ``machine`` may have.

    Raises:
        Refused: it is another's, or nobody's.
        Deferred: the Machine's names are not known yet.
    """
    known = node_names(machine, source, attested)
    if node_name in known.names:
        return
    asked, names = f"the request asks for node {node_name}", " or ".join(known.names)
    if known.others is OtherNames.UNKNOWN:
        raise Deferred(
            Reason.MACHINE_ADDRESSES_UNKNOWN,
            f"{asked}; {machine} has no Hostname address (yet) that names a host, and its node is {names} as long as "
            "it has none: where that is wrong, set nodeNameSource in the policy",
        )
    if known.others is OtherNames.WRONG_BUT_FOR_THE_DOMAIN and _host(node_name) in map(_host, known.names):
        raise Deferred(
            Reason.MACHINE_ADDRESSES_UNKNOWN,
            f"{asked}; {machine} is node {names}, and the same host in another domain once the Machine shows that name "
            "as an InternalDNS address: from v2.4 on, Cluster API's AWS provider writes one with the domain of the "
            "VPC's DHCP options",
        )
    mend = " (where that is wrong, set another in the policy)" if source is NodeNameSource.AUTOMATIC else ""
    raise Refused(
        Reason.NODE_NAME_MISMATCH, f"{asked}; {machine} is node {names} by nodeNameSource {source.value}{mend}"
    )


def node_names(machine: MachineView, source: NodeNameSource, attested: tuple[str, ...]) -> NodeNames:
    """The names that the node of ``machine`` may have.

    ``attested`` are names that the attestor proved for this machine; with the automatic source they come first.

    Raises:
        Deferred: none is known yet.
    """
    if source is NodeNameSource.PROVIDER_ID:
        return NodeNames((_last_segment(machine),), OtherNames.WRONG)
    if source is NodeNameSource.AUTOMATIC:
        proven = tuple(name for name in attested if is_node_name(name))
        return _proven(machine, proven) if proven else _conventional(machine)
    if machine.kind == MACHINE_POOL_KIND:
        raise _instance_without_name(machine)
    if source is NodeNameSource.MACHINE_NAME:
        return NodeNames((machine.name,), OtherNames.WRONG)
    if source is NodeNameSource.INFRASTRUCTURE_MACHINE_NAME:
        return NodeNames((_infrastructure_name(machine),), OtherNames.WRONG)
    hostnames = _named_addresses(machine, "Hostname")
    # As below: a Hostname may come later, and an InternalDNS that is there first is no ground to deny it.
    if hostnames:
        return NodeNames(hostnames, OtherNames.WRONG)
    return NodeNames(_addresses(machine, "InternalDNS"), OtherNames.UNKNOWN)


def _proven(machine: MachineView, proven: tuple[str, ...]) -> NodeNames:
    """What the attestor proved, and where nodes are called by their InternalDNS, the same host in other domains.

    An instance of a MachinePool has no addresses; a Machine that shows some may come to stand for it.
    """
    if not _domain_may_differ(machine):
        return NodeNames(proven, OtherNames.WRONG)
    hosts = frozenset(map(_host, proven))
    elsewhere = (name for name in _named_addresses(machine, "InternalDNS") if _host(name) in hosts)
    return NodeNames(tuple(dict.fromkeys((*proven, *elsewhere))), OtherNames.WRONG_BUT_FOR_THE_DOMAIN)


def _domain_may_differ(machine: MachineView) -> bool:
    """Whether the Machine may show another domain's name for the same host, beside or after that of the platform's own.

    AWS: EC2 says the name in its own domain, also where DHCP options give the VPC another, by which the node is called.
    Cluster API's provider then shows both. It leaves out the second when it could not look the domain up, and older
    ones always do: so a list without it is no ground to deny.
    """
    return _ADDRESS_CONVENTIONS.get(_scheme(machine)) == "InternalDNS"


def _conventional(machine: MachineView) -> NodeNames:
    """By the convention of the provider that the provider ID's scheme names."""
    scheme = _scheme(machine)
    if machine.kind == MACHINE_POOL_KIND:
        return _instance(machine)
    if scheme in _ADDRESS_CONVENTIONS:
        others = OtherNames.WRONG_BUT_FOR_THE_DOMAIN if _domain_may_differ(machine) else OtherNames.WRONG
        return NodeNames(_addresses(machine, _ADDRESS_CONVENTIONS[scheme]), others)
    if scheme in _INFRASTRUCTURE_NAME_SCHEMES and not machine.of_a_pool:
        return NodeNames((_infrastructure_name(machine),), OtherNames.WRONG)
    hostnames = _named_addresses(machine, "Hostname")
    if hostnames:
        return NodeNames(hostnames, OtherNames.WRONG)
    # Addresses may come in stages, and after `clusterctl move` they come anew. Until there is a Hostname a guess is a
    # permission, and no ground to deny a node that knows its name earlier than Cluster API does. Nothing says that a
    # Machine has all of its addresses: condition InfrastructureReady comes before the first one.
    return NodeNames(_guessed(machine), OtherNames.UNKNOWN)


def _guessed(machine: MachineView) -> tuple[str, ...]:
    """For a Machine that shows no host name."""
    if _scheme(machine) in _INFRASTRUCTURE_NAME_SCHEMES:
        return scale_set_names(machine.provider_id) or (_infrastructure_name(machine),)
    if all(_is_of_every_host(_canonical(address.address)) for address in machine.addresses):
        raise _addresses_unknown(machine)
    return (machine.name,)


def _instance(machine: MachineView) -> NodeNames:
    """Of an instance of a MachinePool, of which only its provider ID says anything, until a Machine stands for it."""
    if _scheme(machine) in _LAST_SEGMENT_SCHEMES:
        return NodeNames((_last_segment(machine),), OtherNames.WRONG)
    names = scale_set_names(machine.provider_id)
    if not names:
        raise _instance_without_name(machine)
    # A guess, as it is for its Machine, which may come later: that a scale set calls its instances by its own name is
    # Cluster API's choice.
    return NodeNames(names, OtherNames.UNKNOWN)


def scale_set_names(provider_id: str) -> tuple[str, ...]:
    """What Azure calls the instance of a Uniform scale set; empty where the provider ID is of nothing such."""
    found = _SCALE_SET_INSTANCE.fullmatch(provider_id)
    if found is None:
        return ()
    number, digits = int(found[2]), ""
    for _ in range(_BASE_36_DIGITS):
        number, digit = divmod(number, len(_BASE_36))
        digits = f"{_BASE_36[digit]}{digits}"
    name = f"{found[1].lower()}{digits}"
    return (name,) if not number and is_node_name(name) else ()


def _scheme(machine: MachineView) -> str:
    return machine.provider_id.partition("://")[0]


def _host(node_name: str) -> str:
    return node_name.partition(".")[0]


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
    names = (_canonical(address.address) for address in machine.addresses if address.type == wanted)
    return tuple(name for name in dict.fromkeys(names) if is_node_name(name) and not _is_of_every_host(name))


def _canonical(address: str) -> str:
    return address.lower().removesuffix(".")


def _is_of_every_host(name: str) -> bool:
    labels = name.split(".")
    return labels[0] in _NAMES_OF_EVERY_HOST or labels[-1] == "localhost"


def _infrastructure_name(machine: MachineView) -> str:
    if not machine.infrastructure_name:
        raise Deferred(Reason.MACHINE_ADDRESSES_UNKNOWN, f"{machine} has no infrastructureRef yet")
    return machine.infrastructure_name


def _addresses_unknown(machine: MachineView) -> Deferred:
    return Deferred(
        Reason.MACHINE_ADDRESSES_UNKNOWN,
        f"{machine} has no address that gives its node's name yet; the infrastructure provider sets status.addresses",
    )
