"""Principals of certificates: the names for which they count.

A user certificate names logins:

``root@worker-1``  the login on that node: the node's AuthorizedPrincipalsCommand prints it for that login
``root@*``         the login on every node; the star is a character here, which no sshd expands in a user certificate
``root``           a plain name, which sshd compares with the login itself

No principal has a comma, which OpenSSH before 10.3 splits (CVE-2026-35414), a glob, or a dash at its begin, which a
program could take for an option.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from dataclasses import dataclass
from typing import Final, TypeAlias

from attestors.wire.ssh.errors import SSHReason, SSHRefused

MAXIMUM_PRINCIPALS: Final = 256
"""``SSHKEY_CERT_MAX_PRINCIPALS`` of OpenSSH."""
MAXIMUM_PRINCIPAL_CHARACTERS: Final = 381
"""``namespace_pod_container`` with the longest names of Kubernetes: 63, 253 and 63 characters."""
_EVERY_NODE: Final = "*"
_LOGIN: Final = re.compile(r"[a-z0-9._][a-z0-9._-]{0,380}")
_NODE: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
"""A DNS subdomain (RFC 1123), as names of nodes are."""
_FORM: Final = "a principal is LOGIN, LOGIN@NODE or LOGIN@*, in lower-case letters, digits, '.', '_' and '-'"


@dataclass(frozen=True, slots=True)
class PlainPrincipal:
    """A login, on each host that compares principals with the login itself.

    Raises:
        SSHRefused: ``PrincipalInvalid``.
    """

    login: str

    def __post_init__(self) -> None:
        _require_login(self.login)

    def __str__(self) -> str:
        return self.login


@dataclass(frozen=True, slots=True)
class LoginOnNode:
    """A login on one node.

    Raises:
        SSHRefused: ``PrincipalInvalid``.
    """

    login: str
    node: str

    def __post_init__(self) -> None:
        _require_login(self.login)
        if _NODE.fullmatch(self.node) is None or len(str(self)) > MAXIMUM_PRINCIPAL_CHARACTERS:
            raise _invalid(str(self))

    def __str__(self) -> str:
        return f"{self.login}@{self.node}"


@dataclass(frozen=True, slots=True)
class LoginOnEveryNode:
    """A login on every node of the cluster.

    Raises:
        SSHRefused: ``PrincipalInvalid``.
    """

    login: str

    def __post_init__(self) -> None:
        _require_login(self.login)
        if len(str(self)) > MAXIMUM_PRINCIPAL_CHARACTERS:
            raise _invalid(str(self))

    def __str__(self) -> str:
        return f"{self.login}@{_EVERY_NODE}"


UserPrincipal: TypeAlias = PlainPrincipal | LoginOnNode | LoginOnEveryNode


@dataclass(frozen=True, slots=True)
class HostName:
    """A name under which clients reach a host: the node's, or that with cluster and namespace.

    Raises:
        SSHRefused: ``PrincipalInvalid``.
    """

    name: str

    def __post_init__(self) -> None:
        if _NODE.fullmatch(self.name) is None or _is_address(self.name):
            raise SSHRefused(
                SSHReason.PRINCIPAL_INVALID,
                f"{_shown(self.name)} is not the name of a host: it is a DNS name in lower case, without wildcards",
            )

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class HostAddress:
    """An address under which clients reach a host.

    Raises:
        SSHRefused: ``PrincipalInvalid``: an address with a zone, which means something on one machine only, or an IPv4
            address in the form of IPv6, which clients write in several ways.
    """

    address: ipaddress.IPv4Address | ipaddress.IPv6Address

    def __post_init__(self) -> None:
        if "%" in str(self.address):
            raise SSHRefused(SSHReason.PRINCIPAL_INVALID, "an address with a zone is no name of a host")
        if isinstance(self.address, ipaddress.IPv6Address) and self.address.ipv4_mapped is not None:
            raise SSHRefused(SSHReason.PRINCIPAL_INVALID, "write the IPv4 address, without ::ffff: before it")

    def __str__(self) -> str:
        return _text(self.address)


@functools.lru_cache(maxsize=4096)  # a certificate is encoded and compared with it several times
def _text(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    return str(address)


HostPrincipal: TypeAlias = HostName | HostAddress


def parse_user_principal(text: str) -> UserPrincipal:
    """Parse one principal of a user certificate.

    Raises:
        SSHRefused: ``PrincipalInvalid``.
    """
    login, at, node = text.partition("@")
    if not at:
        return PlainPrincipal(login)
    return LoginOnEveryNode(login) if node == _EVERY_NODE else LoginOnNode(login, node)


@functools.lru_cache(maxsize=4096)  # one certificate is planned, made, read back and journaled with the same names
def parse_host_principal(text: str) -> HostPrincipal:
    """Parse one principal of a host certificate: a DNS name, or an address in its usual form.

    Raises:
        SSHRefused: ``PrincipalInvalid``.
    """
    if not _is_address(text):
        return HostName(text)
    address = HostAddress(ipaddress.ip_address(text))
    if str(address) != text:
        raise SSHRefused(SSHReason.PRINCIPAL_INVALID, f"{_shown(text)} is written {address}")
    return address


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _require_login(login: str) -> None:
    if _LOGIN.fullmatch(login) is None:
        raise _invalid(login)


def _invalid(text: str) -> SSHRefused:
    return SSHRefused(SSHReason.PRINCIPAL_INVALID, f"{_shown(text)} is not accepted: {_FORM}")


def _shown(text: str) -> str:
    return ascii(text[:MAXIMUM_PRINCIPAL_CHARACTERS])
