"""What is drawn of a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.chart import Chart, Series
from tests.bench.disks import WORK as DISKS_WORK
from tests.bench.disks import rate
from tests.bench.figures import Table
from tests.bench.report import Report
from tests.bench.sizes import WORK


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart of one section whose rows are numbers: those are its x."""

    file: str
    section: str
    title: str
    x_label: str
    y_label: str
    columns: Mapping[str, str]
    """The key of each column that is a line, and the line's name."""

    def chart(self, table: Table) -> Chart:
        """Of what was measured."""
        series = []
        for key, name in self.columns.items():
            points = [(float(row.name), row.figures[key].value) for row in table.rows if key in row.figures]
            series.append(Series(name, tuple(sorted(points))))
        return Chart(self.title, self.x_label, self.y_label, tuple(series))


_PENDING: Final = "pending CSRs"

DRAWINGS: Final = (
    Drawing(
        "csrs-seconds.svg",
        "sizes",
        "Time until the last of them has its certificate",
        _PENDING,
        "seconds",
        {f"{work.value}, seconds": work.value for work in WORK},
    ),
    Drawing(
        "csrs-cpu.svg",
        "sizes",
        "The deciding process's CPU for each certificate",
        _PENDING,
        "milliseconds",
        {f"{work.value}, cpu": work.value for work in WORK},
    ),
    Drawing(
        "disks.svg",
        "disks",
        "Certificates a second on slower disks",
        "milliseconds that each sync of etcd's disk takes longer",
        "a second",
        {rate(work): work.value for work in DISKS_WORK},
    ),
    Drawing(
        "clusters-memory.svg",
        "clusters",
        "Resident memory of a controller that watches idle clusters",
        "workload clusters",
        "MiB",
        {"mebibytes": "resident memory"},
    ),
    Drawing(
        "clusters-start.svg",
        "clusters",
        "From the controller's start until every cluster is watched",
        "workload clusters",
        "seconds",
        {"seconds": "all watched"},
    ),
)


def draw(report: Report, folder: Path) -> list[Path]:
    """Draw what the report has figures for; returns the files."""
    written = []
    for drawing in DRAWINGS:
        table = report.table(drawing.section)
        if table is not None:
            file = folder / drawing.file
            file.write_text(drawing.chart(table).svg(), encoding="utf-8")
            written.append(file)
    return written
