"""Requests of one cluster's list while its pages arrive: each object as it is kept, and its flow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from signer.controller.requests.request_budget import BudgetExceeded, Limits, RequestBudget, SharedRequestMemory
from signer.decision.pre_filter import PreFilter, unfiltered
from signer.kube.client import JsonObject
from signer.model.flow import Flow

PRE_FILTERED_PER_LIST: Final = 100_000
"""Maximum per list that exceeds the budget: about as many as an API server can hold."""


@dataclass(frozen=True, slots=True)
class Measured:
    """An object of a list as it is kept, and its flow."""

    manifest: JsonObject
    flow: Flow


class ListedRequests:
    """The objects of a list while its pages arrive.

    The reader of the list holds the objects too, so an evicted object is emptied to free its memory.
    """

    def __init__(
        self, limits: Callable[[], Limits], peek: PreFilter, pre_filter: PreFilter, shared_memory: SharedRequestMemory
    ) -> None:
        """``peek`` and ``pre_filter`` find flows; see :class:`~.pending.PendingRequests`."""
        self._peek = peek
        self._pre_filter = pre_filter
        self._objects: list[JsonObject] = []  # evicted ones are empty
        self._peeked = self._pre_filtered = 0
        self._budget: RequestBudget[int] = RequestBudget(limits, self._pre_filter_listed, self._evict, shared_memory)
        self.overflow = False
        """Whether an object was rejected or evicted."""

    def add(self, kept: JsonObject, size: int) -> bool:
        """Add an object that was already cut to ``size`` bytes; False if the budget does not admit it."""
        number = len(self._objects)
        self._objects.append(kept)
        try:
            self._budget.admit(number, self._peek_listed(kept), size)
        except BudgetExceeded:
            self._objects.pop()
            self.overflow = True
            return False
        return True

    def measured(self) -> dict[int, Measured]:
        """The objects that were kept, by their identity (``id``)."""
        return {
            id(manifest): Measured(manifest, self._budget.flow(number))
            for number, manifest in enumerate(self._objects)
            if number in self._budget
        }

    def close(self) -> None:
        """Return the memory budget of the list."""
        self._budget.close()

    # A list delivers requests faster than anyone can post them: an endless list must not keep the process busy.

    def _peek_listed(self, manifest: JsonObject) -> Flow:
        self._peeked += 1
        return self._peek(manifest) if self._peeked <= PRE_FILTERED_PER_LIST else unfiltered(manifest)

    def _pre_filter_listed(self, number: int) -> Flow:
        self._pre_filtered += 1
        manifest = self._objects[number]
        return self._pre_filter(manifest) if self._pre_filtered <= PRE_FILTERED_PER_LIST else unfiltered(manifest)

    def _evict(self, number: int) -> None:
        self._objects[number].clear()
        self.overflow = True
