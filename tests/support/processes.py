"""Starts real programs for tests, and stops all of them."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.support.closing import ClosedAtTheEnd

_STOP_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.05
_LOG_TAIL_LINES: Final = 25

# Cleans up after a test process that dies: at the end of its input it kills the process groups that it was given, and
# removes the folder. "done" means that everything was stopped normally.
_CLEANER: Final = """
groups=
while read -r group; do
    [ "$group" = done ] && exit 0
    groups="$groups $group"
done
for group in $groups; do kill -s KILL -- "-$group" 2>/dev/null; done
rm -rf -- "$1"
"""


_PORTS: Final = range(20_000, 32_768)
_RANDOM: Final = random.SystemRandom()  # hypothesis gives every worker the same numbers


class ProgramFailed(Exception):
    """A program ended, or was not ready in time; the message has the end of its log."""


def free_ports(number: int = 1) -> int:
    """The first of ``number`` consecutive free ports of 127.0.0.1.

    A program binds its port seconds later. Therefore the ports are below those of outgoing connections on Linux, of
    which other tests open thousands.
    """
    while True:
        first = _RANDOM.randrange(_PORTS.start, _PORTS.stop - number)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + number):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


def free_port() -> int:
    """A free port of 127.0.0.1; see :func:`free_ports`."""
    return free_ports()


def wait_until(ready: Callable[[], bool], what: str, timeout: float = 30.0) -> None:
    """Poll ``ready``; raises ``TimeoutError`` if it is still false after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout} s")
        time.sleep(_POLL_SECONDS)


class Program:
    """One running program in a process group of its own, with a log file."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.process = process
        self.log = log

    def wait_ready(self, ready: Callable[[], bool], timeout: float = 60.0) -> None:
        """Wait until ``ready``; raises ``ProgramFailed`` if the program ends or after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while not ready():
            self.check_running()
            if time.monotonic() > deadline:
                raise ProgramFailed(f"{self.name} was not ready within {timeout} s\n{self.log_tail()}")
            time.sleep(_POLL_SECONDS)

    def log_tail(self) -> str:
        """The last lines of the log; for a crashed Go program, the lines about the crash."""
        lines = self.log.read_text(errors="replace").splitlines()
        for number, line in enumerate(lines):
            if line.startswith(("panic: ", "fatal error: ")):
                return "\n".join(lines[number : number + _LOG_TAIL_LINES])
        return "\n".join(lines[-_LOG_TAIL_LINES:])

    def check_running(self) -> None:
        """Raises ``ProgramFailed`` when the program has ended by itself."""
        if self.process.poll() is not None:
            raise ProgramFailed(f"{self.name} ended with {self.process.returncode}\n{self.log_tail()}")

    def stop(self) -> None:
        """End the whole process group: politely, and after ten seconds by force."""
        self._signal(signal.SIGTERM)
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self.process.wait(_STOP_SECONDS)
        # Children that outlived the program.
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


class Programs(ClosedAtTheEnd):
    """A temporary folder, and the programs that run in it.

    Programs and folder are removed when the context ends, or when this process dies.
    """

    def __init__(self, prefix: str) -> None:
        memory = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(prefix=prefix, dir=memory if os.access(memory, os.W_OK) else None))
        self._running: list[Program] = []
        self._cleaner = subprocess.Popen(
            ["/bin/sh", "-c", _CLEANER, "cleaner", str(self.folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def start(self, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> Program:
        """Start a program; its output is appended to ``<name>.log``."""
        log = self.folder / f"{name}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={**os.environ, **(environment or {})},
                # A session of its own: Ctrl-C reaches only the tests, which then stop the program.
                start_new_session=True,
            )
        program = Program(name, process, log)
        self._running.append(program)
        self._tell_cleaner(str(process.pid))
        return program

    def stop(self, program: Program) -> None:
        """Stop one program."""
        program.stop()
        self._running.remove(program)

    def process_ids(self) -> dict[str, int]:
        """Process IDs of the running programs, by name."""
        return {program.name: program.process.pid for program in self._running}

    def check_running(self) -> None:
        """Raises ``ProgramFailed`` when one of the programs has ended by itself."""
        for program in self._running:
            program.check_running()

    def close(self) -> None:
        """Stop all programs, the latest first, and remove the folder."""
        while self._running:
            self._running.pop().stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._tell_cleaner("done")
        if self._cleaner.stdin is not None:
            self._cleaner.stdin.close()
        self._cleaner.wait(_STOP_SECONDS)

    def _tell_cleaner(self, line: str) -> None:
        if self._cleaner.stdin is None:
            raise ProgramFailed("the cleaner has no input")
        self._cleaner.stdin.write(f"{line}\n".encode())
        self._cleaner.stdin.flush()
