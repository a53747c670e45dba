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
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from attestors.net.rate_limiter import TokenBucket
from signer.model.namespace_limits import NOTHING_IS_DECIDED, OverLimit, returns_at

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
        counting: str = "",
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``consequence`` says what becomes of a namespace over the limit, and ``counting`` which objects count several
        times, for messages. ``monotonic`` is a clock, in seconds.
        """
        self.resource = resource
        self.limit = limit
        self.consequence = consequence
        self.counting = counting
        self._counts: Counter[str] = Counter()
        self._more: Counter[str] = Counter()
        """What large objects count besides once, which is part of the counts."""
        self._listing: tuple[Counter[str], Counter[str]] = Counter(), Counter()
        """Both, of a list under way."""
        self._over: set[str] = set()
        self._may_be_smaller = False
        """Whether a large object of a namespace over the limit has changed, and may count less often."""
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
        count = self._counts[namespace]
        return OverLimit(self.resource, namespace, count, self.limit, self.consequence, self.counting)

    # Lists

    def list_begins(self) -> None:
        """A list begins; what an earlier one counted before it failed does not count."""
        self._listing = Counter(), Counter()

    def fits_listed(self, namespace: str, more: int = 0) -> bool:
        """Count an object of the list, or one that was counted already so many times ``more``; whether it is within the
        namespace's limit.
        """
        counts, of_large = self._listing
        counts[namespace] += more or 1
        of_large[namespace] += more
        return counts[namespace] <= self.limit

    def list_ends(self) -> frozenset[str]:
        """The list is complete. Returns the namespaces that are over the limit now and were not, or the reverse."""
        self._counts, self._more = self._listing
        self._listing = Counter(), Counter()
        over = {namespace for namespace, count in self._counts.items() if count > self.limit}
        changed = frozenset(over ^ self._over)
        self._over = over
        self._may_be_smaller = False
        return changed

    # Events

    def exceeds(self, namespace: str, more: int = 0) -> bool:
        """Count an object that the watch reports as new, or so many times ``more`` one that grew; whether it takes the
        namespace over its limit.
        """
        self._counts[namespace] += more or 1
        self._more[namespace] += more
        if self._counts[namespace] <= self.limit or namespace in self._over:
            return False
        self._over.add(namespace)
        return True

    def shrank(self, namespace: str, times: int) -> None:
        """Count an object so many times less often."""
        _subtract(self._counts, namespace, times)
        _subtract(self._more, namespace, times)

    def may_be_smaller(self, namespace: str) -> None:
        """An object of a namespace over its limit has changed: only a list shows how often it counts now. It cannot
        matter where there are too many objects, however small.
        """
        objects = self._counts[namespace] - self._more[namespace]
        self._may_be_smaller = self._may_be_smaller or objects <= returns_at(self.limit)

    def removed(self, namespace: str) -> None:
        """Count an object that the watch reports as deleted."""
        _subtract(self._counts, namespace, 1)

    def needs_list(self, *, more: bool = False) -> bool:
        """Whether a namespace may be within its limit again, or a list is needed for ``more``, and another list may
        begin now. If true, it must.
        """
        mark = returns_at(self.limit)
        may_return = any(self._counts[namespace] <= mark for namespace in self._over)
        return (more or may_return or self._may_be_smaller) and self._lists.take_if_there()

    def reset(self) -> None:
        """The collection is no longer watched, and nothing of it is kept."""
        self._counts, self._more, self._listing = Counter(), Counter(), (Counter(), Counter())
        self._over, self._may_be_smaller = set(), False


def _subtract(counts: Counter[str], namespace: str, times: int) -> None:
    """What is unknown, as after objects that were too many to be read, counts once."""
    counts[namespace] -= times
    if counts[namespace] <= 0:
        del counts[namespace]


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
