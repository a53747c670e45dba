"""Signals that end this program: it cleans up, and then ends by the signal itself.

So a shell sees that it was interrupted, and ends its script, and no exit code looks like the remote command's.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Final

_SHELLS_BASE: Final = 128
"""A shell shows the end by a signal as this and the signal's number."""


class Signalled(BaseException):
    """A signal asked this process to end, or ended the program that it ran."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def clean_up_on_signals() -> None:
    """A closed terminal ends this process as an exception does, so that the grant is revoked."""
    for name in ("SIGHUP", "SIGTERM"):
        if hasattr(signal, name) and threading.current_thread() is threading.main_thread():
            signal.signal(getattr(signal, name), _raise)


def end_by(number: int) -> int:
    """End this process by that signal; returns an exit code where that is not possible."""
    if sys.platform != "win32":
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    return _SHELLS_BASE + number


def _raise(number: int, _: object) -> None:
    raise Signalled(number)
