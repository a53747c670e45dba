"""What a stock ``ssh`` needs to reach a cluster's nodes: ``known_hosts`` and ``ssh_config``. Pure.

Each cluster has files of its own: clusters share names of nodes and addresses, and a host authority counts for the one
cluster alone. Names and addresses come from objects that tenants and nodes influence. They are parsed into types
without spaces, quotes, control characters, globs and ``%``, so no line can hold another directive (ssh_config(5),
PATTERNS and TOKENS; sshd(8), SSH_KNOWN_HOSTS FILE FORMAT).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from attestors.wire.node_access import MAXIMUM_HOST_AUTHORITIES
from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.key_line import key_line, parse_key_line
from attestors.wire.ssh.keys import HostKey, host_key
from attestors.wire.ssh.principals import HostAddress, HostName
from signer.model.addresses import ADDRESS_TYPES, Address
from signer.model.addresses import HostName as NamedHost
from signer.model.cluster import MACHINE_KIND, ClusterKey, MachineView
from signer.model.fields import items_of, mapping_of, text_of
from signer.model.host_keys import AttestedHostKeys
from signer.model.record import AttestedNode, MachineKey

_WORD: Final = re.compile(r"[A-Za-z0-9._/@+=,:~ -]+", re.ASCII)
_JUMP_PART: Final = re.compile(
    r"(?:[a-z0-9_][A-Za-z0-9._-]{0,63}@)?"
    r"(?:[A-Za-z0-9][A-Za-z0-9.-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\])"
    r"(?::[0-9]{1,5})?",
    re.ASCII,
)
_MAXIMUM_JUMPS: Final = 8
_LOGIN: Final = re.compile(r"[a-z_][a-z0-9._-]{0,31}", re.ASCII)
_PORTS: Final = range(1, 65536)
_CA_ALGORITHMS: Final = "ssh-ed25519,ecdsa-sha2-nistp384"
"""Those of the authorities that the controller makes or accepts."""


class ClientFilesRefused(ValueError):
    """An argument, or what the management cluster says, cannot stand in a file of ``ssh``. The message says which."""


NodeAddress: TypeAlias = HostAddress | HostName


@dataclass(frozen=True, slots=True)
class ReachableNode:
    """A node that a host certificate can name."""

    name: HostName
    address: NodeAddress
    """Where to connect to. It proves nothing: the certificate must have the node's full name."""
    host_keys: tuple[HostKey, ...] = ()
    """Those of its last attested request; none if it never had a host certificate."""


@dataclass(frozen=True, slots=True)
class LeftOutNode:
    """A node or Machine that the files do not have."""

    name: str
    """Not bounded and not printable: from an object."""
    why: str


@dataclass(frozen=True, slots=True)
class ClusterHosts:
    """The hosts of one cluster, and who certifies them."""

    cluster: ClusterKey
    authorities: tuple[HostKey, ...]
    nodes: tuple[ReachableNode, ...] = ()
    left_out: tuple[LeftOutNode, ...] = ()

    def full_name(self, node: ReachableNode) -> str:
        """The name in the node's host certificate that no node of another cluster has."""
        return f"{node.name}.{_suffix(self.cluster)}"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """What the administrator chooses.

    Raises:
        ClientFilesRefused: a value that could be read as more than one word, or as an option.
    """

    port: int = 22
    login: str = "root"
    jump_host: str = ""
    """As ``ProxyJump`` has it; empty for none."""
    identity_file: str = ""
    """Empty for ssh's own choice."""

    def __post_init__(self) -> None:
        if self.port not in _PORTS:
            raise ClientFilesRefused("a port is a number from 1 to 65535")
        if _LOGIN.fullmatch(self.login) is None:
            raise ClientFilesRefused(f"{self.login[:64]!a} is no login: lower-case letters, digits, '.', '_' and '-'")
        jumps = self.jump_host.split(",") if self.jump_host else []
        if len(jumps) > _MAXIMUM_JUMPS or any(_JUMP_PART.fullmatch(jump) is None for jump in jumps):
            raise ClientFilesRefused(
                f"{self.jump_host[:256]!a} is no jump host: write [LOGIN@]HOST[:PORT], and several with commas"
            )
        if self.identity_file:
            check_path(self.identity_file)


