"""The names that a Machine's node may have.

They do not come from the node or the workload cluster: ``status.nodeRef`` holds the name that a kubelet chose.
Providers differ (see each infrastructure provider's cloud-init template), so the cluster's policy can set the sources,
and the domains that the same host may have.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from signer.model.addresses import EMPTY, Address, UnreadableAddress, is_subdomain, read_address
from signer.model.cluster import MACHINE_POOL_KIND, MachineAddress, MachineView, NoInfrastructure
from signer.model.decision import Deferred, Refused
from signer.model.policy import NodeNameRules, NodeNameSource
from signer.model.reasons import Reason

# By the provider ID's scheme, the name that a provider's image gives the kubelet: an address type of the Machine, or
# the infrastructure machine's name. AWS: private DNS name. Docker: the container's host name. Azure: the VM's name.
_ADDRESS_CONVENTIONS: Final = {"aws": "InternalDNS", "docker": "Hostname"}
_INFRASTRUCTURE_NAME_SCHEMES: Final = frozenset({"azure"})
# Instances of MachinePools have neither. Docker: the provider ID's last segment is the container's name.
_LAST_SEGMENT_SCHEMES: Final = frozenset({"docker"})

# An instance of an Azure scale set with orchestration mode Uniform, whose number in the provider ID is decimal. Its
# computer name is the scale set's prefix, for which Cluster API's Azure provider takes the scale set's name, and its
# number in base 36, six digits (Azure, "Understand names and instance IDs for Azure Virtual Machine Scale Set VMs").
_SCALE_SET_INSTANCE: Final = re.compile(
    r"azure://.*/(?i:virtualMachineScaleSets)/([-.a-zA-Z0-9]+)/(?i:virtualMachines)/(0|[1-9][0-9]{0,9})"
)
_BASE_36: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_BASE_36_DIGITS: Final = 6

# BYOH writes no addresses. Its Nodes are called like their ByoHosts (cluster-api-provider-bringyourownhost v0.5.0,
# controllers/infrastructure/byomachine_controller.go, setNodeProviderID).
_BYOH_HOST: Final = re.compile(r"byoh://([^/]+)/[^/]+")

# Hetzner's bare metal servers. The provider names the host after its InfraMachine, or, if an annotation asks for
# constant names, after the Cluster and the server's number (cluster-api-provider-hetzner, pkg/scope/baremetalhost.go,
# Hostname). The Machine's Hostname address lacks the prefix.
_HETZNER_BARE_METAL_KIND: Final = "HetznerBareMetalMachine"
_HETZNER_BARE_METAL_PREFIX: Final = "bm-"
_HETZNER_BARE_METAL_SERVER: Final = re.compile(r"(?:hrobot://|hcloud://bm-)([0-9]{1,19})")

# A host without a configured name reports one of these, for example during inspection: "localhost.localdomain".
_NAMES_OF_EVERY_HOST: Final = frozenset({"localhost", "localhost4", "localhost6"})
_MOST_SHOWN: Final = 3
_MOST_NAMES: Final = 6


def unreadable_text(machine: MachineView) -> str:
    """The end of a message: which addresses of the Machine cannot be read, and why; empty if all can."""
    unreadable = machine.unreadable_addresses
    if not unreadable:
        return ""
    more = f", and {len(unreadable) - _MOST_SHOWN} more" if len(unreadable) > _MOST_SHOWN else ""
    return f". Addresses that cannot be read: {', '.join(unreadable[:_MOST_SHOWN])}{more}"


def is_node_name(text: str) -> bool:
    """Whether ``text`` is a DNS-1123 subdomain, as ``ValidateNodeName`` requires (``pkg/apis/core/validation``)."""
    return is_subdomain(text)


class OtherNames(enum.Enum):
    """Whether a name that is not among a Machine's names may still turn out to be right."""

    WRONG = enum.auto()
    """No: the names were proven or configured, or the platform reports them."""
    UNKNOWN = enum.auto()
    """Yes: the names are a guess until the Machine has a Hostname address."""
    WRONG_EXCEPT_DOMAIN = enum.auto()
    """Only the same host name in another domain: the Machine's InternalDNS addresses decide."""


_EXCEPT_DOMAIN: Final = OtherNames.WRONG_EXCEPT_DOMAIN


@dataclass(frozen=True, slots=True)
class NodeNames:
    """The names that a Machine's node may have by one source, as far as they are known."""

    names: tuple[str, ...]
    """Never empty."""
    others: OtherNames


