"""What a watch says of a few objects of one collection, in the order in which it came to be.

etcd tells the events of a collection in the order of their revisions, and leaves none out (etcd, "Watch API
guarantees": ordered, reliable), and kube-apiserver's watch cache hands them on so. Who has heard of his own write has
therefore heard of all that happened before it, as if he had read every object once more after the write.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

Heard: TypeAlias = tuple[tuple[str, str], str]
"""Namespace and name of an object, and its resourceVersion since; :data:`GONE` where it went."""

GONE: Final = ""
_LISTED: Final[Heard] = (("", ""), "listed")
"""A list says how things stand, and not what happened before."""


class Order(enum.Enum):
    """What was heard beside what was expected."""

    EXACTLY = "exactly"
    """That, and nothing else."""
    OTHERWISE = "otherwise"
    """Something else, or not in time."""


class EventHistory:
    """What the watch has said of some objects since :meth:`EventHistories.follow`."""

    def __init__(self) -> None:
        self._heard: list[Heard] = []
        self._more = asyncio.Event()

    def tell(self, heard: Heard) -> None:
        """The next event."""
        self._heard.append(heard)
        self._more.set()

    async def expect(self, expected: Sequence[Heard], seconds: float) -> Order:
        """Wait, ``seconds`` at most, until exactly that was heard; no longer than it can come to be."""
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
    """Who follows which objects of one collection."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], list[EventHistory]] = {}

    def __len__(self) -> int:
        """How many objects are followed."""
        return len(self._of)

    @contextlib.contextmanager
    def follow(self, keys: Iterable[tuple[str, str]]) -> Iterator[EventHistory]:
        """Hear of these objects, each a namespace and a name, from now on."""
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
        """The watch says so."""
        for event_history in self._of.get(heard[0], ()):
            event_history.tell(heard)

    def listed(self) -> None:
        """The collection was listed anew."""
        for event_history in {id(one): one for histories in self._of.values() for one in histories}.values():
            event_history.tell(_LISTED)
