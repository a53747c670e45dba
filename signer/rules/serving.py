"""Checks of serving certificates: their alternative names, and the credential that requested them.

The kubelet serving CA is also the API server's CA. So a certificate with a name of the control plane or of a Service
could impersonate the API server, and one with a name of another node that node's kubelet. A serving certificate never
holds:

==================================  =======================================================================
the control-plane endpoint          DNS name or address, in any spelling
names of the API server             every DNS name and address in the certificates that the API servers show, and in
                                    ``certSANs`` of kubeadm's configuration. The node of a control-plane Machine may
                                    have its own node name and addresses
reserved names                      host labels that the operator reserves, such as ``konnectivity-server``
``kubernetes*``                     every DNS name with this prefix, ``kubernetes-worker-1`` included: a node with
                                    such a name gets a certificate for its addresses only
``localhost``                       also names below it, and as a host label (RFC 6761 section 6.3)
names of Services and Pods          below ``svc``, ``cluster.local`` and the Cluster's own service domain
invalid host names                  wildcards, root dots, IP addresses as DNS names in any spelling
unusable addresses                  loopback, unspecified, "this network", link-local, multicast, broadcast and reserved
addresses of Services               the Cluster's service networks; those that the workload cluster reports wait
IPv4 addresses in IPv6              IPv4-mapped and IPv4-compatible ones always; 6to4, Teredo, NAT64, IPv4-translated
                                    and ISATAP if the embedded IPv4 address is one of these
names of other Machines and nodes   addresses and names of the cluster's other Machines, recorded node names
==================================  =======================================================================

Everything else must belong to the Machine: its node name, ``status.addresses``, a name that the attestor proved, or the
same host in a domain that the policy names. An address may also be in a network that the policy names and the operator
allows. Nothing proves such an address, and no record holds it: several nodes of the cluster may get one and the same.

DNS names are case-insensitive (RFC 4343; RFC 9525 section 6.3). Every check compares lower case, and the certificate
holds the name as requested: a kubelet requests its Node's addresses as they are written there and expects the same
spelling back. vSphere's cloud provider, for example, writes the guest's host name as the guest does. A certificate must
not hold a root dot (RFC 5280 section 4.2.1.6): Go 1.25.2 rejects such a certificate, and the kubelet would be
unreachable (golang/go issue 75828).
"""

from __future__ import annotations

import functools
from datetime import datetime
from ipaddress import IPv4Address, IPv4Network, IPv6Network
from typing import Final, Protocol

from attestors.contract import IPAddress, VerifiedIdentity
from attestors.wire.names import Purpose
from signer.model.addresses import (
    NUMBER,
    Address,
    HostName,
    UnreadableAddress,
    canonical,
    is_ipv4_in_ipv6,
    last_octets,
    read_address,
)
from signer.model.certificates_in_use import CertificatesInUse, certificates_in_use
from signer.model.cluster import DEFAULT_SERVICE_DOMAIN, MACHINE_POOL_KIND, ClusterView, MachineView
from signer.model.decision import Deferred, Refused
from signer.model.policy import Policy
from signer.model.possible_addresses import possible_readings
from signer.model.reasons import Reason
from signer.model.record import KUBELET_CLIENT, AttestedNode
from signer.model.serving_facts import ServingFacts
from signer.model.signing_request import Credential, NoCredentialNamed, OtherCredential
from signer.rules.machine import NoRecord
from signer.rules.node_name import is_node_name, names_in_domains, unreadable_text

MAXIMUM_LABEL_CHARACTERS: Final = 63
"""Maximum length of one label of a DNS name (RFC 1035 section 2.3.4)."""

_SERVICE_DOMAINS: Final = ("svc", DEFAULT_SERVICE_DOMAIN)

