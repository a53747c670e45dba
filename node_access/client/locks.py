"""Locks on files. The system releases them when the process ends, however it ends."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_FLAGS: Final = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)


class Busy(Exception):
    """Another process holds the lock."""


@contextlib.contextmanager
def locked(file: Path, content: str = "") -> Iterator[None]:
    """Hold the lock of a file, which has that content meanwhile.

    Raises:
        Busy: another process holds it.
        OSError: the file cannot be opened.
    """
    descriptor = os.open(file, _FLAGS, 0o600)
    try:
        try:
            _lock(descriptor, wait=False)
        except OSError as error:
            raise Busy from error
        if content:
            os.ftruncate(descriptor, 0)
            os.write(descriptor, content.encode("ascii"))
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def waiting_for(file: Path) -> Iterator[None]:
    """Hold the lock of a file; waits for it.

    Raises:
        OSError: the file cannot be opened.
    """
    descriptor = os.open(file, _FLAGS, 0o600)
    try:
        _lock(descriptor, wait=True)
        yield
    finally:
        os.close(descriptor)


def is_held(file: Path) -> bool:
    """Whether a process holds the lock of a file."""
    if not file.exists():
        return False
    try:
        with locked(file):
            return False
    except Busy:
        return True


def _lock(descriptor: int, *, wait: bool) -> None:
    if sys.platform == "win32":
        # Far behind the content: Windows refuses reads of locked bytes.
        os.lseek(descriptor, 2**30, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