@dataclass(frozen=True, slots=True)
class PossibleNames:
    """The names that a Machine's node may have by all rules of a policy, as far as they are known."""

    by_source: Mapping[NodeNameSource, NodeNames]
    """The sources that have names; never empty."""
    unknown: tuple[Deferred, ...]
    """Why the other sources have none yet."""
    derived: Mapping[str, str]
    """The names in the policy's domains, and the name from which each is derived."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all sources."""
        return tuple(dict.fromkeys(name for known in self.by_source.values() for name in known.names))

    def __contains__(self, node_name: str) -> bool:
        return node_name in self.derived or any(node_name in known.names for known in self.by_source.values())

    def __str__(self) -> str:
        several = len(self.by_source) + len(self.unknown) > 1
        shown = [
            f"{name} ({source.value})" if several else name
            for source, known in self.by_source.items()
            for name in known.names
        ]
        shown += [f"{name} (as {derived_from}, by domain)" for name, derived_from in self.derived.items()]
        more = f" or one of {len(shown) - _MOST_NAMES} more" if len(shown) > _MOST_NAMES else ""
        return " or ".join(shown[:_MOST_NAMES]) + more


def require_node_name(node_name: str, machine: MachineView, rules: NodeNameRules, attested: tuple[str, ...]) -> None:
    """``node_name`` is one that the node of ``machine`` may have.

    Raises:
        Refused: it is not.
        Deferred: the Machine's names are not known yet.
    """
    known = possible_names(machine, rules, attested)
    if node_name in known:
        return
    asked = f"the request is for node {node_name}"
    if any(one.others is OtherNames.UNKNOWN for one in known.by_source.values()):
        raise Deferred(
            Reason.MACHINE_ADDRESSES_UNKNOWN,
            f"{asked}; {machine} has no usable Hostname address (yet), and until it has one its node is {known}: "
            f"if that is wrong, set nodeNames in the policy{unreadable_text(machine)}",
        )
    for unknown in known.unknown:
        raise Deferred(
            Reason.MACHINE_ADDRESSES_UNKNOWN, f"{asked}; {machine} is node {known} so far; {unknown.defer.message}"
        )
    others = {_host(name) for one in known.by_source.values() for name in one.names if one.others is _EXCEPT_DOMAIN}
    if _host(node_name) in others:
        raise Deferred(
            Reason.MACHINE_ADDRESSES_UNKNOWN,
            f"{asked}; {machine} is node {known}: another domain is accepted once the Machine has that name as an "
            "InternalDNS address, or nodeNames.domains of the policy names the domain; from v2.4 on, Cluster API's AWS "
            "provider writes an address with the domain of the VPC's DHCP options",
        )
    raise Refused(
        Reason.NODE_NAME_MISMATCH, f"{asked}; {machine} is node {known} by nodeNames {rules}{_hint(node_name, known)}"
    )


def _hint(node_name: str, known: PossibleNames) -> str:
    """What to change in the policy if the name is right."""
    if _host(node_name) in map(_host, known.names):
        return " (if the node may have both names, add the domain to nodeNames.domains in the policy)"
    if NodeNameSource.AUTOMATIC in known.by_source:
        return " (if that is wrong, set other sources in the policy)"
    return ""


def possible_names(machine: MachineView, rules: NodeNameRules, attested: tuple[str, ...]) -> PossibleNames:
    """The names that the node of ``machine`` may have.

    ``attested`` are names that the attestor proved for this machine. The automatic source prefers them.

    Raises:
        Deferred: none is known yet.
    """
    by_source: dict[NodeNameSource, NodeNames] = {}
    unknown: list[Deferred] = []
    for source in rules.sources:
        try:
            by_source[source] = node_names(machine, source, attested)
        except Deferred as error:
            unknown.append(error)
    if not by_source:
        raise unknown[0]
    names = tuple(name for known in by_source.values() for name in known.names)
    return PossibleNames(by_source, tuple(unknown), names_in_domains(names, rules.domains))


def names_in_domains(names: Iterable[str], domains: tuple[str, ...]) -> Mapping[str, str]:
    """The names that the same hosts have by the policy's domains, without ``names`` themselves, and from which each is.

    An IP address has no host and no domain, even where it is a node's name.
    """
    given = tuple(dict.fromkeys(names)) if domains else ()
    derived: dict[str, str] = {}
    for name in given:
        if isinstance(read_address(name, ""), Address):
            continue
        host, _, own = name.partition(".")
        for other in (*((host,) if own in domains else ()), *(f"{host}.{domain}" for domain in domains)):
            if other not in given and is_node_name(other) and not _is_of_every_host(other):
                derived.setdefault(other, name)
    return derived


