"""Appends lines to a file: one write for each line, one flush for many lines, and no line is rewritten.

A file belongs to one process. If another process renames, deletes or replaces it, no gap is hidden.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from signer.audit.chain import (
    ACCESS_ENDED,
    ACCESS_ISSUED,
    CANARY,
    DECISION,
    MAXIMUM_LINE_BYTES,
    START,
    ChainedLine,
    Link,
    digest_of_line,
    new_chain,
    read_line,
    start_content,
)
from signer.audit.kept_lines import require_lines_in
from signer.audit.line_mac import LineSeals, NoKeyYet, with_mac

_MODE: Final = 0o600
_BACKUP_TIME: Final = r"-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{6}"
MAXIMUM_HEADER_BYTES: Final = 512
"""Maximum size of a line's fields of the chain."""


@dataclass(frozen=True, slots=True)
class CanaryContent:
    """The content of a canary's line, a JSON object. Plain bytes are a decision's."""

    encoded: bytes


@dataclass(frozen=True, slots=True)
class AccessIssuedContent:
    """The content of the line of an access grant's certificates, a JSON object."""

    encoded: bytes


@dataclass(frozen=True, slots=True)
class AccessEndedContent:
    """The content of the line of an access grant's end, a JSON object."""

    encoded: bytes


Content: TypeAlias = bytes | CanaryContent | AccessIssuedContent | AccessEndedContent
_KINDS: Final[Mapping[type[Content], str]] = {
    bytes: DECISION,
    CanaryContent: CANARY,
    AccessIssuedContent: ACCESS_ISSUED,
    AccessEndedContent: ACCESS_ENDED,
}


def encoded(content: Content) -> bytes:
    """The content's JSON object."""
    return content if isinstance(content, bytes) else content.encoded


def kind_of(content: Content) -> str:
    """The kind of the content's line."""
    return _KINDS[type(content)]


class AuditLogInUse(Exception):
    """Another controller writes to that file."""


class Lines(Protocol):
    """Destination of lines, written in batches. Not thread-safe, but for the properties."""

    seals: LineSeals
    """Makes the MACs of the following lines."""

    @property
    def end(self) -> Link:
        """The last line that was written and flushed; its sequence is -1 before the first."""
        ...

    @property
    def filled_files(self) -> int:
        """Number of files that became full."""
        ...

    @property
    def continues_earlier_chain(self) -> bool:
        """Whether the lines continue a chain that was there when the log was opened."""
        ...

    def require_lines(self, line: Link, end: Link) -> None:
        """Require that a line that was written before is still there, and that the lines after it lead to ``end``.

        Raises:
            LinesRemoved: it is not, or they do not.
            OSError: the log cannot be read.
        """
        ...

    def begin_new_chain(self) -> None:
        """Begin another chain, which is not linked to the lines so far.

        Raises:
            OSError: its start line was not written and flushed.
        """
        ...

    def write(self, contents: Sequence[Content]) -> None:
        """Append the lines, and flush them.

        Raises:
            OSError: not all of them were written and flushed.
        """
        ...

    def close(self) -> None:
        """Close the file."""
        ...


@dataclass(slots=True)
class _Open:
    """The open file."""

    descriptor: int
    size: int
    link: Link


