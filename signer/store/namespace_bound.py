"""Bounds what one namespace makes the controller keep: of a namespace over its limit, a cache keeps the count alone.
Where something must still be ended, :mod:`signer.store.retention` says which objects are kept besides.

A list counts the objects of each namespace, and the watch's events ADDED and DELETED keep the count exact: a watch
omits no event (Kubernetes API concepts, "Efficient detection of changes"). A namespace over its limit is marked until
a list finds it within the limit: only a list shows the objects that the cache dropped. Once the count has fallen to a
tenth below the limit, the cache asks for a list of its collection.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

from attestors.net.rate_limiter import TokenBucket
from signer.model.namespace_limits import NOTHING_IS_DECIDED as NOTHING_IS_DECIDED
from signer.model.namespace_limits import OverLimit, returns_at

UNLIMITED: Final = sys.maxsize
LISTS_AT_ONCE: Final = 2
LIST_AGAIN_SECONDS: Final = 600.0
"""Beyond ``LISTS_AT_ONCE``, one list of a collection in this time: a list spans all namespaces, and at its end the
event loop takes over all objects of those that are within their limits again."""


class NamespaceBound:
    """The number of objects of one collection in each namespace, and the namespaces that have too many."""

    def __init__(
        self,
        resource: str,
        limit: int,
        consequence: str = NOTHING_IS_DECIDED,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``consequence`` says what becomes of a namespace over the limit. ``monotonic`` is a clock, in seconds."""
        self.resource = resource
        self.limit = limit
        self.consequence = consequence
        self._counts: dict[str, int] = {}
        self._listing: dict[str, int] = {}
        """The counts of a list under way."""
        self._over: set[str] = set()
        self._lists = TokenBucket(LISTS_AT_ONCE, LIST_AGAIN_SECONDS, monotonic)

    def is_over(self, namespace: str) -> bool:
        """Whether the cache holds no objects of the namespace because there are, or were, too many."""
        return namespace in self._over

    def over(self) -> Iterator[OverLimit]:
        """The namespaces over the limit, sorted."""
        for namespace in sorted(self._over):
            yield self.over_limit(namespace)

    def over_limit(self, namespace: str) -> OverLimit:
        """The namespace's count and limit."""
        return OverLimit(self.resource, namespace, self._counts.get(namespace, 0), self.limit, self.consequence)

    # Lists

    def list_begins(self) -> None:
        """A list begins; what an earlier one counted before it failed does not count."""
        self._listing = {}

    def fits_listed(self, namespace: str) -> bool:
        """Count an object of the list; whether it is within the namespace's limit."""
        count = self._listing[namespace] = self._listing.get(namespace, 0) + 1
        return count <= self.limit

    def list_ends(self) -> frozenset[str]:
        """The list is complete. Returns the namespaces that are over the limit now and were not, or the reverse."""
        self._counts, self._listing = self._listing, {}
        over = {namespace for namespace, count in self._counts.items() if count > self.limit}
        changed = frozenset(over ^ self._over)
        self._over = over
        return changed

    # Events

    def exceeds(self, namespace: str) -> bool:
        """Count an object that the watch reports as new; whether it takes the namespace over its limit."""
        count = self._counts[namespace] = self._counts.get(namespace, 0) + 1
        if count <= self.limit or namespace in self._over:
            return False
        self._over.add(namespace)
        return True

    def removed(self, namespace: str) -> None:
        """Count an object that the watch reports as deleted."""
        left = self._counts.get(namespace, 0) - 1
        if left > 0:
            self._counts[namespace] = left
        else:
            self._counts.pop(namespace, None)

    def needs_list(self, *, more: bool = False) -> bool:
        """Whether a namespace may be within its limit again, or a list is needed for ``more``, and another list may
        begin now. If true, it must.
        """
        mark = returns_at(self.limit)
        may_return = any(self._counts.get(namespace, 0) <= mark for namespace in self._over)
        return (more or may_return) and self._lists.take_if_there()

    def reset(self) -> None:
        """The collection is no longer watched, and nothing of it is kept."""
        self._counts, self._listing, self._over = {}, {}, set()


class OverLimits:
    """The namespaces that have too many objects, of all bounded collections together."""

    def __init__(self) -> None:
        self._bounds: tuple[NamespaceBound, ...] = ()

    def add(self, bound: NamespaceBound) -> NamespaceBound:
        """Include that collection."""
        self._bounds += (bound,)
        return bound

    def of(self, namespace: str) -> tuple[OverLimit, ...]:
        """The kinds of which the namespace has too many; empty if it is within its limits."""
        return tuple(bound.over_limit(namespace) for bound in self._bounds if bound.is_over(namespace))

    def all(self) -> tuple[OverLimit, ...]:
        """Every namespace over a limit, with each kind."""
        return tuple(one for bound in self._bounds for one in bound.over())
