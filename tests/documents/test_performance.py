"""Figures in documents are those of one report."""

from __future__ import annotations

import pytest

from tests.bench.documents import documented
from tests.bench.sections import SECTIONS
from tests.bench.summary import HEADLINES, LINES
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


@pytest.mark.parametrize(
    ("document", "marker"),
    [("README.md", "<!-- generated: figures headlines -->"), ("docs/performance.md", "<!-- generated: figures -->")],
)
def test_the_summary_is_in_the_documents(document: str, marker: str) -> None:
    """``test_generated`` says that it is that of the report."""
    assert marker in (ROOT / document).read_text(encoding="utf-8")


def test_the_readme_shows_a_few_lines_of_the_summary() -> None:
    assert len(HEADLINES) == 3
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [line.what for line in HEADLINES if f"| {line.what} |" not in readme] == []
    assert len([line for line in LINES if f"| {line.what} |" in readme]) == 3


def test_the_readme_has_the_times_of_a_thousand_first_joins() -> None:
    """The sentence below the summary is not generated."""
    sizes = documented().table("sizes")
    assert sizes is not None
    joins, peer = (sizes.figure("1000", f"{name}, seconds") for name in ("first join", "kube-controller-manager"))
    assert joins is not None
    assert peer is not None
    times = f"1,000 pending first joins in {joins.value:.1f} s, and kube-controller-manager in {peer.value:.1f} s"
    assert times in " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
