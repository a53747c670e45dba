"""Control groups: one for each connection, and what ends with it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SLICE: Final = "/nodeaccess.slice"
_UNIT: Final = re.compile(r"/nodeaccess\.slice/node-access-(?:containers-)?ssh@[^/\x00-\x20]{1,240}\.service")
_VERSION_1: Final = ":name=systemd:"
_VERSION_2: Final = "0::"
_ROUNDS: Final = 200
_PAUSE_SECONDS: Final = 0.01


class NotAConnection(Exception):
    """The process is in no unit of a connection."""


class Gone(Exception):
    """The control group does not exist any more, or another connection has its path."""


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Where systemd keeps its units."""

    root: Path
    mark: str
    """Of its line in ``/proc/PID/cgroup``."""

    def connection_of(self, lines: str) -> str:
        """The control group of the connection to which a process belongs, from its ``/proc/PID/cgroup``.

        Raises:
            NotAConnection: it belongs to none.
        """
        for line in lines.splitlines():
            path = line.partition(":")[2].partition(":")[2]
            if self.mark in line[: len(line) - len(path)] and _UNIT.fullmatch(path) is not None:
                return path
        raise NotAConnection("the process is in no unit of a connection in nodeaccess.slice")

    def connections(self) -> list[str]:
        """The control groups of all connections."""
        try:
            names = [entry.name for entry in os.scandir(f"{self.root}{SLICE}") if entry.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return []
        return [path for path in (f"{SLICE}/{name}" for name in sorted(names)) if _UNIT.fullmatch(path)]

    def inode(self, path: str) -> int:
        """Which control group that path is now.

        Raises:
            Gone: none.
        """
        try:
            return os.stat(f"{self.root}{path}").st_ino
        except FileNotFoundError:
            raise Gone(path) from None

    def pids(self, path: str, inode: int) -> list[int]:
        """The processes in it. Raises as :meth:`kill`."""
        with self._opened(path, inode) as folder:
            return _pids(folder)

    def signal(self, path: str, inode: int, number: signal.Signals) -> None:
        """Send each process a signal. Raises as :meth:`kill`."""
        with self._opened(path, inode) as folder:
            _signal_all(folder, number)

    def kill(self, path: str, inode: int) -> None:
        """End every process in it, and those that they start meanwhile.

        Raises:
            Gone: it does not exist any more, or is another one.
        """
        with self._opened(path, inode) as folder:
            try:
                switch = os.open("cgroup.kill", os.O_WRONLY | os.O_CLOEXEC, dir_fd=folder)
            except FileNotFoundError:  # version 1, and version 2 before Linux 5.14
                _kill_one_by_one(folder)
                return
            try:
                os.write(switch, b"1")
            finally:
                os.close(switch)

    @contextlib.contextmanager
    def _opened(self, path: str, inode: int) -> Iterator[int]:
        try:
            folder = os.open(f"{self.root}{path}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise Gone(path) from None
        try:
            if os.fstat(folder).st_ino != inode:
                raise Gone(path)
            yield folder
        except OSError as error:
            if error.errno in (2, 19):  # ENOENT, ENODEV: removed meanwhile
                raise Gone(path) from None
            raise
        finally:
            os.close(folder)


def find_hierarchy(mount: Path = Path("/sys/fs/cgroup")) -> Hierarchy:
    """The hierarchy that systemd uses on this machine: version 2, both, or version 1."""
    for root in (mount, mount / "unified"):
        if (root / "cgroup.controllers").exists():
            return Hierarchy(root, _VERSION_2)
    return Hierarchy(mount / "systemd", _VERSION_1)


def _pids(folder: int) -> list[int]:
    with open(os.open("cgroup.procs", os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder), encoding="ascii") as file:
        return [int(line) for line in file.read().split()]


def _signal_all(folder: int, number: signal.Signals) -> None:
    for pid in _pids(folder):
        with contextlib.suppress(ProcessLookupError):
            held = os.pidfd_open(pid)
            try:
                if pid in _pids(folder):  # so the number is still that process's
                    signal.pidfd_send_signal(held, number)
            finally:
                os.close(held)


def _kill_one_by_one(folder: int) -> None:
    """Stopped processes start no others: each round stops more than can be started, until nothing is left."""
    for _ in range(_ROUNDS):
        if not _pids(folder):
            return
        _signal_all(folder, signal.SIGSTOP)
        _signal_all(folder, signal.SIGKILL)
        time.sleep(_PAUSE_SECONDS)
