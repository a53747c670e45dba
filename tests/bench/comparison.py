"""Compares two reports, figure by figure."""

from __future__ import annotations

from dataclasses import dataclass

from tests.bench.figures import Column, Figure
from tests.bench.report import Report


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure of both reports."""

    name: str
    column: Column
    old: Figure
    new: Figure

    @property
    def ratio(self) -> float | None:
        """New divided by old; None if old is zero."""
        return self.new.value / self.old.value if self.old.value else None

    @property
    def is_beyond_the_ranges(self) -> bool:
        """Whether the ranges of the rounds do not overlap."""
        return self.new.least > self.old.most or self.new.most < self.old.least


def compare(old: Report, new: Report) -> list[Compared]:
    """The figures in both reports, in the order of the newer report."""
    found = []
    for table in new.tables:
        before = old.table(table.section)
        if before is None:
            continue
        for row in table.rows:
            for column in table.columns:
                was, now = before.figure(row.name, column.key), row.figures.get(column.key)
                if was is not None and now is not None:
                    name = f"{table.section}: {row.name}, {column.title}"
                    found.append(Compared(name, column, was, now))
    return found


def differences(old: Report, new: Report) -> list[str]:
    """Differences in machine and settings, which limit comparison, as sentences."""
    found = []
    for what in ("cores", "processor", "memory_mebibytes", "versions"):
        was, now = getattr(old.machine, what), getattr(new.machine, what)
        if was != now:
            found.append(f"{what.replace('_', ' ')}: {was} before, {now} now.")
    if old.settings != new.settings:
        found.append(f"settings: {old.settings} before, {new.settings} now.")
    return found
