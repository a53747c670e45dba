"""Messages to the terminals of a session."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

FOLDER: Final = Path("/dev/pts")
"""The node's. A container has an instance of its own, with the same numbers."""
_PSEUDO_TERMINAL: Final = 136
"""Major number of the terminals that sshd opens (``UNIX98_PTY_SLAVE_MAJOR``)."""


def pseudo_terminals(devices: Iterable[int]) -> list[int]:
    """The pseudo-terminals among device numbers, as ``stat`` of proc(5) writes these, each once."""
    return sorted({_minor(device) for device in devices if _major(device) == _PSEUDO_TERMINAL})


def stream_paths(device: int) -> frozenset[str]:
    """What links of ``/proc/PID/fd`` say of a stream that may be that terminal.

    Only those are looked at: to look at a file of a process's own file system may take for ever.
    """
    return frozenset({f"{FOLDER}/{_minor(device)}"})


def is_among(device: int, streams: Iterable[os.stat_result], instance: int) -> bool:
    """Whether a process's terminal is among its streams, in the instance of devpts with that device number."""
    wanted = (instance, _major(device), _minor(device))
    return any(
        stat.S_ISCHR(one.st_mode) and (one.st_dev, os.major(one.st_rdev), os.minor(one.st_rdev)) == wanted
        for one in streams
    )


def write(number: int, message: str) -> None:
    """Show a message. A terminal that takes nothing is left alone."""
    with contextlib.suppress(OSError):
        opened = os.open(FOLDER / str(number), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
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