_UNUSABLE_NETWORKS: Final = (
    IPv4Network("0.0.0.0/8"),
    IPv4Network("127.0.0.0/8"),
    IPv4Network("169.254.0.0/16"),
    IPv4Network("224.0.0.0/4"),
    IPv4Network("240.0.0.0/4"),
    IPv6Network("fe80::/10"),
    IPv6Network("ff00::/8"),
)
"""Networks of IANA's special-purpose registries in which other hosts can reach no host (RFC 6890).

``::`` and ``::1`` are covered as IPv4-compatible addresses of 0.0.0.0/8.
"""
_TRANSLATED: Final = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"), IPv6Network("::ffff:0:0:0/96"))
"""NAT64 (RFC 6052 section 2.1, RFC 8215) and IPv4-translated addresses (RFC 2765 section 2.1)."""
_OF_THE_API_SERVER: Final = "is a name of the API server, by its certificate or kubeadm's configuration"
_ISATAP: Final = frozenset({0x00005EFE, 0x02005EFE})
"""First half of the interface identifier (RFC 5214 section 6.1)."""


class AlternativeNameFacts(Protocol):
    """The input of the check of alternative names."""

    @property
    def node_name(self) -> str:
        """From the CSR's common name; the checks before have matched it with the Machine."""
        ...

    @property
    def purpose(self) -> Purpose:
        """The certificate's purpose."""
        ...

    @property
    def dns_names(self) -> tuple[str, ...]:
        """The requested DNS names."""
        ...

    @property
    def ip_addresses(self) -> tuple[IPAddress, ...]:
        """The requested IP addresses."""
        ...

    @property
    def cluster(self) -> ClusterView:
        """The cluster."""
        ...

    @property
    def policy(self) -> Policy:
        """The cluster's policy."""
        ...

    @property
    def machine(self) -> MachineView:
        """The Machine that the node was attested to be."""
        ...

    @property
    def proven(self) -> VerifiedIdentity | None:
        """The attestor's outcome; None if it was not called or proved nothing."""
        ...

    @property
    def conflicting_names(self) -> frozenset[str]:
        """Names and addresses of other Machines and nodes of the cluster, as
        :func:`~signer.model.addresses.canonical` writes them.

        It needs to hold only the requested ones; for addresses, their :func:`equivalent_addresses`.
        """
        ...

    @property
    def serving(self) -> ServingFacts:
        """Further facts about the requested names."""
        ...


class CredentialFacts(Protocol):
    """The input of the check of the requester's credential."""

    @property
    def purpose(self) -> Purpose:
        """The certificate's purpose."""
        ...

    @property
    def node_name(self) -> str:
        """From the CSR's common name."""
        ...

    @property
    def credential(self) -> Credential:
        """The requester's credential, as far as the API server names it."""
        ...

    @property
    def record(self) -> AttestedNode | NoRecord:
        """The record under that node name."""
        ...

    @property
    def now(self) -> datetime:
        """The current time."""
        ...


def credential_is_attested(facts: CredentialFacts) -> None:
    """A serving certificate is requested with a client certificate that was issued here to this same identity.

    API servers before 1.32 do not name the certificate. Only then the check is skipped.
    """
    if facts.purpose is not Purpose.SERVING or isinstance(facts.credential, NoCredentialNamed):
        return
    if isinstance(facts.credential, OtherCredential):
        raise Refused(
            Reason.FOREIGN_CREDENTIAL,
            f"spec.extra does not name exactly one client certificate as the credential of node {facts.node_name}",
        )
    if isinstance(facts.record, NoRecord):
        raise Deferred(Reason.NODE_NOT_ATTESTED, f"node {facts.node_name} has no record yet")
    valid = valid_clients(facts.record, facts.now)
    if any(entry.certificate_digest == facts.credential.digest for entry in valid.own):
        return
    message = f"node {facts.node_name} used a client certificate that was not issued to it here"
    if not valid.is_all:
        # The certificate may be one whose entry the journal no longer has: defer, never deny.
        raise Deferred(Reason.NODE_NOT_ATTESTED, f"{message}, as far as the journal goes back")
    raise Refused(Reason.FOREIGN_CREDENTIAL, message)


def valid_clients(record: AttestedNode, now: datetime) -> CertificatesInUse:
    """The client certificates that have not expired: those of the identity, and those of former identities."""
    return certificates_in_use((record,), now, KUBELET_CLIENT)


