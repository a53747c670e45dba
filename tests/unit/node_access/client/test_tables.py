"""Tables fit their terminal, and are whole where there is none."""

from __future__ import annotations

import os
import pty
import termios

from hypothesis import given
from hypothesis import strategies as st

from node_access.client.tables import WIDTH, WIDTH_WITHOUT_TERMINAL, fields, lines_of, table
from node_access.client.terminal import width_of


@given(st.lists(st.tuples(st.text(max_size=90), st.text(max_size=90), st.text(max_size=6)), max_size=4))
def test_every_line_fits(rows: list[tuple[str, str, str]]) -> None:
    text = table(("NAME", "TARGET", "STATE"), rows, shrink=(0, 1), width=WIDTH)
    assert all(len(line) <= WIDTH and line.isprintable() for line in text.split("\n"))
    assert text.count("\n") == len(rows) + 1


@given(st.lists(st.tuples(st.sampled_from(["Name", "Reason"]), st.text(max_size=300)), min_size=1, max_size=4))
def test_every_field_fits(entries: list[tuple[str, str]]) -> None:
    assert all(len(line) <= WIDTH and line.isprintable() for line in fields(entries, width=WIDTH).split("\n"))


def test_a_long_cell_is_cut_where_it_may_be() -> None:
    text = table(("NAME", "STATE"), [("x" * 100, "Ready")], shrink=(0,), width=WIDTH)
    assert text.splitlines()[1].endswith("…  Ready")


def test_a_pipe_has_whole_cells_and_values() -> None:
    row = ("x" * 1000, "y" * 100)
    shown = table(("NAME", "STATE"), [row], shrink=(0, 1), width=WIDTH_WITHOUT_TERMINAL)
    assert shown.splitlines()[1].split() == [*row]
    value = "a word " * 500 + "end"
    assert fields([("Reason", value)], width=WIDTH_WITHOUT_TERMINAL) == f"Reason: {value}\n"


def test_lines_have_whole_words() -> None:
    assert fields([("Reason", "one word  after another " + "x" * 40)], width=30).splitlines() == [
        "Reason: one word  after",
        "        another",
        "        xxxxxxxxxxxxxxxxxxxxxx",
        "        xxxxxxxxxxxxxxxxxx",
    ]
    assert lines_of("", 80) == [""]
    assert lines_of("a" * 30, 1) == ["a" * 20, "a" * 10], "nobody reads a column of letters"


@given(st.text(alphabet="a  ", max_size=200), st.integers(20, 60))
def test_lines_hold_every_character_but_a_space_at_their_end(text: str, width: int) -> None:
    rest = text
    for line in lines_of(text, width):
        assert len(line) <= width
        assert rest.startswith(line)
        rest = rest.removeprefix(line).removeprefix(" ") if len(rest) > width else ""
    assert rest == ""


def test_the_width_is_that_of_the_terminal() -> None:
    leader, follower = pty.openpty()
    with os.fdopen(leader), os.fdopen(follower, "w") as terminal, open(os.devnull, "w") as elsewhere:
        termios.tcsetwinsize(follower, (24, 132))
        assert width_of(terminal) == 132
        termios.tcsetwinsize(follower, (0, 0))
        assert width_of(terminal) == WIDTH
        assert width_of(elsewhere) == WIDTH_WITHOUT_TERMINAL
