"""The audit log. A caller that appends a line waits until the line is on the disk.

A thread writes the lines in batches (:mod:`signer.audit.lines`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from signer.audit.chain import MAXIMUM_LINE_BYTES, Link
from signer.audit.line_mac import LineSeals, NoKeyYet
from signer.audit.lines import MAXIMUM_HEADER_BYTES, Content, FileLines, Lines, encoded
from signer.audit.stream_lines import StreamLines
from signer.model.decision import Deferred
from signer.model.seal import ControllerKeys, KeyUse, Seals

STANDARD_OUTPUT: Final = "-"
_NO_KEYS: Final = NoKeyYet()


class AuditLogUnavailable(Exception):
    """The line is not, or may not be, in the log. The message says why."""


class AuditLog(Protocol):
    """Interface of the audit log."""

    async def append(self, content: Content) -> None:
        """Append a line and return once it is on the disk.

        Raises:
            AuditLogUnavailable: it is not.
        """
        ...


class NoAuditLog:
    """Implements :class:`AuditLog` for a controller without ``--audit-log-path``."""

    async def append(self, content: Content) -> None:
        """Discard the line."""


class GroupedAuditLog:
    """Implements :class:`AuditLog`. Lines that arrive while a batch is written go into the next batch."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._seals: Callable[[], LineSeals] = lambda: _NO_KEYS
        self._new_chain_wanted = False
        self.file_filled = asyncio.Event()
        """Set when a file became full."""
        self._waiting: list[tuple[Content, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    def use_keys(self, keys: Callable[[], ControllerKeys]) -> None:
        """Give the following lines MACs with these keys. ``keys`` raises Deferred while there are none.

        No line is written before there are keys. If they become unavailable, the last ones stay in use.
        """

        last: list[Seals] = []

        def seals() -> Seals:
            try:
                last[:] = [Seals(keys(), KeyUse.AUDIT_LINE)]
            except Deferred as error:
                if not last:
                    raise AuditLogUnavailable(f"lines have MACs, and {error.defer.message}") from error
            return last[0]

        self._seals = seals

    @property
    def end(self) -> Link:
        """The last line that is on the disk; its sequence is -1 before the first."""
        return self._lines.end

    @property
    def continues_earlier_chain(self) -> bool:
        """Whether the lines continue a chain that was there when the log was opened."""
        return self._lines.continues_earlier_chain

    async def require_lines(self, line: Link, end: Link) -> None:
        """Require that a line that was written before is still in the log, and that the lines after it lead to ``end``.

        Raises:
            LinesRemoved: it is not, or they do not.
            OSError: the log cannot be read.
        """
        await asyncio.to_thread(self._lines.require_lines, line, end)

    def begin_new_chain(self) -> None:
        """Begin another chain with the next line."""
        self._new_chain_wanted = True

    @property
    def begins_new_chain(self) -> bool:
        """Whether the next line begins another chain."""
        return self._new_chain_wanted

    async def append(self, content: Content) -> None:
        """See :class:`AuditLog`."""
        if len(encoded(content)) + MAXIMUM_HEADER_BYTES > MAXIMUM_LINE_BYTES:
            raise AuditLogUnavailable(f"the line would be larger than {MAXIMUM_LINE_BYTES} bytes")
        written = asyncio.get_running_loop().create_future()
        self._waiting.append((content, written))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_all(), name="audit log")
        await written

    async def _write_all(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            failure: AuditLogUnavailable | None = None
            try:
                self._lines.seals = self._seals()
                before = self._lines.filled_files
                await asyncio.to_thread(self._write, [content for content, _ in batch])
                if self._lines.filled_files > before:
                    self.file_filled.set()
            except AuditLogUnavailable as error:
                failure = error
            except Exception as error:  # noqa: BLE001 - every failure is reported to the waiting callers
                failure = AuditLogUnavailable(f"the audit log cannot be written: {_cause(error)}")
            for _, written in batch:
                if written.done():
                    continue
                if failure is None:
                    written.set_result(None)
                else:
                    written.set_exception(AuditLogUnavailable(str(failure)))

    def _write(self, contents: list[Content]) -> None:
        if self._new_chain_wanted:
            self._lines.begin_new_chain()
            self._new_chain_wanted = False
        self._lines.write(contents)

    async def close(self) -> None:
        """Write the waiting lines and close the file."""
        if self._writing is not None:
            await asyncio.wait({self._writing})
        await asyncio.to_thread(self._lines.close)


def _cause(error: Exception) -> str:
    return (error.strerror or type(error).__name__) if isinstance(error, OSError) else type(error).__name__


def open_audit_log(path: str, *, maximum_mebibytes: int, maximum_backups: int) -> GroupedAuditLog:
    """Open the log at that path, or on standard output for ``-``.

    Raises:
        AuditLogInUse: another process writes to the file.
        OSError: the file cannot be opened or written.
    """
    if path == STANDARD_OUTPUT:
        return GroupedAuditLog(StreamLines(1))
    return GroupedAuditLog(FileLines(Path(path), maximum_mebibytes * 1024 * 1024, maximum_backups))
