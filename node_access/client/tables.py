"""Tables for terminals and pipes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from node_access.client.words import printable

WIDTH: Final = 80
"""Columns of a terminal that does not say how many it has."""
WIDTH_WITHOUT_TERMINAL: Final = 1_000_000
"""Columns elsewhere: nothing is cut or wrapped, so that ``grep`` and ``awk`` see whole values."""
_GAP: Final = 2
_NARROWEST: Final = 20


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, shrink: Sequence[int], width: int) -> str:
    """Columns as wide as their content; ``shrink`` names those that are cut, the widest first, to fit ``width``."""
    cells = [[printable(cell) for cell in row] for row in [heads, *rows]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    while sum(widths) + _GAP * (len(widths) - 1) > width:
        widest = max(shrink, key=lambda one: widths[one])
        if widths[widest] <= len(heads[widest]):
            break
        widths[widest] -= 1
    lines = ((" " * _GAP).join(_fit(cell, room) for cell, room in zip(row, widths, strict=True)) for row in cells)
    return "".join(f"{line.rstrip()}\n" for line in lines)


def fields(entries: Sequence[tuple[str, str]], *, width: int) -> str:
    """One name and value on each line; values that do not fit ``width`` go on below."""
    names = max(len(name) for name, _ in entries) + 1
    lines = []
    for name, value in entries:
        shown = printable(value, maximum=65536)
        parts = lines_of(shown, width - names - 1)
        lines.append(f"{name + ':':<{names}} {parts[0]}".rstrip())
        lines += [f"{'':<{names}} {part}" for part in parts[1:]]
    return "".join(f"{line}\n" for line in lines)


def lines_of(text: str, width: int) -> list[str]:
    """The text in lines, each of whole words if they fit. One space is dropped where a line ends, and nothing else."""
    room = max(width, _NARROWEST)
    lines = []
    while len(text) > room:
        space = text.rfind(" ", 1, room + 1)
        end = room if space < 0 else space
        lines.append(text[:end])
        text = text[end:] if space < 0 else text[end + 1 :]
    return [*lines, text]


def _fit(cell: str, width: int) -> str:
    return cell.ljust(width) if len(cell) <= width else f"{cell[: width - 1]}…"
