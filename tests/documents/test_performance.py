"""Figures in documents are those of one report."""

from __future__ import annotations

from tests.bench.documents import documented
from tests.bench.sections import SECTIONS
from tests.bench.summary import LINES
from tests.documents.markdown import ROOT


def test_each_line_has_its_figures_in_the_documents_report() -> None:
    """If a column is renamed, its line would disappear from the summary."""
    measured = [line for line in LINES if documented().table(line.section) is not None]
    assert measured
    for line in measured:
        table = documented().table(line.section)
        assert table is not None
        assert line.cells(table) is not None, line.what


def test_every_section_has_its_table_in_the_document() -> None:
    page = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
    assert [section.name for section in SECTIONS if f"<!-- generated: measured {section.name} -->" not in page] == []


def test_the_readme_has_the_summary() -> None:
    """``test_generated`` says that it is that of the report."""
    assert "<!-- generated: figures -->" in (ROOT / "README.md").read_text(encoding="utf-8")
