"""Other ways into this node than SSH certificates: a stock sshd beside the project's, and keys for one. Pure.

It is for people on the node. The controller is not told, and would not believe it: a node that somebody has taken over
says what that person likes.

Sources: Linux ``Documentation/networking/proc_net_tcp.rst``; systemd.unit(5) for enabled units; sshd(8) for
``authorized_keys``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

SERVERS: Final = frozenset({"sshd", "dropbear"})
"""Names of programs that listen for SSH. Of OpenSSH 9.8 and later, ``sshd-session`` serves a connection."""
OWN_UNITS: Final = ("nodeaccess.slice", "node-access-ssh@")
"""In the cgroups of the project's own sshd: one process for each connection. It may listen for forwarded ports."""
STOCK_UNITS: Final = frozenset({"ssh.service", "ssh.socket", "sshd.service", "sshd.socket", "dropbear.service"})
"""Of distributions. An enabled socket unit listens without any process called sshd."""
MAXIMUM_SHOWN: Final = 20
_LISTEN: Final = "0A"
_SOCKET: Final = re.compile(
    r"\s*\d+: [0-9A-F]+:(?P<port>[0-9A-F]{4}) [0-9A-F]+:[0-9A-F]{4} (?P<state>[0-9A-F]{2}) \S+ \S+ \S+\s+\d+\s+\d+ "
    r"(?P<inode>\d{1,20})\b",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class ListeningSocket:
    """One TCP socket that listens."""

    port: int
    inode: int


@dataclass(frozen=True, slots=True)
class Process:
    """A process that may be an SSH server."""

    name: str
    """``/proc/PID/comm``."""
    cgroup: str
    """``/proc/PID/cgroup``."""
    socket_inodes: frozenset[int]


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A file with keys that a stock sshd takes."""

    path: str
    keys: int


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What was read on the node."""

    sockets: tuple[ListeningSocket, ...] = ()
    processes: tuple[Process, ...] = ()
    enabled_units: tuple[str, ...] = ()
    key_files: tuple[KeyFile, ...] = ()
    unread: tuple[str, ...] = ()
    """What could not be read, and why."""


def listening_sockets(table: str) -> tuple[ListeningSocket, ...]:
    """The listening sockets of ``/proc/net/tcp`` or ``/proc/net/tcp6``. Other lines are passed over."""
    found = (_SOCKET.match(line) for line in table.splitlines())
    return tuple(
        ListeningSocket(int(one["port"], 16), int(one["inode"])) for one in found if one and one["state"] == _LISTEN
    )


def key_count(text: str) -> int:
    """The lines of an ``authorized_keys`` that are neither empty nor comments."""
    return sum(1 for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))


def other_ways_in(facts: NodeFacts) -> tuple[str, ...]:
    """What lets people in without a certificate; a sentence for each."""
    ports = {socket.inode: socket.port for socket in facts.sockets}
    found = [
        *_servers(facts.processes, ports),
        *(f"{unit} is enabled: a stock sshd beside this project's" for unit in sorted(set(facts.enabled_units))),
        *(
            f"{file.path} has {file.keys} key{'s' if file.keys > 1 else ''}, for an sshd that takes keys"
            for file in facts.key_files
            if file.keys
        ),
        *(f"not known: {one}" for one in facts.unread),
    ]
    if len(found) > MAXIMUM_SHOWN:
        return (*found[:MAXIMUM_SHOWN], f"and {len(found) - MAXIMUM_SHOWN} more")
    return tuple(found)


def _servers(processes: Iterable[Process], ports: dict[int, int]) -> Iterator[str]:
    listening = {
        (one.name, ports[inode])
        for one in processes
        if one.name in SERVERS and not any(unit in one.cgroup for unit in OWN_UNITS)
        for inode in one.socket_inodes
        if inode in ports
    }
    for name, port in sorted(listening):
        yield f"{name} listens on port {port}, beside this project's"


__all__ = [
    "STOCK_UNITS",
    "KeyFile",
    "ListeningSocket",
    "NodeFacts",
    "Process",
    "key_count",
    "listening_sockets",
    "other_ways_in",
]
