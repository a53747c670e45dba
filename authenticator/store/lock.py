"""The lock that concurrent invocations share: the kubelet, kubeadm and the agent may all ask at once.

``flock(2)``: the kernel releases it when its holder ends, however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from authenticator.model.failures import StoreUnusable

_POLL_SECONDS: Final = 0.05
_MAXIMUM_HOLDER_BYTES: Final = 32


class LockHeld(StoreUnusable):
    """Somebody else holds the lock; the message says which process and for what."""


@contextlib.contextmanager
def locked(path: Path, *, timeout: float) -> Iterator[None]:
    """Hold the lock of ``path`` for the duration of a block; wait at most ``timeout`` seconds for it.

    Raises:
        LockHeld: somebody else held it all that time.
        OSError: the lock's file cannot be opened.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        _acquire(descriptor, path, time.monotonic() + timeout, timeout)
        with contextlib.suppress(OSError):  # a note for others; a full disk is no reason to stop
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # also where an attestor forked a process, which holds it, too
        with contextlib.suppress(OSError):  # of the note, as over NFS; Linux closes it in any case
            os.close(descriptor)


def _acquire(descriptor: int, path: Path, deadline: float, timeout: float) -> None:
    # flock(2) knows no timeout, and a signal that interrupts it would need the main thread.
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                holder = os.pread(descriptor, _MAXIMUM_HOLDER_BYTES, 0).decode("ascii", "replace").strip()
                raise LockHeld(
                    f"process {holder or 'unknown'} held {path} for {timeout:.0f} s and more: another "
                    "kubelet-authenticator is asking for this certificate; see its log"
                ) from None
            time.sleep(_POLL_SECONDS)
        else:
            return
