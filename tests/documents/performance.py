"""Figures of ``make bench``, from the report that is kept for the documents."""

from __future__ import annotations

from tests.bench.documents import documented
from tests.bench.show import as_markdown, measured_on
from tests.bench.summary import HEADLINES, LINES, summary


def figures(*words: str) -> str:
    """The summary: what was measured, what is to be reached, and the command; with ``headlines``, a few lines of it."""
    report = documented()
    return f"{summary(report, HEADLINES if 'headlines' in words else LINES)}\n{measured_on(report)}\n"


def measured(section: str) -> str:
    """All figures of one section, and what must be known to read them."""
    table = documented().table(section)
    return "Not measured in this run.\n" if table is None else as_markdown(table)
