"""The two values that a check compared, as text for ``explain``. The ``*_comparisons`` modules make them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from signer.model.decision import printable

MAXIMUM_SIDE_CHARACTERS: Final = 300
_MAXIMUM_ITEMS: Final = 6


@dataclass(frozen=True, slots=True)
class Comparison:
    """The two sides of a check, truncated and escaped for printing. Both may be empty."""

    found: str
    """The value in the request, its evidence or the Machine."""
    expected: str
    """The value that passes."""

    def __post_init__(self) -> None:
        for side in ("found", "expected"):
            object.__setattr__(self, side, _bounded(getattr(self, side)))


def listed(items: Iterable[object], none: str = "none") -> str:
    """The first six items, and the number of the others."""
    texts = [str(item) for item in items]
    more = [f"and {len(texts) - _MAXIMUM_ITEMS} more"] if len(texts) > _MAXIMUM_ITEMS else []
    return ", ".join([*texts[:_MAXIMUM_ITEMS], *more]) or none


def _bounded(text: str) -> str:
    escaped = printable(text[: MAXIMUM_SIDE_CHARACTERS + 1])
    return escaped if len(escaped) <= MAXIMUM_SIDE_CHARACTERS else escaped[: MAXIMUM_SIDE_CHARACTERS - 3] + "..."


NOTHING_COMPARED: Final = Comparison("", "")
"""For a check whose outcome says everything."""
