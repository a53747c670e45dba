"""Which principals this node accepts for a login."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from attestors.wire.ssh.certificate import Certificate
from attestors.wire.ssh.container_names import Pod, parse_container_principal
from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.krl import RevocationList
from attestors.wire.ssh.options import ForceCommand
from attestors.wire.ssh.principals import LoginOnEveryNode, LoginOnNode, PlainPrincipal, UserPrincipal
from node_access.values import Opens


@dataclass(frozen=True, slots=True)
class NodeName:
    """The name that the controller has attested."""

    name: str


@dataclass(frozen=True, slots=True)
class NotAttested:
    """This machine has no name yet."""


@dataclass(frozen=True, slots=True)
class Revocations:
    """The lists that count."""

    lists: tuple[RevocationList, ...]

    def revoke(self, certificate: Certificate) -> bool:
        """Whether one of them revokes the certificate."""
        return any(_revokes(one, certificate) for one in self.lists)


@dataclass(frozen=True, slots=True)
class UnknownRevocations:
    """A list is missing or unreadable: nobody knows what is revoked."""

    why: str


KnownOrNot: TypeAlias = Revocations | UnknownRevocations


@dataclass(frozen=True, slots=True)
class Node:
    """What this node's files say."""

    name: NodeName | NotAttested
    break_glass: frozenset[str]
    """Fingerprints of the authorities whose certificates count for plain logins."""
    revocations: KnownOrNot


class LoginRefused(ValueError):
    """Nothing is accepted for this login with this certificate; the message says why."""


def accepted_principals(
    login_name: str, certificate: Certificate, node: Node, opens: Opens
) -> tuple[UserPrincipal, ...]:
    """What a certificate must name, one of it at least, to be accepted for that login.

    Where sshd opens containers, it is the container's own name, from every trusted authority: a Pod runs on one node.

    Raises:
        LoginRefused: nothing is accepted.
    """
    if isinstance(node.revocations, UnknownRevocations):
        raise LoginRefused(node.revocations.why)
    if node.revocations.revoke(certificate):
        raise LoginRefused("the certificate is revoked")
    if opens is Opens.CONTAINERS:
        _require_no_forced_command(certificate)
        return (_container(login_name),)
    _require_no_container(login_name)
    found = tuple(_accepted(login_name, certificate, node))
    if not found:
        raise LoginRefused("this node has no attested name yet, and the authority is none for emergencies")
    return found


def _container(login_name: str) -> PlainPrincipal:
    try:
        named = parse_container_principal(login_name)
    except SSHRefused as refused:
        raise LoginRefused(f"the login is no container: {refused.message}") from None
    if not isinstance(named.of, Pod):
        raise LoginRefused("a node knows containers of Pods, and no workloads")
    return named.principal


def _require_no_forced_command(certificate: Certificate) -> None:
    """sshd of containers has a ForceCommand of its own, beside which that of a certificate counts for nothing."""
    if any(isinstance(one, ForceCommand) for one in certificate.critical_options):
        raise LoginRefused("the certificate has a forced command, which only the gateway to containers can run")


def _require_no_container(login_name: str) -> None:
    """Users of containers are accounts of the machine, too: sshd of the node would give them its shell and files."""
    try:
        parse_container_principal(login_name)
    except SSHRefused:
        return
    raise LoginRefused("the login is a container's, which the sshd of the node does not open")


def _accepted(login_name: str, certificate: Certificate, node: Node) -> Iterator[UserPrincipal]:
    if certificate.authority.fingerprint in node.break_glass:
        yield PlainPrincipal(login_name)
    if isinstance(node.name, NodeName):
        yield LoginOnNode(login_name, node.name.name)
        yield LoginOnEveryNode(login_name)


def _revokes(revoked: RevocationList, certificate: Certificate) -> bool:
    try:
        revoked.require_not_revoked(certificate)
    except SSHRefused:
        return True
    return False
