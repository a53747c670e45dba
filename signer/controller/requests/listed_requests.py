"""The requests of a list of one cluster that is under way: each object as it is kept, and its flow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from signer.controller.requests.request_budget import BudgetExceeded, Limits, RequestBudget, SharedRequestMemory
from signer.decision.pre_filter import PreFilter, unfiltered
from signer.kube.client import JsonObject
from signer.model.flow import Flow

PRE_FILTERED_PER_LIST: Final = 100_000
"""While a list is read that does not fit: as many as an API server holds that is about to break."""


@dataclass(frozen=True, slots=True)
class Measured:
    """An object of a list, as it is kept, and what was found out about it."""

    manifest: JsonObject
    flow: Flow


class ListedRequests:
    """The objects of a list that is under way. They are held by who reads it, and are bounded all the same: those that
    make way are emptied.
    """

    def __init__(
        self, limits: Callable[[], Limits], peek: PreFilter, pre_filter: PreFilter, shared_memory: SharedRequestMemory
    ) -> None:
        """``peek`` and ``pre_filter`` find flows; see :class:`~.pending.PendingRequests`."""
        self._peek = peek
        self._pre_filter = pre_filter
        self._objects: list[JsonObject] = []  # with empty ones where somebody had to make way
        self._peeked = self._pre_filtered = 0
        self._budget: RequestBudget[int] = RequestBudget(limits, self._find_flow, self._empty, shared_memory)
        self.overflow = False
        """Whether something was not held, or had to make way."""

    def holds(self, kept: JsonObject, size: int) -> bool:
        """Whether there is room for an object, which is cut already."""
        number = len(self._objects)
        self._objects.append(kept)
        try:
            self._budget.admit(number, self._first_flow(kept), size)
        except BudgetExceeded:
            self._objects.pop()
            self.overflow = True
            return False
        return True

    def measured(self) -> dict[int, Measured]:
        """What is held at its end, by the identity of the objects."""
        return {
            id(manifest): Measured(manifest, self._budget.flow(number))
            for number, manifest in enumerate(self._objects)
            if number in self._budget
        }

    def close(self) -> None:
        """Nobody holds these objects as a list any more."""
        self._budget.close()

    # Pages come faster than requests are posted: a list that never ends must not keep the process busy.

    def _first_flow(self, manifest: JsonObject) -> Flow:
        self._peeked += 1
        return self._peek(manifest) if self._peeked <= PRE_FILTERED_PER_LIST else unfiltered(manifest)

    def _find_flow(self, number: int) -> Flow:
        self._pre_filtered += 1
        manifest = self._objects[number]
        return self._pre_filter(manifest) if self._pre_filtered <= PRE_FILTERED_PER_LIST else unfiltered(manifest)

    def _empty(self, number: int) -> None:
        self._objects[number].clear()
        self.overflow = True
