"""One folder for each grant, by its UID: key, certificates, ``known_hosts`` and ``config`` for a stock ``ssh``."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from attestors.wire.ssh.certificate import parse_certificate_line
from attestors.wire.ssh.container_names import Container
from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.key_line import key_line, parse_key_file
from attestors.wire.ssh.keys import PublicKey
from attestors.wire.ssh.principals import HostName
from node_access.client.errors import ClientFailed, WrongUse
from node_access.client.grants import GrantKey, Hop, uid_text
from node_access.client.kubectl import KubectlSettings
from node_access.client.locks import Busy, is_held, locked, waiting_for
from node_access.client.node_files import (
    CERTIFICATE_FILES,
    CONFIG_FILE,
    KEY_FILE,
    KNOWN_HOSTS_FILE,
    WITHOUT_CONNECTOR,
    NotUsable,
    checked_path,
)
from node_access.client.programs import connector
from node_access.client.ssh_files import AnyAccess, known_hosts, ssh_config
from node_access.client.words import label, login_name, object_name, printable

DEFAULT_FOLDER: Final = "~/.ssh/node-access"
AGENT_LOG: Final = "agent.log"
_GRANTS: Final = "grants"
_RECORD: Final = "grant.json"
_ENDED: Final = "ended"
_LOCK: Final = "lock"
_AGENT: Final = "agent.pid"
_SESSIONS: Final = "sessions"
_MAXIMUM_BYTES: Final = 4 * 1024 * 1024
_KEPT_SECONDS: Final = 7 * 86400
_SESSION_FILE: Final = re.compile(r"[0-9]{1,10}", re.ASCII)


class BadFolder(ClientFailed):
    """A folder is not as this program made it, or cannot be written."""


@dataclass(frozen=True, slots=True)
class FolderRecord:
    """What this machine knows about a grant of its own."""

    key: GrantKey
    cluster: str
    login: str
    """Of ``config``; empty for a container."""
    keep: bool
    """Whether the grant outlives the last ``node-access ssh``."""
    identity: str
    """File of an existing key; empty for a fresh one."""
    kubectl: KubectlSettings = field(default_factory=KubectlSettings)


class GrantFolder:
    """The folder of one grant. Methods raise ``BadFolder`` for every fault of files."""

    def __init__(self, path: Path) -> None:
        self.path = path

    # What is in it.

    def record(self) -> FolderRecord:
        """What was written when the folder was made."""
        text = self._read(_RECORD)
        try:
            document = json.loads(text)
            key = document["key"]
            return FolderRecord(
                GrantKey(
                    label(key["namespace"], "a namespace"), object_name(key["name"], "a name"), uid_text(key["uid"])
                ),
                object_name(document["cluster"], "a Cluster"),
                login_name(document["login"]) if document["login"] else "",
                document["keep"] is True,
                str(document["identity"]),
                KubectlSettings(**{name: str(value) for name, value in document["kubectl"].items()}),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, WrongUse) as error:
            raise BadFolder(f"{self.path / _RECORD}: not written by this program") from error

    @property
    def config(self) -> Path:
        """ssh's configuration, if the grant has been Ready."""
        return self.path / CONFIG_FILE

    @property
    def hosts(self) -> tuple[str, ...]:
        """The first name of each host in ``config``; none if there is no such file."""
        try:
            lines = self._read(CONFIG_FILE).splitlines()
        except BadFolder:
            return ()
        return tuple(line.split()[1] for line in lines if line.startswith("Host "))

    @property
    def agent_log(self) -> Path:
        """Where the background process writes."""
        return self.path / AGENT_LOG

    @property
    def why_ended(self) -> str:
        """Why the grant ended; empty while it has not."""
        try:
            return self._read(_ENDED).strip()
        except BadFolder:
            return ""

    def private_key(self) -> bytes:
        """The private key; empty if it is not on this disk."""
        file = self.path / KEY_FILE
        return self._read(KEY_FILE).encode("ascii") if file.exists() else b""

    def public_key(self) -> PublicKey:
        """The grant's key."""
        try:
            return parse_key_file(self._read(f"{KEY_FILE}.pub").encode("utf-8"))
        except SSHRefused as error:
            raise BadFolder(f"{self.path / KEY_FILE}.pub: {error.message}") from error

    # How it changes.

    def write_access(self, access: AnyAccess, record: FolderRecord) -> None:
        """Write what a Ready grant gives. ``config`` comes last: what it names is there.

        Raises:
            NotUsable: the grant is for another Cluster than was asked for. ``~/.ssh/config`` includes these files
                first, so a node ``github`` of a Cluster ``com`` would take ``github.com`` over.
        """
        if access.grant.cluster != record.cluster:
            raise NotUsable("the API server shows another Cluster than the grant was made for")
        certificates = {CERTIFICATE_FILES[hop]: f"{one.line}\n" for hop, one in access.certificates.items()}
        for name in set(CERTIFICATE_FILES.values()) - set(certificates):
            self._remove(name)
        for name, text in certificates.items():
            self.write(name, text)
        self.write(KNOWN_HOSTS_FILE, known_hosts(access))
        text = ssh_config(access, str(self.path), record.login, record.identity, _connector())
        self.write(CONFIG_FILE, text)

    def write_private_key(self, content: bytes) -> None:
        """Put a private key on disk: only where there is no agent."""
        self.write(KEY_FILE, content.decode("ascii"))

    def write_record(self, record: FolderRecord) -> None:
        """Write what :meth:`record` reads."""
        self.write(_RECORD, json.dumps(asdict(record), indent=2) + "\n")

    def write_public_key(self, key: PublicKey) -> None:
        """Write the public key, by which ``ssh`` finds the private one in its agent."""
        self.write(f"{KEY_FILE}.pub", f"{key_line(key)}\n")

    def end(self, why: str) -> None:
        """The grant has ended: nothing that ssh uses stays, and ``ended`` says why."""
        for name in (CONFIG_FILE, KEY_FILE, *CERTIFICATE_FILES.values(), KNOWN_HOSTS_FILE):
            self._remove(name)
        self.write(_ENDED, f"{printable(why)}\n")

    def write(self, name: str, text: str) -> None:
        """Replace a file in one step; only its owner may read it."""
        target = self.path / name
        partial = self.path / f".{name}.{os.getpid()}"
        try:
            partial.unlink(missing_ok=True)
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
            partial.replace(target)
        except OSError as error:
            raise BadFolder(f"{target}: {error.strerror}") from error

    # Who uses it.

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """No other process registers a session or ends the grant meanwhile."""
        try:
            with waiting_for(self.path / _LOCK):
                yield
        except OSError as error:
            raise BadFolder(f"{self.path / _LOCK}: {error.strerror}") from error

    @contextlib.contextmanager
    def session(self, node: HostName | Container) -> Iterator[None]:
        """This process runs a session; the caller holds :meth:`exclusive` when it enters."""
        file = self._sessions / str(os.getpid())
        with locked(file, str(node)):
            try:
                yield
            finally:
                with contextlib.suppress(OSError):
                    file.unlink()

    def session_is_at(self, where: str) -> None:
        """This process, which has a session registered, runs it there."""
        try:
            (self._sessions / str(os.getpid())).write_text(where, "ascii")
        except OSError as error:
            raise BadFolder(f"{self._sessions}: {error.strerror}") from error

    def certificate_end(self, hop: Hop) -> int:
        """When the certificate of a hop that is here now ends, as Unix time."""
        try:
            return parse_certificate_line(self._read(CERTIFICATE_FILES[hop]).strip()).certificate.valid_before
        except SSHRefused as error:
            raise BadFolder(f"{self.path / CERTIFICATE_FILES[hop]}: {error.message}") from error

    def session_nodes(self) -> tuple[str, ...]:
        """The nodes and containers to which other processes run sessions. What is left of ended ones is removed."""
        found = []
        for file in sorted(self._sessions.iterdir()):
            if _SESSION_FILE.fullmatch(file.name) is None or file.name == str(os.getpid()):
                continue
            try:
                with locked(file):
                    file.unlink()
            except Busy:
                with contextlib.suppress(BadFolder):
                    found.append(self._read(f"{_SESSIONS}/{file.name}"))
            except OSError:
                continue
        return tuple(found)

    @contextlib.contextmanager
    def as_agent(self) -> Iterator[None]:
        """This process is the grant's background process.

        Raises:
            Busy: another one is.
        """
        with locked(self.path / _AGENT, f"{os.getpid()}\n"):
            yield

    def has_agent(self) -> bool:
        """Whether a background process runs."""
        return is_held(self.path / _AGENT)

    @property
    def _sessions(self) -> Path:
        return self.path / _SESSIONS

    def _read(self, name: str) -> str:
        file = self.path / name
        try:
            with file.open("rb") as opened:
                content = opened.read(_MAXIMUM_BYTES + 1)
        except OSError as error:
            raise BadFolder(f"{file}: {error.strerror}") from error
        if len(content) > _MAXIMUM_BYTES:
            raise BadFolder(f"{file}: too long")
        return content.decode("utf-8", "replace")

    def _remove(self, name: str) -> None:
        try:
            (self.path / name).unlink(missing_ok=True)
        except OSError as error:
            raise BadFolder(f"{self.path / name}: {error.strerror}") from error


