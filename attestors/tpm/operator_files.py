"""Files of the operator that may change while the controller runs: read in bounds, and read again when they change."""

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
"""Of a file, and of all files of a folder together."""
MAXIMUM_FILES: Final = 4096

_SETTLED_NANOSECONDS: Final = 2_000_000_000
"""File systems stamp changes with a clock that stands still for some milliseconds, or for seconds on a network: a file
that was changed just now may change again without a sign of it."""

T = TypeVar("T")

Contents: TypeAlias = Mapping[str, bytes]
"""By absolute path, in the order of names."""
_Signature: TypeAlias = tuple[tuple[str, int, int, int, int, int], ...]
_Digests: TypeAlias = tuple[tuple[tuple[str, bytes], ...], ...]
"""Of each source the paths, and digests of what stood there."""


class OperatorFileUnusable(Exception):
    """A file of the operator is not there, unreadable, malformed or too large; the message names it and says why."""


@dataclass(frozen=True, slots=True)
class OperatorFile:
    """One file, and the setting that names it."""

    setting: str
    path: str

    def paths(self) -> list[str]:
        """The file itself."""
        return [self.path]


@dataclass(frozen=True, slots=True)
class OperatorFolder:
    """All files of a folder. Hidden ones are left out (``..data`` of mounted ConfigMaps), and so are folders."""

    setting: str
    path: str

    def paths(self) -> list[str]:
        """Its files, in the order of names.

        Raises:
            OSError: it cannot be listed.
            OperatorFileUnusable: it holds no file, or far too many.
        """
        with os.scandir(self.path) as entries:
            found = []
            for entry in entries:
                if not entry.name.startswith(".") and not entry.is_dir():
                    found.append(entry.path)
                if len(found) > MAXIMUM_FILES:
                    raise OperatorFileUnusable(f"{self.setting}: {self.path} holds more than {MAXIMUM_FILES} files")
        if not found:
            raise OperatorFileUnusable(f"{self.setting}: {self.path} holds no file; folders in it are not looked into")
        return sorted(found)


@dataclass(frozen=True, slots=True)
class _Read(Generic[T]):
    """What was read last, and how the files looked then."""

    signature: _Signature
    since: int
    """When they were first seen to look so, in nanoseconds."""
    settled: bool
    digests: _Digests
    result: T | OperatorFileUnusable


@dataclass(frozen=True, slots=True)
class _NeverRead:
    """Nothing was."""


class WatchedFiles(Generic[T]):
    """What a group of files says, as of now: they are looked at each time, and read and parsed when they have changed.

    The kubelet replaces a mounted ConfigMap by swapping a symbolic link; so links are followed, and what they lead to
    is looked at. What cannot be used any more is an error each time until it can: never what it said before.
    """

    def __init__(
        self,
        sources: tuple[OperatorFile | OperatorFolder, ...],
        parse: Callable[[tuple[Contents, ...]], T],
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """``parse`` gets the contents of each source; it raises OperatorFileUnusable."""
        self._sources = sources
        self._parse = parse
        self._clock = clock
        self._read: _Read[T] | _NeverRead = _NeverRead()

    def current(self) -> T:
        """What the files say now.

        Raises:
            OperatorFileUnusable: one cannot be used, or is being written at this moment.
        """
        now = self._clock()
        signature = self._look()
        read = self._read
        if isinstance(read, _NeverRead) or read.signature != signature or not read.settled:
            read = self._read = self._read_again(signature, now)
        return _result(read)

    def last(self) -> T:
        """What they said when they were last looked at. For guesses that admit nothing: no file is touched.

        Raises:
            OperatorFileUnusable: they could not be used then, or were never read.
        """
        if isinstance(self._read, _NeverRead):
            raise OperatorFileUnusable("the operator's files were not read yet")
        return _result(self._read)

    def _read_again(self, signature: _Signature, now: int) -> _Read[T]:
        contents = tuple(_contents(source) for source in self._sources)
        if self._look() != signature:
            raise OperatorFileUnusable(f"{_names(self._sources)}: changed while it was read")
        before = self._read
        since = before.since if isinstance(before, _Read) and before.signature == signature else now
        # By our own clock, too: one stamp that is ahead of it would have everything read for each request.
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

    def _look(self) -> _Signature:
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
    # Without O_NONBLOCK a named pipe would hold the whole controller.
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
    """A path as settings must have it.

    Raises:
        ValueError: it is none, or relative.
    """
    if not isinstance(text, str) or not Path(text).is_absolute() or "\0" in text:
        raise ValueError("no absolute path")
    return text
