"""The event loop: questions of principals commands, ends of processes, and time."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from node_access.machine import NotAsked
from node_access.principals import LoginRefused
from node_access.registry import Clock, Sessions
from node_access.reports import Level, Report
from node_access.requests import MAXIMUM_REQUEST_BYTES, RequestRefused
from node_access.values import Connection

SOCKET: Final = Path("/run/node-access/principals")
ANSWERED: Final = b"ok\n"
"""First line of each answer; principals follow, one a line."""
_CREDENTIALS: Final = struct.Struct("3i")
_MAXIMUM_CLIENTS: Final = 64
_CLIENT_SECONDS: Final = 3.0
_SETTLE_SECONDS: Final = 0.002
"""Between looks at a login whose process without privileges has just ended."""
_SETTLING_SECONDS: Final = 2.0
"""After that, each tick looks."""
_PART_BYTES: Final = 64 * 1024


@dataclass(slots=True)
class _Client:
    """A principals command that is asking."""

    connection: socket.socket
    pid: int
    until: float
    message: bytearray = field(default_factory=bytearray)


@dataclass(frozen=True, slots=True)
class _Watch:
    """A login that is decided when a process ends."""

    connection: Connection
    descriptor: int


_Source: TypeAlias = _Client | _Watch | socket.socket


class Daemon:
    """Serves one socket until ``stopped`` says so."""

    def __init__(
        self,
        sessions: Sessions,
        *,
        path: Path,
        allowed_user: int,
        report: Callable[[Report], None],
        clock: Clock,
        alive: Callable[[str], None],
    ) -> None:
        self._sessions, self._allowed_user, self._report = sessions, allowed_user, report
        self._clock, self._alive = clock, alive
        self._selector = selectors.DefaultSelector()
        self._clients: set[int] = set()
        self._watches: dict[Connection, _Watch] = {}
        self._settling: dict[Connection, float] = {}
        """Until when to look often."""
        self._listener = _listen(path)
        self._selector.register(self._listener, selectors.EVENT_READ, self._listener)

    def run(self, stopped: Callable[[], bool]) -> None:
        """Serve."""
        self._watch_logins()
        self._alive("READY=1")
        next_tick = self._clock.monotonic()
        while not stopped():
            if self._clock.monotonic() >= next_tick:
                next_tick = self._clock.monotonic() + self._sessions.tick()
                self._alive("WATCHDOG=1")
            self._settle()
            pause = _SETTLE_SECONDS if self._settling else max(0.0, next_tick - self._clock.monotonic())
            for key, _ in self._selector.select(pause):
                if self._serve(key.data):
                    next_tick = min(next_tick, self._clock.monotonic())
            self._drop_slow_clients()

    def close(self) -> None:
        """Stop serving. Sessions go on."""
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, _Watch):
                os.close(key.data.descriptor)
            elif isinstance(key.data, _Client):
                key.data.connection.close()
        self._selector.close()
        self._listener.close()

    def _serve(self, source: _Source) -> bool:
        """Returns whether sessions have changed."""
        if isinstance(source, _Client):
            return self._read(source)
        if isinstance(source, _Watch):
            self._forget_watch(source)
            self._look_often(source.connection)
            return False
        self._accept()
        return False

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, user, _ = _CREDENTIALS.unpack(credentials)
        if user != self._allowed_user or len(self._clients) >= _MAXIMUM_CLIENTS:
            connection.close()
            return
        connection.setblocking(False)
        client = _Client(connection, pid, self._clock.monotonic() + _CLIENT_SECONDS)
        self._selector.register(connection, selectors.EVENT_READ, client)
        self._clients.add(connection.fileno())

    def _read(self, client: _Client) -> bool:
        try:
            part = client.connection.recv(_PART_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            self._hang_up(client)
            return False
        client.message += part
        if part and len(client.message) <= MAXIMUM_REQUEST_BYTES:
            return False
        answer = self._answer(client)
        with contextlib.suppress(OSError):
            client.connection.send(answer)
        self._hang_up(client)
        self._watch_logins()
        return True

    def _answer(self, client: _Client) -> bytes:
        try:
            principals = self._sessions.answer(client.pid, bytes(client.message))
        except (NotAsked, RequestRefused, LoginRefused) as refused:
            self._report(Report(Level.WARNING, f"no principals: {refused}"))
            principals = ()
        except Exception as defect:  # noqa: BLE001 - the ends of all sessions depend on this process; nobody gets in
            self._report(Report(Level.ALERT, f"no principals: a defect: {type(defect).__name__}"))
            principals = ()
        return ANSWERED + "".join(f"{principal}\n" for principal in principals).encode("ascii")

    def _hang_up(self, client: _Client) -> None:
        self._selector.unregister(client.connection)
        self._clients.discard(client.connection.fileno())
        client.connection.close()

    def _drop_slow_clients(self) -> None:
        now = self._clock.monotonic()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, _Client) and now >= key.data.until:
                self._hang_up(key.data)

    def _watch_logins(self) -> None:
        """Be told when sshd's processes without privileges end."""
        for session in self._sessions.undecided():
            connection = session.connection
            if connection in self._watches:
                continue
            (process,) = session.unprivileged
            try:
                descriptor = os.pidfd_open(process.pid)
            except ProcessLookupError:
                self._look_often(connection)
                continue
            watch = _Watch(connection, descriptor)
            self._watches[connection] = watch
            self._selector.register(descriptor, selectors.EVENT_READ, watch)

    def _forget_watch(self, watch: _Watch) -> None:
        self._selector.unregister(watch.descriptor)
        os.close(watch.descriptor)
        del self._watches[watch.connection]

    def _look_often(self, connection: Connection) -> None:
        self._settling[connection] = self._clock.monotonic() + _SETTLING_SECONDS

    def _settle(self) -> None:
        now = self._clock.monotonic()
        self._settling = {
            connection: until
            for connection, until in self._settling.items()
            if not self._sessions.settle(connection) and now < until
        }


def _listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        path.chmod(0o660)
        listener.listen(_MAXIMUM_CLIENTS)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener
