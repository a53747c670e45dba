"""The machine-readable report of a run: ``build/bench/report.json``; ``docs/performance.json`` for the documents."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from tests.bench.figures import Table
from tests.bench.machine import Machine
from tests.bench.settings import Settings

VERSION: Final = 1


class UnreadableReport(ValueError):
    """A file is no report of a known version; the message says why."""


@dataclass(frozen=True, slots=True)
class Report:
    """The results of one run, with its machine and settings."""

    machine: Machine
    settings: Settings
    began: str
    """Date and time, RFC 3339."""
    seconds: float
    tables: tuple[Table, ...]
    version: int = VERSION

    def table(self, section: str) -> Table | None:
        """The result of a section; None if it was not run."""
        return next((table for table in self.tables if table.section == section), None)


def write_report(report: Report, file: Path) -> None:
    """Write a report; creates the folder."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")


def read_report(file: Path) -> Report:
    """Read a report.

    Raises:
        UnreadableReport: the file cannot be read, or is of another version.
    """
    try:
        report = msgspec.json.decode(file.read_bytes(), type=Report)
    except (OSError, msgspec.DecodeError) as error:  # ValidationError is a DecodeError
        raise UnreadableReport(f"{file}: {error}") from None
    if report.version != VERSION:
        raise UnreadableReport(
            f"{file} is a report of version {report.version}, but only {VERSION} is supported: measure again"
        )
    return report