def alternative_names_are_the_machines(facts: AlternativeNameFacts) -> None:
    """Every DNS name and IP address of a serving certificate belongs to this Machine and to no other."""
    if facts.purpose is not Purpose.SERVING:
        return
    _require_control_plane_known(facts)
    own_names, own_addresses = _own_names(facts)
    derived = names_in_domains((facts.node_name, *sorted(own_names)), facts.policy.node_names.domains)
    for asked in facts.dns_names:
        dns_name = _host_name(asked, facts)
        _require_not_of_the_cluster(dns_name, facts)
        if dns_name in derived:
            _require_own_host(dns_name, facts)
        elif dns_name != facts.node_name and dns_name not in own_names:
            raise _foreign(dns_name, (dns_name,), bool(own_names), facts)
        _require_no_conflict(dns_name, (dns_name,), facts)
    for address in facts.ip_addresses:
        _require_usable(address, facts)
        written = tuple(str(equivalent) for equivalent in equivalent_addresses(address))
        if str(address) in own_addresses:
            _require_no_conflict(str(address), written, facts)
        elif _is_in_policys_network(address, written, facts):
            _require_endpoint_known(address, facts)
            _require_no_possible_conflict(str(address), written, facts)
        else:
            any_of_its_family = any((":" in own) == (address.version == 6) for own in own_addresses)
            raise _foreign(str(address), written, any_of_its_family, facts)
        _require_no_reported_service(address, facts)


def _host_name(asked: str, facts: AlternativeNameFacts) -> str:
    """``asked`` in lower case, if it is a valid host name.

    It must be ASCII: Unicode lower-cases the Kelvin sign to k, and no resolver does.
    """
    dns_name = asked.lower()
    labels = dns_name.split(".")
    if (
        not asked.isascii()
        or not is_node_name(dns_name)
        or any(len(label) > MAXIMUM_LABEL_CHARACTERS for label in labels)
        or NUMBER.fullmatch(labels[-1])
    ):
        raise _refused(asked, facts, "is not a host name (no wildcard, no root dot, no IP address)")
    return dns_name


def _require_not_of_the_cluster(dns_name: str, facts: AlternativeNameFacts) -> None:
    labels = dns_name.split(".")
    if dns_name.startswith("kubernetes"):
        raise _refused(dns_name, facts, "begins with kubernetes, as the API server's own names do")
    if "localhost" in (labels[0], labels[-1]):
        raise _refused(dns_name, facts, "is a localhost name, which every host has")
    for domain in (*_SERVICE_DOMAINS, facts.cluster.service_domain):
        if dns_name == domain or dns_name.endswith(f".{domain}"):
            raise _refused(dns_name, facts, f"is in the domain {domain} of the cluster's Services")
    if dns_name in _control_plane_names(facts):
        raise _refused(dns_name, facts, "is the control-plane endpoint")
    if dns_name in facts.serving.reserved_names:
        raise _refused(dns_name, facts, "has a host label that the operator reserves: servingAddresses.reservedNames")
    if dns_name in facts.serving.control_plane_names and not _is_control_planes_own(dns_name, facts):
        raise _refused(dns_name, facts, _OF_THE_API_SERVER)


def _require_usable(address: IPAddress, facts: AlternativeNameFacts) -> None:
    for equivalent in equivalent_addresses(address):
        if _is_special_purpose(equivalent):
            raise _refused(str(address), facts, "is a special-purpose address that identifies no single host")
        if any(equivalent in network for network in facts.cluster.service_networks):
            raise _refused(str(address), facts, "is an address of the cluster's Services")
        if str(equivalent) in _control_plane_names(facts):
            raise _refused(str(address), facts, "is the control-plane endpoint")
        if str(equivalent) in facts.serving.control_plane_names and not _is_control_planes_own(str(address), facts):
            raise _refused(str(address), facts, _OF_THE_API_SERVER)
    if is_ipv4_in_ipv6(address):
        raise _refused(str(address), facts, "is an IPv4 address written as IPv6")


def _require_control_plane_known(facts: AlternativeNameFacts) -> None:
    """The names of the API server are known: any name may be one of them otherwise."""
    if facts.serving.control_plane_unknown:
        raise Deferred(
            Reason.CONTROL_PLANE_NAMES_UNKNOWN,
            f"the alternative names of node {facts.node_name} may be the API server's: "
            f"{facts.serving.control_plane_unknown}",
        )


