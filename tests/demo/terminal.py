"""Runs ``node-attestation-controller`` as a person does on a terminal, and prints command and output."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

PROGRAM: Final = "node-attestation-controller"
_ROWS: Final = 60
_READ_BYTES: Final = 64 * 1024
_ASKS: Final = b"[y/N] "


def program() -> str:
    """The program of this virtual environment."""
    return str(Path(sys.executable).parent / PROGRAM)


@dataclass(frozen=True)
class Terminal:
    """A person's terminal, as wide as ``console``."""

    console: Console
    environment: Mapping[str, str]

    def run(self, *arguments: str) -> int:
        """Run the program, answer its question with yes if it asks, and print what a person sees. Returns its exit
        code.
        """
        self.console.print(Text(f"$ {PROGRAM} {' '.join(arguments)}", style="bold"), soft_wrap=True)
        code, output = run_on_terminal([program(), *arguments], self.console.width, self.environment)
        for line in Text.from_ansi(output).split():
            line.rstrip()
            self.console.print(line, soft_wrap=True)
        self.console.print()
        return code


def run_on_terminal(command: Sequence[str], columns: int, environment: Mapping[str, str]) -> tuple[int, str]:
    """The exit code and what stands on the terminal of a program, with colours. It is answered once, with yes."""
    ours, theirs = pty.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, columns, 0, 0))
        hidden = {"COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"}
        inherited = {name: value for name, value in os.environ.items() if name not in hidden}
        process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**inherited, "TERM": "xterm-256color", **environment},
            start_new_session=True,
        )
    finally:
        os.close(theirs)
    output = b""
    try:
        with contextlib.suppress(OSError):  # EIO: the program has closed its terminal
            while read := os.read(ours, _READ_BYTES):
                if _ASKS not in output and _ASKS in output + read:
                    os.write(ours, b"y\n")
                output += read
    finally:
        os.close(ours)
    return process.wait(), output.decode("utf-8", "replace").replace("\r\r\n", "\n").replace("\r\n", "\n").strip("\r\n")