def check_path(path: str) -> str:
    """A file's name that ssh takes as it is: without quotes, and without what ``ssh_config`` expands.

    Raises:
        ClientFilesRefused: it has another character.
    """
    if _WORD.fullmatch(path) is None or path != path.strip(" ") or path.startswith("-"):
        raise ClientFilesRefused(
            f"{path[:256]!a} cannot stand in ssh_config: its characters are letters, digits, spaces and ._/@+=,:~-"
        )
    return path


def host_authorities(policy: Mapping[str, Any]) -> tuple[HostKey, ...]:
    """The host authorities that a policy's ``status.ssh`` shows; none while it shows none.

    Raises:
        ClientFilesRefused: an entry is no public key, or there are too many.
    """
    shown = items_of(mapping_of(mapping_of(policy, "status"), "ssh"), "hostAuthorities")
    if len(shown) > MAXIMUM_HOST_AUTHORITIES:
        raise ClientFilesRefused(f"status.ssh.hostAuthorities has more than {MAXIMUM_HOST_AUTHORITIES} entries")
    try:
        return tuple(
            host_key(parse_key_line(text_of(one if isinstance(one, Mapping) else {}, "publicKey"))) for one in shown
        )
    except SSHRefused as error:
        raise ClientFilesRefused(f"status.ssh.hostAuthorities: {error}") from None


def cluster_hosts(
    cluster: ClusterKey,
    authorities: tuple[HostKey, ...],
    records: Iterable[AttestedNode],
    machines: Iterable[MachineView],
    address_types: Sequence[str] = ADDRESS_TYPES,
) -> ClusterHosts:
    """The cluster's attested nodes whose Machines exist, and what is left out. Sorted by name.

    ``records`` and ``machines`` may be of other clusters, too.
    """
    of_cluster = [one for one in machines if one.cluster == cluster]
    by_key = {MachineKey.of(one): one for one in of_cluster}
    nodes: dict[str, ReachableNode] = {}
    left_out: list[LeftOutNode] = []
    attested: set[str] = set()
    for record in records:
        if record.machine.cluster != cluster:
            continue
        machine = by_key.get(record.machine)
        if machine is not None:
            attested.add(machine.name)
        elif record.machine.kind == MACHINE_KIND:
            left_out.append(LeftOutNode(record.node_name, "its Machine does not exist"))
            continue
        try:
            name = HostName(record.node_name)
            HostName(f"{name}.{_suffix(cluster)}")
            address = name if machine is None else _address(name, machine, address_types)
            keys = _host_keys(record)
        except SSHRefused as error:
            left_out.append(LeftOutNode(record.node_name, error.message))
            continue
        nodes[record.node_name] = ReachableNode(name, address, keys)
    left_out += [
        LeftOutNode(one.name, "it has not attested, so no host certificate proves which machine it is")
        for one in of_cluster
        if one.name not in attested
    ]
    return ClusterHosts(
        cluster,
        authorities,
        tuple(nodes[name] for name in sorted(nodes)),
        tuple(sorted(left_out, key=lambda one: one.name)),
    )


def known_hosts(hosts: ClusterHosts) -> str:
    """Lines for ``UserKnownHostsFile``: each host authority, for names of this cluster alone.

    Raises:
        ClientFilesRefused: there is no authority, or the cluster's name can be in no certificate.
    """
    if not hosts.authorities:
        raise ClientFilesRefused("there is no host authority")
    suffix = _suffix(hosts.cluster)
    return "".join(f"@cert-authority *.{suffix} {key_line(one)}\n" for one in hosts.authorities)


