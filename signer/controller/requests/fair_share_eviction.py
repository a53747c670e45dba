"""Tracks usage of a shared budget as a tree: requesters, their provider IDs, their public keys.

The heaviest branch and the newest key of a flow are needed only when the budget is exhausted, and are found with a heap
instead of a scan.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

Name = TypeVar("Name", bound=Hashable)
Key = TypeVar("Key", bound=Hashable)
_STALE_ENTRIES_KEPT: Final = 64


class NothingToEvict(Exception):
    """The newcomer's own flow would be the heaviest, or nothing is admitted."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The bytes that one key uses, and its number in the order of arrival."""

    weight: int
    arrival: int


class _Ranked(ABC, Generic[Name]):
    """Finds the name of the highest rank with a heap that is built on the first query."""

    __slots__ = ("_heap", "_serial")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Name]] = []  # -rank, serial, name
        self._serial = 0

    @abstractmethod
    def _rank(self, name: Name) -> int:
        """A positive number; 0 for unknown names."""

    @abstractmethod
    def _names(self) -> Iterable[Name]:
        """All names."""

    def _highest(self) -> Name:
        """Raises NothingToEvict if there is no name."""
        if not self._heap:
            self._rebuild()
        while self._heap:
            rank, _, name = self._heap[0]
            if self._rank(name) == -rank:
                return name
            heapq.heappop(self._heap)
        raise NothingToEvict

    def _changed(self, name: Name, names: int) -> None:
        """Update the heap. Stale entries stay in it; it is rebuilt before they outnumber the ``names`` current ones."""
        if not self._heap:
            return
        if len(self._heap) > 2 * names + _STALE_ENTRIES_KEPT:
            self._rebuild()
        elif rank := self._rank(name):
            self._push(rank, name)

    def _push(self, rank: int, name: Name) -> None:
        self._serial += 1
        heapq.heappush(self._heap, (-rank, self._serial, name))

    def _rebuild(self) -> None:
        self._heap = []
        for name in self._names():
            self._push(self._rank(name), name)


class FlowUsage(_Ranked[Key]):
    """Usage of the keys of one flow; the newest ranks highest."""

    __slots__ = ("_usages", "weight")

    def __init__(self) -> None:
        super().__init__()
        self.weight = 0
        self._usages: dict[Key, Usage] = {}

    def _rank(self, name: Key) -> int:
        usage = self._usages.get(name)
        return usage.arrival if usage else 0

    def _names(self) -> Iterable[Key]:
        return self._usages

    def add(self, path: tuple[str, ...], key: Key, usage: Usage) -> None:
        """Add the usage of ``key``; ``path`` is empty at this level."""
        self._usages[key] = usage
        self.weight += usage.weight
        self._changed(key, len(self._usages))

    def remove(self, path: tuple[str, ...], key: Key) -> None:
        """Remove the usage of ``key``. Raises KeyError if it has none."""
        self.weight -= self._usages.pop(key).weight
        self._changed(key, len(self._usages))

    def newest_of_heaviest(self) -> Key:
        """The key that arrived last."""
        return self._highest()

    def eviction_candidate(self, path: tuple[str, ...], weight: int) -> Key:
        """Within one flow no request is evicted for a newer one."""
        raise NothingToEvict


class FairShares(_Ranked[str], Generic[Key]):
    """Usage of the branches at one level of the path; the heaviest ranks highest."""

    __slots__ = ("_members", "weight")

    def __init__(self) -> None:
        super().__init__()
        self.weight = 0
        self._members: dict[str, FairShares[Key] | FlowUsage[Key]] = {}

    def _rank(self, name: str) -> int:
        member = self._members.get(name)
        return member.weight if member is not None else 0

    def _names(self) -> Iterable[str]:
        return self._members

    def add(self, path: tuple[str, ...], key: Key, usage: Usage) -> None:
        """Add the usage of ``key`` in the flow at ``path``."""
        name, remainder = path[0], path[1:]
        member = self._members.get(name)
        if member is None:
            member = self._members[name] = FairShares() if remainder else FlowUsage()
        member.add(remainder, key, usage)
        self.weight += usage.weight
        self._changed(name, len(self._members))

    def remove(self, path: tuple[str, ...], key: Key) -> None:
        """Remove the usage of ``key``. Raises KeyError if it has none."""
        name = path[0]
        member = self._members[name]
        before = member.weight
        member.remove(path[1:], key)
        self.weight += member.weight - before
        if not member.weight:
            del self._members[name]
        self._changed(name, len(self._members))

    def newest_of_heaviest(self) -> Key:
        """The newest key in the heaviest flow. Raises NothingToEvict if there is no key."""
        return self._members[self._highest()].newest_of_heaviest()

    def eviction_candidate(self, path: tuple[str, ...], weight: int) -> Key:
        """The key to evict for a newcomer of ``weight`` in the flow at ``path``; the eviction evens out the shares.

        Raises:
            NothingToEvict: the newcomer's own flow would be the heaviest.
        """
        heaviest = self._highest()
        own = self._members.get(path[0])
        if heaviest != path[0] and self._members[heaviest].weight > (own.weight if own else 0) + weight:
            return self._members[heaviest].newest_of_heaviest()
        if own is None:
            raise NothingToEvict
        return own.eviction_candidate(path[1:], weight)
