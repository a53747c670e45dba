"""The agent: gives containers users, and each session a process of its own, which it has forked before."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import selectors
import shutil
import signal
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from node_access.containers.documents import Unreadable, read_bytes
from node_access.containers.finding import Bundle, Bundles
from node_access.containers.session import RECORD, Session, Settings, end_group, serve
from node_access.containers.session_groups import NoGroup, SessionGroup
from node_access.containers.tools import Mounts
from node_access.containers.users import Users, save_users, used_uids, write_database
from node_access.containers.waiting import Ended, Task, Waiting, fork_waiting

SOCKET: Final = Path("/run/node-access-containers/agent")
SESSIONS: Final = Path("/run/node-access-containers/sessions")
MAXIMUM_SESSIONS: Final = 256
MAXIMUM_SESSIONS_OF_A_CONTAINER: Final = 32
LOOK_SECONDS: Final = 1.0
_CREDENTIALS: Final = struct.Struct("3i")
_MAXIMUM_RECORD_BYTES: Final = 64 * 1024
_UNPRINTABLE: Final = re.compile(r"[^ -~]")
_ALERT: Final = 1
_WARNING: Final = 4
_INFORMATION: Final = 6


@dataclass(frozen=True, slots=True)
class Files:
    """Where the agent keeps what it knows."""

    socket: Path
    sessions: Path
    state: Path
    database: Path
    group: int
    """Group ID of container users: only they reach the socket."""


@dataclass(frozen=True, slots=True)
class _Child:
    """The process of a session."""

    name: str
    folder: Path


class Agent:
    """All sessions of a node. ``alive`` is called at each look, first when it serves."""

    def __init__(
        self, bundles: Bundles, users: Users, settings: Settings, files: Files, alive: Callable[[str], None]
    ) -> None:
        self._bundles, self._users, self._settings, self._files, self._alive = bundles, users, settings, files, alive
        self._children: dict[int, _Child] = {}
        self._waiting: list[Waiting] = []
        """Of the next session; at most one."""
        self._found: list[Bundle] = []
        self._known_to_waiting: list[Bundle] = []
        self._written: dict[str, int] | None = None
        self._told_exhausted = False
        self._listener = _listen(files.socket, files.group)
        self._wake, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def run(self, stopped: Callable[[], bool]) -> None:
        """Serve until ``stopped`` says so."""
        self.end_former_sessions()
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        selector = selectors.DefaultSelector()
        selector.register(self._listener, selectors.EVENT_READ)
        selector.register(self._wake, selectors.EVENT_READ)
        self.look()
        self._prepare()
        self._alive("READY=1")
        next_look = time.monotonic() + LOOK_SECONDS
        try:
            while not stopped():
                for key, _ in selector.select(max(0.0, next_look - time.monotonic())):
                    if key.fileobj is self._listener:
                        self._accept()
                    else:
                        with contextlib.suppress(BlockingIOError):
                            os.read(self._wake, 4096)
                self._reap()
                if time.monotonic() >= next_look:
                    next_look = time.monotonic() + LOOK_SECONDS
                    self.look()
                    self._prepare()
                    self._alive("WATCHDOG=1")
        finally:
            signal.set_wakeup_fd(-1)
            selector.close()

    def close(self) -> None:
        """Stop serving."""
        for waiting in self._waiting:
            waiting.close()
        self._listener.close()
        os.close(self._wake)
        os.close(self._waker)

    def look(self) -> None:
        """Take note of containers that came or went."""
        self._found, skipped = self._bundles.all()
        for one in skipped:
            _say(_WARNING, f"container {one.identifier[:12]} gets no user: {one.why}")
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        names = {bundle.name for bundle in self._found}
        if self._users.needs_update(names):
            self._users.update(names, now, used_uids(self._users.pool))
        if bool(self._users.without) != self._told_exhausted:
            self._told_exhausted = bool(self._users.without)
            if self._told_exhausted:
                _say(_ALERT, f"{len(self._users.without)} containers get no user: the pool of uids is exhausted")
        self._write()

    def end_former_sessions(self) -> None:
        """End what an earlier process of this program left when it was killed."""
        self._files.sessions.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in self._files.sessions.iterdir():
            _end_left(folder)

    def _write(self) -> None:
        """First the map, then sshd's users: no uid is handed out that a restart would not know."""
        present = self._users.present()
        if present == self._written:
            return
        try:
            save_users(self._users, self._files.state)
            write_database(present, self._files.group, self._files.database)
        except OSError as error:
            _say(_ALERT, f"{error.filename}: {error.strerror}: new containers get no user")
            return
        self._written = present

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        with connection:
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            _, uid, _ = _CREDENTIALS.unpack(credentials)
            try:
                name = self._users.name_of(uid)
            except KeyError:
                _say(_WARNING, f"uid {uid} asks, and is no container's")
                return
            sessions = Counter(child.name for child in self._children.values())
            if sessions.total() >= MAXIMUM_SESSIONS or sessions[name] >= MAXIMUM_SESSIONS_OF_A_CONTAINER:
                _say(_WARNING, f"{name}: too many sessions")
                return
            self._begin(connection, name)

    def _begin(self, connection: socket.socket, name: str) -> None:
        folder = self._files.sessions / secrets.token_hex(8)
        try:
            folder.mkdir(mode=0o700)
            self._children[self._hand_over(connection, Task(name, folder))] = _Child(name, folder)
        except OSError as error:
            _say(_ALERT, f"{name}: no session: {error.strerror}")

    def _hand_over(self, connection: socket.socket, task: Task) -> int:
        """To the process that waits, or to a new one; returns its process ID. Raises OSError."""
        if self._waiting:
            waiting = self._waiting.pop()
            with contextlib.suppress(Ended):
                return waiting.hand_over(connection, task)
        return self._fork().hand_over(connection, task)

    def _prepare(self) -> None:
        """Let a process wait for the next session, one that knows today's containers: reading them takes a while."""
        if self._waiting and self._known_to_waiting != self._found:
            self._waiting.pop().close()
        if not self._waiting:
            self._known_to_waiting = self._found
            try:
                self._waiting.append(self._fork())
            except OSError as error:
                _say(_WARNING, f"no process waits for the next session: {error.strerror}")

    def _fork(self) -> Waiting:
        return fork_waiting(self._let_go, self._serve)

    def _let_go(self) -> Mounts:
        """In the child: what the agent holds is none of the session's business, the listener above all."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        self.close()
        shell = Mounts(self._settings.tools.shell)
        shell.prepare()
        return shell

    def _serve(self, connection: socket.socket, task: Task, shell: Mounts) -> None:
        """In the child."""
        about = f"{task.name}: session {task.folder.name}"
        try:
            bundles, _ = self._bundles.all()  # a container may have been started again since the last look
            named = [one for one in bundles if one.name == task.name]
            told = serve(connection, Session(named, task.folder, self._settings, shell))
            _say(_INFORMATION, f"{about} {told}")
        except BaseException as defect:  # noqa: BLE001 - the child must not go on as a second agent
            _say(_ALERT, f"{about}: a defect: {type(defect).__name__}")

    def _reap(self) -> None:
        """Of processes that have ended, end what is left of their sessions."""
        while self._children or self._waiting:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._waiting = [one for one in self._waiting if not one.is_process(pid)]
            child = self._children.pop(pid, None)
            if child is not None:
                _end_left(child.folder)
                self._prepare()


def _end_left(folder: Path) -> None:
    with contextlib.suppress(Unreadable, NoGroup):  # nothing was started
        path, *beside = read_bytes(folder / RECORD, _MAXIMUM_RECORD_BYTES).decode("utf-8", "replace").split("\n")
        end_group(SessionGroup(path, tuple(beside)))
    shutil.rmtree(folder, ignore_errors=True)


def _listen(path: Path, group: int) -> socket.socket:
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        previous = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(previous)
        os.chown(path, 0, group)
        path.chmod(0o660)
        listener.listen(64)
        listener.setblocking(False)
    except BaseException:  # the socket is no use without its owner
        listener.close()
        raise
    return listener


def _say(level: int, text: str) -> None:
    """Into the journal: systemd reads the level."""
    print(f"<{level}>{_UNPRINTABLE.sub('?', text)}", file=sys.stderr, flush=True)
