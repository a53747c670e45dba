"""The budget for pending requests, and which request is evicted when the budget is exhausted.

Eviction makes a flood crowd out itself. Requests that the pre-filter refused are evicted first, then those whose
provider ID no Machine has, then those that were not pre-filtered, and plausible ones last. Within a priority level the
heaviest requester loses first, within it the heaviest provider ID, then the heaviest key; of the heaviest flow the
newest request is evicted.

Usage is tracked as a tree: requesters, their provider IDs, their public keys. The heaviest branch and the newest key of
a flow are needed only when the budget is exhausted, and are found with a heap instead of a scan.
"""

from __future__ import annotations

import heapq
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from signer.model.flow import Flow, PriorityLevel

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


BOOKKEEPING_BYTES: Final = 2048
"""Memory per request besides the request itself: its flow, its usage, its queue entry."""
OWN_BYTES: Final = 1024 * 1024
"""Reserved for each cluster: about a hundred requests, even while other clusters exhaust the shared memory."""
SHARED_BYTES: Final = 128 * 1024 * 1024
"""Shared by all clusters beyond their reserved memory: a hostile API server can present any number of requests."""
PRE_FILTERED_PER_NEWCOMER: Final = 64
"""Unfiltered requests that are pre-filtered before one of them is evicted; each is pre-filtered at most once."""


class BudgetExceeded(Exception):
    """The budget is exhausted by requests that take precedence."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Maximum number and total size of the requests that are kept."""

    requests: int
    bytes: int


class SharedRequestMemory:
    """Memory for requests that clusters share beyond their reserved memory."""

    def __init__(self, bytes_left: int = SHARED_BYTES) -> None:
        self.bytes_left = bytes_left


@dataclass(frozen=True, slots=True)
class _Entry:
    flow: Flow
    usage: Usage


class RequestBudget(Generic[Key]):
    """Accounts for the requests that are kept.

    ``pre_filter`` finds the flow of an admitted or new request by its key. ``evicted`` is called with the key of each
    evicted request. Memory beyond ``OWN_BYTES`` comes from ``shared_memory``.
    """

    def __init__(
        self,
        limits: Callable[[], Limits],
        pre_filter: Callable[[Key], Flow],
        evicted: Callable[[Key], None],
        shared_memory: SharedRequestMemory,
    ) -> None:
        self._limits = limits
        self._pre_filter = pre_filter
        self._evicted = evicted
        self._arrivals = itertools.count(1)
        self._entries: dict[Key, _Entry] = {}
        self._shares: dict[PriorityLevel, FairShares[Key]] = {
            priority_level: FairShares() for priority_level in PriorityLevel
        }
        self._shared_memory = shared_memory
        self._used = 0
        self._borrowed = 0
        """Bytes taken from the shared memory."""

    def close(self) -> None:
        """Return the shared memory. Nothing of this budget is kept any more."""
        self._shared_memory.bytes_left += self._borrowed
        self._borrowed, self._shared_memory = 0, SharedRequestMemory()

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def flow(self, key: Key) -> Flow:
        """The flow of an admitted request. Raises KeyError if it is not admitted."""
        return self._entries[key].flow

    def admit(self, key: Key, flow: Flow, size: int) -> None:
        """Admit a request of ``size`` bytes, evicting others if necessary.

        A request that is already admitted changes its size and keeps its age.

        Raises:
            BudgetExceeded: the request is rejected, or no longer admitted.
        """
        arrival = self._release(key).usage.arrival if key in self._entries else next(self._arrivals)
        limits = self._limits()
        # At least an equal share of the bytes, so that both limits hold.
        weight = max(size + BOOKKEEPING_BYTES, limits.bytes // limits.requests)
        if not self._fits(weight, limits):
            if flow.priority_level is PriorityLevel.UNFILTERED:
                flow = self._pre_filter(key)
            self._evict_for(flow, weight, limits)
        self._charge(key, _Entry(flow, Usage(weight, arrival)))

    def move(self, key: Key, flow: Flow) -> None:
        """Change the flow of an admitted request. Raises KeyError if ``key`` is not admitted."""
        self._charge(key, _Entry(flow, self._release(key).usage))

    def release(self, key: Key) -> None:
        """The request is no longer kept. Raises KeyError if it was not admitted."""
        self._release(key)

    def _charge(self, key: Key, entry: _Entry) -> None:
        self._entries[key] = entry
        self._shares[entry.flow.priority_level].add(entry.flow.path, key, entry.usage)
        self._used += entry.usage.weight
        self._update_borrowed()

    def _release(self, key: Key) -> _Entry:
        entry = self._entries.pop(key)
        self._shares[entry.flow.priority_level].remove(entry.flow.path, key)
        self._used -= entry.usage.weight
        self._update_borrowed()
        return entry

    def _update_borrowed(self) -> None:
        more = max(0, self._used - OWN_BYTES) - self._borrowed
        self._shared_memory.bytes_left -= more
        self._borrowed += more

    def _bytes(self, limits: Limits) -> int:
        """Bytes that this cluster may use now.

        A cluster takes at most as much shared memory as it leaves, so that a later cluster finds some. It keeps what it
        already has.
        """
        of_shared = max(self._borrowed, (self._borrowed + self._shared_memory.bytes_left) // 2)
        return min(limits.bytes, OWN_BYTES + of_shared)

    @property
    def is_almost_empty(self) -> bool:
        """Whether less than an eighth is used, so that compression is not worth its CPU."""
        return self._used < self._bytes(self._limits()) / 8

    @property
    def is_half_free(self) -> bool:
        """Whether at least half is free, so that a relist is worth its cost."""
        limits = self._limits()
        return len(self._entries) < limits.requests / 2 and self._used < self._bytes(limits) / 2

    def _fits(self, weight: int, limits: Limits) -> bool:
        return len(self._entries) < limits.requests and self._used + weight <= self._bytes(limits)

    def _evict_for(self, flow: Flow, weight: int, limits: Limits) -> None:
        pre_filters_left = PRE_FILTERED_PER_NEWCOMER
        while not self._fits(weight, limits):
            try:
                key = self._eviction_candidate(flow, weight)
            except NothingToEvict as error:
                raise BudgetExceeded from error
            if self._entries[key].flow.priority_level is PriorityLevel.UNFILTERED and pre_filters_left:
                pre_filters_left -= 1
                found = self._pre_filter(key)
                if found.priority_level is not PriorityLevel.UNFILTERED:
                    self.move(key, found)
                    continue
            self.release(key)
            self._evicted(key)

    def _eviction_candidate(self, flow: Flow, weight: int) -> Key:
        for priority_level in reversed(PriorityLevel):
            if priority_level is flow.priority_level:
                break
            if self._shares[priority_level].weight:
                return self._shares[priority_level].newest_of_heaviest()
        return self._shares[flow.priority_level].eviction_candidate(flow.path, weight)
