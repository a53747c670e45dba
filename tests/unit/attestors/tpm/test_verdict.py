"""What a verdict's message may be: it may quote what a node sent."""

from __future__ import annotations

from datetime import timedelta

import pytest

from attestors.contract import Denied, NotProvableYet
from attestors.tpm.verdict import denied, not_yet


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


def test_when_to_look_again() -> None:
    later = timedelta(seconds=42)
    assert not_yet("Reason", "message", later).outcome == NotProvableYet("Reason", "message", later)
    assert str(denied("Reason", "message")) == "Reason"
