"""Operator files that may change while the controller runs: read within bounds, and re-read when they change."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeAlias, TypeVar

MAXIMUM_BYTES: Final = 4 * 1024 * 1024
"""Limit for one file, and for all files of a folder together."""
MAXIMUM_FILES: Final = 4096

_SETTLED_NANOSECONDS: Final = 2_000_000_000
"""File systems stamp changes with a clock that stands still for milliseconds, or for seconds on network storage: a
recently changed file may change again with the same stamp."""

T = TypeVar("T")

Contents: TypeAlias = Mapping[str, bytes]
"""Contents by absolute path, in the order of names."""
_Signature: TypeAlias = tuple[tuple[str, int, int, int, int, int], ...]
_Digests: TypeAlias = tuple[tuple[tuple[str, bytes], ...], ...]
"""Per source: paths, and the digests of their contents."""


class OperatorFileUnusable(Exception):
    """An operator's file is missing, unreadable, malformed or too large; the message names it and the cause."""


@dataclass(frozen=True, slots=True)
class OperatorFile:
    """One file, with the setting that names it."""

    setting: str
    path: str

    def paths(self) -> list[str]:
        """The file itself."""
        return [self.path]


@dataclass(frozen=True, slots=True)
class OperatorFolder:
    """All files of a folder, except hidden ones (``..data`` of mounted ConfigMaps) and subfolders."""

    setting: str
    path: str

    def paths(self) -> list[str]:
        """Its files, in the order of names.

        Raises:
            OSError: the folder cannot be listed.
            OperatorFileUnusable: it holds no file, or more than :data:`MAXIMUM_FILES`.
        """
        with os.scandir(self.path) as entries:
            found = []
            for entry in entries:
                if not entry.name.startswith(".") and not entry.is_dir():
                    found.append(entry.path)
                if len(found) > MAXIMUM_FILES:
                    raise OperatorFileUnusable(f"{self.setting}: {self.path} holds more than {MAXIMUM_FILES} files")
        if not found:
            raise OperatorFileUnusable(f"{self.setting}: {self.path} holds no file; subfolders are not read")
        return sorted(found)


@dataclass(frozen=True, slots=True)
class _Read(Generic[T]):
    """The last result, and the file stamps at that time."""

    signature: _Signature
    since: int
    """First time, in nanoseconds, at which the files had this signature."""
    settled: bool
    digests: _Digests
    result: T | OperatorFileUnusable


@dataclass(frozen=True, slots=True)
class _NeverRead:
    """The files were never read."""


class WatchedFiles(Generic[T]):
    """The parsed content of a group of files, current at each call: the files are checked, and re-read after a change.

    The kubelet replaces a mounted ConfigMap by swapping a symbolic link, so links are followed and their targets
    checked. Unusable files raise an error at each call until they are fixed; an earlier result is never reused.
    """

    def __init__(
        self,
        sources: tuple[OperatorFile | OperatorFolder, ...],
        parse: Callable[[tuple[Contents, ...]], T],
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """``parse`` gets the contents of each source; it may raise OperatorFileUnusable."""
        self._sources = sources
        self._parse = parse
        self._clock = clock
        self._read: _Read[T] | _NeverRead = _NeverRead()

    def current(self) -> T:
        """The current result.

        Raises:
            OperatorFileUnusable: a file cannot be used, or is being written at this moment.
        """
        now = self._clock()
        signature = self._stat()
        read = self._read
        if isinstance(read, _NeverRead) or read.signature != signature or not read.settled:
            read = self._read = self._reread(signature, now)
        return _result(read)

    def last(self) -> T:
        """The result of the last read, without access to files. For pre-filters that approve nothing.

        Raises:
            OperatorFileUnusable: the files were unusable then, or were never read.
        """
        if isinstance(self._read, _NeverRead):
            raise OperatorFileUnusable("the operator's files were not read yet")
        return _result(self._read)

    def _reread(self, signature: _Signature, now: int) -> _Read[T]:
        contents = tuple(_contents(source) for source in self._sources)
        if self._stat() != signature:
            raise OperatorFileUnusable(f"{_names(self._sources)}: changed during the read")
        before = self._read
        since = before.since if isinstance(before, _Read) and before.signature == signature else now
        # Also by our own clock: a stamp ahead of it would cause a re-read for each request.
        settled = since < now - _SETTLED_NANOSECONDS or all(
            max(changed, modified) < now - _SETTLED_NANOSECONDS for *_, modified, changed in signature
        )
        digests = tuple(_digests(content) for content in contents)
        if isinstance(before, _Read) and before.digests == digests:
            return _Read(signature, since, settled, digests, before.result)
        result: T | OperatorFileUnusable
        try:
            result = self._parse(contents)
        except OperatorFileUnusable as error:
            result = error
        return _Read(signature, since, settled, digests, result)

    def _stat(self) -> _Signature:
        found = []
        for source in self._sources:
            try:
                for path in source.paths():
                    status = os.stat(path)
                    found.append((path, *_signature(status)))
            except OSError as error:
                raise _unreadable(source, error) from error
        return tuple(found)


def _signature(status: os.stat_result) -> tuple[int, int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _contents(source: OperatorFile | OperatorFolder) -> Contents:
    contents: dict[str, bytes] = {}
    left = MAXIMUM_BYTES
    try:
        for path in source.paths():
            contents[path] = _read_file(source, path, left)
            left -= len(contents[path])
    except OSError as error:
        raise _unreadable(source, error) from error
    return contents


def _read_file(source: OperatorFile | OperatorFolder, path: str, maximum_bytes: int) -> bytes:
    # Without O_NONBLOCK a named pipe would block the whole controller.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OperatorFileUnusable(f"{source.setting}: {path}: is not a regular file")
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(maximum_bytes + 1)
    finally:
        os.close(descriptor)
    if len(content) > maximum_bytes:
        raise OperatorFileUnusable(f"{source.setting}: {source.path} holds more than {MAXIMUM_BYTES} bytes")
    return content


def _digests(contents: Contents) -> tuple[tuple[str, bytes], ...]:
    return tuple((path, hashlib.sha256(data).digest()) for path, data in contents.items())


def _result(read: _Read[T]) -> T:
    if isinstance(read.result, OperatorFileUnusable):
        raise OperatorFileUnusable(str(read.result))
    return read.result


def _unreadable(source: OperatorFile | OperatorFolder, error: OSError) -> OperatorFileUnusable:
    return OperatorFileUnusable(f"{source.setting}: {error.filename or source.path}: {error.strerror}")


def _names(sources: tuple[OperatorFile | OperatorFolder, ...]) -> str:
    return ", ".join(source.setting for source in sources)


def absolute_path(text: object) -> str:
    """Return ``text`` if it is an absolute path.

    Raises:
        ValueError: it is not.
    """
    if not isinstance(text, str) or not Path(text).is_absolute() or "\0" in text:
        raise ValueError("not an absolute path")
    return text
