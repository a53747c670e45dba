"""A bound on work that may hang in somebody else's code: the kernel ends this process, and so releases its locks."""

from __future__ import annotations

import contextlib
import faulthandler
import math
import signal
import sys
from collections.abc import Iterator
from typing import Final

_ATTESTOR_SECONDS: Final = 600.0
"""What an attestor may take beside the waits for a decision. A TPM may take a minute for a key; Linux gives it five."""


def longest(*, exchanges: int, timeout: float) -> float:
    """The seconds that so many exchanges never take, each with a wait of ``timeout``, unless something hangs."""
    return exchanges * timeout + _ATTESTOR_SECONDS


@contextlib.contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """End this process by SIGALRM where the block takes longer, and say on stderr where it hung: in a traceback.

    Not by a handler in Python, which would wait for the call in C that hangs; nor by systemd's watchdog, which asks for
    a core dump, in which a key would be, and knows nothing of a kubelet's plugin.
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
