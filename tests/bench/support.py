"""A report that no machine measured, for tests of what is made from reports."""

from __future__ import annotations

from typing import Final

from tests.bench.figures import PEER, Better, Column, Figure, Row, Table
from tests.bench.machine import Machine
from tests.bench.report import Report
from tests.bench.settings import QUICK

MACHINE: Final = Machine(2, "A processor", 24_000, 0.1, {"python": "3.11.7"}, "0123456789ab")
COLUMNS: Final = (
    Column("per_second", "a second", 0, Better.HIGHER),
    Column("ratio", "times the peer", 2, Better.HIGHER),
    Column("cpu", "CPU, ms", 2),
    Column("cpu_without_key", "without the key, ms", 2),
)


def drain_table(ratio: float, cpu_without_key: float) -> Table:
    """Of one kind of work, and of the peer."""
    figures = {
        "per_second": Figure.of([90, 100, 120]),
        "ratio": Figure.of([ratio - 0.1, ratio, ratio + 0.1]),
        "cpu": Figure.once(cpu_without_key + 0.25),
        "cpu_without_key": Figure.once(cpu_without_key),
    }
    peer = Row(PEER, {"per_second": Figure.once(250)})
    return Table("drain", "Draining", COLUMNS, (Row("renewal", figures), peer), ("A note.",))


def report(*tables: Table) -> Report:
    """Of that machine."""
    return Report(MACHINE, QUICK, "2026-11-22T10:00:00+00:00", 60.0, tables)
