"""Tables of figures, the common form of all measurements, from which output and charts are made."""

from __future__ import annotations

import enum
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

PEER: Final = "kube-controller-manager"
"""The name of the row of the program that the controller is compared with."""


class Better(enum.Enum):
    """Whether higher or lower figures are better."""

    HIGHER = "higher"
    LOWER = "lower"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of figures; ``title`` names the unit, ``key`` never changes."""

    key: str
    title: str
    digits: int
    better: Better = Better.LOWER

    def text(self, figure: Figure | None) -> str:
        """The figure as text, with its range if it was measured more than once."""
        if figure is None:
            return ""
        value, least, most = (f"{one:,.{self.digits}f}" for one in (figure.value, figure.least, figure.most))
        return value if least == most else f"{value} ({least} to {most})"


@dataclass(frozen=True, slots=True)
class Figure:
    """A median, with the minimum and the maximum of its values."""

    value: float
    least: float
    most: float

    @classmethod
    def once(cls, value: float) -> Figure:
        """A figure that was measured once."""
        return cls(value, value, value)

    @classmethod
    def of(cls, values: Sequence[float]) -> Figure:
        """The figure of several rounds."""
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Row:
    """One measured subject, with figures by column key; columns may be missing."""

    name: str
    figures: Mapping[str, Figure]


@dataclass(frozen=True, slots=True)
class Table:
    """The result of one section of the benchmark."""

    section: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    """Notes for the reader, as sentences."""

    def figure(self, row: str, column: str) -> Figure | None:
        """A figure by row name and column key; None if it was not measured."""
        return next((one.figures.get(column) for one in self.rows if one.name == row), None)


def percentile(values: Iterable[float], percent: float) -> float:
    """The percentile by nearest rank, which is one of the values.

    Raises:
        ValueError: there are no values.
    """
    ranked = sorted(values)
    if not ranked:
        raise ValueError("no values have a percentile")
    return ranked[max(math.ceil(percent / 100 * len(ranked)), 1) - 1]
