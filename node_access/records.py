"""What is known about sessions, in files: it survives a restart of this program, as sessions do.

They are below ``/run``: a reboot ends the sessions. Each is replaced by one rename.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from attestors.wire.ssh.certificate import SignedCertificate, parse_certificate_line
from attestors.wire.ssh.errors import SSHRefused
from node_access.requests import MAXIMUM_REQUEST_BYTES
from node_access.values import Connection, Login, ProcessIdentity, Session

FOLDER: Final = Path("/run/node-access/sessions")
FALLBACK_FOLDER: Final = Path("/run/node-access-fallback")
"""Where the principals command leaves logins that it let in by itself."""
_SUFFIX: Final = ".json"
_MAXIMUM_BYTES: Final = 1024 * 1024
_MAXIMUM_FILES: Final = 256


class UnusableRecord(Exception):
    """A file is no record of ours."""


@dataclass(frozen=True, slots=True)
class FallbackLogin:
    """A login that the principals command let in while this program did not answer. Not more than its word."""

    monitor: ProcessIdentity
    message: bytes


class Records:
    """The files."""

    def __init__(self, folder: Path = FOLDER, fallback: Path = FALLBACK_FOLDER) -> None:
        self._folder, self._fallback = folder, fallback

    def save(self, session: Session) -> None:
        """Keep the session, in place of what is known about its connection.

        Raises:
            OSError: it could not be written.
        """
        path = self._path(session.connection)
        temporary = path.with_suffix(".partial")
        content = json.dumps(_written(session)).encode("utf-8")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        opened = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(opened, "wb") as file:
                file.write(content)
            temporary.replace(path)
        except OSError:  # no space, of which the partial file would take even more
            temporary.unlink(missing_ok=True)
            raise

    def forget(self, connection: Connection) -> None:
        """The connection is over."""
        self._path(connection).unlink(missing_ok=True)

    def load(self) -> tuple[list[Session], list[str]]:
        """The sessions, and the names of files that are none.

        Raises:
            OSError: the folder cannot be read.
        """
        sessions: list[Session] = []
        unusable: list[str] = []
        for name in sorted(self._names()):
            try:
                with (self._folder / name).open("rb") as file:
                    sessions.append(_read(json.loads(file.read(_MAXIMUM_BYTES))))
            except (OSError, ValueError, KeyError, TypeError, SSHRefused):
                unusable.append(name)
        return sessions, unusable

    def take_fallback_logins(self) -> list[FallbackLogin]:
        """Logins without this program since the last call; their files are removed."""
        found: list[FallbackLogin] = []
        try:
            # A command that was killed leaves its partial file, and many of these must hide no login.
            paths = sorted(path for path in self._fallback.iterdir() if not path.name.startswith("."))
        except OSError:
            return []
        for path in paths[:_MAXIMUM_FILES]:
            pid, _, started = path.name.partition("-")
            with contextlib.suppress(OSError):
                if pid.isdecimal() and started.isdecimal():
                    opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
                    with os.fdopen(opened, "rb") as file:
                        message = file.read(MAXIMUM_REQUEST_BYTES + 1)
                    found.append(FallbackLogin(ProcessIdentity(int(pid), int(started)), message))
                path.unlink()
        return found

    def _names(self) -> list[str]:
        try:
            return [name for name in os.listdir(self._folder) if name.endswith(_SUFFIX)]
        except FileNotFoundError:
            return []

    def _path(self, connection: Connection) -> Path:
        """Of this very connection: a later unit may have the same name, before the earlier one's end is noticed."""
        monitor = connection.monitor
        return self._folder / f"{connection.inode}-{monitor.pid}-{monitor.started}{_SUFFIX}"


def _written(session: Session) -> dict[str, Any]:
    connection = session.connection
    return {
        "controlGroup": connection.control_group,
        "inode": connection.inode,
        "monitor": _process(connection.monitor),
        "login": session.login_name,
        "certificate": session.signed.line,
        "registeredAt": session.registered_at,
        "endsAt": session.ends_at,
        "unprivileged": [_process(one) for one in session.unprivileged],
        "state": session.login.value,
        "prolongedBy": [one.line for one in session.prolonged_by],
        "warnedAt": session.warned_at,
    }


def _read(document: Mapping[str, Any]) -> Session:
    return Session(
        connection=Connection(
            control_group=str(document["controlGroup"]),
            inode=int(document["inode"]),
            monitor=_identity(document["monitor"]),
        ),
        login_name=str(document["login"]),
        signed=parse_certificate_line(document["certificate"]),
        registered_at=int(document["registeredAt"]),
        ends_at=float(document["endsAt"]),
        unprivileged=tuple(_identity(one) for one in document["unprivileged"]),
        login=Login(document["state"]),
        prolonged_by=_certificates(document["prolongedBy"]),
        warned_at=int(document["warnedAt"]),
    )


def _certificates(lines: list[str]) -> tuple[SignedCertificate, ...]:
    return tuple(map(parse_certificate_line, lines))


def _process(identity: ProcessIdentity) -> list[int]:
    return [identity.pid, identity.started]


def _identity(numbers: list[int]) -> ProcessIdentity:
    pid, started = numbers
    return ProcessIdentity(int(pid), int(started))
