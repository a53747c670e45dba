"""Start real programs for tests, and leave none of them behind."""

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

# Outlives a test process that dies without cleaning up: at the end of its input it kills the process groups it was
# told of and removes the folder. "done" means that everything was stopped in the ordinary way.
_UNDERTAKER: Final = """
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
    """A program ended, or was not ready in time. The text holds the tail of its log."""


def free_ports(number: int = 1) -> int:
    """The first of ``number`` ports of 127.0.0.1, one behind the other, that nobody listens on now.

    A program binds its port seconds later. These are below the ports that Linux gives to outgoing connections, of
    which other tests open thousands meanwhile.
    """
    while True:
        first = _RANDOM.randrange(_PORTS.start, _PORTS.stop - number)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + number):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now; see :func:`free_ports`."""
    return free_ports()


def wait_until(ready: Callable[[], bool], what: str, timeout: float = 30.0) -> None:
    """Ask ``ready`` again and again; ``TimeoutError`` when it is still false after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout} s")
        time.sleep(_POLL_SECONDS)


class Program:
    """One running program in a process group of its own, its output in a log file."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.process = process
        self.log = log

    def wait_ready(self, ready: Callable[[], bool], timeout: float = 60.0) -> None:
        """Wait until ``ready``; raises ``ProgramFailed`` when the program ends or ``timeout`` seconds pass before."""
        deadline = time.monotonic() + timeout
        while not ready():
            self.check_running()
            if time.monotonic() > deadline:
                raise ProgramFailed(f"{self.name} was not ready within {timeout} s\n{self.log_tail()}")
            time.sleep(_POLL_SECONDS)

    def log_tail(self) -> str:
        """The last lines that the program wrote; of a crashed Go program the lines where the crash is told."""
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
        # Children of the program that did not go with it.
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


class Programs(ClosedAtTheEnd):
    """A folder of its own and the programs that run in it.

    Everything goes when the context ends, or when this process dies.
    """

    def __init__(self, prefix: str) -> None:
        memory = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(prefix=prefix, dir=memory if os.access(memory, os.W_OK) else None))
        self._running: list[Program] = []
        self._undertaker = subprocess.Popen(
            ["/bin/sh", "-c", _UNDERTAKER, "undertaker", str(self.folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def start(self, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> Program:
        """Start a program; its output goes to the end of ``<name>.log``."""
        log = self.folder / f"{name}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={**os.environ, **(environment or {})},
                # A session of its own: Ctrl-C at the terminal reaches the tests, and they stop it in order.
                start_new_session=True,
            )
        program = Program(name, process, log)
        self._running.append(program)
        self._tell_undertaker(str(process.pid))
        return program

    def stop(self, program: Program) -> None:
        """Stop one of the programs before the others."""
        program.stop()
        self._running.remove(program)

    def process_ids(self) -> dict[str, int]:
        """The programs that were started and not stopped, by name."""
        return {program.name: program.process.pid for program in self._running}

    def check_running(self) -> None:
        """Raises ``ProgramFailed`` when one of the programs has ended by itself."""
        for program in self._running:
            program.check_running()

    def close(self) -> None:
        """Stop all, the youngest first, and remove the folder."""
        while self._running:
            self._running.pop().stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._tell_undertaker("done")
        if self._undertaker.stdin is not None:
            self._undertaker.stdin.close()
        self._undertaker.wait(_STOP_SECONDS)

    def _tell_undertaker(self, line: str) -> None:
        if self._undertaker.stdin is None:
            raise ProgramFailed("the undertaker has no input")
        self._undertaker.stdin.write(f"{line}\n".encode())
        self._undertaker.stdin.flush()
