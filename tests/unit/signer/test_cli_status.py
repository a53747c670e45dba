"""``status`` on terminals of any width: no text is cut off, and no word is broken."""

from __future__ import annotations

import pytest

from tests.documents.explain_example import fleet

WORDS = ("default/production", "Enforce", "118 of 120", "NodeNameMismatch 3", "BindingMismatch 1", "2035-02-07")


@pytest.mark.parametrize("width", [60, 80, 100, 118, 140])
def test_no_word_is_broken(width: int) -> None:
    shown = fleet(width)
    assert max(map(len, shown.splitlines())) <= width
    assert "\N{HORIZONTAL ELLIPSIS}" not in shown
    assert [word for word in WORDS if word not in " ".join(shown.split())] == []


def test_a_wide_terminal_shows_one_line_per_cluster() -> None:
    assert [line for line in fleet(140).splitlines() if line.startswith(" default/staging     Observe  True   tpm")]
    assert "Days left <1/<3/<7/more: 0/31/87/0" in " ".join(fleet(80).split())
