"""Percentiles, medians, and how figures are written."""

from __future__ import annotations

import pytest

from tests.bench.figures import Column, Figure, percentile
from tests.bench.support import drain_table


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([3.0], 50, 3.0),
        ([1, 2, 3, 4], 50, 2),
        ([4, 3, 2, 1], 75, 3),
        (range(1, 101), 99, 99),
        (range(1, 201), 99, 198),
        (range(1, 11), 99, 10),
        ([1, 2], 0, 1),
    ],
)
def test_a_percentile_is_one_of_the_values_by_nearest_rank(
    values: list[float], percent: float, expected: float
) -> None:
    assert percentile(values, percent) == expected


def test_nothing_has_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 99)


def test_a_figure_of_several_rounds_is_their_median_with_their_range() -> None:
    assert Figure.of([5, 1, 3, 2]) == Figure(2.5, 1, 5)
    assert Column("key", "title", 1).text(Figure.of([5, 1, 3, 2])) == "2.5 (1.0 to 5.0)"


def test_a_range_that_rounds_to_one_figure_is_left_out() -> None:
    assert Column("key", "title", 1).text(Figure.of([2.98, 3.01])) == "3.0"


def test_a_figure_that_was_measured_once_has_no_range() -> None:
    assert Column("key", "title", 0).text(Figure.once(12345.6)) == "12,346"
    assert Column("key", "title", 0).text(None) == ""


def test_a_figure_is_found_by_row_and_column() -> None:
    table = drain_table(0.5, 2)
    assert table.figure("renewal", "cpu_without_key") == Figure.once(2)
    assert table.figure("renewal", "elsewhere") is None
    assert table.figure("elsewhere", "cpu_without_key") is None
