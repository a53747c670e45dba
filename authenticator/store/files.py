"""Files that are there whole or not at all.

A file is written beside its place, made durable, and renamed into it; then the folder is made durable. A crash at any
instruction leaves the old content or the new.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

PRIVATE: Final = 0o600
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class TooLargeFile(OSError):
    """A file is larger than it may be."""


def write_atomically(path: Path, content: str, *, mode: int = PRIVATE) -> None:
    """Replace ``path``'s content; whoever reads meanwhile sees the old one or the new one.

    The caller holds the lock that guards ``path``: two writers would use the same file beside it.

    Raises:
        OSError: it could not be written; the old content is still there.
    """
    beside = _beside(path)
    with contextlib.suppress(FileNotFoundError):
        beside.unlink()  # of a crash
    descriptor = os.open(beside, _FLAGS, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            os.fchmod(file.fileno(), mode)  # whatever the umask
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
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
    """Remove a file, for good; it may be gone already.

    Raises:
        OSError: it could not be removed.
    """
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
        _sync_folder(path.parent)


def wipe(path: Path) -> None:
    """Overwrite a file with zeros and remove it; it may be gone already.

    On a disk that writes elsewhere (flash, copy-on-write, a journal of data) the old blocks may survive, as they do
    with every program.

    Raises:
        OSError: it could not be overwritten or removed.
    """
    for file_there in (_beside(path), path):  # a crash may have left half of it beside its place
        try:
            descriptor = os.open(file_there, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(bytes(os.fstat(file.fileno()).st_size))
                file.flush()
                os.fsync(file.fileno())
        finally:
            remove(file_there)  # also where it cannot be overwritten: a full disk that copies on write


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.partial")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
