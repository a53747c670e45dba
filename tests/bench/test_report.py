"""Reports survive writing and reading, and other files are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.comparison import compare, differences
from tests.bench.machine import this_machine
from tests.bench.report import UnreadableReport, read_report, write_report
from tests.bench.settings import Settings
from tests.bench.support import drain_table, report


def test_a_written_report_can_be_read(tmp_path: Path) -> None:
    written = report(drain_table(0.5, 2))
    file = tmp_path / "new folder/report.json"
    write_report(written, file)
    assert read_report(file) == written


def test_a_report_of_this_machine_can_be_read(tmp_path: Path) -> None:
    written = replace(report(), machine=this_machine())
    write_report(written, tmp_path / "report.json")
    assert read_report(tmp_path / "report.json") == written
    assert written.machine.memory_mebibytes > 0


@pytest.mark.parametrize("content", ["", "[]", '{"version": 1}', '{"machine": 1}'])
def test_other_content_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "report.json"
    file.write_text(content)
    with pytest.raises(UnreadableReport, match=r"report\.json"):
        read_report(file)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableReport, match="elsewhere"):
        read_report(tmp_path / "elsewhere")


def test_another_version_is_refused(tmp_path: Path) -> None:
    write_report(replace(report(), version=2), tmp_path / "report.json")
    with pytest.raises(UnreadableReport, match="version 2, but only 1 is supported"):
        read_report(tmp_path / "report.json")


def test_comparison_has_each_figure_that_both_have() -> None:
    old, new = report(drain_table(0.5, 2)), report(drain_table(1.0, 1))
    compared = {one.name: one for one in compare(old, new)}
    assert len(compared) == 5
    assert compared["drain: renewal, ratio to the peer"].ratio == 2
    assert compared["drain: renewal, ratio to the peer"].is_beyond_the_ranges
    assert compared["drain: renewal, CPU without the CA key, ms"].ratio == 0.5
    assert not compared["drain: renewal, per second"].is_beyond_the_ranges
    assert compare(report(), new) == []
    assert compare(old, report()) == []


def test_differences_are_reported() -> None:
    old = report()
    assert differences(old, old) == []
    other = replace(old, settings=Settings(), machine=replace(old.machine, cores=8))
    found = differences(old, other)
    assert [one.partition(":")[0] for one in found] == ["cores", "settings"]
    assert found[0] == "cores: 2 before, 8 now."
