"""The main figures of a report, with their targets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from tests.bench.command_starts import SLOWEST
from tests.bench.disks import rate, ratio
from tests.bench.figures import PEER, Better, Figure, Table
from tests.bench.report import Report
from tests.bench.show import markdown_table
from tests.bench.steady import steady_row
from tests.bench.world import Work

WORST: Final = "*"
"""Selects the row with the highest figure."""


@dataclass(frozen=True, slots=True)
class Target:
    """The target for the last figure of a line."""

    limit: float
    better: Better
    text: str

    def verdict(self, figure: Figure) -> str:
        """The target, and whether the figure meets it."""
        met = figure.value >= self.limit if self.better is Better.HIGHER else figure.value <= self.limit
        return f"{self.text}: {'met' if met else '**missed**'}"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the summary."""

    what: str
    section: str
    text: str
    """Text with ``{}`` for each figure."""
    figures: tuple[tuple[str, str], ...]
    """Row names and column keys of the figures."""
    target: Target | None = None

    def cells(self, table: Table) -> tuple[str, ...] | None:
        """The cells of the line; None if a figure was not measured."""
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
    what = f"{work.value}s, draining a backlog of pending requests"
    text = "{} per second, {} times kube-controller-manager"
    return Line(what, "drain", text, ((work.value, "per_second"), (work.value, "ratio")), target)


def _drained_on_a_disk(work: Work, target: Target) -> Line:
    what = f"{work.value}s, same backlog, with {_DISK} ms added to each sync of etcd's disk"
    text = "{} per second, {} times kube-controller-manager"
    return Line(what, "disks", text, ((_DISK, rate(work)), (_DISK, ratio(work))), target)


def _cpu(work: Work, target: Target) -> Line:
    what = f"CPU time of a {work.value}, with and without the CA's key operation"
    figures = ((work.value, "cpu"), (work.value, "cpu_without_key"))
    return Line(what, "drain", "{} ms, {} ms", figures, target)


def _waited(rate: int) -> Line:
    rows = (steady_row(Work.FIRST_JOIN, rate), steady_row(Work.RENEWAL, rate), f"{PEER}, {rate} per second")
    what = f"p99 from request to certificate, at {rate} requests per second"
    text = "first join {} ms, renewal {} ms (kube-controller-manager {} ms)"
    return Line(what, "steady", text, tuple((row, "p99") for row in rows))


_FIRST_JOINS: Final = Target(0.8, Better.HIGHER, "≥ 0.8 times")
_RENEWALS: Final = Target(1.1, Better.HIGHER, "≥ 1.1 times")
_DISK: Final = "2"
"""Milliseconds. They correspond to 500 sequential writes per second, which etcd's hardware recommendations require of
the disk of a heavily loaded cluster."""

LINES: Final = (
    _drained(Work.FIRST_JOIN, _FIRST_JOINS),
    _drained(Work.RENEWAL, _RENEWALS),
    _drained_on_a_disk(Work.FIRST_JOIN, _FIRST_JOINS),
    _drained_on_a_disk(Work.RENEWAL, _RENEWALS),
    _cpu(Work.FIRST_JOIN, Target(3.0, Better.LOWER, "≤ 3 ms without the key")),
    _cpu(Work.RENEWAL, Target(1.5, Better.LOWER, "≤ 1.5 ms without the key")),
    _waited(20),
    _waited(100),
    Line(
        "`kubelet-authenticator` with a valid stored certificate",
        "start",
        "{} ms, {} times a bare Python interpreter",
        (("kubelet-authenticator", "ms"), ("kubelet-authenticator", "ratio")),
        Target(2.0, Better.LOWER, "≤ 2 times"),
    ),
    Line(
        "the slowest command that asks no API server, whole process",
        "commands",
        "{1} ms, {0} times `kubectl version --client`",
        ((SLOWEST, "ratio"), (SLOWEST, "ms")),
        Target(250.0, Better.LOWER, "≤ 250 ms"),
    ),
    Line(
        "10,000 revoked SSH key ids, from the controller's list to sshd's file on a node",
        "revocations",
        "{} s",
        (("altogether", "s"),),
        Target(1.0, Better.LOWER, "≤ 1 s"),
    ),
    Line(
        "memory per idle cluster",
        "clusters",
        "{} KiB",
        ((WORST, "kibibytes_each"),),
        Target(150.0, Better.LOWER, "≤ 150 KiB"),
    ),
    Line(
        "p99 of a join, delay by a wave of requests in another cluster",
        "wave",
        "{} s",
        ((WORST, "slower"),),
        Target(2.0, Better.LOWER, "≤ 2 s"),
    ),
    Line(
        "a flood of requests with a stolen token, growth of the controller's memory",
        "floods",
        "{} MiB",
        ((WORST, "grown"),),
        Target(50.0, Better.LOWER, "≤ 50 MiB"),
    ),
    Line(
        "a flood of requests with a stolen token, delay of an honest join's p99",
        "floods",
        "{} s",
        ((WORST, "slower"),),
        Target(2.0, Better.LOWER, "≤ 2 s"),
    ),
)


HEADLINES: Final = (LINES[0], LINES[4], LINES[6])
"""Rate, CPU time and latency of first joins, for the README."""


def summary(report: Report, lines: Iterable[Line] = LINES) -> str:
    """A Markdown table; omits lines whose section was not measured."""
    return markdown_table(("", "measured", "target", "command"), _rows(report, lines))


def _rows(report: Report, lines: Iterable[Line]) -> Iterator[tuple[str, ...]]:
    for line in lines:
        table = report.table(line.section)
        cells = None if table is None else line.cells(table)
        if cells is not None:
            yield cells
