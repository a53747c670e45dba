"""The watch events of a few objects of one collection, in order.

etcd delivers the events of a collection in the order of their revisions and omits none (etcd, "Watch API guarantees":
ordered, reliable), and kube-apiserver's watch cache forwards them in that order. A client that has received the event
of its own write has therefore received every earlier event, as if it had read every object again after the write.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

ObservedEvent: TypeAlias = tuple[tuple[str, str], str]
"""Namespace and name of an object, and its new resourceVersion, or :data:`GONE` if it was deleted."""

GONE: Final = ""
_LISTED: Final[ObservedEvent] = (("", ""), "listed")
"""A list shows the current state, not the events before it."""


class Order(enum.Enum):
    """Comparison of the received events with the expected ones."""

    EXACTLY = "exactly"
    """Exactly the expected events."""
    OTHERWISE = "otherwise"
    """Other events, or not all expected ones in time."""


class EventHistory:
    """The watch events of some objects since :meth:`EventHistories.follow`."""

    def __init__(self) -> None:
        self._observed: list[ObservedEvent] = []
        self._new_event = asyncio.Event()

    def observe(self, event: ObservedEvent) -> None:
        """Append the next event."""
        self._observed.append(event)
        self._new_event.set()

    async def expect(self, expected: Sequence[ObservedEvent], seconds: float) -> Order:
        """Wait at most ``seconds`` until exactly ``expected`` was received; stop early once that is impossible."""
        wanted = list(expected)
        if self._may_become(wanted):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    while self._may_become(wanted):
                        self._new_event.clear()
                        await self._new_event.wait()
        return Order.EXACTLY if self._observed == wanted else Order.OTHERWISE

    def _may_become(self, wanted: list[ObservedEvent]) -> bool:
        return len(self._observed) < len(wanted) and self._observed == wanted[: len(self._observed)]


class EventHistories:
    """The histories of one collection, by object."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], list[EventHistory]] = {}

    def __len__(self) -> int:
        """The number of followed objects."""
        return len(self._of)

    @contextlib.contextmanager
    def follow(self, keys: Iterable[tuple[str, str]]) -> Iterator[EventHistory]:
        """Record the events of these objects, each a namespace and a name, inside the block."""
        event_history, followed = EventHistory(), frozenset(keys)
        for key in followed:
            self._of.setdefault(key, []).append(event_history)
        try:
            yield event_history
        finally:
            for key in followed:
                self._of[key].remove(event_history)
                if not self._of[key]:
                    del self._of[key]

    def observe(self, event: ObservedEvent) -> None:
        """The watch delivered an event."""
        for event_history in self._of.get(event[0], ()):
            event_history.observe(event)

    def listed(self) -> None:
        """The collection was listed again."""
        for event_history in {id(one): one for histories in self._of.values() for one in histories}.values():
            event_history.observe(_LISTED)
