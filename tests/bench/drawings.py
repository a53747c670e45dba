"""The charts of a report."""

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
    """A chart of one section whose row names are numbers, the x values."""

    file: str
    section: str
    title: str
    x_label: str
    y_label: str
    columns: Mapping[str, str]
    """Column keys and the names of their lines."""

    def chart(self, table: Table) -> Chart:
        """The chart of ``table``."""
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
        "Time until all pending CSRs have certificates",
        _PENDING,
        "seconds",
        {f"{work.value}, seconds": work.value for work in WORK},
    ),
    Drawing(
        "csrs-cpu.svg",
        "sizes",
        "CPU time of the deciding process per certificate",
        _PENDING,
        "milliseconds",
        {f"{work.value}, cpu": work.value for work in WORK},
    ),
    Drawing(
        "disks.svg",
        "disks",
        "Certificates per second with slower disks",
        "added latency of each sync of etcd's disk, milliseconds",
        "certificates per second",
        {rate(work): work.value for work in DISKS_WORK},
    ),
    Drawing(
        "clusters-memory.svg",
        "clusters",
        "Resident memory of a controller with idle clusters",
        "workload clusters",
        "MiB",
        {"mebibytes": "resident memory"},
    ),
    Drawing(
        "clusters-start.svg",
        "clusters",
        "Time from the controller's start until it watches every cluster",
        "workload clusters",
        "seconds",
        {"seconds": "all watched"},
    ),
)


def draw(report: Report, folder: Path) -> list[Path]:
    """Draw the charts of the report's sections; returns the files."""
    written = []
    for drawing in DRAWINGS:
        table = report.table(drawing.section)
        if table is not None:
            file = folder / drawing.file
            file.write_text(drawing.chart(table).svg(), encoding="utf-8")
            written.append(file)
    return written
