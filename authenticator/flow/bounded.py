"""Bounds work that may hang in foreign code: the kernel ends this process, and thereby releases its locks."""

from __future__ import annotations

import contextlib
import faulthandler
import math
import signal
import sys
from collections.abc import Iterator
from typing import Final

_ATTESTOR_SECONDS: Final = 600.0
"""Time for an attestor beside the waits for decisions. A TPM may take a minute per key; Linux allows it five."""


def longest(*, exchanges: int, timeout: float) -> float:
    """Upper bound in seconds for that many exchanges, each with a wait of ``timeout``, unless something hangs."""
    return exchanges * timeout + _ATTESTOR_SECONDS


@contextlib.contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """End this process by SIGALRM if the block takes longer; a traceback on stderr shows where it hung.

    A Python signal handler would have to wait for the hanging C call. systemd's watchdog causes a core dump, which
    would contain a key, and does not cover a kubelet's plugin.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    if sys.__stderr__ is not None:
        faulthandler.register(signal.SIGALRM, file=sys.__stderr__, chain=True)
    signal.alarm(math.ceil(seconds))
    try:
        yield
    finally:
        signal.alarm(0)
        faulthandler.unregister(signal.SIGALRM)