class GrantFolders:
    """All of them, below one folder."""

    def __init__(self, path: Path) -> None:
        """Raises ``NotUsable`` for a path that ssh would expand."""
        self.path = path
        checked_path(str(path))

    @property
    def pattern(self) -> str:
        """What ``Include`` names."""
        return f"{checked_path(str(self.path))}/{_GRANTS}/*/{CONFIG_FILE}"

    def create(self, record: FolderRecord) -> GrantFolder:
        """Make the folder of a new grant.

        Raises:
            BadFolder: see :meth:`making`.
        """
        with self.making(record) as folder:
            return folder

    @contextlib.contextmanager
    def making(self, record: FolderRecord) -> Iterator[GrantFolder]:
        """The folder of a new grant, which no other process sees before the end of the block. If that fails, nothing
        stays.

        Raises:
            BadFolder: it exists, or cannot be made private.
        """
        folder = self._make(record.key.uid)
        try:
            yield folder
            folder.write_record(record)
        except BaseException:  # also an interruption leaves no private key behind
            shutil.rmtree(folder.path, ignore_errors=True)
            raise

    def _make(self, uid: str) -> GrantFolder:
        grants = self.path / _GRANTS
        folder = grants / uid
        try:
            for one in (self.path.parent, self.path, grants):
                one.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._require_private()
            folder.mkdir(mode=0o700)
            (folder / _SESSIONS).mkdir(mode=0o700)
        except OSError as error:
            raise BadFolder(f"{folder}: {error.strerror}") from error
        return GrantFolder(folder)

    def all(self) -> Iterator[tuple[GrantFolder, FolderRecord]]:
        """Every folder that can be read, the newest first.

        Raises:
            BadFolder: another user may write there, whose files would be used as this program's.
        """
        self._require_private()
        with contextlib.suppress(OSError):
            found = [one for one in (self.path / _GRANTS).iterdir() if one.is_dir() and not one.is_symlink()]
            for path in sorted(found, key=lambda one: (-one.stat().st_mtime, one.name)):
                with contextlib.suppress(BadFolder):
                    folder = GrantFolder(path)
                    record = folder.record()
                    if record.key.uid == path.name:
                        yield folder, record

    def _require_private(self) -> None:
        """
        Raises:
            BadFolder: another user may put something into one of them, or another folder in its place.
        """
        if os.path.lexists(self.path):
            _require_fixed(self.path.parent)
        for one in (self.path, self.path / _GRANTS):
            if os.path.lexists(one):
                _require_private(one)

    def of(self, uid: str) -> GrantFolder:
        """The folder of a grant.

        Raises:
            BadFolder: there is none.
        """
        for folder, record in self.all():
            if record.key.uid == uid:
                return folder
        raise BadFolder(f"{self.path / _GRANTS / uid}: there is no such folder")

    def forget_ended(self) -> None:
        """Remove folders of grants that ended a week ago."""
        for folder, _ in list(self.all()):
            ended = folder.path / _ENDED
            with contextlib.suppress(OSError):
                if ended.stat().st_mtime + _KEPT_SECONDS < time.time():
                    shutil.rmtree(folder.path)


def _connector() -> Sequence[str]:
    """How ssh starts this program; empty where its path cannot stand in ssh's configuration."""
    words = connector()
    try:
        for one in words:
            if os.path.isabs(one):
                checked_path(one)
    except NotUsable:
        return WITHOUT_CONNECTOR
    return words


def _require_fixed(parent: Path) -> None:
    """
    Raises:
        BadFolder: another user could rename what is in it, and put something else in its place.
    """
    found = parent.stat()
    is_sticky = bool(found.st_mode & stat.S_ISVTX)
    if hasattr(os, "getuid") and (found.st_uid not in (0, os.getuid()) or (found.st_mode & 0o022 and not is_sticky)):
        raise BadFolder(f"{parent}: another user may rename what is in it; chmod go-w it, or use --folder")


def _require_private(folder: Path) -> None:
    """
    Raises:
        BadFolder: somebody else could write into it.
    """
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise BadFolder(f"{folder}: not a folder")
    if hasattr(os, "getuid") and (found.st_uid != os.getuid() or found.st_mode & 0o022):
        raise BadFolder(f"{folder}: another user may write there; chmod 700 it")
