"""A list that is read while the watch goes on: for requests that were left out when there was no room for them.

A new connection would begin with a list, too; but nothing new is seen until that is read, and it is a whole flood's.
"""

from __future__ import annotations

from typing import Final

MAXIMUM_TOLD: Final = 20_000
"""Requests of which the watch may say something while a list is read: 1.5 MiB, whoever makes them."""


class ListOvertaken(Exception):
    """The watch has said too much meanwhile, or has begun anew: what else is in the list may be old."""


class Relist:
    """What the watch has said since the list was asked for: it is newer than the list, whatever that holds."""

    def __init__(self, *, overtaken: bool = False) -> None:
        """``overtaken`` where no list is read."""
        self._told: set[int] = set()  # hashes of 64 bits, under a secret of the process: a quarter of the names
        self._overtaken = overtaken

    def tell(self, name: str) -> None:
        """The watch says something of the request of that name."""
        if len(self._told) >= MAXIMUM_TOLD:
            self.overtake()
        if not self._overtaken:
            self._told.add(hash(name))

    def overtake(self) -> None:
        """The watch begins anew, with a list of its own; or this one has been read."""
        self._overtaken = True
        self._told = set()

    def require_current(self) -> None:
        """Raises ListOvertaken where it cannot be told any more what is newer than the list."""
        if self._overtaken:
            raise ListOvertaken("the watch has begun anew, or has said too much meanwhile")

    def is_newest(self, name: str) -> bool:
        """Whether nothing newer is known of that request than what the list holds.

        Raises:
            ListOvertaken: that cannot be told any more.
        """
        self.require_current()
        return hash(name) not in self._told
