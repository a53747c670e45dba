"""What a stock ``ssh`` needs to use a grant: its configuration and ``known_hosts``. Pure.

Every word of these files is a parsed value, a constant, or a path without characters that ``ssh`` expands, so no text
of the cluster can become an option (ssh_config(5), PATTERNS and TOKENS; sshd(8), SSH_KNOWN_HOSTS FILE FORMAT).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from attestors.wire.ssh.certificate import CertificateKind, SignedCertificate
from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.keys import HostKey, PublicKey, SecurityKeyECDSA, SecurityKeyEd25519
from attestors.wire.ssh.options import Extension
from attestors.wire.ssh.principals import HostAddress, HostName, LoginOnEveryNode, LoginOnNode
from node_access.client.errors import ClientFailed
from node_access.client.grants import (
    CERTIFICATE_AUTHORITY,
    BastionAddress,
    ContainerTarget,
    Grant,
    Hop,
    NoBastion,
    NodeAddress,
    NodeTarget,
)

BASTION_LOGIN: Final = "bastion"
CONFIG_FILE: Final = "config"
KNOWN_HOSTS_FILE: Final = "known_hosts"
KEY_FILE: Final = "key"
"""Beside it is ``key.pub``. ``ssh`` finds the private key in its agent if the file is not there."""
CERTIFICATE_FILES: Final[Mapping[Hop, str]] = {
    Hop.NODE: "node-cert.pub",
    Hop.BASTION: "bastion-cert.pub",
    Hop.CONTAINER: "container-cert.pub",
}
_CA_ALGORITHMS: Final = "ssh-ed25519,ecdsa-sha2-nistp384"
"""Those of the authorities that the controller makes or accepts."""
_FORBIDDEN_EXTENSIONS: Final = frozenset({Extension.NO_TOUCH_REQUIRED, Extension.PERMIT_AGENT_FORWARDING})
WITHOUT_CONNECTOR: Final[Sequence[str]] = ()
_TOUCH_PAUSE_SECONDS: Final = 20
"""Each attempt to go through a bastion asks for a touch."""
_ABSOLUTE: Final = ("/", "\\")
_WINDOWS: Final = re.compile(r"[A-Za-z]:[\\/]|\\\\", re.ASCII)
"""A path with a drive's letter, or of a share."""
_PATH_CHARACTERS: Final = frozenset("._/@+=,:~ -")
_CLOCK_SECONDS: Final = 300
_LONGEST_SECONDS: Final = 8 * 86400
"""No grant lives longer than a week, and no certificate of one longer than an hour."""


class NotUsable(ClientFailed):
    """A grant's status is not what this program may use. The message says why."""


@dataclass(frozen=True, slots=True)
class BastionHop:
    """The way through a bastion."""

    where: BastionAddress
    certificate: SignedCertificate
    host_keys: tuple[HostKey, ...]


@dataclass(frozen=True, slots=True)
class Access:
    """What a grant for nodes gives, checked."""

    grant: Grant
    certificate: SignedCertificate
    """For the nodes."""
    authorities: tuple[HostKey, ...]
    """They certify the hosts of the Cluster."""
    targets: tuple[NodeTarget, ...]
    bastion: BastionHop | NoBastion

    @property
    def certificates(self) -> Mapping[Hop, SignedCertificate]:
        """By hop."""
        if isinstance(self.bastion, NoBastion):
            return {Hop.NODE: self.certificate}
        return {Hop.NODE: self.certificate, Hop.BASTION: self.bastion.certificate}

    @property
    def valid_before(self) -> int:
        """Unix time: from then on, no new connection is possible."""
        return min(one.certificate.valid_before for one in self.certificates.values())

    def alias(self, node: HostName) -> str:
        """The name under which ``ssh`` reaches a node."""
        return f"{node}.{self.grant.cluster}"


@dataclass(frozen=True, slots=True)
class Road:
    """How ssh gets to the nodes of a grant."""

    grant: Grant
    bastion: BastionHop | NoBastion
    place: str
    """The grant's folder, checked."""
    key: str
    """The file of the private key, checked."""

    @property
    def bastion_alias(self) -> str:
        """The name under which ``ssh`` reaches the bastion."""
        return bastion_alias(self.grant)


def full_name(grant: Grant, node: HostName) -> str:
    """The name in the node's host certificate that no node of another Cluster of that management cluster has."""
    return f"{node}.{grant.cluster}.{grant.key.namespace}"


def bastion_alias(grant: Grant) -> str:
    """The name of the grant's bastion in ssh's files. No other grant has it."""
    return f"node-access-bastion-{grant.key.uid}"


def needs_touch(key: PublicKey) -> bool:
    """Whether each login needs a person at a FIDO token."""
    return isinstance(key, SecurityKeyEd25519 | SecurityKeyECDSA)


