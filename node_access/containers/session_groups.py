"""The control group of a session: inside the container's own, so that everything in it ends together.

Limits of the container hold for it, as it is below. setsid, nohup and double forks do not leave it; a process could
only with a writable mount of control groups, which the container itself would need.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

VERSION_2: Final = ""
_FREEZER: Final = "freezer"
_CPUSET_FILES: Final = ("cpuset.cpus", "cpuset.mems")
"""Nothing can enter a cpuset of version 1 without them."""
_NAME: Final = re.compile(r"/(?:[^/\0\n]+/)+node-access-[0-9a-f]{16}")
_ROUNDS: Final = 500
_PAUSE_SECONDS: Final = 0.01


class NoGroup(Exception):
    """The container has no control group in which a session could end."""


class Survives(Exception):
    """Processes of a session are left that no signal ends."""


@dataclass(frozen=True, slots=True)
class SessionGroup:
    """A control group in which one session's processes are."""

    path: str
    """Absolute, as this machine has it mounted."""
    beside: tuple[str, ...] = ()
    """Those of the same name in other hierarchies of version 1, for crun: it leaves the container's groups where its
    ``--cgroup`` finds none, and the container's limits with them."""

    def __post_init__(self) -> None:
        for path in (self.path, *self.beside):
            if _NAME.fullmatch(path) is None or ".." in path.split("/") or not path.endswith(f"/{self.name}"):
                raise NoGroup("that is no control group of a session")

    @property
    def name(self) -> str:
        """Its last component."""
        return self.path.rpartition("/")[2]

    def make(self) -> None:
        """Make it. Raises OSError."""
        for path in (self.path, *self.beside):
            os.mkdir(path, 0o755)
            for name in _CPUSET_FILES:
                if os.path.exists(f"{path}/{name}"):
                    _write(f"{path}/{name}", Path(os.path.dirname(path), name).read_text("ascii"))

    def end(self) -> None:
        """End every process in it, and those that they start meanwhile, and remove it.

        Raises:
            Survives: some are left.
        """
        self._end()
        for path in self.beside:
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(path)

    def _end(self) -> None:
        for _ in range(_ROUNDS):
            try:
                self._kill()
                os.rmdir(self.path)
            except FileNotFoundError:
                return
            except OSError as error:
                if error.errno == errno.ENODEV:  # removed, with the file of it open
                    return
                if error.errno not in (errno.EBUSY, errno.ENOTEMPTY):
                    raise
            else:
                return
            time.sleep(_PAUSE_SECONDS)
        raise Survives(f"{self.path}: processes are left")

    def _kill(self) -> None:
        if os.path.exists(f"{self.path}/cgroup.kill"):  # version 2, since Linux 5.14
            _write(f"{self.path}/cgroup.kill", "1")
            return
        freezer = next(
            (name for name in ("freezer.state", "cgroup.freeze") if os.path.exists(f"{self.path}/{name}")), ""
        )
        on, off = ("FROZEN", "THAWED") if freezer == "freezer.state" else ("1", "0")
        if freezer:
            _write(f"{self.path}/{freezer}", on)
        try:
            for pid in Path(self.path, "cgroup.procs").read_text("ascii").split():
                _kill_member(int(pid), self.path)
        finally:
            if freezer:
                _write(f"{self.path}/{freezer}", off)


def session_group(groups: Mapping[str, str], session: str, runtime: str) -> SessionGroup:
    """The group of a session with that number, 16 hexadecimal digits, in a container with these groups.

    Version 1 has one for each controller; the freezer limits nothing, and stops what forks while it is killed. Where
    both versions are, runc takes version 1.

    Raises:
        NoGroup: the container has none.
    """
    name = f"node-access-{session}"
    for controller in (_FREEZER, VERSION_2):
        if controller in groups and Path(groups[controller], "cgroup.procs").exists():
            path = f"{groups[controller].rstrip('/')}/{name}"
            others = {f"{of}/{name}" for of in groups.values()} - {path} if runtime == "crun" else set()
            return SessionGroup(path, tuple(sorted(others)))
    raise NoGroup("the container has no control group of its own")


def runtime_option(groups: Mapping[str, str], group: SessionGroup) -> str:
    """The value of ``runc exec --cgroup`` (``[CONTROLLER:]CGROUP``)."""
    is_version_2 = groups.get(VERSION_2, "") == os.path.dirname(group.path)
    return group.name if is_version_2 else f"{_FREEZER}:{group.name}"


def _kill_member(pid: int, path: str) -> None:
    with contextlib.suppress(ProcessLookupError):
        held = os.pidfd_open(pid)
        try:
            if str(pid) in Path(path, "cgroup.procs").read_text("ascii").split():  # the number is still that process's
                signal.pidfd_send_signal(held, signal.SIGKILL)
        finally:
            os.close(held)


def _write(path: str, text: str) -> None:
    opened = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(opened, text.encode("ascii"))
    finally:
        os.close(opened)
