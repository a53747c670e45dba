"""How much may be kept, and who makes way when it is full.

Newcomers are let in so that a flood crowds out itself: what was refused by screening makes way first, then what no
Machine has, then what was not pre-filtered, and what is plausible last; among equals, whoever takes most, requester by
requester, then provider ID by provider ID, then key by key, and of the heaviest flow the newest.
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
"""Of memory for each request, beside the request: its flow, its share, its place in the queue."""
OWN_BYTES: Final = 1024 * 1024
"""Of one cluster's requests, for which nobody has to ask: a hundred of them, while others fill what is shared."""
SHARED_BYTES: Final = 128 * 1024 * 1024
"""Of all clusters' requests together, beyond what each has for itself: hostile API servers have no end of requests."""
PRE_FILTERED_PER_NEWCOMER: Final = 64
"""Of those that were never pre-filtered, before one of them makes way; each is pre-filtered once at most."""


class BudgetExceeded(Exception):
    """Everything is taken by those who have a better right to it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be kept."""

    requests: int
    bytes: int


class SharedRequestMemory:
    """Memory for requests, shared by clusters."""

    def __init__(self, bytes_left: int = SHARED_BYTES) -> None:
        self.bytes_left = bytes_left


@dataclass(frozen=True, slots=True)
class _Place:
    flow: Flow
    usage: Usage


class RequestBudget(Generic[Key]):
    """What of the limits is taken, by whom.

    ``pre_filter`` finds the flow of a request that was let in or wants to be, by its key; ``evicted`` is told of each
    that had to make way. Beyond ``OWN_BYTES`` there is room while there is some ``shared_memory``.
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
        self._places: dict[Key, _Place] = {}
        self._shares: dict[PriorityLevel, FairShares[Key]] = {
            priority_level: FairShares() for priority_level in PriorityLevel
        }
        self._shared_memory = shared_memory
        self._taken = 0
        self._held = 0
        """Of what is shared."""

    def close(self) -> None:
        """Nothing of this is kept any more: others have what it held."""
        self._shared_memory.bytes_left += self._held
        self._held, self._shared_memory = 0, SharedRequestMemory()

    def __contains__(self, key: Key) -> bool:
        return key in self._places

    def flow(self, key: Key) -> Flow:
        """The flow of a request that has a place. Raises KeyError where it has none."""
        return self._places[key].flow

    def admit(self, key: Key, flow: Flow, size: int) -> None:
        """Give a request of ``size`` bytes a place, at the cost of others if need be. One that has a place already
        changes its size, and stays as old as it is.

        Raises:
            BudgetExceeded: it gets none, or no longer has any.
        """
        arrival = self._release(key).usage.arrival if key in self._places else next(self._arrivals)
        limits = self._limits()
        # At least what is left for each where as many as allowed are kept.
        weight = max(size + BOOKKEEPING_BYTES, limits.bytes // limits.requests)
        if not self._fits(weight, limits):
            if flow.priority_level is PriorityLevel.UNFILTERED:
                flow = self._pre_filter(key)
            self._evict_for(flow, weight, limits)
        self._give(key, _Place(flow, Usage(weight, arrival)))

    def move(self, key: Key, flow: Flow) -> None:
        """the pre-filter has found another flow. Raises KeyError where ``key`` has no place."""
        self._give(key, _Place(flow, self._release(key).usage))

    def release(self, key: Key) -> None:
        """That request is no longer kept. Raises KeyError where it was not."""
        self._release(key)

    def _give(self, key: Key, place: _Place) -> None:
        self._places[key] = place
        self._shares[place.flow.priority_level].add(place.flow.path, key, place.usage)
        self._taken += place.usage.weight
        self._hold()

    def _release(self, key: Key) -> _Place:
        place = self._places.pop(key)
        self._shares[place.flow.priority_level].remove(place.flow.path, key)
        self._taken -= place.usage.weight
        self._hold()
        return place

    def _hold(self) -> None:
        more = max(0, self._taken - OWN_BYTES) - self._held
        self._shared_memory.bytes_left -= more
        self._held += more

    def _bytes(self, limits: Limits) -> int:
        """What may be taken at this moment. Of what is shared nobody takes more than is left to others: who comes later
        finds something. Who has more by then keeps it.
        """
        of_what_is_shared = max(self._held, (self._held + self._shared_memory.bytes_left) // 2)
        return min(limits.bytes, OWN_BYTES + of_what_is_shared)

    @property
    def is_almost_empty(self) -> bool:
        """Whether memory need not be spared at the cost of time."""
        return self._taken < self._bytes(self._limits()) / 8

    @property
    def is_half_free(self) -> bool:
        """Whether listing again is worth its cost."""
        limits = self._limits()
        return len(self._places) < limits.requests / 2 and self._taken < self._bytes(limits) / 2

    def _fits(self, weight: int, limits: Limits) -> bool:
        return len(self._places) < limits.requests and self._taken + weight <= self._bytes(limits)

    def _evict_for(self, flow: Flow, weight: int, limits: Limits) -> None:
        to_be_pre_filtered = PRE_FILTERED_PER_NEWCOMER
        while not self._fits(weight, limits):
            try:
                key = self._yielding_to(flow, weight)
            except NothingToEvict as error:
                raise BudgetExceeded from error
            if self._places[key].flow.priority_level is PriorityLevel.UNFILTERED and to_be_pre_filtered:
                to_be_pre_filtered -= 1
                found = self._pre_filter(key)
                if found.priority_level is not PriorityLevel.UNFILTERED:
                    self.move(key, found)
                    continue
            self.release(key)
            self._evicted(key)

    def _yielding_to(self, flow: Flow, weight: int) -> Key:
        for priority_level in reversed(PriorityLevel):
            if priority_level is flow.priority_level:
                break
            if self._shares[priority_level].weight:
                return self._shares[priority_level].newest_of_heaviest()
        return self._shares[flow.priority_level].yielding_to(flow.path, weight)
