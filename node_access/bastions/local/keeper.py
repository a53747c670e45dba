"""Runs sshd of one bastion, and ends it: ``python -m node_access.bastions.local.keeper FOLDER SSHD``.

It outlives the controller, which may be killed at any time. At the time in the file ``end`` it ends sshd with every
connection, and removes the folder. It needs the standard library alone.

sshd is process 1 of a PID namespace: when that process ends, the kernel ends every connection, whatever session or
process group its processes are in. ``unshare --kill-child`` ends process 1 with ``unshare``, which in turn ends with
this keeper (PR_SET_PDEATHSIG). So nothing outlives a SIGKILL of the keeper.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_POLL_SECONDS: Final = 0.2
_WITHOUT_END_SECONDS: Final = 60.0


class Keeper:
    """Of one bastion's folder."""

    def __init__(self, folder: Path, sshd: str) -> None:
        self._folder = folder
        self._sshd = sshd
        self._stopped = False
        self._began = time.time()

    def run(self) -> int:
        """Run until sshd ends, SIGTERM, or the end. Exit code 0 in every case but one: another keeper runs."""
        lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 1
        signal.signal(signal.SIGTERM, self._stop)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        own = [] if os.geteuid() == 0 else ["--user", "--map-current-user"]
        command = ["unshare", *own, "--pid", "--fork", "--kill-child=KILL", "--", self._sshd, "-D", "-e"]
        process = subprocess.Popen(  # noqa: S603 - the operator's program
            [*command, "-f", str(self._folder / "sshd_config")],
            stdin=subprocess.DEVNULL,
            close_fds=True,  # above all the lock, which must be free when this process ends
            preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),
        )
        try:
            while self._goes_on(lock) and process.poll() is None:
                time.sleep(_POLL_SECONDS)
        finally:
            process.kill()
            process.wait()
            _wait_for_orphans()
        if time.time() >= self._end():
            shutil.rmtree(self._folder, ignore_errors=True)
        return 0

    def _goes_on(self, lock: int) -> bool:
        """Until told to stop, the end, or the loss of the folder: without its lock nothing finds this process again."""
        try:
            kept = os.path.samestat(os.fstat(lock), os.stat(self._folder / "lock"))
        except OSError:
            return False
        return kept and not self._stopped and time.time() < self._end()

    def _end(self) -> float:
        """Read again each time: a heartbeat may prolong it. Without the file, soon."""
        with contextlib.suppress(OSError, ValueError):
            return float((self._folder / "end").read_text(encoding="ascii"))
        return self._began + _WITHOUT_END_SECONDS

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopped = True


def _wait_for_orphans() -> None:
    """Process 1 of the namespace is this process's child once ``unshare`` is gone; wait until it is gone, too."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def main() -> int:
    """Become a daemon, so that the controller need not wait for this process, and run."""
    if os.fork():
        return 0
    os.setsid()
    return Keeper(Path(sys.argv[1]), sys.argv[2]).run()


if __name__ == "__main__":
    sys.exit(main())
