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

Heard: TypeAlias = tuple[tuple[str, str], str]
"""Namespace and name of an object, and its new resourceVersion, or :data:`GONE` if it was deleted."""

GONE: Final = ""
_LISTED: Final[Heard] = (("", ""), "listed")
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
        self._heard: list[Heard] = []
        self._more = asyncio.Event()

    def tell(self, heard: Heard) -> None:
        """Append the next event."""
        self._heard.append(heard)
        self._more.set()

    async def expect(self, expected: Sequence[Heard], seconds: float) -> Order:
        """Wait at most ``seconds`` until exactly ``expected`` was received; stop early once that is impossible."""
        wanted = list(expected)
        if self._may_become(wanted):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    while self._may_become(wanted):
                        self._more.clear()
                        await self._more.wait()
        return Order.EXACTLY if self._heard == wanted else Order.OTHERWISE

    def _may_become(self, wanted: list[Heard]) -> bool:
        return len(self._heard) < len(wanted) and self._heard == wanted[: len(self._heard)]


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

    def tell(self, heard: Heard) -> None:
        """The watch delivered an event."""
        for event_history in self._of.get(heard[0], ()):
            event_history.tell(heard)

    def listed(self) -> None:
        """The collection was listed again."""
        for event_history in {id(one): one for histories in self._of.values() for one in histories}.values():
            event_history.tell(_LISTED)
