"""The figures that a reader wants first, beside what is to be reached."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from tests.bench.disks import rate, ratio
from tests.bench.figures import PEER, Better, Figure, Table
from tests.bench.report import Report
from tests.bench.show import markdown_table
from tests.bench.steady import steady_row
from tests.bench.world import Work

WORST: Final = "*"
"""Instead of a row: the one with the highest figure."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be reached, by the last figure of a line."""

    limit: float
    better: Better
    text: str

    def verdict(self, figure: Figure) -> str:
        """The target, and whether it is reached."""
        reached = figure.value >= self.limit if self.better is Better.HIGHER else figure.value <= self.limit
        return f"{self.text}: {'reached' if reached else '**missed**'}"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the summary."""

    what: str
    section: str
    text: str
    """With ``{}`` for each figure."""
    figures: tuple[tuple[str, str], ...]
    """Rows and columns."""
    target: Target | None = None

    def cells(self, table: Table) -> tuple[str, ...] | None:
        """None where a figure was not measured."""
        found, texts = [], []
        for row, key in self.figures:
            figure = _worst(table, key) if row == WORST else table.figure(row, key)
            if figure is None:
                return None
            found.append(figure)
            texts.append(next(column for column in table.columns if column.key == key).text(figure))
        target = "" if self.target is None else self.target.verdict(found[-1])
        return self.what, self.text.format(*texts), target, f"`make bench ONLY={self.section}`"


def _worst(table: Table, key: str) -> Figure | None:
    figures = [row.figures[key] for row in table.rows if key in row.figures]
    return max(figures, key=lambda figure: figure.value, default=None)


def _drained(work: Work, target: Target) -> Line:
    what = f"{work.value}s from a heap of pending requests"
    text = "{} a second, {} times kube-controller-manager"
    return Line(what, "drain", text, ((work.value, "per_second"), (work.value, "ratio")), target)


def _drained_on_a_disk(work: Work, target: Target) -> Line:
    what = f"the same {work.value}s where each sync of etcd's disk takes {_DISK} ms longer"
    text = "{} a second, {} times kube-controller-manager"
    return Line(what, "disks", text, ((_DISK, rate(work)), (_DISK, ratio(work))), target)


def _cpu(work: Work, target: Target) -> Line:
    what = f"CPU of a {work.value}, with and without the CA's key operation"
    figures = ((work.value, "cpu"), (work.value, "cpu_without_key"))
    return Line(what, "drain", "{} ms, {} ms", figures, target)


def _waited(rate: int) -> Line:
    rows = (steady_row(Work.FIRST_JOIN, rate), steady_row(Work.RENEWAL, rate), f"{PEER}, {rate} a second")
    what = f"p99 from request to certificate at {rate} a second"
    text = "first join {} ms, renewal {} ms (kube-controller-manager {} ms)"
    return Line(what, "steady", text, tuple((row, "p99") for row in rows))


_FIRST_JOINS: Final = Target(1.0, Better.HIGHER, "≥ 1.0 times")
_RENEWALS: Final = Target(1.5, Better.HIGHER, "≥ 1.5 times")
_DISK: Final = "2"
"""Milliseconds: 500 writes a second, one after the other, which etcd's hardware recommendations ask of the disk of a
heavily loaded cluster."""

LINES: Final = (
    _drained(Work.FIRST_JOIN, _FIRST_JOINS),
    _drained(Work.RENEWAL, _RENEWALS),
    _drained_on_a_disk(Work.FIRST_JOIN, _FIRST_JOINS),
    _drained_on_a_disk(Work.RENEWAL, _RENEWALS),
    _cpu(Work.FIRST_JOIN, Target(3.0, Better.LOWER, "≤ 3 ms without it")),
    _cpu(Work.RENEWAL, Target(1.5, Better.LOWER, "≤ 1.5 ms without it")),
    _waited(20),
    _waited(100),
    Line(
        "the node's program with a valid stored certificate",
        "start",
        "{} ms, {} times a bare interpreter",
        (("kubelet-authenticator", "ms"), ("kubelet-authenticator", "ratio")),
        Target(3.0, Better.LOWER, "≤ 3 times"),
    ),
    Line(
        "memory for each idle cluster",
        "clusters",
        "{} KiB",
        ((WORST, "kibibytes_each"),),
        Target(400.0, Better.LOWER, "≤ 400 KiB"),
    ),
    Line(
        "a join's p99 while another cluster has a wave of requests",
        "wave",
        "{} s longer",
        ((WORST, "slower"),),
        Target(2.0, Better.LOWER, "≤ 2 s"),
    ),
    Line(
        "a thief's flood of requests: the controller's memory",
        "floods",
        "{} MiB more",
        ((WORST, "grown"),),
        Target(50.0, Better.LOWER, "≤ 50 MiB"),
    ),
    Line(
        "a thief's flood of requests: an honest join's p99",
        "floods",
        "{} s longer",
        ((WORST, "slower"),),
        Target(2.0, Better.LOWER, "≤ 2 s"),
    ),
)


HEADLINES: Final = (LINES[0], LINES[4], LINES[6])
"""The rate and the CPU of first joins, and how long one takes: what the README shows."""


def summary(report: Report, lines: Iterable[Line] = LINES) -> str:
    """A table of Markdown; lines whose section was not measured are left out."""
    return markdown_table(("", "measured", "to reach", "command"), _rows(report, lines))


def _rows(report: Report, lines: Iterable[Line]) -> Iterator[tuple[str, ...]]:
    for line in lines:
        table = report.table(line.section)
        cells = None if table is None else line.cells(table)
        if cells is not None:
            yield cells
