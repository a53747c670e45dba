"""The lock that concurrent invocations share: the kubelet, kubeadm and the agent may all make requests at once.

``flock(2)``: the kernel releases it when its holder ends, in whatever way.
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
    """Another process holds the lock; the message names the process and the lock."""


@contextlib.contextmanager
def locked(path: Path, *, timeout: float) -> Iterator[None]:
    """Hold the lock of ``path`` for the duration of a block; wait at most ``timeout`` seconds for it.

    Raises:
        LockHeld: another process held it all that time.
        OSError: the lock file cannot be opened.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        _acquire(descriptor, path, time.monotonic() + timeout, timeout)
        with contextlib.suppress(OSError):  # only informative; a full disk is no reason to stop
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # also for processes that an attestor forked, which share the lock
        with contextlib.suppress(OSError):  # a delayed write error, as over NFS; Linux closes the file in any case
            os.close(descriptor)


def _acquire(descriptor: int, path: Path, deadline: float, timeout: float) -> None:
    # flock(2) has no timeout, and interrupting it by a signal would require the main thread.
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                holder = os.pread(descriptor, _MAXIMUM_HOLDER_BYTES, 0).decode("ascii", "replace").strip()
                raise LockHeld(
                    f"process {holder or 'unknown'} held {path} for {timeout:.0f} s and more: another "
                    "kubelet-authenticator is requesting this certificate; see its log"
                ) from None
            time.sleep(_POLL_SECONDS)
        else:
            return
