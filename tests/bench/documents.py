"""Figures in documents: all of them come from one report, ``docs/performance.json``."""

from __future__ import annotations

from typing import Final

from tests.bench.report import Report, read_report
from tests.documents.markdown import ROOT

REPORT: Final = ROOT / "docs/performance.json"


def documented() -> Report:
    """The report that the documents' figures are of. Raises :class:`tests.bench.report.UnreadableReport`."""
    return read_report(REPORT)
