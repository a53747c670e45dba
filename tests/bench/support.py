"""A made-up report, for tests."""

from __future__ import annotations

from typing import Final

from tests.bench.figures import PEER, Better, Column, Figure, Row, Table
from tests.bench.machine import Machine
from tests.bench.report import Report
from tests.bench.settings import QUICK

MACHINE: Final = Machine(2, "A processor", 24_000, 0.1, {"python": "3.11.7"}, "0123456789ab")
COLUMNS: Final = (
    Column("per_second", "per second", 0, Better.HIGHER),
    Column("ratio", "ratio to the peer", 2, Better.HIGHER),
    Column("cpu", "CPU, ms", 2),
    Column("cpu_without_key", "CPU without the CA key, ms", 2),
)


def drain_table(ratio: float, cpu_without_key: float) -> Table:
    """A table with one kind of work and the peer."""
    figures = {
        "per_second": Figure.of([90, 100, 120]),
        "ratio": Figure.of([ratio - 0.1, ratio, ratio + 0.1]),
        "cpu": Figure.once(cpu_without_key + 0.25),
        "cpu_without_key": Figure.once(cpu_without_key),
    }
    peer = Row(PEER, {"per_second": Figure.once(250)})
    return Table("drain", "Draining", COLUMNS, (Row("renewal", figures), peer), ("A note.",))


def report(*tables: Table) -> Report:
    """A report of :data:`MACHINE`."""
    return Report(MACHINE, QUICK, "2026-11-22T10:00:00+00:00", 60.0, tables)
