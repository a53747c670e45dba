"""What is found: ways in that objects declare, what could not be read, and what no object can show. Pure.

Everything here comes from objects that tenants write, so all of it is bounded. Texts are escaped where they are shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

MAXIMUM_KEPT: Final = 100
"""Ways in of each certainty, and things that could not be read. More are counted."""
MAXIMUM_VALUE_CHARACTERS: Final = 64


class Certainty(StrEnum):
    """How far the object's own fields prove it; the value is for scripts."""

    DECLARED = "Declared"
    """The machine gets this way in, unless its image takes it away."""
    POSSIBLE = "Possible"
    """Something that the controller cannot read decides."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One way in, in one object's spec."""

    field: str
    """Path below ``spec``, or below ``spec.template.spec`` of a template."""
    says: str
    """Completes the sentence that begins with the field."""
    close: str
    """What to do, in one sentence without an end."""
    certainty: Certainty = Certainty.DECLARED


@dataclass(frozen=True, slots=True)
class WayIn:
    """A finding, and the object that it is in."""

    kind: str
    name: str
    field: str
    """The whole path."""
    says: str
    close: str
    certainty: Certainty

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.field} {self.says}"


@dataclass(frozen=True, slots=True)
class Unread:
    """Objects that could not be read, or whose fields the controller does not know."""

    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


@dataclass(frozen=True, slots=True)
class WaysIn:
    """Everything that is known of one cluster."""

    declared: tuple[WayIn, ...] = ()
    possible: tuple[WayIn, ...] = ()
    unread: tuple[Unread, ...] = ()
    declared_count: int = 0
    """With those beyond ``MAXIMUM_KEPT``; so are the other two."""
    possible_count: int = 0
    unread_count: int = 0
    unseen: tuple[str, ...] = ()
    """Ways in that no object can show, sorted."""


@dataclass(slots=True)
class Collection:
    """Collects findings while objects are read, and keeps a bounded number."""

    _ways: dict[Certainty, list[WayIn]] = field(default_factory=lambda: {one: [] for one in Certainty})
    _counts: dict[Certainty, int] = field(default_factory=lambda: dict.fromkeys(Certainty, 0))
    _unread: dict[Unread, None] = field(default_factory=dict)
    _unread_count: int = 0
    _unseen: set[str] = field(default_factory=set)

    def add(self, kind: str, name: str, prefix: str, findings: Iterable[Finding]) -> None:
        """Add what was found in one object; ``prefix`` is the path of the spec that was looked at."""
        for one in findings:
            self._counts[one.certainty] += 1
            kept = self._ways[one.certainty]
            if len(kept) < MAXIMUM_KEPT:
                kept.append(WayIn(kind, name, f"{prefix}.{one.field}", one.says, one.close, one.certainty))

    def not_read(self, what: str, why: str) -> None:
        """Something could not be read."""
        one = Unread(what, why)
        if one in self._unread:
            return
        self._unread_count += 1
        if len(self._unread) < MAXIMUM_KEPT:
            self._unread[one] = None

    def unseen(self, ways: Iterable[str]) -> None:
        """The machines may have ways in that no object shows."""
        self._unseen.update(ways)

    def result(self) -> WaysIn:
        """What was collected."""
        return WaysIn(
            declared=tuple(self._ways[Certainty.DECLARED]),
            possible=tuple(self._ways[Certainty.POSSIBLE]),
            unread=tuple(self._unread),
            declared_count=self._counts[Certainty.DECLARED],
            possible_count=self._counts[Certainty.POSSIBLE],
            unread_count=self._unread_count,
            unseen=tuple(sorted(self._unseen)),
        )


def shown(value: object) -> str:
    """A value of a field in a message, quoted and bounded."""
    text = value if isinstance(value, str) else type(value).__name__
    return f"{text[:MAXIMUM_VALUE_CHARACTERS]!a}"
