"""Looks for a line in the files of a log: a published head names one that must be there, and lead to the log's end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from signer.audit.chain import MAXIMUM_LINE_BYTES, ChainedLine, Link, digest_of_line, lines_of


class LinesRemoved(Exception):
    """The log lacks a line that it had, or another line is in its place."""


@dataclass(frozen=True, slots=True)
class NoLine:
    """There is none."""


def require_lines_in(paths: Sequence[Path], line: Link, end: Link) -> None:
    """Require that one of the files has exactly that line, and that the lines after it lead to ``end``.

    Otherwise ``end`` could be that of a copy beside the genuine lines, and the next line would vouch for the copy.

    Args:
        paths: the newest file first.

    Raises:
        LinesRemoved: none has it, or they do not.
        OSError: a file cannot be read.
    """
    for number, path in enumerate(paths):
        with contextlib.suppress(FileNotFoundError):
            behind = _behind(path, line)
            if not isinstance(behind, NoLine):
                _require_leads([path, *reversed(paths[:number])], behind, line, end)
                return
    raise LinesRemoved


def _behind(path: Path, line: Link) -> int | NoLine:
    """The offset behind that line."""
    begins = f'"sequence":{line.sequence},'.encode("ascii")
    with path.open("rb") as file:
        while text := file.readline(MAXIMUM_LINE_BYTES + 1):
            if begins in text[:512] and digest_of_line(text.removesuffix(b"\n")) == line.digest:
                return file.tell()
    return NoLine()


def _require_leads(paths: Sequence[Path], offset: int, line: Link, end: Link) -> None:
    lines, link = _lines_behind(paths, offset), line
    while link != end:
        found = next(lines, NoLine())
        if isinstance(found, NoLine):
            raise LinesRemoved
        if (found.chain, found.sequence, found.previous) != (link.chain, link.sequence + 1, link.digest):
            raise LinesRemoved
        link = found.link


def _lines_behind(paths: Sequence[Path], offset: int) -> Iterator[ChainedLine]:
    """The lines from ``offset`` of the first file on, but torn ones."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            file.seek(offset)
            yield from (found for found in lines_of(file) if isinstance(found, ChainedLine))
        offset = 0