def _is_control_planes_own(name: str, facts: AlternativeNameFacts) -> bool:
    """Whether the node of a control-plane Machine may have the name although the API server has it, too.

    kubeadm writes the node name and the address of each control-plane node into the certificate of its API server.
    Other names that the platform reports, such as a load balancer's, are not the node's own.
    """
    if not facts.machine.control_plane:
        return False
    proven = facts.proven.dns_names if facts.proven is not None else ()
    _, own_addresses = _own_names(facts)
    return name in {facts.node_name, *map(canonical, proven), *own_addresses}


@functools.lru_cache(maxsize=4096)  # of a node, at each of its requests
def _is_special_purpose(address: IPAddress) -> bool:
    return any(address in network for network in _UNUSABLE_NETWORKS)


def _control_plane_names(facts: AlternativeNameFacts) -> frozenset[str]:
    """Every reading of the host of the control-plane endpoint."""
    return _readings_of(facts.cluster.control_plane_host)


@functools.lru_cache(maxsize=256)  # compared with every alternative name
def _readings_of(host: str) -> frozenset[str]:
    read = read_address(host, "")
    if isinstance(read, UnreadableAddress):
        return frozenset({canonical(host), *possible_readings(host, "")})
    return frozenset({read.text})


def _foreign(
    name: str, written: tuple[str, ...], any_of_its_kind: bool, facts: AlternativeNameFacts
) -> Refused | Deferred:
    """The error for a name that is not the Machine's, or not yet.

    Addresses come in stages: names before addresses, and IPv4 before IPv6. So the request is deferred while the Machine
    has no address of that kind and no other has the name, or while it has no addresses at all, as after a move. It is
    also deferred while the Machine has an address that cannot be read: that one may be the name.
    """
    unreadable = unreadable_text(facts.machine)
    if unreadable:
        return Deferred(
            Reason.MACHINE_ADDRESSES_UNKNOWN,
            f"alternative name {name} is not known to belong to {facts.machine}{unreadable}",
        )
    if any(name == str(address) and _is_in_forbidden_network(address, facts) for address in facts.ip_addresses):
        return Deferred(
            Reason.MACHINE_ADDRESSES_UNKNOWN,
            f"alternative name {name} does not belong to {facts.machine}, and is in a network of the policy that the "
            "operator does not allow: see condition ServingNetworksAllowed",
        )
    if facts.machine.addresses and (any_of_its_kind or not facts.conflicting_names.isdisjoint(written)):
        return _refused(name, facts, f"does not belong to {facts.machine}")
    if facts.machine.kind == MACHINE_POOL_KIND:
        return Deferred(
            Reason.MACHINE_ADDRESSES_UNKNOWN,
            f"alternative name {name}: {facts.machine} has no Machine, so its addresses are unknown: let the node's "
            "agent request the certificate through an attestor that proves addresses, or request the node name alone",
        )
    lacking = "no address of that kind (yet)" if facts.machine.addresses else "no addresses (yet)"
    return Deferred(
        Reason.MACHINE_ADDRESSES_UNKNOWN,
        f"alternative name {name}: {facts.machine} has {lacking}; the infrastructure provider sets status.addresses",
    )


def _require_no_conflict(name: str, written: tuple[str, ...], facts: AlternativeNameFacts) -> None:
    """No other Machine or node has the name too. Wrong data can be corrected, so this defers and never denies."""
    if not facts.conflicting_names.isdisjoint(written):
        raise Deferred(
            Reason.MACHINE_AMBIGUOUS,
            f"alternative name {name} belongs to {facts.machine}, and to another Machine or node of the cluster too",
        )
    _require_no_possible_conflict(name, written, facts)


def _require_no_possible_conflict(name: str, written: tuple[str, ...], facts: AlternativeNameFacts) -> None:
    if not facts.serving.possibly_conflicting_names.isdisjoint(written):
        raise Deferred(
            Reason.MACHINE_AMBIGUOUS,
            f"alternative name {name} may be an address of another Machine, which cannot be read: the policy's "
            "condition MachineAddressesReadable names it",
        )


