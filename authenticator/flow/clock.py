"""Time, in one place, so that tests can say what it is."""

from __future__ import annotations

import random
import select
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


def _jitter() -> float:
    return random.random()  # noqa: S311 - it spreads load, it protects nothing


@dataclass(frozen=True, slots=True)
class Clock:
    """The wall clock for what is stored, the monotonic one for waiting."""

    wall: Callable[[], float] = time.time
    """Unix time."""
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    jitter: Callable[[], float] = _jitter
    """Between 0 and 1."""

    def now(self) -> int:
        """Unix time, whole seconds."""
        return int(self.wall())

    def today(self) -> datetime:
        """The wall clock as a datetime in UTC."""
        return datetime.fromtimestamp(self.wall(), UTC)


def interruptible_sleep() -> Callable[[float], None]:
    """A sleep that ends with each signal, for the main thread of a process; once in its life.

    ``time.sleep`` goes on where a signal comes after Python's last look for one and before the system call, or to
    another thread: a service that is told to stop would sleep on for minutes.
    """
    woken, waker = socket.socketpair()
    for end in (woken, waker):
        end.setblocking(False)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)

    def sleep(seconds: float, _kept_open: socket.socket = waker) -> None:
        if select.select([woken], [], [], seconds)[0]:
            woken.recv(4096)

    return sleep
