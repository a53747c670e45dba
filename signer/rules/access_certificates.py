"""What the certificates of an access grant say. Pure.

A grant gets one certificate for each hop. That of hop ``node`` names each login on each node, ``login@node``, or
``login@*`` for every node: a node accepts only the names with its own. That of hop ``bastion`` names
``bastion@<uid of the grant>``, which the sshd of that grant's bastion alone accepts. It permits nothing but forwarding.
A grant for a container has hop ``container`` instead of ``node``: its certificate names the container and nothing else.

The controller issues certificates by this module, and the audit log verifies them by it.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from attestors.wire.ssh.certificate import Certificate, CertificateKind
from attestors.wire.ssh.container_names import Container
from attestors.wire.ssh.errors import SSHReason, SSHRefused
from attestors.wire.ssh.key_line import parse_key_line
from attestors.wire.ssh.keys import PublicKey
from attestors.wire.ssh.options import CriticalOption, Extension, ForceCommand, Network, SourceAddress
from attestors.wire.ssh.principals import LoginOnEveryNode, LoginOnNode, UserPrincipal
from signer.authority.ssh.key_id import KeyID
from signer.authority.ssh.requests import Nonce, Serial, UserCertificateRequest
from signer.model.access.targets import AllNodes, GrantTarget, Nodes, NodeTarget
from signer.model.cluster import ClusterKey

BASTION_LOGIN: Final = "bastion"
"""The user on bastions. No certificate names it on a node: another grant's UID could stand in the node's place."""
KEY_ID_PREFIX: Final = "grant/"
"""Key ids of grants begin so. A policy may revoke such a key id, too."""
_EPOCH: Final = re.compile(r"[1-9][0-9]{0,3}", re.ASCII)


class Hop(enum.Enum):
    """Which sshd a certificate is for."""

    NODE = "node"
    BASTION = "bastion"
    CONTAINER = "container"
    """The gateway, or the containers' sshd of a node."""


def grant_key_id(namespace: str, name: str, uid: str, creator: str, epoch: int) -> KeyID:
    """The key id of all certificates of a grant's epoch: one line of a revocation list names them all.

    An epoch ends with a revocation. Epoch 0 has no number.

    Raises:
        SSHRefused: ``KeyIDInvalid``: it is longer than 1024 characters.
    """
    number = (str(epoch),) if epoch else ()
    return KeyID.of("grant", namespace, name, uid, creator, *number)


@dataclass(frozen=True, slots=True)
class GrantNames:
    """What the key id of a grant's certificates says."""

    namespace: str
    name: str
    uid: str
    creator: str
    epoch: int


def parse_grant_key_id(key_id: str) -> GrantNames:
    """Read what :func:`grant_key_id` writes.

    Raises:
        SSHRefused: ``KeyIDInvalid``: it is another text.
    """
    parts = KeyID.parse(key_id).parts
    if len(parts) not in (5, 6):
        raise SSHRefused(SSHReason.KEY_ID_INVALID, "the key id is not that of a grant")
    _, namespace, name, uid, creator = parts[:5]
    epoch = int(parts[5]) if len(parts) == 6 and _EPOCH.fullmatch(parts[5]) else 0
    if grant_key_id(namespace, name, uid, creator, epoch).parts != parts:
        raise SSHRefused(SSHReason.KEY_ID_INVALID, "the key id is not that of a grant")
    return GrantNames(namespace, name, uid, creator, epoch)


@dataclass(frozen=True, slots=True)
class HopSources:
    """One hop, and where it may see the connection come from."""

    hop: Hop
    source_addresses: tuple[Network, ...]
    """Empty for anywhere."""


@dataclass(frozen=True, slots=True)
class GrantAccess:
    """What a grant opens, as far as its certificates say it."""

    cluster: ClusterKey
    """The grant is in the Cluster's namespace."""
    name: str
    uid: str
    creator: str
    """The user's name, as the API server proved it."""
    epoch: int
    public_key: str
    """``type base64``."""
    logins: tuple[str, ...]
    target: GrantTarget
    pty: bool
    port_forwarding: bool
    command: str
    """The only command that runs; empty for any."""

    @property
    def key_id(self) -> KeyID:
        """See :func:`grant_key_id`."""
        return grant_key_id(self.cluster.namespace, self.name, self.uid, self.creator, self.epoch)


