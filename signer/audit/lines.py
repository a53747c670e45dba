"""Appends lines to a file or a stream: one write for each line, many lines flushed at once, nothing ever rewritten.

One process has a file for itself. Whatever others do to it (rename, delete or replace it), no gap is hidden.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from signer.audit.chain import (
    DECISION,
    MAXIMUM_LINE_BYTES,
    NOTHING_BEFORE,
    START,
    ChainedLine,
    Link,
    digest_of_line,
    read_line,
    start_content,
)

_MODE: Final = 0o600
_BACKUP_TIME: Final = r"-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{6}"
HEADER_ROOM: Final = 512
"""What a line's place in the chain takes at most."""


class AuditLogInUse(Exception):
    """Another controller writes to that file."""


class Lines(Protocol):
    """Where lines go, one batch after the other; not thread-safe."""

    def write(self, contents: list[bytes]) -> None:
        """Append decisions, and flush them.

        Raises:
            OSError: not all of them were.
        """
        ...

    def close(self) -> None:
        """Give the file back."""
        ...


def _new_chain() -> Link:
    return Link(secrets.token_hex(16), -1, NOTHING_BEFORE)


class StreamLines:
    """Lines to a pipe or terminal; it cannot be flushed to a disk, and what becomes of them is the reader's matter."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._link = _new_chain()
        self._begun = self._unended = False

    def write(self, contents: list[bytes]) -> None:
        """See :class:`Lines`."""
        try:
            if not self._begun:
                self._put(START, start_content(""))
                self._begun = True
            for content in contents:
                self._put(DECISION, content)
        except OSError:
            self._begun = False  # behind what was written in part stands a start line again
            raise

    def close(self) -> None:
        """It is not ours to close."""

    def _put(self, kind: str, content: bytes) -> None:
        line = self._link.next_line(kind, content)
        left = memoryview((b"\n" if self._unended else b"") + line + b"\n")
        self._unended = True
        while left:
            left = left[os.write(self._descriptor, left) :]
        self._unended = False
        self._link = self._link.after(line)


@dataclass(slots=True)
class _Open:
    """The file that is written to."""

    descriptor: int
    size: int
    link: Link


class FileLines:
    """Lines to a file, which one process has for itself; it is renamed when it is full, and the oldest are deleted."""

    def __init__(
        self,
        path: Path,
        maximum_bytes: int,
        maximum_backups: int,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        flush: Callable[[int], None] = os.fdatasync,
        write: Callable[[int, bytes], int] = os.write,
    ) -> None:
        """``maximum_bytes`` of a file, or 0 for any size; ``maximum_backups`` full ones are kept, or all with 0.

        Raises:
            AuditLogInUse: another process has it.
            OSError: it cannot be opened or written.
        """
        if not path.name or path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "is a folder: name a file in it", str(path))
        self._path = path
        self._maximum_bytes = maximum_bytes
        self._maximum_backups = maximum_backups
        self._now = now
        self._flush = flush
        self._write = write
        self._lock = _locked(path.with_name(path.name + ".lock"))
        self._end = _new_chain()
        """Of what was written last: a file that is new, or holds nothing of ours, goes on from there."""
        self._kept = self._end
        """Of what was flushed last, so that somebody may rely on it: a file that ends before it is an older one."""
        self._file: _Open | None = None
        try:
            self._file = self._opened()
        except OSError:
            os.close(self._lock)
            raise

    def write(self, contents: list[bytes]) -> None:
        """See :class:`Lines`."""
        try:
            file = self._in_place()
            for content in contents:
                file = self._with_room(file, len(content) + HEADER_ROOM)
                self._put(file, DECISION, content)
            self._flush_all(file)
            self._require_in_place(file)
        except OSError:
            self._abandon()
            raise

    def close(self) -> None:
        """See :class:`Lines`."""
        self._abandon()
        os.close(self._lock)

    def _abandon(self) -> None:
        """What was written in part is found, and said, when the file is opened again."""
        if self._file is not None:
            self._end = self._file.link
            os.close(self._file.descriptor)
            self._file = None

    def _in_place(self) -> _Open:
        """The file at the path. One that was renamed has its lines, and another goes on with the chain.

        Raises:
            OSError: it was deleted with the lines in it, or none can be opened.
        """
        if self._file is not None:
            if not os.fstat(self._file.descriptor).st_nlink:
                raise OSError(errno.ENOENT, "the file was deleted")
            if not self._is_at_the_path(self._file):
                self._abandon()
        if self._file is None:
            self._file = self._opened()
        return self._file

    def _require_in_place(self, file: _Open) -> None:
        """Whoever renames a file that is in its place takes every line in it along.

        Raises:
            OSError: it was renamed while lines were written; a copy made of it meanwhile may be without them.
        """
        if not self._is_at_the_path(file):
            raise OSError(errno.ESTALE, "the file was renamed while it was written to")

    def _is_at_the_path(self, file: _Open) -> bool:
        try:
            there = self._path.lstat()
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(file.descriptor))

    def _opened(self) -> _Open:
        """Open or create the file, and append a start line."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE)
        try:
            size = os.fstat(descriptor).st_size
            tail = _Tail.of(descriptor, size, self._end)
            file = _Open(descriptor, size, self._going_on(tail.link))
            if tail.unended:
                file.size += _write_whole(self._write, descriptor, b"\n")
            self._put(file, START, start_content(digest_of_line(tail.torn) if tail.torn else ""))
            self._flush_all(file)
        except BaseException:
            os.close(descriptor)
            raise
        return file

    def _going_on(self, found: Link) -> Link:
        """Behind what is in the file, unless it is older than what was written, or another's: that would hide a gap."""
        begun = self._kept.sequence >= 0
        older = found.chain != self._kept.chain or found.sequence < self._kept.sequence
        return self._end if begun and older else found

    def _flush_all(self, file: _Open) -> None:
        self._flush(file.descriptor)
        self._kept = file.link

    def _put(self, file: _Open, kind: str, content: bytes) -> None:
        line = file.link.next_line(kind, content)
        file.size += _write_whole(self._write, file.descriptor, line + b"\n")
        file.link = file.link.after(line)

    def _with_room(self, file: _Open, size: int) -> _Open:
        if not self._maximum_bytes or file.size + size <= self._maximum_bytes:
            return file
        self._flush_all(file)
        self._require_in_place(file)  # what somebody else put there is none of our backups
        self._path.rename(self._backup_name())
        self._abandon()
        opened = self._file = self._opened()
        self._delete_oldest()
        return opened

    def _backup_name(self) -> Path:
        moment = self._now().strftime("%Y-%m-%dT%H-%M-%S.%f")
        return self._path.with_name(f"{self._path.stem}-{moment}{self._path.suffix}")

    def _backups(self) -> list[Path]:
        """Those that :meth:`_backup_name` names, and no other's: another log beside this one may be called alike."""
        name = re.compile(re.escape(self._path.stem) + _BACKUP_TIME + re.escape(self._path.suffix), re.ASCII)
        return sorted(path for path in self._path.parent.iterdir() if name.fullmatch(path.name) and path.is_file())

    def _delete_oldest(self) -> None:
        if not self._maximum_backups:
            return
        for path in self._backups()[: -self._maximum_backups]:
            with contextlib.suppress(OSError):  # the next rotation tries again
                path.unlink()


