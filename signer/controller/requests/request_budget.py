"""The budget for pending requests, and which request is evicted when the budget is exhausted.

Eviction makes a flood crowd out itself. Requests that the pre-filter refused are evicted first, then those whose
provider ID no Machine has, then those that were not pre-filtered, and plausible ones last. Within a priority level the
heaviest requester loses first, within it the heaviest provider ID, then the heaviest key; of the heaviest flow the
newest request is evicted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from signer.controller.requests.fair_share_eviction import FairShares, NothingToEvict, Usage
from signer.model.flow import Flow, PriorityLevel

Key = TypeVar("Key", bound=Hashable)

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
