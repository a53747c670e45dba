"""Checks of serving certificates: whose names and addresses, and asked for with whose credential.

The kubelet serving CA is the API server's CA too, so a name of the control plane or of a Service would make a false
API server, and a name of another node a false kubelet. What a serving certificate may never hold:

==================================  =======================================================================
the control-plane endpoint          DNS name or address, however it is written
``kubernetes*``                     every DNS name that begins so, ``kubernetes-worker-1`` included: a node with
                                    such a name serves without its name, by its addresses
``localhost``                       also below it and as a top-level domain (RFC 6761 section 6.3)
names of Services and Pods          below ``svc``, ``cluster.local`` and the Cluster's own service domain
what is no host's name              wildcards, root dots, IP addresses in any of their spellings
addresses of nobody                 loopback, unspecified, "this network", link-local, multicast, broadcast and reserved
addresses of Services               the Cluster's service networks
addresses inside addresses          IPv4-mapped and IPv4-compatible ones always; 6to4, Teredo, NAT64, IPv4-translated
                                    and ISATAP where the IPv4 address inside is one of these
what belongs to others              addresses and names of the cluster's other Machines, recorded node names
==================================  =======================================================================

Everything else must be the Machine's own: its node name, ``status.addresses``, or the attestor's own answer.

Upper case is no difference between DNS names (RFC 4343; RFC 9525 section 6.3): every check looks at a name in lower
case, and the certificate holds it as it was asked for. A kubelet asks for what its Node's addresses are, as they are
written there, and wants exactly that back: vSphere's cloud provider writes the guest's host name as the guest does. A
root dot has no place in a certificate (RFC 5280 section 4.2.1.6), and Go 1.25.2 did not read one with it: a kubelet
that got one could not be reached (golang/go issue 75828).
"""

from __future__ import annotations

import re
from datetime import datetime
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final, Protocol

from attestors.contract import IPAddress, VerifiedIdentity
from attestors.wire.names import Purpose
from signer.model.certificates_in_use import CertificatesInUse, certificates_in_use
from signer.model.cluster import DEFAULT_SERVICE_DOMAIN, MACHINE_POOL_KIND, ClusterView, MachineView
from signer.model.decision import Deferred, Refused
from signer.model.reasons import Reason
from signer.model.record import KUBELET_CLIENT, AttestedNode
from signer.model.signing_request import Credential, NoCredentialNamed, OtherCredential
from signer.rules.machine import NoRecord
from signer.rules.node_name import is_node_name

MAXIMUM_LABEL_CHARACTERS: Final = 63
"""Of one label of a DNS name (RFC 1035 section 2.3.4)."""

_SERVICE_DOMAINS: Final = ("svc", DEFAULT_SERVICE_DOMAIN)
# A host whose last label is a number is an IPv4 address to resolvers (WHATWG URL, "ends in a number"; inet_aton).
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_CHARACTERS_OF_ADDRESSES: Final = re.compile(r"[0-9a-f.:]+")

_NOBODYS_NETWORKS: Final = (
    IPv4Network("0.0.0.0/8"),
    IPv4Network("127.0.0.0/8"),
    IPv4Network("169.254.0.0/16"),
    IPv4Network("224.0.0.0/4"),
    IPv4Network("240.0.0.0/4"),
    IPv6Network("fe80::/10"),
    IPv6Network("ff00::/8"),
)
"""IANA's special-purpose registries, as far as no host can be reached there by others (RFC 6890).

``::`` and ``::1`` are among them as IPv4-compatible addresses of 0.0.0.0/8.
"""
_SPELLINGS_OF_IPV4: Final = (IPv6Network("::ffff:0:0/96"), IPv6Network("::/96"))
"""IPv4-mapped and the deprecated IPv4-compatible addresses (RFC 4291 section 2.5.5): IPv4 in other words."""
_TRANSLATED: Final = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"), IPv6Network("::ffff:0:0:0/96"))
"""By NAT64 (RFC 6052 section 2.1, RFC 8215), and IPv4-translated addresses (RFC 2765 section 2.1)."""
_ISATAP: Final = frozenset({0x00005EFE, 0x02005EFE})
"""First half of the interface identifier (RFC 5214 section 6.1)."""


class AlternativeNameFacts(Protocol):
    """What the check of alternative names looks at."""

    @property
    def node_name(self) -> str:
        """From the CSR's common name, and the Machine's."""
        ...

    @property
    def purpose(self) -> Purpose:
        """What the certificate is for."""
        ...

    @property
    def dns_names(self) -> tuple[str, ...]:
        """That are asked for."""
        ...

    @property
    def ip_addresses(self) -> tuple[IPAddress, ...]:
        """That are asked for."""
        ...

    @property
    def cluster(self) -> ClusterView:
        """The cluster."""
        ...

    @property
    def machine(self) -> MachineView:
        """The Machine that the node was attested to be."""
        ...

    @property
    def proven(self) -> VerifiedIdentity | None:
        """What the attestor vouches for; None when it was not asked, or proved nothing."""
        ...

    @property
    def conflicting_names(self) -> frozenset[str]:
        """Names and addresses of other Machines and nodes of the cluster, each as :func:`canonical` writes it.

        Those are enough that are asked for; of addresses, their :func:`faces`.
        """
        ...


