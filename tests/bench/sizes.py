"""Measures drains by the size of the backlog, for the charts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.bench.drains import STARTS, measure_drain
from tests.bench.figures import Column, Figure, Row, Table
from tests.bench.progress import Say
from tests.bench.spent import DECIDER
from tests.bench.world import Work, bench_world

WORK: Final = (Work.FIRST_JOIN, Work.RENEWAL, Work.PEER)
COLUMNS: Final = tuple(
    column
    for work in WORK
    for column in (
        Column(f"{work.value}, seconds", f"{work.value}, s", 1),
        Column(f"{work.value}, cpu", f"{work.value}, CPU ms per certificate", 2),
    )
)


def measure_sizes(sizes: Sequence[int], say: Say) -> Table:
    """Measure backlogs of several sizes, each on a control plane of its own."""
    rows = tuple(_row(size, say) for size in sizes)
    return Table("sizes", "Draining backlogs, by size", COLUMNS, rows, ("Each backlog is measured once.",))


def _row(size: int, say: Say) -> Row:
    figures = {}
    with bench_world(size + STARTS) as world:
        for work in WORK:
            say(f"{size:,} requests: {work.value}")
            spent = measure_drain(world, work)
            figures[f"{work.value}, seconds"] = Figure.once(spent.seconds)
            figures[f"{work.value}, cpu"] = Figure.once(spent.cpu_milliseconds(DECIDER))
    return Row(str(size), figures)
