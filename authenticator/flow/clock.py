"""Time, in one place, so that tests can control it."""

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
    return random.random()  # noqa: S311 - it spreads load and protects nothing


@dataclass(frozen=True, slots=True)
class Clock:
    """The wall clock for stored times, the monotonic clock for waiting."""

    wall: Callable[[], float] = time.time
    """Unix time."""
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    jitter: Callable[[], float] = _jitter
    """Between 0 and 1."""

    def now(self) -> int:
        """Unix time in whole seconds."""
        return int(self.wall())

    def today(self) -> datetime:
        """The wall clock as a datetime in UTC."""
        return datetime.fromtimestamp(self.wall(), UTC)


def interruptible_sleep() -> Callable[[float], None]:
    """A sleep that ends at each signal, for the main thread; call it once per process.

    ``time.sleep`` continues if a signal arrives between Python's last check and the system call, or in another thread:
    a service that is told to stop would sleep on for minutes.
    """
    woken, waker = socket.socketpair()
    for end in (woken, waker):
        end.setblocking(False)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)

    def sleep(seconds: float, _kept_open: socket.socket = waker) -> None:
        if select.select([woken], [], [], seconds)[0]:
            woken.recv(4096)

    return sleep
