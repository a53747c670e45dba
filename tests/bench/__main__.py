"""``python -m tests.bench``: measures, prints tables and writes a report; see ``--help``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rich.console import Console

from tests.bench.comparison import compare, differences
from tests.bench.drain import NotIssued
from tests.bench.drawings import draw
from tests.bench.machine import this_machine
from tests.bench.publishing import publish
from tests.bench.report import Report, UnreadableReport, read_report, write_report
from tests.bench.sections import SECTIONS, Section
from tests.bench.settings import QUICK, Settings
from tests.bench.show import as_markdown, measured_on, print_comparison, print_table
from tests.bench.summary import summary
from tests.documents.markdown import ROOT
from tests.support.binaries import MissingPart

FOLDER: Final = ROOT / "build/bench"
EXIT_FAILED: Final = 1
EXIT_MISSING_PART: Final = 2
EXIT_UNREADABLE: Final = 3
_GIVEN: Final = (
    "requests", "rounds", "disks", "disk_requests", "steady_seconds", "sizes", "clusters", "wave_requests",
    "flood_requests",
)  # fmt: skip
_NAMES: Final = tuple(section.name for section in SECTIONS)

console = Console(highlight=False, width=None if sys.stdout.isatty() else 132)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, or show an earlier report."""
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except UnreadableReport as error:
        console.print(str(error), markup=False)
        return EXIT_UNREADABLE
    except NotIssued as error:
        console.print(f"An honest request got no certificate: {error}", markup=False)
        return EXIT_FAILED
    except MissingPart as error:
        console.print(f"The benchmark needs a real control plane: {error}", markup=False)
        return EXIT_MISSING_PART


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Measure against a real kube-apiserver.")
    parser.add_argument("--only", type=_sections, default=SECTIONS, metavar="NAME,…", help=f"of {', '.join(_NAMES)}")
    parser.add_argument("--quick", action="store_true", help="small sizes, to check that everything works")
    parser.add_argument("--requests", type=_count, metavar="N", help="requests per drain")
    parser.add_argument("--rounds", type=_count, metavar="N", help="rounds of drains")
    parser.add_argument("--disks", type=_counts, metavar="MS,…", help="added latency of etcd's disk, in ms")
    parser.add_argument("--disk-requests", type=_count, metavar="N", help="requests per drain on such a disk")
    parser.add_argument("--steady-seconds", type=float, metavar="S", help="duration of each rate")
    parser.add_argument("--sizes", type=_counts, metavar="N,…", help="sizes of the backlogs in the charts")
    parser.add_argument("--clusters", type=_counts, metavar="N,…", help="numbers of idle clusters per controller")
    parser.add_argument("--wave-requests", type=_count, metavar="N", help="requests of the wave")
    parser.add_argument("--flood-requests", type=_count, metavar="N", help="requests per flood")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="folder for report.json, table.md and charts")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there too")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="compare with an earlier report")
    parser.add_argument("--report", type=Path, metavar="FILE", help="measure nothing, show this report")
    parser.add_argument(
        "--document", type=Path, metavar="FILE", help="measure nothing, update README and docs from this report"
    )
    return parser


def _sections(text: str) -> tuple[Section, ...]:
    wanted = set(text.split(","))
    if unknown := wanted.difference(_NAMES):
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: must be among {', '.join(_NAMES)}")
    return tuple(section for section in SECTIONS if section.name in wanted)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError("must be a number from 1")
    return int(text)


def _counts(text: str) -> tuple[int, ...]:
    counts = tuple(_count(number) for number in text.split(","))
    if len(counts) < 2 or list(counts) != sorted(set(counts)):
        raise argparse.ArgumentTypeError("must be at least two numbers, in ascending order")
    return counts


def _settings(options: argparse.Namespace) -> Settings:
    base = QUICK if options.quick else Settings()
    given = {name: getattr(options, name) for name in _GIVEN}
    return replace(base, **{name: value for name, value in given.items() if value is not None})


def _run(options: argparse.Namespace) -> int:
    if options.document is not None:
        for written in publish(read_report(options.document)):
            console.print(str(written))
        return 0
    old = None if options.compare is None else read_report(options.compare)
    if options.report is not None:
        report = read_report(options.report)
        for table in report.tables:
            print_table(console, table)
    else:
        report = _measure(options.only, _settings(options), options)
    console.print(measured_on(report), markup=False)
    if old is not None:
        print_comparison(console, compare(old, report))
        for difference in differences(old, report):
            console.print(difference, markup=False)
    return 0


def _measure(sections: Sequence[Section], settings: Settings, options: argparse.Namespace) -> Report:
    """Measure, and write the report after each section, so that a failing section loses no results."""
    report = Report(this_machine(), settings, datetime.now(UTC).isoformat(timespec="seconds"), 0, ())
    left = sum(section.seconds(settings) for section in sections)
    console.print(f"About {_minutes(left)} on two cores: {', '.join(section.name for section in sections)}")
    started, written = time.monotonic(), list[Path]()
    for section in sections:
        about = _minutes(left)

        def say(what: str, section: Section = section, about: str = about) -> None:
            passed = _minutes(time.monotonic() - started)
            console.print(f"[{passed}, of about {about} more] {section.name}: {what}", style="dim", markup=False)

        table = section.measure(settings, say)
        left -= section.seconds(settings)
        print_table(console, table)
        report = replace(report, tables=(*report.tables, table), seconds=round(time.monotonic() - started, 1))
        written = _write(report, options)
    for file in written:
        console.print(str(file))
    return report


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02} min"


def _write(report: Report, options: argparse.Namespace) -> list[Path]:
    reports = [options.folder / "report.json", *([options.json] if options.json else ())]
    for file in reports:
        write_report(report, file)
    tables = options.folder / "table.md"
    parts = [summary(report), *(f"## {table.title}\n\n{as_markdown(table)}" for table in report.tables)]
    tables.write_text("\n".join([*parts, measured_on(report), ""]), encoding="utf-8")
    return [*reports, tables, *draw(report, options.folder)]


if __name__ == "__main__":
    sys.exit(main())