class CredentialFacts(Protocol):
    """What the check of the requester's credential looks at."""

    @property
    def purpose(self) -> Purpose:
        """What the certificate is for."""
        ...

    @property
    def node_name(self) -> str:
        """From the CSR's common name."""
        ...

    @property
    def credential(self) -> Credential:
        """What the requester authenticated with, as far as the API server says."""
        ...

    @property
    def record(self) -> AttestedNode | NoRecord:
        """What is recorded under that node name."""
        ...

    @property
    def now(self) -> datetime:
        """The time."""
        ...


def credential_is_attested(facts: CredentialFacts) -> None:
    """Who asks for a serving certificate uses a client certificate that we issued to this very identity.

    API servers before 1.32 do not say which certificate that is, and only then it is not asked.
    """
    if facts.purpose is not Purpose.SERVING or isinstance(facts.credential, NoCredentialNamed):
        return
    if isinstance(facts.credential, OtherCredential):
        raise Refused(
            Reason.FOREIGN_CREDENTIAL,
            f"node {facts.node_name} did not ask with one client certificate, as far as spec.extra says",
        )
    if isinstance(facts.record, NoRecord):
        raise Deferred(Reason.NODE_NOT_ATTESTED, f"nothing is recorded of node {facts.node_name} yet")
    valid = valid_clients(facts.record, facts.now)
    if any(entry.certificate_digest == facts.credential.digest for entry in valid.own):
        return
    message = f"node {facts.node_name} asked with a client certificate that is none of those it was issued here"
    if not valid.is_all:
        # It may be one that the answer does not name. What cannot be told is no ground to deny.
        raise Deferred(Reason.NODE_NOT_ATTESTED, f"{message}, as far as the journal goes back")
    raise Refused(Reason.FOREIGN_CREDENTIAL, message)


def valid_clients(record: AttestedNode, now: datetime) -> CertificatesInUse:
    """The client certificates that have not run out: the identity's own, and former ones'."""
    return certificates_in_use((record,), now, KUBELET_CLIENT)


def alternative_names_are_the_machines(facts: AlternativeNameFacts) -> None:
    """Every DNS name and address of a serving certificate belongs to this Machine, and none to anybody else."""
    if facts.purpose is not Purpose.SERVING:
        return
    own_names, own_addresses = _own_dns_names(facts), _own_ip_addresses(facts)
    for asked in facts.dns_names:
        dns_name = _host_name(asked, facts)
        _require_not_of_the_cluster(dns_name, facts)
        if dns_name != facts.node_name and dns_name not in own_names:
            raise _foreign(dns_name, (dns_name,), bool(own_names), facts)
        _require_nobody_elses(dns_name, (dns_name,), facts)
    for address in facts.ip_addresses:
        _require_usable(address, facts)
        written = tuple(str(face) for face in faces(address))
        if address not in own_addresses:
            any_of_its_family = any(own.version == address.version for own in own_addresses)
            raise _foreign(str(address), written, any_of_its_family, facts)
        _require_nobody_elses(str(address), written, facts)


def _host_name(asked: str, facts: AlternativeNameFacts) -> str:
    """``asked`` in lower case, where it is a host's name.

    In ASCII alone: a Kelvin sign is a k in lower case, to Unicode and to no resolver.
    """
    dns_name = asked.lower()
    labels = dns_name.split(".")
    if (
        not asked.isascii()
        or not is_node_name(dns_name)
        or any(len(label) > MAXIMUM_LABEL_CHARACTERS for label in labels)
        or _NUMBER.fullmatch(labels[-1])
    ):
        raise _refused(asked, facts, "is no host's name (no wildcard, no root dot, no IP address)")
    return dns_name


def _require_not_of_the_cluster(dns_name: str, facts: AlternativeNameFacts) -> None:
    labels = dns_name.split(".")
    if dns_name.startswith("kubernetes"):
        raise _refused(dns_name, facts, "begins with kubernetes, as the API server's own names do")
    if "localhost" in (labels[0], labels[-1]):
        raise _refused(dns_name, facts, "is a name of every host")
    for domain in (*_SERVICE_DOMAINS, facts.cluster.service_domain):
        if dns_name == domain or dns_name.endswith(f".{domain}"):
            raise _refused(dns_name, facts, f"is in the domain {domain} of the cluster's Services")
    if dns_name == canonical(facts.cluster.control_plane_host):
        raise _refused(dns_name, facts, "is the control-plane endpoint")


