"""What a verdict's message may be: it may quote what a node sent."""

from __future__ import annotations

from datetime import timedelta

import pytest

from attestors.contract import Denied, NotProvableYet
from attestors.verdict import denied, not_until_fixed, not_yet


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("x" * 500, "x" * 500),
        ("x" * 501, "x" * 500),
        ("a\nb\x1b[2J\u202e\u00e4", "a b [2J \u00e4"),
    ],
    ids=["just-fits", "too-long", "unprintable"],
)
def test_messages_are_bounded_and_printable(message: str, shown: str) -> None:
    assert denied("Reason", message).outcome == Denied("Reason", shown)
    assert not_yet("Reason", message).outcome == NotProvableYet("Reason", shown, timedelta(seconds=10))


@pytest.mark.parametrize(
    ("asked", "given"),
    [(0.0, 1.0), (1.0, 1.0), (42.0, 42.0), (600.0, 600.0), (601.0, 600.0)],
    ids=["sooner", "soonest", "between", "latest", "later"],
)
def test_when_to_look_again(asked: float, given: float) -> None:
    later = not_yet("Reason", "message", timedelta(seconds=asked))
    assert later.outcome == NotProvableYet("Reason", "message", timedelta(seconds=given))


def test_until_fixed_waits_a_minute() -> None:
    assert not_until_fixed("Reason", "message").outcome == NotProvableYet("Reason", "message", timedelta(minutes=1))


def test_it_is_called_by_its_reason() -> None:
    assert str(denied("Reason", "message")) == "Reason"
