"""Summaries of reports in documents."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from tests.bench.comparison import compare
from tests.bench.figures import Column, Figure, Row, Table
from tests.bench.sections import SECTIONS
from tests.bench.show import as_markdown, markdown_table, measured_on, print_comparison, print_table
from tests.bench.summary import LINES, summary
from tests.bench.support import drain_table, report


def lines_of(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]


@pytest.mark.parametrize(("ratio", "cpu", "expected"), [(1.1, 1.5, "met"), (1.09, 1.51, "**missed**")])
def test_a_target_is_met_or_missed(ratio: float, cpu: float, expected: str) -> None:
    _, _, drained, processor = lines_of(summary(report(drain_table(ratio, cpu))))
    assert drained[2] == f"≥ 1.1 times: {expected}"
    assert processor[2] == f"≤ 1.5 ms without the key: {expected}"


def test_a_line_has_figures_and_the_command_that_measures_them() -> None:
    _, _, drained, _ = lines_of(summary(report(drain_table(0.5, 2))))
    measured = "100 (90 to 120) per second, 0.50 (0.40 to 0.60) times kube-controller-manager"
    assert drained == [
        "renewals, draining a backlog of pending requests",
        measured,
        "≥ 1.1 times: **missed**",
        "`make bench ONLY=drain`",
    ]


def test_the_worst_row_counts() -> None:
    rows = tuple(Row(name, {"grown": Figure.once(value)}) for name, value in (("one", 10), ("two", 60), ("three", 20)))
    table = Table("floods", "Floods", (Column("grown", "MiB more", 0),), rows)
    (line,) = lines_of(summary(report(table)))[2:]
    assert line[1:3] == ["60 MiB", "≤ 50 MiB: **missed**"]


def test_unmeasured_sections_have_no_line() -> None:
    assert len(lines_of(summary(report()))) == 2


def test_each_line_has_a_section() -> None:
    assert {line.section for line in LINES} <= {section.name for section in SECTIONS}


def test_markdown_has_each_figure_and_note() -> None:
    shown = as_markdown(drain_table(0.5, 2))
    assert "| renewal | 100 (90 to 120) | 0.50 (0.40 to 0.60) | 2.25 | 2.00 |" in shown
    assert "| kube-controller-manager | 250 |  |  |  |" in shown
    assert shown.endswith("\n\nA note.")


def test_no_cell_breaks_the_table() -> None:
    assert markdown_table(("a",), iter([("b|c",)])).splitlines()[-1] == r"| b\|c |"


def test_the_machine_is_named() -> None:
    text = measured_on(report())
    assert text.startswith("Measured 2026-11-22 at commit 0123456789ab on 2 cores (A processor), 23 GiB, load average")


@pytest.mark.parametrize(("load_average", "busy"), [(1.0, False), (1.1, True)])
def test_a_busy_machine_is_reported(load_average: float, busy: bool) -> None:
    measured = report()
    machine = replace(measured.machine, load_average=load_average)
    assert ("measure again" in measured_on(replace(measured, machine=machine))) is busy


def test_tables_are_printed_with_notes_and_colour_for_better_and_worse() -> None:
    console = Console(record=True, width=140, force_terminal=True, quiet=False)
    old, new = drain_table(0.5, 2), drain_table(1.0, 2.5)
    with console.capture() as captured:
        print_table(console, new)
        print_comparison(console, compare(report(old), report(new)))
    shown = captured.get()
    for words in ("Draining", "A note.", "2.00 better", "1.25 worse"):
        assert words in shown
