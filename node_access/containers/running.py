"""Runs a process in a container, as ``kubectl exec`` does, with the tools of the session as one more descriptor.

The process is that of the bundle with another command line: user, groups, capabilities, limits and
``no_new_privs`` are the container's. runc and crun take seccomp, namespaces and control groups from the container
itself. ``crun exec`` runs as root unless it is told the process, so both are.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import json
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from node_access.containers import tools
from node_access.containers.documents import Unreadable, member, read_bytes
from node_access.containers.finding import Running
from node_access.containers.protocol import NoTerminal, Terminal
from node_access.containers.session_groups import SessionGroup, runtime_option

PROGRAMS: Final = {"runc": "/usr/sbin/runc", "crun": "/usr/bin/crun"}
_DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PATH: Final = "PATH="
_ENVIRONMENT: Final = {"PATH": _DEFAULT_PATH, "LC_ALL": "C.UTF-8"}
_ABOVE_STREAMS: Final = 16
_MAXIMUM_ERROR_BYTES: Final = 4096
_CONSOLE_SECONDS: Final = 20.0
_MAXIMUM_PID_BYTES: Final = 16
_INT_BYTES: Final = array.array("i").itemsize


class NotStarted(Exception):
    """The runtime did not start the process; the message is the runtime's."""


@dataclass(frozen=True, slots=True)
class Streams:
    """Descriptors of the standard streams of a process."""

    standard_input: int
    standard_output: int
    standard_error: int

    def __iter__(self) -> Any:
        return iter((self.standard_input, self.standard_output, self.standard_error))


def process_document(
    specification: Mapping[str, Any],
    arguments: Sequence[str],
    terminal: Terminal | NoTerminal,
    more_environment: Sequence[str] = (),
) -> dict[str, Any]:
    """The process to run (``process`` of the OCI runtime specification).

    Raises:
        Unreadable: the container's own process is not of its form.
    """
    own = member(specification, "process")
    environment = own.get("env", [])
    if not own or not isinstance(environment, list) or not all(isinstance(one, str) for one in environment):
        raise Unreadable("config.json: the process is not of its form")
    document = {**own, "args": list(arguments), "terminal": isinstance(terminal, Terminal)}
    document["env"] = [*_environment(environment, terminal), *more_environment]
    document.pop("consoleSize", None)
    if isinstance(terminal, Terminal):
        document["consoleSize"] = {"height": terminal.rows, "width": terminal.columns}
    return document


def user_of(specification: Mapping[str, Any]) -> tuple[int, int]:
    """User and group ID of the container's process.

    Raises:
        Unreadable: they are missing.
    """
    user = member(specification, "process", "user")
    uid, gid = user.get("uid", 0), user.get("gid", 0)
    if type(uid) is not int or type(gid) is not int:
        raise Unreadable("config.json: the user is no number")
    return uid, gid


@dataclass(frozen=True, slots=True)
class Runner:
    """Starts one session's process. ``folder`` is the session's own, and only root reads it."""

    container: Running
    group: SessionGroup
    folder: Path
    programs: Mapping[str, str]

    def start(self, document: Mapping[str, Any], tool_mount: int, streams: Streams) -> int:
        """Start it with these streams; returns its process ID. It becomes a child of this process.

        Raises:
            NotStarted: the runtime refuses.
        """
        return self._execute(document, [], [*streams, tool_mount])

    def start_with_terminal(self, document: Mapping[str, Any], tool_mount: int) -> tuple[int, int]:
        """Start it in a terminal of its own; returns its process ID and the terminal's other end.

        The runtime's own streams are pipes: runtimes give them to the container's user, and no file of the node is one.

        Raises:
            NotStarted: the runtime refuses.
        """
        path = self.folder / "console"
        silent, unused = os.pipe2(os.O_CLOEXEC)
        errors, written = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
                listener.bind(str(path))
                listener.listen(1)
                listener.settimeout(_CONSOLE_SECONDS)
                try:
                    pid = self._execute(
                        document, ["--console-socket", str(path)], [silent, written, written, tool_mount]
                    )
                except NotStarted as failure:
                    with contextlib.suppress(BlockingIOError):
                        raise NotStarted(_last_words(os.read(errors, _MAXIMUM_ERROR_BYTES))) from None
                    raise failure from None
                return pid, _received_terminal(listener)
        finally:
            for one in (silent, unused, errors, written):
                os.close(one)

    def _execute(self, document: Mapping[str, Any], options: Sequence[str], descriptors: Sequence[int]) -> int:
        process, pid_file = self.folder / "process.json", self.folder / "pid"
        process.write_text(json.dumps(document), encoding="utf-8")
        container = self.container
        command = [
            *(self.programs[container.runtime], "--root", str(container.root), "exec", "--detach"),
            *("--process", str(process), "--pid-file", str(pid_file), "--preserve-fds", "1"),
            *("--cgroup", self._control_group(), *options, container.bundle.identifier),
        ]
        status = os.waitstatus_to_exitcode(os.waitpid(_spawn(command, descriptors), 0)[1])
        if status != 0:
            raise NotStarted(f"{container.runtime} ended with {status}")
        try:
            return int(read_bytes(pid_file, _MAXIMUM_PID_BYTES))
        except (Unreadable, ValueError):
            raise NotStarted(f"{container.runtime} does not tell the process") from None

    def _control_group(self) -> str:
        if self.container.runtime == "crun":
            return self.group.name
        return runtime_option(self.container.control_groups, self.group)


def _environment(own: Sequence[str], terminal: Terminal | NoTerminal) -> list[str]:
    """The container's, with the tools behind its own programs."""
    paths = [one.removeprefix(_PATH) for one in own if one.startswith(_PATH)]
    environment = [one for one in own if not one.startswith((_PATH, "TERM="))]
    environment.append(f"{_PATH}{paths[-1] if paths else _DEFAULT_PATH}:{tools.FOLDER}")
    if isinstance(terminal, Terminal):
        environment.append(f"TERM={terminal.name}")
    return environment


def _spawn(command: Sequence[str], descriptors: Sequence[int]) -> int:
    """Start a program that has these descriptors as 0, 1, 2, 3, and no others."""
    copies = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, _ABOVE_STREAMS) for one in descriptors]
    try:
        actions = [(os.POSIX_SPAWN_DUP2, copy, number) for number, copy in enumerate(copies)]
        return os.posix_spawn(
            command[0],
            list(command),
            _ENVIRONMENT,
            file_actions=actions,
            setsigmask=[],
            setsigdef=[signal.SIGPIPE, signal.SIGCHLD, signal.SIGTERM, signal.SIGINT],
        )
    finally:
        for copy in copies:
            os.close(copy)


def _received_terminal(listener: socket.socket) -> int:
    """The terminal that the runtime sends (``--console-socket``)."""
    try:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(_CONSOLE_SECONDS)
            _, descriptors, _, _ = socket.recv_fds(connection, 4096, 1)
    except OSError:
        raise NotStarted("the runtime sends no terminal") from None
    if len(descriptors) != 1:
        raise NotStarted("the runtime sends no terminal")
    os.set_inheritable(descriptors[0], False)
    return descriptors[0]


def _last_words(errors: bytes) -> str:
    lines = errors.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "the runtime does not say why"
