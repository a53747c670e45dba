"""Atomic and durable file writes.

A file is written under another name, synced, and renamed; then the folder is synced. After a crash at any instruction,
the file has its old content or the new.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

PRIVATE: Final = 0o600
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class TooLargeFile(OSError):
    """A file exceeds its limit."""


def _no_check(_: Path) -> None:
    """Nothing reads the file before it is in place."""


def write_atomically(
    path: Path, content: str | bytes, *, mode: int = PRIVATE, check: Callable[[Path], None] = _no_check
) -> None:
    """Replace ``path``'s content; concurrent readers see the old content or the new.

    The caller holds the lock that guards ``path``: two writers would use the same temporary file. ``check`` gets the
    path of the complete new file before the rename; what it raises leaves the old content.

    Raises:
        OSError: it could not be written; the old content is still there.
    """
    temporary = _temporary(path)
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()  # left by a crash
    descriptor = os.open(temporary, _FLAGS, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)  # regardless of the umask
            file.write(content.encode("utf-8") if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        check(temporary)
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()  # it is there only if that failed
    _sync_folder(path.parent)


def read_bounded(path: Path, maximum_bytes: int) -> bytes:
    """The content of a file of at most ``maximum_bytes``.

    Raises:
        FileNotFoundError: there is none.
        OSError: it cannot be read, or is larger.
    """
    with path.open("rb") as file:
        content = file.read(maximum_bytes + 1)
    if len(content) > maximum_bytes:
        raise TooLargeFile(27, f"larger than {maximum_bytes} bytes", str(path))
    return content


def remove(path: Path) -> None:
    """Remove a file durably; it may be gone already.

    Raises:
        OSError: it could not be removed.
    """
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
        _sync_folder(path.parent)


def wipe(path: Path) -> None:
    """Overwrite a file with zeros and remove it; it may be gone already.

    On a disk that writes elsewhere (flash, copy-on-write, a data journal) the old blocks may survive, as with every
    program.

    Raises:
        OSError: it could not be overwritten or removed.
    """
    for present in (_temporary(path), path):  # a crash may have left part of it in the temporary file
        try:
            descriptor = os.open(present, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(bytes(os.fstat(file.fileno()).st_size))
                file.flush()
                os.fsync(file.fileno())
        finally:
            remove(present)  # even if it cannot be overwritten: a full copy-on-write disk


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.partial")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
