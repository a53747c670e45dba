"""What a measurement says, in one form: tables of figures, from which everything that is printed or drawn is made."""

from __future__ import annotations

import enum
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

PEER: Final = "kube-controller-manager"
"""The row of whom ours is compared with."""


class Better(enum.Enum):
    """Which way a figure should go."""

    HIGHER = "higher"
    LOWER = "lower"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class Column:
    """What a column's figures are; ``title`` names the unit, ``key`` never changes."""

    key: str
    title: str
    digits: int
    better: Better = Better.LOWER

    def text(self, figure: Figure | None) -> str:
        """The figure for a reader, with the range where it was measured more than once."""
        if figure is None:
            return ""
        value, least, most = (f"{one:,.{self.digits}f}" for one in (figure.value, figure.least, figure.most))
        return value if least == most else f"{value} ({least} to {most})"


@dataclass(frozen=True, slots=True)
class Figure:
    """A median, and the least and the most of what it is the median of."""

    value: float
    least: float
    most: float

    @classmethod
    def once(cls, value: float) -> Figure:
        """Measured once."""
        return cls(value, value, value)

    @classmethod
    def of(cls, values: Sequence[float]) -> Figure:
        """Of several rounds."""
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that was measured; figures by their column's key. A column without a figure says nothing of it."""

    name: str
    figures: Mapping[str, Figure]


@dataclass(frozen=True, slots=True)
class Table:
    """What one section of the benchmark found."""

    section: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    """What a reader must know to read it: sentences."""

    def figure(self, row: str, column: str) -> Figure | None:
        """A figure by the names of its row and column; None where nothing was measured."""
        return next((one.figures.get(column) for one in self.rows if one.name == row), None)


def percentile(values: Iterable[float], percent: float) -> float:
    """By nearest rank: one of the values.

    Raises:
        ValueError: there are none.
    """
    ranked = sorted(values)
    if not ranked:
        raise ValueError("no values have a percentile")
    return ranked[max(math.ceil(percent / 100 * len(ranked)), 1) - 1]
