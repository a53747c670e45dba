"""How much may be kept, and who makes way when it is full.

Newcomers are let in so that a flood crowds out itself: what was refused by screening makes way first, then what no
Machine has, then what was not screened, and what is plausible last; among equals, whoever takes most, requester by
requester, then provider ID by provider ID, then key by key, and of the heaviest lane the newest.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from signer.controller.requests.fair_share_eviction import NobodyYields, Portion, Shares
from signer.model.flow import Lane, Screening

Key = TypeVar("Key", bound=Hashable)

BOOKKEEPING_BYTES: Final = 2048
"""Of memory for each request, beside the request: its lane, its share, its place in the queue."""
OWN_BYTES: Final = 1024 * 1024
"""Of one cluster's requests, for which nobody has to ask: a hundred of them, while others fill what is shared."""
TOGETHER_BYTES: Final = 128 * 1024 * 1024
"""Of all clusters' requests together, beyond what each has for itself: hostile API servers have no end of requests."""
SCREENED_PER_NEWCOMER: Final = 64
"""Of those that were never screened, before one of them makes way; each is screened once at most."""


class NoRoom(Exception):
    """Everything is taken by those who have a better right to it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be kept."""

    requests: int
    bytes: int


class Together:
    """Memory for requests, shared by clusters."""

    def __init__(self, bytes_left: int = TOGETHER_BYTES) -> None:
        self.bytes_left = bytes_left


@dataclass(frozen=True, slots=True)
class _Place:
    lane: Lane
    portion: Portion


class Room(Generic[Key]):
    """What of the limits is taken, by whom.

    ``screen`` finds the lane of a request that was let in or wants to be, by its key; ``evicted`` is told of each that
    had to make way. Beyond ``OWN_BYTES`` there is room while there is some ``together``.
    """

    def __init__(
        self,
        limits: Callable[[], Limits],
        screen: Callable[[Key], Lane],
        evicted: Callable[[Key], None],
        together: Together,
    ) -> None:
        self._limits = limits
        self._screen = screen
        self._evicted = evicted
        self._arrivals = itertools.count(1)
        self._places: dict[Key, _Place] = {}
        self._shares: dict[Screening, Shares[Key]] = {screening: Shares() for screening in Screening}
        self._together = together
        self._taken = 0
        self._held = 0
        """Of what is shared."""

    def close(self) -> None:
        """Nothing of this is kept any more: others have what it held."""
        self._together.bytes_left += self._held
        self._held, self._together = 0, Together()

    def __contains__(self, key: Key) -> bool:
        return key in self._places

    def lane(self, key: Key) -> Lane:
        """The lane of a request that has a place. Raises KeyError where it has none."""
        return self._places[key].lane

    def admit(self, key: Key, lane: Lane, size: int) -> None:
        """Give a request of ``size`` bytes a place, at the cost of others if need be. One that has a place already
        changes its size, and stays as old as it is.

        Raises:
            NoRoom: it gets none, or no longer has any.
        """
        arrival = self._release(key).portion.arrival if key in self._places else next(self._arrivals)
        limits = self._limits()
        # At least what is left for each where as many as allowed are kept.
        weight = max(size + BOOKKEEPING_BYTES, limits.bytes // limits.requests)
        if not self._has_room_for(weight, limits):
            if lane.screening is Screening.UNSCREENED:
                lane = self._screen(key)
            self._make_room(lane, weight, limits)
        self._give(key, _Place(lane, Portion(weight, arrival)))

    def move(self, key: Key, lane: Lane) -> None:
        """Screening has found another lane. Raises KeyError where ``key`` has no place."""
        self._give(key, _Place(lane, self._release(key).portion))

    def release(self, key: Key) -> None:
        """That request is no longer kept. Raises KeyError where it was not."""
        self._release(key)

    def _give(self, key: Key, place: _Place) -> None:
        self._places[key] = place
        self._shares[place.lane.screening].add(place.lane.path, key, place.portion)
        self._taken += place.portion.weight
        self._hold()

    def _release(self, key: Key) -> _Place:
        place = self._places.pop(key)
        self._shares[place.lane.screening].remove(place.lane.path, key)
        self._taken -= place.portion.weight
        self._hold()
        return place

    def _hold(self) -> None:
        more = max(0, self._taken - OWN_BYTES) - self._held
        self._together.bytes_left -= more
        self._held += more

    def _bytes(self, limits: Limits) -> int:
        """What may be taken at this moment. Of what is shared nobody takes more than is left to others: who comes later
        finds something. Who has more by then keeps it.
        """
        of_what_is_shared = max(self._held, (self._held + self._together.bytes_left) // 2)
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

    def _has_room_for(self, weight: int, limits: Limits) -> bool:
        return len(self._places) < limits.requests and self._taken + weight <= self._bytes(limits)

    def _make_room(self, lane: Lane, weight: int, limits: Limits) -> None:
        to_be_screened = SCREENED_PER_NEWCOMER
        while not self._has_room_for(weight, limits):
            try:
                key = self._yielding_to(lane, weight)
            except NobodyYields as error:
                raise NoRoom from error
            if self._places[key].lane.screening is Screening.UNSCREENED and to_be_screened:
                to_be_screened -= 1
                found = self._screen(key)
                if found.screening is not Screening.UNSCREENED:
                    self.move(key, found)
                    continue
            self.release(key)
            self._evicted(key)

    def _yielding_to(self, lane: Lane, weight: int) -> Key:
        for screening in reversed(Screening):
            if screening is lane.screening:
                break
            if self._shares[screening].weight:
                return self._shares[screening].newest_of_heaviest()
        return self._shares[lane.screening].yielding_to(lane.path, weight)