class FileLines:
    """Writes lines to a file of this process alone. A full file is renamed, and the oldest are deleted."""

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
        """``maximum_bytes`` limits a file's size, ``maximum_backups`` the number of full files; 0: no limit.

        Raises:
            AuditLogInUse: another process has the file open.
            OSError: the file cannot be opened or written.
        """
        if not path.name or path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "is a folder: name a file in it", str(path))
        self.seals: LineSeals = NoKeyYet()
        self._filled_files = 0
        self._path = path
        self._maximum_bytes = maximum_bytes
        self._maximum_backups = maximum_backups
        self._now = now
        self._flush = flush
        self._write = write
        self._lock = _locked(path.with_name(path.name + ".lock"))
        self._end = new_chain()
        """The last written line. A new file, or one without our lines, continues from it."""
        self._flushed = self._end
        """The last flushed line, on which others may rely."""
        self._unflushed: list[Link] = []
        """The lines that this process began to write after it: a file that is opened again may end with any of them."""
        self._file: _Open | None = None
        fresh = self._end.chain
        try:
            self._file = self._opened()
        except OSError:
            os.close(self._lock)
            raise
        self._continues_earlier_chain = self._file.link.chain != fresh

    @property
    def end(self) -> Link:
        """See :class:`Lines`."""
        return self._flushed

    @property
    def filled_files(self) -> int:
        """See :class:`Lines`."""
        return self._filled_files

    @property
    def continues_earlier_chain(self) -> bool:
        """See :class:`Lines`."""
        return self._continues_earlier_chain

    def require_lines(self, line: Link, end: Link) -> None:
        """See :class:`Lines`."""
        require_lines_in((self._path, *reversed(self._backups())), line, end)

    def begin_new_chain(self) -> None:
        """See :class:`Lines`."""
        try:
            file = self._in_place()
            file.link = new_chain()
            self._put(file, START, start_content(""))
            self._flush_all(file)
            self._continues_earlier_chain = False
        except OSError:
            self._abandon()
            raise

    def write(self, contents: Sequence[Content]) -> None:
        """See :class:`Lines`."""
        try:
            file = self._in_place()
            for content in contents:
                file = self._rotated(file, len(encoded(content)) + MAXIMUM_HEADER_BYTES)
                self._put(file, kind_of(content), encoded(content))
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
        """Close the file. A partial line is found and reported when the file is opened again."""
        if self._file is not None:
            self._end = self._file.link
            os.close(self._file.descriptor)
            self._file = None

    def _in_place(self) -> _Open:
        """The open file at the path. A renamed file keeps its lines, and a new file continues the chain.

        Raises:
            OSError: the file was deleted with its lines, or none can be opened.
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
        """The file is still at the path.

        Raises:
            OSError: it was renamed while lines were written, so a copy of it may lack them.
        """
        if not self._is_at_the_path(file):
            raise OSError(errno.ESTALE, "the file was renamed while it was written to")

    def _is_at_the_path(self, file: _Open) -> bool:
        try:
            status = self._path.lstat()
        except FileNotFoundError:
            return False
        return os.path.samestat(status, os.fstat(file.descriptor))

    def _opened(self) -> _Open:
        """Open or create the file, and append a start line."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE)
        with contextlib.ExitStack() as undo:
            undo.callback(os.close, descriptor)
            size = os.fstat(descriptor).st_size
            tail = _Tail.of(descriptor, size, self._end)
            file = _Open(descriptor, size, self._continued(tail.link))
            self._unflushed = [file.link]
            if tail.unended:
                file.size += _write_whole(self._write, descriptor, b"\n")
            self._put(file, START, start_content(digest_of_line(tail.torn) if tail.torn else ""))
            self._flush_all(file)
            undo.pop_all()
        return file

    def _continued(self, found: Link) -> Link:
        """The link to continue from: the file's last line, if this process wrote it last. Behind any other line, such
        as one of the same number that somebody else wrote, the next line would vouch for what is there.
        """
        is_first = self._flushed.sequence < 0
        return found if is_first or found in (self._flushed, *self._unflushed) else self._end

    def _flush_all(self, file: _Open) -> None:
        self._flush(file.descriptor)
        self._flushed = file.link
        self._unflushed.clear()

    def _put(self, file: _Open, kind: str, content: bytes) -> None:
        line = with_mac(file.link.next_line(kind, content), self.seals)
        written = file.link.after(line)
        self._unflushed.append(written)  # before it: a full disk may take all but the line feed
        file.size += _write_whole(self._write, file.descriptor, line + b"\n")
        file.link = written

    def _rotated(self, file: _Open, size: int) -> _Open:
        """The file to which ``size`` more bytes can be written: a new one if this one would be too large."""
        if not self._maximum_bytes or file.size + size <= self._maximum_bytes:
            return file
        self._flush_all(file)
        self._require_in_place(file)  # another process's file must not become a backup
        self._path.rename(self._backup_name())
        self._filled_files += 1
        self._abandon()
        opened = self._file = self._opened()
        self._delete_oldest()
        return opened

    def _backup_name(self) -> Path:
        moment = self._now().strftime("%Y-%m-%dT%H-%M-%S.%f")
        return self._path.with_name(f"{self._path.stem}-{moment}{self._path.suffix}")

    def _backups(self) -> list[Path]:
        """The files with names of :meth:`_backup_name`. The folder may hold other logs with similar names."""
        name = re.compile(re.escape(self._path.stem) + _BACKUP_TIME + re.escape(self._path.suffix), re.ASCII)
        return sorted(path for path in self._path.parent.iterdir() if name.fullmatch(path.name) and path.is_file())

    def _delete_oldest(self) -> None:
        if not self._maximum_backups:
            return
        for path in self._backups()[: -self._maximum_backups]:
            with contextlib.suppress(OSError):  # the next rotation tries again
                path.unlink()


def _write_whole(write: Callable[[int, bytes], int], descriptor: int, data: bytes) -> int:
    """Write ``data`` with one call. A full file system may write only a part."""
    written = write(descriptor, data)
    if written != len(data):
        raise OSError(errno.ENOSPC, "No space left on device")
    return written


def _locked(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE)
    with contextlib.ExitStack() as undo:
        undo.callback(os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AuditLogInUse(f"another controller writes to {path.with_suffix('')}") from error
        undo.pop_all()
    return descriptor


@dataclass(frozen=True, slots=True)
class _Tail:
    """The end of a file."""

    link: Link
    """The link after its last valid line."""
    torn: bytes
    """The truncated line at the end, or empty."""
    unended: bool
    """Whether the file does not end with a line feed."""

    @classmethod
    def of(cls, descriptor: int, size: int, otherwise: Link) -> _Tail:
        """Read the end of an open file. ``otherwise`` is the link for a file without a valid line."""
        window = min(size, 4 * MAXIMUM_LINE_BYTES)
        data = os.pread(descriptor, window, size - window)
        whole, _, torn = data.rpartition(b"\n")
        last = read_line(torn)
        if isinstance(last, ChainedLine):  # only its line feed is missing
            return cls(last.link, b"", unended=True)
        for line in reversed(whole.split(b"\n")):
            found = read_line(line)
            if isinstance(found, ChainedLine):
                return cls(found.link, torn, unended=bool(torn))
        return cls(otherwise, torn, unended=bool(torn))
