"""Seals under keys that this replica does not know: another replica may have read the rotated controller key before it.

Such a seal is another writer's only if a read of the key's Secret that began after the seal was seen does not find the
key either.
"""

from __future__ import annotations

from typing import Final

MOST_KEYS: Final = 1024
"""Maximum number of identifiers of unknown keys that are remembered: a writer of seals chooses them. One that is
forgotten waits for another read."""


class UnknownKeys:
    """The identifiers of unknown keys, and the reads of the controller key since each of them was seen first."""

    def __init__(self) -> None:
        self._begun = 0
        self._succeeded = 0
        """The last read that found keys, by its number."""
        self._seen: dict[str, int] = {}
        """By identifier, the number of reads that had begun when it was seen first."""

    def begin_read(self) -> None:
        """A read of the Secret begins. Reads do not overlap."""
        self._begun += 1

    def read_succeeded(self) -> None:
        """The read that began last found keys."""
        self._succeeded = self._begun

    def see(self, identifier: str) -> None:
        """Remember a key that a seal names and that is not known now."""
        if identifier not in self._seen and len(self._seen) >= MOST_KEYS:
            del self._seen[next(iter(self._seen))]
        self._seen.setdefault(identifier, self._begun)

    def was_looked_for(self, identifier: str) -> bool:
        """Whether a read that found keys began after the key was seen first."""
        return self._seen.get(identifier, self._begun) < self._succeeded
