"""Processes, as proc(5) shows them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from node_access.values import ProcessIdentity

_ZOMBIES: Final = frozenset("ZXx")
_MAXIMUM_BYTES: Final = 256 * 1024
_PARENT, _SESSION, _TERMINAL, _STARTED = 1, 3, 4, 19
"""Fields of ``stat`` behind the name, from the state on."""


class NoProcess(Exception):
    """It has ended, or another one has its number now."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process that runs."""

    identity: ProcessIdentity
    name: str
    parent: int
    session: int
    """Of setsid(2), to which a terminal belongs."""
    terminal: int
    """Device number; 0 for none. Each container has terminals of its own, whose numbers are those of others."""


class Processes:
    """The processes of this machine."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc

    def find(self, pid: int) -> Process:
        """The process with that number.

        Raises:
            NoProcess: there is none, or it has ended and waits for its parent.
        """
        state, process = self._read(pid)
        if state in _ZOMBIES:
            raise NoProcess(pid)
        return process

    def require(self, identity: ProcessIdentity) -> Process:
        """That very process. Raises as :meth:`find`."""
        process = self.find(identity.pid)
        if process.identity != identity:
            raise NoProcess(identity.pid)
        return process

    def runs(self, identity: ProcessIdentity) -> bool:
        """Whether that very process runs."""
        try:
            self.require(identity)
        except NoProcess:
            return False
        return True

    def is_collected(self, identity: ProcessIdentity) -> bool:
        """Whether it has ended, and its parent has taken note."""
        try:
            return self._read(identity.pid)[1].identity != identity
        except NoProcess:
            return True

    def all(self) -> Iterator[Process]:
        """Every process that runs."""
        for entry in self._proc.iterdir():
            if entry.name.isdigit():
                try:
                    yield self.find(int(entry.name))
                except NoProcess:
                    continue

    def control_groups(self, pid: int) -> str:
        """The control groups of a process, a line for each hierarchy. Raises as :meth:`find`."""
        return self._text(pid, "cgroup")

    def environment(self, pid: int) -> bytes:
        """``NAME=VALUE``, each between two NULs, as when the program started. Raises as :meth:`find`.

        Anything may be in it: it is the process's memory. It is searched, for splitting takes a hundred times as long.
        """
        return b"\0" + self._content(pid, "environ") + b"\0"

    def streams(self, pid: int, paths: Container[str]) -> list[os.stat_result]:
        """Its standard streams among those paths."""
        found: list[os.stat_result] = []
        for number in range(3):
            link = self._proc / str(pid) / "fd" / str(number)
            with contextlib.suppress(OSError):  # closed, or the process has ended
                if os.readlink(link) in paths:
                    found.append(os.stat(link))
        return found

    def _read(self, pid: int) -> tuple[str, Process]:
        text = self._text(pid, "stat")
        name, _, rest = text.partition("(")[2].rpartition(")")
        fields = rest.split()
        identity = ProcessIdentity(pid, int(fields[_STARTED]))
        parent, session, terminal = (int(fields[number]) for number in (_PARENT, _SESSION, _TERMINAL))
        return fields[0], Process(identity, name, parent, session, terminal)

    def _text(self, pid: int, file: str) -> str:
        return self._content(pid, file).decode("utf-8", "replace")

    def _content(self, pid: int, file: str) -> bytes:
        try:
            with (self._proc / str(pid) / file).open("rb") as opened:
                content = opened.read(_MAXIMUM_BYTES)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            raise NoProcess(pid) from None
        if not content and file == "stat":
            raise NoProcess(pid)
        return content