def is_derived(node_name: str, machine: MachineView, rules: NodeNameRules, attested: tuple[str, ...]) -> bool:
    """Whether the node has the name only by a domain of the policy."""
    if not rules.domains:
        return False
    try:
        known = possible_names(machine, rules, attested)
    except Deferred:
        return False
    return node_name in known.derived and node_name not in known.names


def node_names(machine: MachineView, source: NodeNameSource, attested: tuple[str, ...]) -> NodeNames:
    """The names by one source.

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
    # A Hostname may come later, so an InternalDNS that comes first is no reason to deny another name.
    if hostnames:
        return NodeNames(hostnames, OtherNames.WRONG)
    return NodeNames(_addresses(machine, "InternalDNS"), OtherNames.UNKNOWN)


def _proven(machine: MachineView, proven: tuple[str, ...]) -> NodeNames:
    """The names that the attestor proved, and with InternalDNS names, the same host in the Machine's other domains.

    An instance of a MachinePool has no addresses; a Machine with addresses may replace it later.
    """
    if not _domain_may_differ(machine):
        return NodeNames(proven, OtherNames.WRONG)
    hosts = frozenset(map(_host, proven))
    elsewhere = (name for name in _named_addresses(machine, "InternalDNS") if _host(name) in hosts)
    return NodeNames(tuple(dict.fromkeys((*proven, *elsewhere))), OtherNames.WRONG_EXCEPT_DOMAIN)


def _domain_may_differ(machine: MachineView) -> bool:
    """Whether the Machine may have a name in another domain for the same host, besides the platform's own.

    EC2 reports the name in its own domain, even if DHCP options give the VPC another, which the node's name then has.
    Cluster API's AWS provider then lists both. It omits the second if it could not look up the domain, and older
    versions always omit it. So a list without the name is no reason to deny it.
    """
    return _ADDRESS_CONVENTIONS.get(_scheme(machine)) == "InternalDNS"


def _conventional(machine: MachineView) -> NodeNames:
    """The names by the convention of the infrastructure provider that the provider ID's scheme names."""
    scheme = _scheme(machine)
    if machine.kind == MACHINE_POOL_KIND:
        return _instance(machine)
    if bare_metal := hetzner_bare_metal_names(machine):
        # The name with the server's number is known once the Machine shows its provider ID, which has the number.
        return NodeNames(bare_metal, OtherNames.WRONG if machine.provider_id else OtherNames.UNKNOWN)
    if scheme in _ADDRESS_CONVENTIONS:
        others = OtherNames.WRONG_EXCEPT_DOMAIN if _domain_may_differ(machine) else OtherNames.WRONG
        return NodeNames(_addresses(machine, _ADDRESS_CONVENTIONS[scheme]), others)
    if scheme in _INFRASTRUCTURE_NAME_SCHEMES and not machine.of_a_pool:
        return NodeNames((_infrastructure_name(machine),), OtherNames.WRONG)
    hostnames = _named_addresses(machine, "Hostname")
    if hostnames:
        return NodeNames(hostnames, OtherNames.WRONG)
    # Addresses come in stages, and again after `clusterctl move`. Until there is a Hostname, the guess is allowed, but
    # no other is denied: a node may know its name before Cluster API does. No condition says that a Machine has all
    # of its addresses: InfrastructureReady comes before the first one.
    return NodeNames(_guessed(machine), OtherNames.UNKNOWN)


def _guessed(machine: MachineView) -> tuple[str, ...]:
    """The names of a Machine without a usable Hostname address."""
    if _scheme(machine) in _INFRASTRUCTURE_NAME_SCHEMES:
        return scale_set_names(machine.provider_id) or (_infrastructure_name(machine),)
    if not any(map(_may_be_its_own, machine.addresses)):
        raise _addresses_unknown(machine)
    return (machine.name,)


def _instance(machine: MachineView) -> NodeNames:
    """The names of an instance of a MachinePool, which has nothing but a provider ID until it has a Machine."""
    if _scheme(machine) in _LAST_SEGMENT_SCHEMES:
        return NodeNames((_last_segment(machine),), OtherNames.WRONG)
    names = scale_set_names(machine.provider_id)
    if not names:
        raise _instance_without_name(machine)
    # A guess, as for its Machine, which may come later: that a scale set's name is its prefix for computer names is
    # Cluster API's choice.
    return NodeNames(names, OtherNames.UNKNOWN)


