"""The requests of a list of one cluster that is under way: each object as it is kept, and its lane."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from signer.controller.requests.request_budget import Limits, NoRoom, Room, Together
from signer.decision.pre_filter import Screen, unscreened
from signer.kube.client import JsonObject
from signer.model.flow import Lane

SCREENED_PER_LIST: Final = 100_000
"""While a list is read that does not fit: as many as an API server holds that is about to break."""


@dataclass(frozen=True, slots=True)
class Measured:
    """An object of a list, as it is kept, and what was found out about it."""

    manifest: JsonObject
    lane: Lane


class ListedRequests:
    """The objects of a list that is under way. They are held by who reads it, and are bounded all the same: those that
    make way are emptied.
    """

    def __init__(self, limits: Callable[[], Limits], glance: Screen, screen: Screen, together: Together) -> None:
        """``glance`` and ``screen`` find lanes, as for :class:`~signer.controller.requests.pending.PendingRequests`."""
        self._glance = glance
        self._screen = screen
        self._objects: list[JsonObject] = []  # with empty ones where somebody had to make way
        self._glanced = self._screened = 0
        self._room: Room[int] = Room(limits, self._find_lane, self._empty, together)
        self.left_out = False
        """Whether something was not held, or had to make way."""

    def holds(self, kept: JsonObject, size: int) -> bool:
        """Whether there is room for an object, which is cut already."""
        number = len(self._objects)
        self._objects.append(kept)
        try:
            self._room.admit(number, self._first_lane(kept), size)
        except NoRoom:
            self._objects.pop()
            self.left_out = True
            return False
        return True

    def measured(self) -> dict[int, Measured]:
        """What is held at its end, by the identity of the objects."""
        return {
            id(manifest): Measured(manifest, self._room.lane(number))
            for number, manifest in enumerate(self._objects)
            if number in self._room
        }

    def close(self) -> None:
        """Nobody holds these objects as a list any more."""
        self._room.close()

    # Pages come faster than requests are posted: a list that never ends must not keep the process busy.

    def _first_lane(self, manifest: JsonObject) -> Lane:
        self._glanced += 1
        return self._glance(manifest) if self._glanced <= SCREENED_PER_LIST else unscreened(manifest)

    def _find_lane(self, number: int) -> Lane:
        self._screened += 1
        manifest = self._objects[number]
        return self._screen(manifest) if self._screened <= SCREENED_PER_LIST else unscreened(manifest)

    def _empty(self, number: int) -> None:
        self._objects[number].clear()
        self.left_out = True
