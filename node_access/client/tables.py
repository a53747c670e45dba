"""Tables of 80 columns for terminals. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from node_access.client.words import printable

WIDTH: Final = 80
_GAP: Final = 2


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, shrink: Sequence[int]) -> str:
    """Columns as wide as their content; ``shrink`` names those that are cut, the widest first, to fit 80 columns."""
    cells = [[printable(cell) for cell in row] for row in [heads, *rows]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    while sum(widths) + _GAP * (len(widths) - 1) > WIDTH:
        widest = max(shrink, key=lambda one: widths[one])
        if widths[widest] <= len(heads[widest]):
            break
        widths[widest] -= 1
    lines = ((" " * _GAP).join(_fit(cell, width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "".join(f"{line.rstrip()}\n" for line in lines)


def fields(entries: Sequence[tuple[str, str]]) -> str:
    """One name and value on each line; long values go on below."""
    width = max(len(name) for name, _ in entries) + 1
    lines = []
    for name, value in entries:
        shown = printable(value, maximum=65536)
        room = WIDTH - width - 1
        parts = [shown[at : at + room] for at in range(0, len(shown), room)] or [""]
        lines.append(f"{name + ':':<{width}} {parts[0]}".rstrip())
        lines += [f"{'':<{width}} {part}" for part in parts[1:]]
    return "".join(f"{line}\n" for line in lines)


def _fit(cell: str, width: int) -> str:
    return cell.ljust(width) if len(cell) <= width else f"{cell[: width - 1]}…"
