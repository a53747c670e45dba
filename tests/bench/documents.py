"""The report behind all figures in the documents: ``docs/performance.json``."""

from __future__ import annotations

from typing import Final

from tests.bench.report import Report, read_report
from tests.documents.markdown import ROOT

REPORT: Final = ROOT / "docs/performance.json"


def documented() -> Report:
    """Read the documents' report. Raises :class:`tests.bench.report.UnreadableReport`."""
    return read_report(REPORT)