def _write_whole(write: Callable[[int, bytes], int], descriptor: int, data: bytes) -> int:
    """One write. A file system that is full may take a part of it."""
    written = write(descriptor, data)
    if written != len(data):
        raise OSError(errno.ENOSPC, "No space left on device")
    return written


def _locked(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise AuditLogInUse(f"another controller writes to {path.with_suffix('')}") from error
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@dataclass(frozen=True, slots=True)
class _Tail:
    """How a file ends."""

    link: Link
    """Behind its last whole line that is one of ours."""
    torn: bytes
    """What stands behind it: a line that was cut off."""
    unended: bool
    """Whether the file does not end with a line feed."""

    @classmethod
    def of(cls, descriptor: int, size: int, otherwise: Link) -> _Tail:
        """Look at the end of an open file; where it has no line of ours, the chain goes on behind ``otherwise``."""
        window = min(size, 4 * MAXIMUM_LINE_BYTES)
        data = os.pread(descriptor, window, size - window)
        whole, _, torn = data.rpartition(b"\n")
        last = read_line(torn)
        if isinstance(last, ChainedLine):  # cut off just before its line feed
            return cls(last.link, b"", unended=True)
        for line in reversed(whole.split(b"\n")):
            found = read_line(line)
            if isinstance(found, ChainedLine):
                return cls(found.link, torn, unended=bool(torn))
        return cls(otherwise, torn, unended=bool(torn))
