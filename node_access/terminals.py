"""Messages to the terminals of a session."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_PSEUDO_TERMINAL: Final = 136
"""Major number of the terminals that sshd opens (``UNIX98_PTY_SLAVE_MAJOR``)."""


def pseudo_terminals(devices: Iterable[int]) -> list[int]:
    """The pseudo-terminals among device numbers, as ``stat`` of proc(5) writes these, each once."""
    return sorted({_minor(device) for device in devices if _major(device) == _PSEUDO_TERMINAL})


def write(number: int, message: str, folder: Path = Path("/dev/pts")) -> None:
    """Show a message. A terminal that takes nothing is left alone."""
    with contextlib.suppress(OSError):
        opened = os.open(folder / str(number), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            found = os.fstat(opened)
            if stat.S_ISCHR(found.st_mode) and os.major(found.st_rdev) == _PSEUDO_TERMINAL:
                os.write(opened, f"\r\n\a{message}\r\n".encode("ascii"))
        finally:
            os.close(opened)


def _major(device: int) -> int:
    return device >> 8 & 0xFFF


def _minor(device: int) -> int:
    return device & 0xFF | device >> 12 & 0xFFF00
