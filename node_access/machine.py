"""This machine, as far as sessions need it: processes, control groups and terminals together."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from node_access import terminals
from node_access.control_groups import Gone, Hierarchy, NotAConnection, find_hierarchy
from node_access.processes import NoProcess, Process, Processes
from node_access.values import Connection, ProcessIdentity

_ENDS: Final = re.compile(r"[^@]*@[^-]*-(?P<node>[^-]*):(?P<node_port>\d+)-(?P<client>[^-]*):(?P<client_port>\d+)\D.*")
"""In the name of a unit of a socket with ``Accept=yes`` (``instance_from_socket`` of systemd)."""
_MAXIMUM_ANCESTORS: Final = 64


class NotAsked(Exception):
    """The question does not come from sshd's monitor in a unit of ours; the message says what is wrong."""


@dataclass(frozen=True, slots=True)
class Left:
    """A process that was started in a connection, and is outside its control group."""

    process: Process
    is_attached: bool
    """Its terminal or a living parent is the connection's, as with ``su -`` and ``sudo -i``. Else root moved it."""


@dataclass(frozen=True, slots=True)
class Trace:
    """By what processes of a connection can be told after its kill."""

    elsewhere: Mapping[ProcessIdentity, Process]
    attached: frozenset[ProcessIdentity]
    remembered: frozenset[ProcessIdentity]
    variable: bytes
    """``SSH_CONNECTION`` as sshd sets it, between NULs; empty if the unit's name does not tell."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The kernel's view."""

    processes: Processes = field(default_factory=Processes)
    hierarchy: Hierarchy = field(default_factory=find_hierarchy)

    def asking(self, command: int) -> tuple[Connection, tuple[ProcessIdentity, ...]]:
        """The connection for which a principals command asks, and sshd's process without privileges in it.

        ``command`` is the number of a process that waits for the answer, and so is not used again meanwhile.

        Raises:
            NotAsked: its parent is no monitor of a connection.
        """
        try:
            asking = self.processes.find(command)
            connection = self.connection_of(self.processes.find(asking.parent).identity)
            if self._control_group(command) != connection.control_group:
                raise NotAsked("the principals command is in another unit than its parent")
            others = [
                process.identity
                for process in self._members(connection)
                if process.parent == connection.monitor.pid and process.identity != asking.identity
            ]
            self.processes.require(asking.identity)
        except (NoProcess, NotAConnection, Gone) as missing:
            raise NotAsked(f"no connection: {missing}") from None
        return connection, tuple(others) if len(others) == 1 else ()

    def connection_of(self, monitor: ProcessIdentity) -> Connection:
        """The connection with that monitor.

        Raises:
            NoProcess, NotAConnection, Gone: there is none.
        """
        path = self._control_group(monitor.pid)
        connection = Connection(path, self.hierarchy.inode(path), monitor)
        self.processes.require(monitor)
        return connection

    def exists(self, connection: Connection) -> bool:
        """Whether the connection's unit is there."""
        try:
            return self.hierarchy.inode(connection.control_group) == connection.inode
        except Gone:
            return False

    def members(self, connection: Connection) -> tuple[ProcessIdentity, ...]:
        """The processes of a connection; none if it is over."""
        return tuple(process.identity for process in self._members(connection))

    def hang_up(self, connection: Connection) -> None:
        """Tell shells and what they run that it is over."""
        with contextlib.suppress(Gone):
            self.hierarchy.signal(connection.control_group, connection.inode, signal.SIGHUP)

    def kill(self, connection: Connection) -> None:
        """End all processes of a connection."""
        with contextlib.suppress(Gone):
            self.hierarchy.kill(connection.control_group, connection.inode)

    def tell(self, connection: Connection, message: str) -> None:
        """Show a message on the terminals of a connection. Those of containers that it started are not the node's."""
        try:
            instance = os.stat(terminals.FOLDER).st_dev
        except OSError:
            return
        devices = (process.terminal for process in self._members(connection) if self._is_on(process, instance))
        for number in terminals.pseudo_terminals(devices):
            terminals.write(number, message)

    def began(self, connection: Connection) -> float:
        """When the connection began, in seconds since boot."""
        return connection.monitor.started / os.sysconf("SC_CLK_TCK")

    def trace(self, connection: Connection, seen: Iterable[ProcessIdentity]) -> Trace:
        """What :meth:`left` needs, to be taken before the kill. Its time is short whatever users run."""
        members = {process.identity.pid: process for process in self._members(connection)}
        table = {process.identity.pid: process for process in self.processes.all()}
        on_terminals = {(process.session, process.terminal) for process in members.values() if process.terminal}
        elsewhere = {process.identity: process for pid, process in table.items() if pid not in members}
        attached = frozenset(
            identity
            for identity, process in elsewhere.items()
            if (process.session, process.terminal) in on_terminals or _descends(process, members, table)
        )
        return Trace(elsewhere, attached, frozenset(seen), _variable(connection))

    def left(self, trace: Trace) -> list[Left]:
        """Processes of a connection that are elsewhere, as far as that can be seen.

        They were seen in it, descend from it, have its terminal, or have its ``SSH_CONNECTION``, which anybody can set:
        what another connection has is that one's. A process of root that shed all of that is not found.
        """
        found: list[Left] = []
        for identity, process in trace.elsewhere.items():
            attached = identity in trace.attached
            if attached or identity in trace.remembered or self._names(identity.pid, trace.variable):
                found.append(Left(process, attached))
        return found

    def end(self, identity: ProcessIdentity) -> None:
        """Kill one process."""
        with contextlib.suppress(ProcessLookupError), hold(identity.pid) as held:
            if self.processes.runs(identity):  # the number is that process's as long as it is held
                signal.pidfd_send_signal(held, signal.SIGKILL)

    def _control_group(self, pid: int) -> str:
        return self.hierarchy.connection_of(self.processes.control_groups(pid))

    def _members(self, connection: Connection) -> Iterator[Process]:
        try:
            pids = self.hierarchy.pids(connection.control_group, connection.inode)
        except Gone:
            return
        for pid in pids:
            with contextlib.suppress(NoProcess):
                yield self.processes.find(pid)

    def _is_on(self, process: Process, instance: int) -> bool:
        streams = self.processes.streams(process.identity.pid, terminals.stream_paths(process.terminal))
        return terminals.is_among(process.terminal, streams, instance)

    def _names(self, pid: int, variable: bytes) -> bool:
        """Whether a process that is in no connection has that variable."""
        try:
            if not variable or variable not in self.processes.environment(pid):
                return False
            self._control_group(pid)
        except NotAConnection:
            return True
        except NoProcess:
            return False
        return False


@contextlib.contextmanager
def hold(pid: int) -> Iterator[int]:
    """A descriptor of a process. Raises ProcessLookupError: there is none."""
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _variable(connection: Connection) -> bytes:
    """From the unit's name: what a process has in its environment may be forged."""
    ends = _ENDS.fullmatch(connection.unit)
    if ends is None:
        return b""
    return "\0SSH_CONNECTION={client} {client_port} {node} {node_port}\0".format(**ends.groupdict()).encode()


def _descends(process: Process, members: Container[int], table: Mapping[int, Process]) -> bool:
    """Whether one of its ancestors is a member."""
    for _ in range(_MAXIMUM_ANCESTORS):
        if process.parent in members:
            return True
        parent = table.get(process.parent)
        if parent is None:
            return False
        process = parent
    return False
