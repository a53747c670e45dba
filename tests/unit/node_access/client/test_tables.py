"""Tables fit 80 columns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from node_access.client.tables import WIDTH, fields, table


@given(st.lists(st.tuples(st.text(max_size=90), st.text(max_size=90), st.text(max_size=6)), max_size=4))
def test_every_line_fits(rows: list[tuple[str, str, str]]) -> None:
    text = table(("NAME", "TARGET", "STATE"), rows, shrink=(0, 1))
    assert all(len(line) <= WIDTH and line.isprintable() for line in text.split("\n"))
    assert text.count("\n") == len(rows) + 1


@given(st.lists(st.tuples(st.sampled_from(["Name", "Reason"]), st.text(max_size=300)), min_size=1, max_size=4))
def test_every_field_fits(entries: list[tuple[str, str]]) -> None:
    assert all(len(line) <= WIDTH and line.isprintable() for line in fields(entries).split("\n"))


def test_a_long_cell_is_cut_where_it_may_be() -> None:
    text = table(("NAME", "STATE"), [("x" * 100, "Ready")], shrink=(0,))
    assert text.splitlines()[1].endswith("…  Ready")