def plain_known_hosts(hosts: ClusterHosts) -> str:
    """Lines for ``UserKnownHostsFile``: the attested host keys of each node, under its full name.

    For a long outage, in which host certificates run out: ssh then takes the key that it knows. In everyday files they
    would let in a thief of a host key whose certificate has ended.
    """
    return "".join(f"{hosts.full_name(node)} {key_line(key)}\n" for node in hosts.nodes for key in node.host_keys)


def ssh_config(hosts: ClusterHosts, settings: ClientSettings, known_hosts_file: str) -> str:
    """One ``Host`` block for each node.

    ssh takes the first value of each option, so a block in a file that is included first cannot be weakened later.

    Raises:
        ClientFilesRefused: ``known_hosts_file`` has characters that ssh would expand.
    """
    head = f"# Cluster {hosts.cluster}. Written by node-attestation-controller node-access config; changes are lost.\n"
    return head + "".join(_block(hosts, node, settings, check_path(known_hosts_file)) for node in hosts.nodes)


def hosts_in(config: str) -> frozenset[str]:
    """The names of the ``Host`` blocks in a file that :func:`ssh_config` wrote."""
    lines = (line.split() for line in config.splitlines() if line.startswith("Host "))
    return frozenset(name for _, *names in lines for name in names)


def _block(hosts: ClusterHosts, node: ReachableNode, settings: ClientSettings, known_hosts_file: str) -> str:
    full = hosts.full_name(node)
    options = {
        "HostName": str(node.address),
        "Port": str(settings.port),
        "User": settings.login,
        "HostKeyAlias": full,
        "UserKnownHostsFile": f'"{known_hosts_file}"',
        "GlobalKnownHostsFile": "none",
        "KnownHostsCommand": "none",
        "VerifyHostKeyDNS": "no",
        "UpdateHostKeys": "no",
        "StrictHostKeyChecking": "yes",
        "CASignatureAlgorithms": _CA_ALGORITHMS,
        "IdentitiesOnly": "yes",
        **({"IdentityFile": f'"{settings.identity_file}"'} if settings.identity_file else {}),
        "PreferredAuthentications": "publickey",
        "ForwardAgent": "no",
        "ForwardX11": "no",
        **({"ProxyJump": settings.jump_host} if settings.jump_host else {}),
    }
    lines = "".join(f"    {name} {value}\n" for name, value in options.items())
    return f"\nHost {node.name}.{hosts.cluster.name} {full}\n{lines}"


def _address(name: HostName, machine: MachineView, types: Sequence[str]) -> NodeAddress:
    """The first readable address of the first of the types; without one, the node's name."""
    for address_type in types:
        for one in machine.readable_addresses:
            if one.type != address_type:
                continue
            if isinstance(one.reading, Address):
                return HostAddress(ipaddress.ip_address(one.reading.text))
            if isinstance(one.reading, NamedHost):
                return HostName(one.reading.text)
    return name


def _host_keys(record: AttestedNode) -> tuple[HostKey, ...]:
    """
    Raises:
        SSHRefused: a key is none of a host.
    """
    if not isinstance(record.ssh, AttestedHostKeys):
        return ()
    return tuple(host_key(parse_key_line(one.public_key)) for one in record.ssh.host_keys)


def _suffix(cluster: ClusterKey) -> str:
    """
    Raises:
        ClientFilesRefused: the Cluster's name can be in no certificate.
    """
    try:
        return str(HostName(f"{cluster.name}.{cluster.namespace}"))
    except SSHRefused as error:
        raise ClientFilesRefused(f"Cluster {cluster}: {error.message}") from None


__all__ = [
    "ClientFilesRefused",
    "ClientSettings",
    "ClusterHosts",
    "LeftOutNode",
    "ReachableNode",
    "check_path",
    "cluster_hosts",
    "host_authorities",
    "hosts_in",
    "known_hosts",
    "plain_known_hosts",
    "ssh_config",
]