def _require_usable(address: IPAddress, facts: AlternativeNameFacts) -> None:
    for face in faces(address):
        if any(face in network for network in _NOBODYS_NETWORKS):
            raise _refused(str(address), facts, "is an address of no host, or of every host")
        if any(face in network for network in facts.cluster.service_networks):
            raise _refused(str(address), facts, "is an address of the cluster's Services")
        if str(face) == canonical(facts.cluster.control_plane_host):
            raise _refused(str(address), facts, "is the control-plane endpoint")
    if _is_spelling(address):
        raise _refused(str(address), facts, "is an IPv4 address in the form of IPv6")


def _foreign(
    name: str, written: tuple[str, ...], any_of_its_kind: bool, facts: AlternativeNameFacts
) -> Refused | Deferred:
    """Not the Machine's, or not yet: addresses come in stages, names before addresses and IPv4 before IPv6.

    So what the Machine shows none of may still come, where it is nobody else's. One without any lacks them all, as
    after a move.
    """
    if facts.machine.addresses and (any_of_its_kind or not facts.conflicting_names.isdisjoint(written)):
        return _refused(name, facts, f"does not belong to {facts.machine}")
    if facts.machine.kind == MACHINE_POOL_KIND:
        return Deferred(
            Reason.MACHINE_ADDRESSES_UNKNOWN,
            f"alternative name {name}: a MachinePool shows no addresses, and no Machine stands for {facts.machine}: "
            "let the node's agent ask, through an attestor that proves addresses, or ask for the node name alone",
        )
    lacking = "no address of that kind (yet)" if facts.machine.addresses else "no addresses (yet)"
    return Deferred(
        Reason.MACHINE_ADDRESSES_UNKNOWN,
        f"alternative name {name}: {facts.machine} has {lacking}; the infrastructure provider sets status.addresses",
    )


def _require_nobody_elses(name: str, written: tuple[str, ...], facts: AlternativeNameFacts) -> None:
    """Both have it, as the platform says: whichever is wrong, the data can be put right, so this is no denial."""
    if not facts.conflicting_names.isdisjoint(written):
        raise Deferred(
            Reason.MACHINE_AMBIGUOUS,
            f"alternative name {name} belongs to {facts.machine}, and to another Machine or node of the cluster too",
        )


def _own_dns_names(facts: AlternativeNameFacts) -> frozenset[str]:
    """Those that platform or attestor name; the node name is the node's own besides."""
    proven = facts.proven.dns_names if facts.proven is not None else ()
    platform = (own.address for own in facts.machine.addresses)
    names = (_address(name) for name in (*platform, *proven))
    return frozenset(name for name in names if isinstance(name, str))


def _own_ip_addresses(facts: AlternativeNameFacts) -> frozenset[IPAddress]:
    proven = facts.proven.ip_addresses if facts.proven is not None else ()
    own = (_meant(own.address) for own in facts.machine.addresses)
    return frozenset({*(address for address in own if not isinstance(address, str)), *proven})


def _refused(name: str, facts: AlternativeNameFacts, why: str) -> Refused:
    return Refused(Reason.INVALID_SUBJECT_ALTERNATIVE_NAMES, f"alternative name {name} of node {facts.node_name} {why}")


def canonical(text: str) -> str:
    """The one spelling of a DNS name or IP address: lower case, no root dot, no zone, IPv4 as IPv4.

    Two texts that mean the same name or address give the same result.
    """
    return str(_meant(text))


def _meant(text: str) -> IPAddress | str:
    address = _address(text)
    if isinstance(address, IPv6Address) and _is_spelling(address):
        return _last_octets(address)
    return address


def faces(address: IPAddress) -> tuple[IPAddress, ...]:
    """The address itself, and the IPv4 addresses that packets to it may end at."""
    if isinstance(address, IPv4Address):
        return (address,)
    inside: list[IPAddress] = [address]
    if _is_spelling(address) or any(address in network for network in _TRANSLATED):
        inside.append(_last_octets(address))
    if address.sixtofour is not None:
        inside.append(address.sixtofour)
    if address.teredo is not None:
        inside.extend(address.teredo)
    if int(address) >> 32 & 0xFFFFFFFF in _ISATAP:
        inside.append(_last_octets(address))
    return tuple(inside)


def _last_octets(address: IPv6Address) -> IPv4Address:
    return IPv4Address(int(address) & 0xFFFFFFFF)


def _is_spelling(address: IPAddress) -> bool:
    return any(address in network for network in _SPELLINGS_OF_IPV4)


def _address(text: str) -> IPAddress | str:
    """The IP address that ``text`` is, or else the DNS name, lower case without its root dot."""
    name = text.lower().removesuffix(".")
    without_zone = name.partition("%")[0]
    if not _CHARACTERS_OF_ADDRESSES.fullmatch(without_zone):
        return name  # most are names, and the library takes ten times as long to say so
    try:
        return ip_address(without_zone)
    except ValueError:
        return name
