"""A list that is read while the watch continues, to recover overflowed requests.

A new connection would also begin with a list, but the controller would see nothing new until that list is read, and in
a flood the list is long.
"""

from __future__ import annotations

from typing import Final

MAXIMUM_OBSERVED: Final = 20_000
"""Requests that the watch may report while a list is read; they take at most 1.5 MiB."""


class ListOvertaken(Exception):
    """The watch restarted or reported too many requests: the rest of the list may be stale."""


class Relist:
    """Names that the watch has reported since the list was requested: the watch is newer than the list."""

    def __init__(self, *, overtaken: bool = False) -> None:
        """``overtaken`` means that no list is being read."""
        self._observed: set[int] = set()  # hashes of 64 bits, under a secret of the process: a quarter of the names
        self._overtaken = overtaken

    def observe(self, name: str) -> None:
        """The watch reported an event of the request ``name``."""
        if len(self._observed) >= MAXIMUM_OBSERVED:
            self.expire()
        if not self._overtaken:
            self._observed.add(hash(name))

    def expire(self) -> None:
        """The watch restarted with its own list, or this list was read to its end."""
        self._overtaken = True
        self._observed = set()

    def require_current(self) -> None:
        """Raises ListOvertaken when the list may be stale."""
        if self._overtaken:
            raise ListOvertaken("the watch restarted or reported too many requests meanwhile")

    def is_newest(self, name: str) -> bool:
        """Whether the list has the newest known state of the request.

        Raises:
            ListOvertaken: the list may be stale.
        """
        self.require_current()
        return hash(name) not in self._observed