def principals_of(access: GrantAccess, hop: Hop) -> tuple[UserPrincipal, ...]:
    """The names for which the hop's certificate counts.

    Raises:
        SSHRefused: ``PrincipalInvalid``.
    """
    if isinstance(access.target, Container) and (hop is Hop.NODE or access.logins):
        raise SSHRefused(SSHReason.PRINCIPAL_INVALID, "a grant for a container opens no node")
    if hop is Hop.BASTION:
        return (LoginOnNode(BASTION_LOGIN, access.uid),)
    if isinstance(access.target, Container):
        return (access.target.principal,)
    if BASTION_LOGIN in access.logins:
        raise SSHRefused(SSHReason.PRINCIPAL_INVALID, f"login {BASTION_LOGIN} is that of bastions; name another one")
    return _node_principals(access.target, access.logins, hop)


def _node_principals(target: NodeTarget, logins: tuple[str, ...], hop: Hop) -> tuple[UserPrincipal, ...]:
    if hop is not Hop.NODE:
        raise SSHRefused(SSHReason.PRINCIPAL_INVALID, "a grant for nodes opens no container")
    match target:
        case AllNodes():
            return tuple(LoginOnEveryNode(login) for login in logins)
        case Nodes(names):
            return tuple(LoginOnNode(login, node) for node in names for login in logins)


def critical_options_of(access: GrantAccess, hop: HopSources) -> tuple[CriticalOption, ...]:
    """What restricts the hop's certificate, sorted by name.

    Raises:
        SSHRefused: ``OptionInvalid``.
    """
    forced = (ForceCommand(access.command),) if access.command and hop.hop is not Hop.BASTION else ()
    return (*forced, *((SourceAddress(hop.source_addresses),) if hop.source_addresses else ()))


def extensions_of(access: GrantAccess, hop: Hop) -> tuple[Extension, ...]:
    """What the hop's certificate permits, sorted by name. A bastion forwards to the nodes' sshd, and nothing else."""
    if hop is Hop.BASTION:
        return (Extension.PERMIT_PORT_FORWARDING,)
    forwarding = (Extension.PERMIT_PORT_FORWARDING,) if access.port_forwarding else ()
    return (*forwarding, *((Extension.PERMIT_PTY,) if access.pty else ()))


def certificate_request(
    access: GrantAccess, hop: HopSources, serial: Serial, nonce: Nonce, issued: datetime, lifetime: timedelta
) -> UserCertificateRequest:
    """What the user authority signs for one hop.

    Raises:
        SSHRefused, SSHAuthorityRefused: no certificate can say it.
    """
    return UserCertificateRequest(
        public_key=parse_key_line(access.public_key),
        key_id=access.key_id,
        principals=principals_of(access, hop.hop),
        serial=serial,
        nonce=nonce,
        now=int(issued.timestamp()),
        lifetime=lifetime,
        critical_options=critical_options_of(access, hop),
        extensions=extensions_of(access, hop.hop),
    )


def unsigned(request: UserCertificateRequest, authority: PublicKey) -> Certificate:
    """The certificate that the request asks for, by that authority.

    Raises:
        SSHRefused: no certificate can say it.
    """
    valid_after, valid_before = request.validity
    return Certificate(
        public_key=request.public_key,
        kind=CertificateKind.USER,
        serial=request.serial.number,
        key_id=str(request.key_id),
        principals=request.principals,
        valid_after=valid_after,
        valid_before=valid_before,
        authority=authority,
        critical_options=request.critical_options,
        extensions=request.extensions,
        nonce=request.nonce.value,
    )


__all__ = [
    "BASTION_LOGIN",
    "KEY_ID_PREFIX",
    "GrantAccess",
    "GrantNames",
    "Hop",
    "HopSources",
    "certificate_request",
    "critical_options_of",
    "extensions_of",
    "grant_key_id",
    "parse_grant_key_id",
    "principals_of",
    "unsigned",
]