def node_access_of(grant: Grant, key: PublicKey, now: int) -> Access:
    """Check what the status of a Ready grant gives, for the key that this program has.

    Raises:
        NotUsable: something is missing, is for another key, name or time, or permits what is never asked for.
    """
    if grant.public_key != key:
        raise NotUsable("the grant is for another key")
    status = grant.status
    if not status.targets:
        raise NotUsable("the grant's status names no node")
    if not status.known_hosts.authorities:
        raise NotUsable("the grant's status has no host authority, so no node could be told from another machine")
    bastion = bastion_of(grant, now)
    targets = tuple(one for one in status.targets if grant.opens(grant.cluster, one.node) and one.addresses)
    if not targets:
        raise NotUsable("no node of the grant has an address")
    return Access(grant, certificate_of(grant, Hop.NODE, now), status.known_hosts.authorities, targets, bastion)


def bastion_of(grant: Grant, now: int) -> BastionHop | NoBastion:
    """The bastion of the status.

    Raises:
        NotUsable: it has no host key, or no certificate.
    """
    where, host_keys = grant.status.bastion, grant.status.known_hosts.plain
    if isinstance(where, NoBastion):
        return where
    if not host_keys:
        raise NotUsable("the grant's status has no host key of the bastion")
    return BastionHop(where, certificate_of(grant, Hop.BASTION, now), host_keys)


def node_known_hosts(access: Access) -> str:
    """Lines for ``UserKnownHostsFile``."""
    return host_lines(access.grant, access.authorities, access.bastion)


def host_lines(grant: Grant, authorities: Sequence[HostKey], bastion: BastionHop | NoBastion) -> str:
    """The host authorities, for names of this Cluster alone, and the bastion's keys. The patterns of the status are not
    used.
    """
    suffix = f"{grant.cluster}.{grant.key.namespace}"
    lines = [f"{CERTIFICATE_AUTHORITY} *.{suffix} {key_line(one)}\n" for one in authorities]
    if isinstance(bastion, BastionHop):
        lines += [f"{bastion_alias(grant)} {key_line(one)}\n" for one in bastion.host_keys]
    return "".join(lines)


def node_ssh_config(
    access: Access, folder: str, login: str, identity: str = "", connector: Sequence[str] = WITHOUT_CONNECTOR
) -> str:
    """One ``Host`` block for each node, and one for the bastion. ``folder`` has the other files.

    ``identity`` is the file of an existing private key. ``connector`` starts this program, which tries the addresses of
    a node that has several; without it, the first one counts.

    ssh takes the first value of each option, so a block in a file that is included first cannot be weakened later.

    Raises:
        NotUsable: ``folder`` or ``identity`` has characters that ssh would expand.
    """
    place = checked_path(folder)
    road = Road(access.grant, access.bastion, place, checked_path(identity) if identity else f"{place}/{KEY_FILE}")
    head = f"# AccessGrant {access.grant.key}. Written by node-access; changes are lost.\n"
    blocks = [
        node_block(
            road, f"{access.alias(one.node)} {full_name(access.grant, one.node)}", one, login, Hop.NODE, connector
        )
        for one in access.targets
    ]
    return head + "".join(blocks) + bastion_block(road)


def node_block(road: Road, names: str, target: NodeTarget, login: str, hop: Hop, connector: Sequence[str]) -> str:
    """The ``Host`` block of one of a node's sshds, with the certificate of that hop.

    Raises:
        NotUsable: ``connector`` has characters that ssh would expand.
    """
    options = {
        "HostName": str(_addresses(road, target)[0]),
        "Port": str(target.port),
        "User": login,
        "HostKeyAlias": full_name(road.grant, target.node),
        **common_options(road.place, road.key),
        **_certificate_file(road.place, hop),
        **_way(road, target, connector),
    }
    return host_block(names, options)


def bastion_block(road: Road) -> str:
    """The ``Host`` block of the bastion; empty if there is none."""
    if isinstance(road.bastion, NoBastion):
        return ""
    options = {
        "HostName": str(road.bastion.where.address),
        "Port": str(road.bastion.where.port),
        "User": BASTION_LOGIN,
        "HostKeyAlias": road.bastion_alias,
        **common_options(road.place, road.key),
        **_certificate_file(road.place, Hop.BASTION),
    }
    return host_block(road.bastion_alias, options)


def checked_path(path: str) -> str:
    """An absolute path that ssh takes as it is: with slashes, without quotes, and without what ``ssh_config`` expands.

    A backslash separates folders on Windows alone; elsewhere it is a character of a name, which ssh would drop.

    Raises:
        NotUsable: it is another path.
    """
    is_windows = _WINDOWS.match(path) is not None
    plain = path.replace("\\", "/") if is_windows else path
    if (
        not (is_windows or plain.startswith("/"))
        or not all(one.isalnum() or one in _PATH_CHARACTERS for one in plain)
        or plain != plain.strip()
    ):
        raise NotUsable(
            f"{path[:256]!a} cannot stand in ssh's configuration, which takes letters, digits, spaces and ._/@+=,:~- : "
            "use --folder"
        )
    return plain


