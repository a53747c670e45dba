"""One session: a process of its own, forked from the agent, which has no descriptor of any other session."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from node_access.containers import kernel
from node_access.containers.connecting import NotConnected, connect
from node_access.containers.documents import Unreadable
from node_access.containers.finding import Bundle, NotOpen, Running, find_running, open_container
from node_access.containers.protocol import (
    MAXIMUM_REQUEST_BYTES,
    Connect,
    NoTerminal,
    Request,
    RequestRefused,
    Run,
    Terminal,
    TransferFiles,
    ended,
    parse_request,
    refused,
    started,
)
from node_access.containers.running import NotStarted, Runner, Streams, process_document, user_of
from node_access.containers.session_groups import NoGroup, SessionGroup, Survives, session_group
from node_access.containers.tools import Mounts, Tools

REQUEST_SECONDS: Final = 10.0
RECORD: Final = "group"
"""In the folder of a session: its control group, for the agent, if this process is killed."""
_MAXIMUM_DESCRIPTORS: Final = 3
_SIGNALLED: Final = 128
_REFUSALS: Final = (NotOpen, NotConnected, NotStarted, NoGroup, RequestRefused, Unreadable)


@dataclass(frozen=True, slots=True)
class Settings:
    """What all sessions share."""

    runtime_root: Path
    programs: Mapping[str, str]
    tools: Tools


@dataclass(frozen=True, slots=True)
class Session:
    """What one session is about. ``folder`` exists, is its own, and has its number as its name."""

    bundles: list[Bundle]
    """Those with the name that the user has."""
    folder: Path
    settings: Settings
    shell: Mounts
    """Of ``settings.tools.shell``."""


def serve(connection: socket.socket, session: Session) -> str:
    """Serve one client until its process ends or it leaves; returns what the journal should tell."""
    connection.settimeout(REQUEST_SECONDS)
    try:
        request, descriptors = _received(connection)
    except (OSError, RequestRefused) as failure:
        return _refuse(connection, failure if isinstance(failure, RequestRefused) else RequestRefused("no request"))
    try:
        running = find_running(session.bundles, lambda one: open_container(one, session.settings.runtime_root))
        if isinstance(request, Connect):
            return _serve_connection(connection, running, request)
        return _serve_process(connection, running, request, descriptors, session)
    except _REFUSALS as refusal:
        return _refuse(connection, refusal)
    except OSError as error:
        return _refuse(connection, NotStarted(f"the session could not be started: {error.strerror}"))
    finally:
        _close(descriptors)


def _received(connection: socket.socket) -> tuple[Request, list[int]]:
    """The request with its descriptors. Raises OSError, RequestRefused."""
    message, descriptors, flags, _ = socket.recv_fds(connection, MAXIMUM_REQUEST_BYTES + 1, _MAXIMUM_DESCRIPTORS)
    try:
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise RequestRefused("the request is too large: send a shorter command")
        request = parse_request(message)
        needs = isinstance(request, TransferFiles) or (isinstance(request, Run) and request.terminal == NoTerminal())
        if len(descriptors) != (_MAXIMUM_DESCRIPTORS if needs else 0):
            raise RequestRefused("the request does not bring the descriptors that belong to it")
        for descriptor in descriptors:
            _require_stream(descriptor)
    except BaseException:  # no descriptor of a user stays open
        _close(descriptors)
        raise
    return request, descriptors


def _require_stream(descriptor: int) -> None:
    """Require a pipe or a socket, which is all that sshd has for a session without a terminal.

    runc gives the streams to the container's user (``fixStdioPermissions``). Of a file, that would be the node's file.
    """
    found = os.fstat(descriptor)
    if stat.S_ISSOCK(found.st_mode) or (stat.S_ISFIFO(found.st_mode) and found.st_dev == _pipe_device()):
        return
    raise RequestRefused("a standard stream is neither a pipe nor a socket")


def _pipe_device() -> int:
    """Of pipes without a name."""
    ends = os.pipe2(os.O_CLOEXEC)
    try:
        return os.fstat(ends[0]).st_dev
    finally:
        _close(ends)


def _serve_connection(connection: socket.socket, running: Running, request: Connect) -> str:
    with connect(running, request.port) as connected:
        socket.send_fds(connection, [started()], [connected.fileno()])
    return f"port {request.port}"


def _serve_process(
    connection: socket.socket, running: Running, request: Run | TransferFiles, descriptors: list[int], session: Session
) -> str:
    kernel.adopt_orphans()
    group = session_group(running.control_groups, session.folder.name, running.runtime)
    (session.folder / RECORD).write_text("\n".join((group.path, *group.beside)), encoding="utf-8")
    group.make()
    try:
        pid = _start(connection, running, request, descriptors, session, group)
        _close(descriptors)
        descriptors.clear()
        status = _wait(connection, pid)
    finally:
        end_group(group)
    return status


def _start(
    connection: socket.socket,
    running: Running,
    request: Run | TransferFiles,
    descriptors: Sequence[int],
    session: Session,
    group: SessionGroup,
) -> int:
    tools, specification = session.settings.tools, running.bundle.specification
    terminal: Terminal | NoTerminal = NoTerminal()
    if isinstance(request, Run):
        terminal = request.terminal
        document = process_document(specification, tools.shell_arguments(request.command), terminal)
        mount = session.shell.take()
    else:
        session.shell.close()
        document = process_document(specification, tools.sftp_arguments(), terminal, tools.sftp_environment())
        mount = tools.sftp_for(*user_of(specification)).mounted()
    runner = Runner(running, group, session.folder, session.settings.programs)
    try:
        running.require_same()
        if isinstance(terminal, NoTerminal):
            pid = runner.start(document, mount, Streams(*descriptors))
            connection.send(started())
            return pid
        pid, other_end = runner.start_with_terminal(document, mount)
        try:
            socket.send_fds(connection, [started()], [other_end])
        finally:
            os.close(other_end)
        return pid
    finally:
        os.close(mount)


def _wait(connection: socket.socket, pid: int) -> str:
    """Until the process ends or the client leaves. The exit code of a process that a signal ended is a shell's."""
    process = os.pidfd_open(pid)
    try:
        waiting = select.poll()
        waiting.register(process, select.POLLIN)
        waiting.register(connection, select.POLLIN | select.POLLHUP | select.POLLRDHUP)
        ready = {descriptor for descriptor, _ in waiting.poll()}
        if process not in ready:
            return "the client has left"
        result = os.waitid(os.P_PIDFD, process, os.WEXITED)
    finally:
        os.close(process)
    assert result is not None
    status = result.si_status if result.si_code == os.CLD_EXITED else _SIGNALLED + result.si_status
    with contextlib.suppress(OSError):
        connection.send(ended(status))
    return f"ended with {status}"


def end_group(group: SessionGroup) -> None:
    """End everything of a session, and say so if something is left."""
    try:
        group.end()
    except (Survives, OSError) as failure:
        print(f"<1>{failure}", file=sys.stderr, flush=True)


def _refuse(connection: socket.socket, refusal: Exception) -> str:
    with contextlib.suppress(OSError):
        connection.send(refused(str(refusal)))
    return f"refused: {refusal}"


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
