"""Publishes a report in the documents."""

from __future__ import annotations

from pathlib import Path

from tests.bench.documents import REPORT
from tests.bench.report import Report, write_report
from tests.documents.generated import render
from tests.documents.markdown import documents


def publish(report: Report) -> list[Path]:
    """Store the report for the documents, and regenerate their figures; returns the changed files."""
    write_report(report, REPORT)
    changed = [REPORT]
    for page in documents():
        before = page.read_text(encoding="utf-8")
        after = render(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
            changed.append(page)
    return changed