def _addresses(road: Road, target: NodeTarget) -> tuple[NodeAddress, ...]:
    """Those that can be tried. A bastion looks no name up."""
    plain = tuple(one for one in target.addresses if isinstance(one, HostAddress))
    return plain if plain and isinstance(road.bastion, BastionHop) else target.addresses


def _way(road: Road, target: NodeTarget, connector: Sequence[str]) -> Mapping[str, str]:
    """How ssh gets to a node."""
    addresses = _addresses(road, target)
    bastion = isinstance(road.bastion, BastionHop)
    if len(addresses) == 1 or not connector:
        return {"ProxyJump": road.bastion_alias} if bastion else {}
    # The shell that reads this sees no character that it obeys between double quotes: see checked_path.
    words = [f'"{checked_path(one)}"' if one.startswith(_ABSOLUTE) else one for one in connector]
    through = ["--through", road.bastion_alias, "--config", f'"{road.place}/{CONFIG_FILE}"'] if bastion else []
    pause = ["--pause", str(_TOUCH_PAUSE_SECONDS)] if bastion and needs_touch(road.grant.public_key) else []
    command = [*words, "connect", *through, *pause, str(target.port), *map(str, addresses)]
    return {"ProxyCommand": " ".join(command), "ProxyUseFdpass": "yes"}


def common_options(place: str, key: str) -> Mapping[str, str]:
    """What counts for every host of a grant. ``place`` is its folder, ``key`` the file of the private key."""
    return {
        "UserKnownHostsFile": f'"{place}/{KNOWN_HOSTS_FILE}"',
        "GlobalKnownHostsFile": "none",
        "KnownHostsCommand": "none",
        "VerifyHostKeyDNS": "no",
        "UpdateHostKeys": "no",
        "StrictHostKeyChecking": "yes",
        "CASignatureAlgorithms": _CA_ALGORITHMS,
        "IdentitiesOnly": "yes",
        "IdentityFile": f'"{key}"',
        "PreferredAuthentications": "publickey",
        "ForwardAgent": "no",
        "ForwardX11": "no",
        "PermitLocalCommand": "no",
        # A person's ControlPath has the address in it, and nodes of two Clusters may have the same one.
        "ControlPath": "none",
        # Also for the key exchange. A hop that says nothing must not hold the heartbeat up.
        "ConnectTimeout": "30",
    }


def _certificate_file(place: str, hop: Hop) -> Mapping[str, str]:
    return {"CertificateFile": f'"{place}/{CERTIFICATE_FILES[hop]}"'}


def host_block(names: str, options: Mapping[str, str]) -> str:
    """One ``Host`` block."""
    lines = "".join(f"    {name} {value}\n" for name, value in options.items())
    return f"\nHost {names}\n{lines}"


def certificate_of(grant: Grant, hop: Hop, now: int) -> SignedCertificate:
    """The certificate of a hop with the latest end.

    Raises:
        NotUsable: there is none, or it is for another key, name or time, or permits what is never asked for.
    """
    of_hop = [one.signed for one in grant.status.certificates if one.hop is hop]
    if not of_hop:
        raise NotUsable(f"the grant's status has no certificate for the {hop.value}")
    signed = max(of_hop, key=lambda one: one.certificate.valid_before)
    certificate = signed.certificate
    try:
        signed.verify()
    except SSHRefused as error:
        raise NotUsable(f"the certificate for the {hop.value}: {error.message}") from error
    if certificate.kind is not CertificateKind.USER or certificate.public_key != grant.public_key:
        raise NotUsable(f"the certificate for the {hop.value} is not for the grant's key")
    if not set(map(str, certificate.principals)) & _principals(grant, hop):
        raise NotUsable(f"the certificate for the {hop.value} is for other logins")
    if _FORBIDDEN_EXTENSIONS & set(certificate.extensions):
        raise NotUsable(f"the certificate for the {hop.value} permits what this program never asks for")
    if certificate.valid_before <= now:
        raise NotUsable(f"the certificate for the {hop.value} has ended, or this machine's clock is ahead")
    if certificate.valid_before > now + _LONGEST_SECONDS:
        raise NotUsable(f"the certificate for the {hop.value} outlasts every grant")
    if certificate.valid_after > now + _CLOCK_SECONDS:
        raise NotUsable(f"the certificate for the {hop.value} is not valid yet: this machine's clock is behind")
    return signed


def _principals(grant: Grant, hop: Hop) -> frozenset[str]:
    if hop is Hop.BASTION:
        return frozenset({str(LoginOnNode(BASTION_LOGIN, grant.key.uid))})
    if isinstance(grant.target, ContainerTarget):
        return frozenset({str(grant.target)})
    return frozenset(
        str(principal)
        for login in grant.logins
        for principal in (LoginOnEveryNode(login), *(LoginOnNode(login, str(one.node)) for one in grant.status.targets))
    )
