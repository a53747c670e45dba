"""Prints tables on a terminal, and writes them as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import table as rich_table
from rich.console import Console

from tests.bench.comparison import Compared
from tests.bench.figures import Better, Table
from tests.bench.report import Report


def print_table(console: Console, table: Table) -> None:
    """Print one section with its notes."""
    shown = rich_table.Table(title=table.title, title_justify="left")
    shown.add_column("", no_wrap=True)
    for column in table.columns:
        shown.add_column(column.title, justify="right", overflow="fold")
    for row in table.rows:
        shown.add_row(row.name, *(column.text(row.figures.get(column.key)) for column in table.columns))
    console.print(shown)
    for note in table.notes:
        console.print(f"  {note}", style="dim")


def print_comparison(console: Console, compared: Sequence[Compared]) -> None:
    """Print old and new figures; colour those that are better or worse beyond both ranges."""
    shown = rich_table.Table(title="Comparison with the earlier report", title_justify="left")
    for heading in ("", "old", "new", "new / old"):
        shown.add_column(heading, justify="right" if heading else "left", overflow="fold")
    for one in compared:
        shown.add_row(one.name, one.column.text(one.old), one.column.text(one.new), _ratio(one))
    console.print(shown)


def _ratio(one: Compared) -> str:
    if one.ratio is None:
        return ""
    text = f"{one.ratio:.2f}"
    if one.column.better is Better.NEITHER or not one.is_beyond_the_ranges:
        return text
    better = (one.ratio > 1) == (one.column.better is Better.HIGHER)
    return f"[green]{text} better[/]" if better else f"[red]{text} worse[/]"


def as_markdown(table: Table) -> str:
    """One section as a Markdown table with its notes."""
    return markdown_table(
        ("", *(column.title for column in table.columns)),
        ((row.name, *(column.text(row.figures.get(column.key)) for column in table.columns)) for row in table.rows),
    ) + "".join(f"\n{note}" for note in ("", *table.notes) if table.notes)


def markdown_table(heading: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    """A Markdown table, with pipes in cells escaped."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines) + "\n"


def measured_on(report: Report) -> str:
    """A sentence about machine and time, with a warning if the machine was busy."""
    machine = report.machine
    versions = ", ".join(f"{program} {version}" for program, version in machine.versions.items())
    text = f"Measured {report.began[:10]} at commit {machine.commit} on {machine} ({versions})."
    return f"{text} **The machine was busy with other work; measure again.**" if machine.was_busy else text
