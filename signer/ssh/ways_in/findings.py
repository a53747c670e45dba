"""What is found: ways in that objects declare, what could not be read, and what no object can show. Pure.

Everything here comes from objects that tenants write, so all of it is bounded. Texts are escaped where they are shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

MAXIMUM_WAYS: Final = 100
"""Different ways in, of each certainty."""
MAXIMUM_UNREAD: Final = 100
MAXIMUM_NAMED: Final = 3
"""Objects with the same way in that are named. Others are counted."""
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
    """A way in, and the objects that declare it alike."""

    kind: str
    field: str
    """The whole path."""
    says: str
    close: str
    names: tuple[str, ...]
    """At most ``MAXIMUM_NAMED``."""
    count: int

    def __str__(self) -> str:
        more = f" and {self.count - len(self.names)} more" if self.count > len(self.names) else ""
        return f"{self.kind} {', '.join(self.names)}{more}: {self.field} {self.says}"


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
    unseen: tuple[str, ...] = ()
    """Ways in that no object can show, sorted."""


@dataclass(slots=True)
class _Counted:
    names: list[str] = field(default_factory=list)
    count: int = 0


@dataclass(slots=True)
class Collection:
    """Collects findings while objects are read, and keeps a bounded number."""

    _ways: dict[Certainty, dict[tuple[str, str, str, str], _Counted]] = field(
        default_factory=lambda: {one: {} for one in Certainty}
    )
    _unread: dict[Unread, None] = field(default_factory=dict)
    _unseen: set[str] = field(default_factory=set)

    def add(self, kind: str, name: str, prefix: str, findings: Iterable[Finding]) -> None:
        """Add what was found in one object; ``prefix`` is the path of the spec that was looked at."""
        for one in findings:
            ways, way = self._ways[one.certainty], (kind, f"{prefix}.{one.field}", one.says, one.close)
            if way not in ways and len(ways) == MAXIMUM_WAYS:
                self.not_read("more ways in", f"{MAXIMUM_WAYS} different ones are listed")
                continue
            counted = ways.setdefault(way, _Counted())
            counted.count += 1
            if len(counted.names) < MAXIMUM_NAMED:
                counted.names.append(name)

    def not_read(self, what: str, why: str) -> None:
        """Something could not be read."""
        if len(self._unread) < MAXIMUM_UNREAD:
            self._unread[Unread(what, why)] = None

    def unseen(self, ways: Iterable[str]) -> None:
        """The machines may have ways in that no object shows."""
        self._unseen.update(ways)

    def result(self) -> WaysIn:
        """What was collected."""
        return WaysIn(
            self._of(Certainty.DECLARED),
            self._of(Certainty.POSSIBLE),
            tuple(self._unread),
            tuple(sorted(self._unseen)),
        )

    def _of(self, certainty: Certainty) -> tuple[WayIn, ...]:
        return tuple(WayIn(*way, tuple(one.names), one.count) for way, one in self._ways[certainty].items())


def shown(value: object) -> str:
    """A value of a field in a message, quoted and bounded."""
    text = value if isinstance(value, str) else type(value).__name__
    return f"{text[:MAXIMUM_VALUE_CHARACTERS]!a}"
