"""Charts are SVG with correctly placed points."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.bench.chart import Chart, Series, _Axis
from tests.bench.drawings import DRAWINGS, draw
from tests.bench.figures import Figure, Row, Table
from tests.bench.sizes import COLUMNS
from tests.bench.support import report

_SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("value", "most", "ticks"),
    [(0, 1, 2), (1, 1, 6), (4000, 4000, 5), (2.3, 2.5, 6), (99, 100, 6), (0.013, 0.015, 4), (5.1, 6, 4)],
)
def test_an_axis_has_round_steps_and_includes_the_value(value: float, most: float, ticks: int) -> None:
    axis = _Axis.to(value)
    assert axis.most == pytest.approx(most)
    assert len(list(axis.ticks())) == ticks
    assert axis.most >= value


def test_points_are_placed_by_their_values() -> None:
    chart = Chart("A & B", "number", "seconds", (Series("<ours>", ((0, 0), (50, 5), (100, 10))),))
    root = ElementTree.fromstring(chart.svg())  # noqa: S314 - ours
    places = [(float(circle.get("cx", "")), float(circle.get("cy", ""))) for circle in root.iter(f"{_SVG}circle")]
    (left, bottom), middle, (right, top) = places
    assert middle == ((left + right) / 2, (top + bottom) / 2)
    assert right > left
    assert bottom > top
    texts = [element.text for element in root.iter(f"{_SVG}text")]
    assert {"A & B", "number", "seconds", "<ours>", "0", "100", "10"} <= set(texts)


def test_sections_of_the_report_are_drawn(tmp_path: Path) -> None:
    rows = tuple(Row(str(size), {column.key: Figure.once(size / 10) for column in COLUMNS}) for size in (500, 250))
    written = draw(report(Table("sizes", "Sizes", COLUMNS, rows)), tmp_path)
    assert [file.name for file in written] == ["csrs-seconds.svg", "csrs-cpu.svg"]
    root = ElementTree.fromstring(written[0].read_text())  # noqa: S314 - ours
    (first, second), *others = (line.get("points", "").split() for line in root.iter(f"{_SVG}polyline"))
    assert len(others) == 2
    assert float(first.split(",")[0]) < float(second.split(",")[0])
    assert draw(report(), tmp_path) == []


def test_each_chart_has_its_own_file() -> None:
    assert len({drawing.file for drawing in DRAWINGS}) == len(DRAWINGS)
