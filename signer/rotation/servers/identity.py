"""Which Machine an API server runs on, by the names in its certificate.

kubeadm writes the node's name and its address into the API server's certificate (``cmd/kubeadm/app/util/pkiutil``,
``GetAPIServerAltNames``), besides the names that all API servers of the cluster share. A name that two Machines have
identifies neither, and a certificate with names of two Machines belongs to neither.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from cryptography import x509

from signer.authority.lenient_certificate import CertificateUnreadable, parse_ca_certificate
from signer.model.addresses import Address, UnreadableAddress, canonical
from signer.model.cluster import MachineAddress, MachineView
from signer.rotation.servers.observation import ExpectedServer

MAXIMUM_NAMES: Final = 256
"""In the certificate of an API server. kubeadm writes about eight."""
MAXIMUM_CERTIFICATES: Final = 8
"""In a chain. An API server presents one, its CA, and at most two link certificates."""
MAXIMUM_ASKED_ADDRESSES: Final = 4
"""Of one Machine."""
_INTERNAL_TYPES: Final = frozenset({"InternalIP", "InternalDNS"})
_IP_TYPES: Final = ("InternalIP", "ExternalIP")


class NotIdentified(Exception):
    """The certificate does not show on which Machine the server runs. The message has no text of the certificate."""


@dataclass(frozen=True, slots=True)
class Name:
    """A DNS name in lower case, or an IP address in canonical form. A DNS name that looks like an address is none."""

    kind: type[x509.DNSName] | type[x509.IPAddress]
    text: str


@dataclass(frozen=True, slots=True)
class ServerCertificate:
    """What is read from an API server's own certificate."""

    names: frozenset[Name]
    not_after: datetime
    digest: str
    """SHA-256 of the certificate, in hexadecimal."""


def expected_servers(machines: Iterable[MachineView]) -> tuple[ExpectedServer, ...]:
    """The API servers of a cluster: one on each of its control-plane Machines that is not being deleted, by name.

    ``machines`` are those of one cluster, as the management cluster has them. What the workload cluster says of its
    members is no source: it could leave one out.
    """
    wanted = (machine for machine in machines if machine.control_plane and not machine.deleting)
    return tuple(sorted((_expected(machine) for machine in wanted), key=lambda server: server.machine))


def _expected(machine: MachineView) -> ExpectedServer:
    internal = (_text(one) for one in machine.readable_addresses if one.type in _INTERNAL_TYPES)
    asked = (
        one.reading.text
        for kind in _IP_TYPES
        for one in machine.readable_addresses
        if one.type == kind and isinstance(one.reading, Address)
    )
    return ExpectedServer(
        machine=machine.name,
        node_name=machine.node_ref,
        internal_names=tuple(dict.fromkeys(internal)),
        addresses=tuple(dict.fromkeys(asked))[:MAXIMUM_ASKED_ADDRESSES],
    )


def _text(address: MachineAddress) -> str:
    return "" if isinstance(address.reading, UnreadableAddress) else address.reading.text


def read_server_certificate(chain: tuple[bytes, ...]) -> ServerCertificate:
    """Read the first certificate of a chain (DER), which TLS has verified.

    Raises:
        NotIdentified: the chain or the certificate is not one of an API server.
    """
    if not 1 <= len(chain) <= MAXIMUM_CERTIFICATES:
        raise NotIdentified(f"it presents {len(chain)} certificates, more than the {MAXIMUM_CERTIFICATES} at most")
    try:
        certificate = parse_ca_certificate(chain[0])  # reads any certificate; the caller would check that it is a CA
    except CertificateUnreadable as error:
        raise NotIdentified(f"its certificate {error}") from None
    names: list[Name] = []
    for extension in certificate.extensions:
        if isinstance(extension.value, x509.SubjectAlternativeName):
            alternatives = extension.value
            names += [Name(x509.DNSName, text.lower()) for text in alternatives.get_values_for_type(x509.DNSName)]
            names += [
                Name(x509.IPAddress, canonical(str(address)))
                for address in alternatives.get_values_for_type(x509.IPAddress)
                if isinstance(address, IPv4Address | IPv6Address)
            ]
    if len(names) > MAXIMUM_NAMES:
        raise NotIdentified(f"its certificate has more than {MAXIMUM_NAMES} names")
    return ServerCertificate(frozenset(names), certificate.not_after, hashlib.sha256(chain[0]).hexdigest())


class Identities:
    """The names by which each expected server is known."""

    def __init__(self, expected: Iterable[ExpectedServer], shared: Iterable[str]) -> None:
        """``shared`` are names of the cluster's endpoint. They identify no server, also if one Machine has them among
        its addresses: a virtual address is one of the Machine that holds it at the moment.
        """
        no_identity = {name for text in shared for name in _names_of(text)}
        owners: defaultdict[Name, list[ExpectedServer]] = defaultdict(list)
        for server in expected:
            names = {name for text in server.internal_names for name in _names_of(text)}
            if server.node_name:
                names.add(Name(x509.DNSName, server.node_name.lower()))
            for name in names - no_identity:
                owners[name].append(server)
        self._owner_of = {name: servers[0] for name, servers in owners.items() if len(servers) == 1}

    def server_of(self, certificate: ServerCertificate) -> ExpectedServer:
        """The one server whose names the certificate has.

        Raises:
            NotIdentified: there is none, or there are several.
        """
        owners = {self._owner_of[name] for name in certificate.names if name in self._owner_of}
        if len(owners) > 1:
            machines = ", ".join(sorted(owner.machine for owner in owners)[:2])
            raise NotIdentified(f"its certificate names several control-plane Machines ({machines})")
        if not owners:
            raise NotIdentified("its certificate names none of the expected control-plane Machines alone")
        return owners.pop()


def _names_of(text: str) -> frozenset[Name]:
    """The name that a host, node name or address is in a certificate; none for an empty text."""
    if not text:
        return frozenset()
    written = canonical(text)
    try:
        ip_address(written)
    except ValueError:
        return frozenset({Name(x509.DNSName, written)})
    return frozenset({Name(x509.IPAddress, written)})
