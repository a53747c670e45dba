"""What a check compared with what, in words for a person; filled by the functions of ``signer.rules.comparisons``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from signer.model.decision import printable

MAXIMUM_SIDE_CHARACTERS: Final = 300
_MAXIMUM_ITEMS: Final = 6


@dataclass(frozen=True, slots=True)
class Comparison:
    """The two sides of a check: bounded and printable, whatever a request holds. Both may be empty."""

    found: str
    """What the request, its evidence or the Machine says."""
    expected: str
    """What it has to be."""

    def __post_init__(self) -> None:
        for side in ("found", "expected"):
            object.__setattr__(self, side, _bounded(getattr(self, side)))


def listed(items: Iterable[object], none: str = "none") -> str:
    """A few of the items, and how many more there are."""
    texts = [str(item) for item in items]
    more = [f"and {len(texts) - _MAXIMUM_ITEMS} more"] if len(texts) > _MAXIMUM_ITEMS else []
    return ", ".join([*texts[:_MAXIMUM_ITEMS], *more]) or none


def _bounded(text: str) -> str:
    escaped = printable(text[: MAXIMUM_SIDE_CHARACTERS + 1])
    return escaped if len(escaped) <= MAXIMUM_SIDE_CHARACTERS else escaped[: MAXIMUM_SIDE_CHARACTERS - 3] + "..."


NOTHING_COMPARED: Final = Comparison("", "")
"""The check has said everything by passing or not."""
