"""The audit log. A caller that appends a line waits until the line is on the disk.

A thread writes the lines in batches (:mod:`signer.audit.lines`).
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final, Protocol

from signer.audit.chain import MAXIMUM_LINE_BYTES
from signer.audit.lines import MAXIMUM_HEADER_BYTES, Content, FileLines, Lines, StreamLines, encoded

STANDARD_OUTPUT: Final = "-"
DEFAULT_MAXIMUM_MEBIBYTES: Final = 100


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
        self._waiting: list[tuple[Content, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

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
                await asyncio.to_thread(self._lines.write, [content for content, _ in batch])
            except Exception as error:  # noqa: BLE001 - every failure is reported to the waiting callers
                failure = AuditLogUnavailable(f"the audit log cannot be written: {_cause(error)}")
            for _, written in batch:
                if written.done():
                    continue
                if failure is None:
                    written.set_result(None)
                else:
                    written.set_exception(AuditLogUnavailable(str(failure)))

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
