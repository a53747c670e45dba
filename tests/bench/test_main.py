"""The command line: refused arguments, output and files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.__main__ import EXIT_UNREADABLE, main
from tests.bench.report import read_report, write_report
from tests.bench.settings import QUICK
from tests.bench.support import drain_table, report


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "drain,dream"], "dream: must be among start, commands, verification, drain"),
        (["--requests", "0"], "must be a number from 1"),
        (["--sizes", "100"], "must be at least two numbers"),
        (["--clusters", "100,10"], "in ascending order"),
    ],
)
def test_wrong_usage_is_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--report", "--compare", "--document"])
def test_an_unreadable_report_is_refused_before_measuring(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([option, str(tmp_path / "nothing.json")]) == EXIT_UNREADABLE
    assert "nothing.json" in capsys.readouterr().out


def test_reports_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, ratio in (("old", 0.5), ("new", 1.0)):
        write_report(report(drain_table(ratio, 2)), tmp_path / name)
    assert main(["--report", str(tmp_path / "new"), "--compare", str(tmp_path / "old")]) == 0
    shown = capsys.readouterr().out
    for words in ("Draining", "A note.", "2.00 better", "at commit 0123456789ab"):
        assert words in shown


@pytest.mark.slow
def test_a_measurement_is_printed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["--quick", "--only", "start", "--folder", str(tmp_path / "bench"), "--json", str(tmp_path / "also")]) == 0
    )
    shown = capsys.readouterr().out
    assert "About 0:00 min on two cores: start" in shown
    assert "kubelet-authenticator" in shown
    written = read_report(tmp_path / "also")
    assert written == read_report(tmp_path / "bench/report.json")
    assert written.settings == QUICK
    (table,) = written.tables
    assert table.section == "start"
    assert "times a bare Python interpreter | ≤ 2 times:" in (tmp_path / "bench/table.md").read_text()
