"""A user of sshd for each container: a uid of a pool, by which the agent knows later whose session asks.

A uid that was one container's becomes another's only when no process has it, and a while after nobody could log in
with it any more: a login that had begun still had the earlier name.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from attestors.wire.ssh.container_names import parse_container_principal
from attestors.wire.ssh.errors import SSHRefused
from node_access.containers.documents import Unreadable, member, read_bytes, read_object

FIRST_UID: Final = 1_879_048_192
"""0x70000000: above the ranges of systemd, of subordinate uids, and of OpenShift; below 2**31."""
POOL_SIZE: Final = 4096
"""More than a kubelet runs containers, with 110 or 250 Pods."""
STATE: Final = Path("/var/lib/node-access-containers/users.json")
DATABASE: Final = Path("/var/lib/extrausers/passwd")
"""Where libnss-extrausers looks."""
SHELL: Final = "/usr/lib/node-access/container-session"
REST_SECONDS: Final = 120.0
"""Six times sshd's LoginGraceTime: that long a uid rests before another container gets it."""
_UID_LINE: Final = b"Uid:"


class InvalidState(Exception):
    """A file of this program is not as it left it; the message names the remedy."""


@dataclass(frozen=True, slots=True)
class Pool:
    """The uids that containers get."""

    first: int = FIRST_UID
    size: int = POOL_SIZE

    def __contains__(self, uid: int) -> bool:
        return self.first <= uid < self.first + self.size

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.first + self.size))


@dataclass(slots=True)
class Users:
    """Which container has which uid. One thread uses it."""

    pool: Pool
    by_name: dict[str, int] = field(default_factory=dict)
    """Of containers that are there, and of those whose uid rests."""
    resting: dict[str, float] = field(default_factory=dict)
    """Since when a container is not there, in seconds since boot."""
    without: set[str] = field(default_factory=set)
    """Containers that have none, because the pool is exhausted."""

    def name_of(self, uid: int) -> str:
        """The container of a user.

        Raises:
            KeyError: it is none's, or its container is gone.
        """
        for name, of in self.by_name.items():
            if of == uid and name not in self.resting:
                return name
        raise KeyError(uid)

    def present(self) -> dict[str, int]:
        """Containers that are there, with their uids."""
        return {name: uid for name, uid in self.by_name.items() if name not in self.resting}

    def needs_update(self, names: Iterable[str]) -> bool:
        """Whether :meth:`update` could change anything: the uids of all processes take a while to read."""
        return bool(self.resting) or bool(self.without) or set(names) != set(self.by_name)

    def update(self, names: Iterable[str], now: float, used: Iterable[int]) -> None:
        """Take note of the containers that are there now.

        ``now`` is in seconds since boot; ``used`` are the uids of the processes of this machine.
        """
        wanted = set(names)
        for name in list(self.by_name):
            if name in wanted:
                self.resting.pop(name, None)
            else:
                self.resting.setdefault(name, now)
        in_use = set(used)
        self._release(now, in_use)
        self.without = set()
        for name in sorted(wanted - self.by_name.keys()):
            self._assign(name, in_use)

    def _release(self, now: float, used: set[int]) -> None:
        for name, since in list(self.resting.items()):
            if now - since >= REST_SECONDS and self.by_name[name] not in used:
                del self.resting[name], self.by_name[name]

    def _assign(self, name: str, used: set[int]) -> None:
        taken = used.union(self.by_name.values())
        free = next((uid for uid in self.pool if uid not in taken), None)
        if free is None:
            self.without.add(name)
        else:
            self.by_name[name] = free


def load_users(path: Path, pool: Pool, now: float) -> Users:
    """The users as they were. All rest until their containers are seen.

    Raises:
        InvalidState: the file is not this program's, or of another pool.
    """
    if not os.path.lexists(path):
        return Users(pool)
    try:
        found = member(read_object(path), "users")
    except Unreadable as unreadable:
        raise InvalidState(f"{path}: {unreadable}: end all sessions, remove it, and start again") from None
    try:
        names = [str(parse_container_principal(name)) for name in found]
    except SSHRefused:
        names = []
    uids = list(found.values())
    if names != list(found) or not all(type(uid) is int and uid in pool for uid in uids) or len({*uids}) != len(uids):
        raise InvalidState(f"{path} does not agree with the pool of uids: end all sessions, remove it, and start again")
    return Users(pool, dict(found), dict.fromkeys(found, now))


def save_users(users: Users, path: Path) -> None:
    """Keep them over restarts and reboots. Raises OSError."""
    replace_file(path, json.dumps({"users": users.by_name}, indent=1).encode("ascii"), 0o600)


def write_database(present: Mapping[str, int], group: int, path: Path = DATABASE) -> None:
    """Write passwd(5) lines for sshd. Raises OSError."""
    lines = (f"{name}:*:{uid}:{group}::/:{SHELL}\n" for name, uid in sorted(present.items()))
    replace_file(path, "".join(lines).encode("ascii"), 0o644)


def require_own_database(path: Path, pool: Pool) -> None:
    """Require that the file is ours to replace.

    Raises:
        InvalidState: something else has users there.
    """
    try:
        lines = read_bytes(path).splitlines() if os.path.lexists(path) else []
        uids = [int(line.split(b":")[2]) for line in lines]
    except (Unreadable, ValueError, IndexError):
        raise InvalidState(f"{path} has lines that are not this program's: move these users to /etc/passwd") from None
    if not all(uid in pool for uid in uids):
        raise InvalidState(f"{path} has users that are not this program's: move them to /etc/passwd")


def used_uids(pool: Pool, proc: Path = Path("/proc")) -> set[int]:
    """The uids of the pool that a process has: real, effective, saved, or of the file system (proc(5))."""
    found: set[int] = set()
    for entry in os.scandir(proc):
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            for line in Path(entry.path, "status").read_bytes().splitlines():
                if line.startswith(_UID_LINE):
                    found.update(uid for uid in map(int, line.split()[1:]) if uid in pool)
    return found


def replace_file(path: Path, content: bytes, mode: int) -> None:
    """Replace a file by one rename, and keep it over a loss of power. Raises OSError."""
    partial = path.with_name(f".{path.name}.partial")
    opened = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with open(opened, "wb") as file:
        os.fchmod(opened, mode)
        file.write(content)
        file.flush()
        os.fsync(opened)
    os.replace(partial, path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
