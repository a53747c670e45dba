"""Long journals are kept compressed in memory: a fleet has many records, and most are rarely read.

A record with 16 entries takes 12 KiB as objects and 5 KiB with the entries compressed. A node has so many after some
months of renewals. For 10,000 such nodes, compression saves 70 MiB.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterator, Sequence
from typing import Final, overload

from signer.model.journal_lines import parse_line
from signer.model.record import JournalEntry

PACKED_FROM: Final = 5
"""Minimum number of entries to compress. Shorter journals take little memory, and young nodes make most requests."""
_UNPACKED: Final = 256
"""Number of journals in the cache of decompressed ones: one decision reads its record several times."""
_FASTEST: Final = 1
"""zlib's level: half of an entry is digests, which no level compresses."""


class PackedJournal(Sequence[JournalEntry]):
    """The entries of a journal, newest last. It equals a tuple of the same entries."""

    __slots__ = ("_count", "_packed")

    def __init__(self, lines: Sequence[str]) -> None:
        """``lines`` are valid lines of entries: see :func:`~signer.model.journal_lines.parse_line`."""
        self._count = len(lines)
        self._packed = zlib.compress("\n".join(lines).encode("utf-8"), _FASTEST)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> JournalEntry: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[JournalEntry, ...]: ...

    def __getitem__(self, index: int | slice) -> JournalEntry | tuple[JournalEntry, ...]:
        return _unpacked(self._packed)[index]

    def __iter__(self) -> Iterator[JournalEntry]:
        return iter(_unpacked(self._packed))

    def __reversed__(self) -> Iterator[JournalEntry]:
        return reversed(_unpacked(self._packed))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PackedJournal):
            return self._packed == other._packed or _unpacked(self._packed) == _unpacked(other._packed)
        return _unpacked(self._packed) == other

    def __hash__(self) -> int:
        return hash(_unpacked(self._packed))

    def __repr__(self) -> str:
        return repr(_unpacked(self._packed))


def kept_journal(lines: Sequence[str], entries: tuple[JournalEntry, ...]) -> Sequence[JournalEntry]:
    """The form in which to keep ``entries``, which were read from ``lines``: compressed if they are many."""
    return entries if len(entries) < PACKED_FROM else PackedJournal(lines)


@functools.lru_cache(maxsize=_UNPACKED)
def _unpacked(packed: bytes) -> tuple[JournalEntry, ...]:
    lines = zlib.decompress(packed).decode("utf-8").split("\n")
    return tuple([entry for entry in map(parse_line, lines) if isinstance(entry, JournalEntry)])
