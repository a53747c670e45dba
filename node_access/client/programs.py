"""Other programs: argument lists without a shell, with bounds on what they print and how long they take."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from node_access.client.errors import ClientFailed

MAXIMUM_ERROR_BYTES: Final = 64 * 1024
_CHUNK: Final = 64 * 1024
_JOIN_SECONDS: Final = 5.0


class ProgramFailed(ClientFailed):
    """A program cannot be started, takes too long or prints too much."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How a program ended."""

    code: int
    output: bytes
    error: str


def run_bounded(
    command: Sequence[str],
    *,
    maximum_bytes: int,
    seconds: float,
    standard_input: bytes = b"",
    terminal: bool = False,
    environment: Mapping[str, str],
    on_error_line: Callable[[str], None] = lambda line: None,
) -> Finished:
    """Run a program and read what it prints. ``terminal``: it may ask the person at the terminal for something.

    Raises:
        ProgramFailed: see there; the program has been killed.
    """
    given = subprocess.PIPE if standard_input else None if terminal else subprocess.DEVNULL
    try:
        process = subprocess.Popen(  # noqa: S603
            list(command), stdin=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(environment)
        )
    except OSError as error:
        raise ProgramFailed(f"{command[0]} cannot be started: {error.strerror or error}") from error
    output = _Reading(process, process.stdout, maximum_bytes)
    error_output = _Reading(process, process.stderr, MAXIMUM_ERROR_BYTES, on_error_line)
    deadline = time.monotonic() + seconds
    writer = threading.Thread(target=_write, args=(process.stdin, standard_input), daemon=True)
    writer.start()
    try:
        code = process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise ProgramFailed(f"{command[0]} did not end within {seconds:.0f} seconds") from None
    finally:
        process.kill()
        process.wait()
        output.join()
        error_output.join()
    if output.is_too_long or error_output.is_too_long:
        raise ProgramFailed(f"{command[0]} printed more than {maximum_bytes} bytes")
    return Finished(code, output.content, error_output.content.decode("utf-8", "replace"))


def _write(pipe: IO[bytes] | None, content: bytes) -> None:
    if pipe is None:
        return
    with contextlib.suppress(OSError), pipe:  # it may end without reading all
        pipe.write(content)


class _Reading:
    """Reads a pipe to its end, or kills the program."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        pipe: IO[bytes] | None,
        maximum: int,
        on_line: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._process = process
        self._maximum = maximum
        self._on_line = on_line
        self.content = b""
        self.is_too_long = False
        self._thread = threading.Thread(target=self._read, args=(pipe,), daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for the end; a child of the program that keeps the pipe open is not waited for."""
        self._thread.join(_JOIN_SECONDS)

    def _read(self, pipe: IO[bytes] | None) -> None:
        assert pipe is not None
        shown = 0
        with pipe:
            while chunk := os.read(pipe.fileno(), _CHUNK):
                self.content += chunk
                if len(self.content) > self._maximum:
                    self.is_too_long = True
                    self._process.kill()
                    return
                while (end := self.content.find(b"\n", shown)) >= 0:
                    self._on_line(self.content[shown:end].decode("utf-8", "replace"))
                    shown = end + 1


def detach(command: Sequence[str], standard_input: bytes, log: IO[bytes]) -> None:
    """Start a program that outlives this one and its terminal.

    Raises:
        OSError: it cannot be started.
    """
    if sys.platform == "win32":
        flags, is_session = subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP, False
    else:
        flags, is_session = 0, True
    process = subprocess.Popen(  # noqa: S603
        list(command),
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        creationflags=flags,
        start_new_session=is_session,
    )
    _write(process.stdin, standard_input)
    process.returncode = 0  # nobody waits for it


def own_command() -> list[str]:
    """How this program is started again: from the zipapp that it is in, or from the installed package."""
    root = Path(__file__).parents[2]
    if root.is_file():
        return [sys.executable, str(root)]
    return [sys.executable, "-P", "-m", "node_access.client"]


def connector() -> list[str]:
    """How ssh starts ``connect``; empty where ssh takes no socket from another program."""
    return [] if sys.platform == "win32" else own_command()
