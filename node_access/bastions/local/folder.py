"""The files of one bastion: what exists is what these files and their locks say.

::

    <folder>/<owner>/<UID>/
        bastion.json      names, port, when it was made: the first file, by which the port is taken
        host_key          mode 0600
        sshd_config
        authorized_keys   with the ingress; sshd reads it at each login
        end               seconds since 1970, when the keeper ends sshd and removes this folder
        restart           exists between a change that ends connections and that end
        lock              locked by the keeper while it runs; holds its process ID

Each file is written beside and renamed, so that a reader sees the old or the new one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from node_access.bastions.contract import BastionReference, InvalidBastion

STATE: Final = "bastion.json"
HOST_KEY: Final = "host_key"
CONFIGURATION: Final = "sshd_config"
AUTHORITIES: Final = "authorized_keys"
END: Final = "end"
RESTART: Final = "restart"
LOCK: Final = "lock"
LOG: Final = "log"
_UNKNOWN: Final = "unknown"
_MAXIMUM_STATE_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class State:
    """``bastion.json``."""

    reference: BastionReference
    port: int
    made_at: float
    """Seconds since 1970."""

    def encode(self) -> bytes:
        """The file."""
        names = self.reference
        return json.dumps(
            {
                "uid": names.uid,
                "namespace": names.namespace,
                "name": names.name,
                "cluster": names.cluster,
                "port": self.port,
                "madeAt": self.made_at,
            }
        ).encode()


class NoState(Exception):
    """There is no file yet, or it is none of ours."""


@dataclass(frozen=True, slots=True)
class KeptBy:
    """The keeper runs."""

    process: int


@dataclass(frozen=True, slots=True)
class NotKept:
    """No keeper runs, so no sshd does."""


class BastionFolder:
    """The folder of one bastion."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self) -> None:
        """Make the folder if it is not there. sshd reads the authorities as the account ``bastion``."""
        self.path.mkdir(mode=0o755, exist_ok=True)

    def write(self, name: str, content: bytes, *, mode: int = 0o644) -> None:
        """Write a file unless it has this content."""
        file = self.path / name
        if self.read(name) == content:
            return
        # In the folder itself: what a kill leaves is removed with it.
        beside = self.path / f".{name}.new"
        beside.unlink(missing_ok=True)
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content)
        beside.rename(file)

    def read(self, name: str) -> bytes:
        """The content; empty if there is no such file."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return b""

    def state(self) -> State:
        """What ``bastion.json`` says.

        Raises:
            NoState: nothing that this program writes.
        """
        raw = self.read(STATE)
        try:
            if len(raw) > _MAXIMUM_STATE_BYTES:
                raise NoState
            document = json.loads(raw)
            reference = BastionReference(document["uid"], document["namespace"], document["name"], document["cluster"])
            state = State(reference, int(document["port"]), float(document["madeAt"]))
        except (KeyError, TypeError, ValueError) as error:
            raise NoState from error
        if reference.uid != self.path.name:
            raise NoState
        return state

    def reference(self) -> BastionReference:
        """The UID, and the names as far as they are known. Raises NoState where the folder's name is no UID."""
        try:
            return self.state().reference
        except NoState:
            with contextlib.suppress(InvalidBastion):
                return BastionReference(self.path.name, _UNKNOWN, _UNKNOWN, _UNKNOWN)
            raise

    def made_at(self) -> float:
        """When it was made, in seconds since 1970."""
        try:
            return self.state().made_at
        except NoState:
            return self.path.stat().st_mtime

    def keeper(self) -> KeptBy | NotKept:
        """Whether the keeper runs: the lock says so, which the kernel takes from a process that ends."""
        try:
            descriptor = os.open(self.path / LOCK, os.O_RDWR)
        except FileNotFoundError:
            return NotKept()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            text = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            # Empty for a moment: the keeper has the lock, and not yet written its number. 0 is no process.
            return KeptBy(int(text) if text.isdecimal() else 0)
        finally:
            os.close(descriptor)
        return NotKept()

    def remove(self) -> None:
        """Remove every file, the one with the names last, so that what is left after a kill still says whose it is."""
        if not self.path.exists():
            return
        for file in list(self.path.iterdir()):
            if file.name != STATE:
                file.unlink(missing_ok=True)
        shutil.rmtree(self.path, ignore_errors=False)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time chooses a port, and makes or removes a folder below. The kernel unlocks after a kill."""
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
