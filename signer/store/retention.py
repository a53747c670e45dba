"""Objects that a cache keeps although their namespace is over its limit, because something must still be ended.

What was begun outside of the cluster's API ends only while the controller sees the object that says so. Dropping such
an object would keep a person's access. So the part of the controller that begins things says of each object whether it
owes an end: the proven ones are kept, however many there are, because that part begins none in a namespace over its
limit; of those that only claim it, as many as the limit.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

Value = TypeVar("Value")
_Value = TypeVar("_Value", contravariant=True)
_Key: TypeAlias = tuple[str, str]
"""Namespace and name."""


class Owed(enum.Enum):
    """Whether the controller must still end what it began for an object."""

    NOTHING = enum.auto()
    CLAIMED = enum.auto()
    """It may have to: others can write what says so."""
    PROVEN = enum.auto()


class Owes(Protocol[_Value]):
    """Says what is owed for the objects of one collection."""

    def owed(self, value: _Value) -> Owed:
        """What is owed for this object."""
        ...

    def list_begins(self) -> None:
        """A list begins, which shows all objects."""
        ...

    def wants_list(self) -> bool:
        """Whether it could not judge objects since the last list began, and can now."""
        ...


class OwesNothing:
    """Nothing is begun for the objects of the collection: none is kept beyond the limit."""

    def owed(self, value: object) -> Owed:
        """See Owes."""
        return Owed.NOTHING

    def list_begins(self) -> None:
        """See Owes."""

    def wants_list(self) -> bool:
        """See Owes."""
        return False


OWES_NOTHING: Final = OwesNothing()


class Retention(Generic[Value]):
    """The objects of one collection that are kept beyond the limit."""

    def __init__(self, owes: Owes[Value], limit: Callable[[], int]) -> None:
        """``limit`` is the number of objects with a claim that are kept of one namespace."""
        self._owes = owes
        self._limit = limit
        self._claims: dict[str, set[_Key]] = {}
        self._listing: dict[str, set[_Key]] = {}
        """Claims in a list under way."""
        self._left_out: set[str] = set()
        """Namespaces with more claims than were kept."""

    @property
    def keeps_any(self) -> bool:
        """False if no object is kept, so that none needs to be read."""
        return self._owes is not OWES_NOTHING

    def list_begins(self) -> None:
        """A list begins."""
        self._listing = {}
        self._owes.list_begins()

    def keeps_listed(self, key: _Key, value: Value) -> bool:
        """Whether an object of the list is kept."""
        return self._keeps(self._listing, key, value)

    def list_ends(self) -> None:
        """The list is complete."""
        self._claims, self._listing = self._listing, {}
        self._left_out &= {namespace for namespace, keys in self._claims.items() if len(keys) >= self._limit()}

    def keeps(self, key: _Key, value: Value) -> bool:
        """Whether an object that the watch reports is kept."""
        return self._keeps(self._claims, key, value)

    def removed(self, key: _Key) -> None:
        """The object is deleted."""
        _drop(self._claims, key)

    def wants_list(self) -> bool:
        """Whether a list would show objects that are to be kept now, and were not."""
        room = any(len(self._claims.get(namespace, ())) <= self._limit() // 2 for namespace in self._left_out)
        return room or self._owes.wants_list()

    def _keeps(self, claims: dict[str, set[_Key]], key: _Key, value: Value) -> bool:
        owed = self._owes.owed(value)
        if owed is not Owed.CLAIMED:
            _drop(claims, key)
            return owed is Owed.PROVEN
        held = claims.setdefault(key[0], set())
        if key in held or len(held) < self._limit():
            held.add(key)
            return True
        self._left_out.add(key[0])
        return False


def _drop(claims: dict[str, set[_Key]], key: _Key) -> None:
    held = claims.get(key[0], set())
    held.discard(key)
    if not held:
        claims.pop(key[0], None)


__all__ = ["OWES_NOTHING", "Owed", "Owes", "OwesNothing", "Retention"]