def _is_in_policys_network(address: IPAddress, written: tuple[str, ...], facts: AlternativeNameFacts) -> bool:
    """Whether the policy lets nodes have the address. An address of another Machine it does not."""
    return any(address in network for network in facts.serving.networks) and facts.conflicting_names.isdisjoint(written)


def _is_in_forbidden_network(address: IPAddress, facts: AlternativeNameFacts) -> bool:
    """Whether the address is in a network of the policy that the operator may yet allow."""
    return any(address in network for network in facts.policy.serving_networks if network not in facts.serving.networks)


def _require_endpoint_known(address: IPAddress, facts: AlternativeNameFacts) -> None:
    """The Cluster has a control-plane endpoint: until then, an address of a network may become its address."""
    if not facts.cluster.control_plane_host:
        raise Deferred(
            Reason.MACHINE_ADDRESSES_UNKNOWN,
            f"alternative name {address} is in a network of the policy, and Cluster {facts.cluster.key} has no "
            "control-plane endpoint yet, which must be another address",
        )


def _require_no_reported_service(address: IPAddress, facts: AlternativeNameFacts) -> None:
    """It is no address of a Service that the Cluster does not state (:mod:`signer.model.service_networks`)."""
    reported, stated = facts.serving.reported_services, facts.cluster.service_networks
    remedy = f"state them in spec.clusterNetwork.services.cidrBlocks of Cluster {facts.cluster.key}"
    equivalents = equivalent_addresses(address)
    for network in reported.networks:
        if any(equivalent in network for equivalent in equivalents):
            raise Deferred(
                Reason.SERVICE_NETWORKS_UNKNOWN,
                f"alternative name {address} is in {network}, which has, or may have, addresses of Services, as the "
                "workload cluster reports: correct the node's address; or, if the networks of Services are others, "
                f"{remedy}",
            )
    unknown = {equivalent.version for equivalent in equivalents} - reported.known_versions
    if unknown and not stated:
        raise Deferred(
            Reason.SERVICE_NETWORKS_UNKNOWN,
            f"alternative name {address} may be an address of the cluster's Services, whose IPv{min(unknown)} networks "
            f"are unknown: {remedy}, or let the controller read ServiceCIDRs and Service default/kubernetes of the "
            "workload cluster",
        )


def _require_own_host(name: str, facts: AlternativeNameFacts) -> None:
    """No other Machine has the host of a name that is only derived: that Machine may have the name in the same way."""
    if name in facts.serving.names_of_shared_hosts:
        raise Deferred(
            Reason.MACHINE_AMBIGUOUS,
            f"alternative name {name} belongs to {facts.machine} by a domain of the policy, and another Machine of the "
            "cluster has the same host",
        )


def _own_names(facts: AlternativeNameFacts) -> tuple[frozenset[str], frozenset[str]]:
    """The DNS names, without the node name, and the IP addresses of the Machine and of the attestor's outcome."""
    readings = [own.reading for own in facts.machine.addresses]
    if facts.proven is not None:
        readings += [read_address(name, "") for name in facts.proven.dns_names]
        readings += [Address(str(address)) for address in facts.proven.ip_addresses]
    return (
        frozenset(one.text for one in readings if isinstance(one, HostName)),
        frozenset(one.text for one in readings if isinstance(one, Address)),
    )


def _refused(name: str, facts: AlternativeNameFacts, why: str) -> Refused:
    return Refused(Reason.INVALID_SUBJECT_ALTERNATIVE_NAMES, f"alternative name {name} of node {facts.node_name} {why}")


def equivalent_addresses(address: IPAddress) -> tuple[IPAddress, ...]:
    """The address itself, and the IPv4 addresses embedded in it, to which packets may be delivered."""
    if isinstance(address, IPv4Address):
        return (address,)
    equivalent: list[IPAddress] = [address]
    if is_ipv4_in_ipv6(address) or any(address in network for network in _TRANSLATED):
        equivalent.append(last_octets(address))
    if address.sixtofour is not None:
        equivalent.append(address.sixtofour)
    if address.teredo is not None:
        equivalent.extend(address.teredo)
    if int(address) >> 32 & 0xFFFFFFFF in _ISATAP:
        equivalent.append(last_octets(address))
    return tuple(equivalent)