def scale_set_names(provider_id: str) -> tuple[str, ...]:
    """The computer name of an instance of a Uniform scale set in Azure; empty for any other provider ID."""
    found = _SCALE_SET_INSTANCE.fullmatch(provider_id)
    if found is None:
        return ()
    number, digits = int(found[2]), ""
    for _ in range(_BASE_36_DIGITS):
        number, digit = divmod(number, len(_BASE_36))
        digits = f"{_BASE_36[digit]}{digits}"
    name = f"{found[1].lower()}{digits}"
    return (name,) if not number and is_node_name(name) else ()


def hetzner_bare_metal_names(machine: MachineView) -> tuple[str, ...]:
    """The host names of one of Hetzner's bare metal servers; empty for any other Machine."""
    infrastructure = machine.infrastructure
    if isinstance(infrastructure, NoInfrastructure) or infrastructure.kind != _HETZNER_BARE_METAL_KIND:
        return ()
    found = _HETZNER_BARE_METAL_SERVER.fullmatch(machine.provider_id)
    constant = () if found is None else (f"{machine.cluster.name}-{found[1]}",)
    names = (f"{_HETZNER_BARE_METAL_PREFIX}{name}" for name in (infrastructure.name, *constant))
    return tuple(name for name in names if is_node_name(name))


def _scheme(machine: MachineView) -> str:
    """The provider ID's scheme; empty without one."""
    scheme, separator, _ = machine.provider_id.partition("://")
    return scheme if separator else ""


def _host(node_name: str) -> str:
    return node_name.partition(".")[0]


def _last_segment(machine: MachineView) -> str:
    """The part of the provider ID after its last slash.

    Raises:
        Deferred: it is not a node name.
    """
    segment = machine.provider_id.rpartition("/")[2]
    if not is_node_name(segment):
        raise Deferred(
            Reason.MACHINE_ADDRESSES_UNKNOWN,
            f"the last segment of provider ID {machine.provider_id} is not a node name: set other nodeNames.sources in "
            "the policy, or use an attestor that proves node names",
        )
    return segment


def _instance_without_name(machine: MachineView) -> Deferred:
    return Deferred(
        Reason.MACHINE_ADDRESSES_UNKNOWN,
        f"the node name of {machine} is unknown, because it has no Machine: add ProviderID to nodeNames.sources in the "
        "policy if the provider names nodes so, or Automatic with an attestor that proves node names",
    )


def _addresses(machine: MachineView, wanted: str) -> tuple[str, ...]:
    names = _named_addresses(machine, wanted)
    if not names:
        raise _addresses_unknown(machine)
    return names


def _named_addresses(machine: MachineView, wanted: str) -> tuple[str, ...]:
    readings = (address.reading for address in machine.addresses if address.type == wanted)
    names = (reading.text for reading in readings if not isinstance(reading, UnreadableAddress))
    return tuple(name for name in dict.fromkeys(names) if is_node_name(name) and not _is_of_every_host(name))


def _may_be_its_own(address: MachineAddress) -> bool:
    """Whether the platform has an address of this Machine alone, even if it cannot be read."""
    reading = address.reading
    if isinstance(reading, UnreadableAddress):
        return reading.why != EMPTY
    return not _is_of_every_host(reading.text)


def _is_of_every_host(name: str) -> bool:
    labels = name.split(".")
    return labels[0] in _NAMES_OF_EVERY_HOST or labels[-1] == "localhost"


def _infrastructure_name(machine: MachineView) -> str:
    if not machine.infrastructure_name:
        raise Deferred(Reason.MACHINE_ADDRESSES_UNKNOWN, f"{machine} has no infrastructureRef yet")
    return machine.infrastructure_name


def byoh_host_names(provider_id: str) -> tuple[str, ...]:
    """The name of the ByoHost in a provider ID of BYOH, which its Node has too; empty for any other provider ID."""
    found = _BYOH_HOST.fullmatch(provider_id)
    return (found[1],) if found is not None and is_node_name(found[1]) else ()


def _addresses_unknown(machine: MachineView) -> Deferred:
    if byoh_host_names(machine.provider_id or machine.claimed_provider_id):
        return Deferred(
            Reason.MACHINE_ADDRESSES_UNKNOWN,
            f"{machine} has no addresses with BYOH, and its node is called like its host: use source Automatic of "
            "nodeNames, and the attestor tpm with an inventory that has a line for the host",
        )
    return Deferred(
        Reason.MACHINE_ADDRESSES_UNKNOWN,
        f"{machine} has no address that gives its node's name yet; the infrastructure provider sets status.addresses"
        f"{unreadable_text(machine)}",
    )
