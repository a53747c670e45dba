"""Which Machines hold a name. A name of one Machine, as nearly all are, takes a third of the memory of a set."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from signer.model.cluster import ClusterKey
from signer.store.cache import ObjectKey

Held: TypeAlias = tuple[ClusterKey, str]
"""A name in a Cluster."""
_NONE: Final[frozenset[ObjectKey]] = frozenset()


class Holders:
    """The Machines that hold each name."""

    def __init__(self) -> None:
        self._held: dict[Held, ObjectKey | set[ObjectKey]] = {}

    def move(self, key: ObjectKey, gone: Iterable[Held], new: Iterable[Held]) -> None:
        """The Machine no longer holds the names ``gone``, and holds the names ``new``."""
        for held in gone:
            keys = self._held[held]
            if isinstance(keys, tuple):
                del self._held[held]
                continue
            keys.discard(key)
            if len(keys) == 1:
                self._held[held] = keys.pop()
        for held in new:
            keys = self._held.setdefault(held, key)
            if isinstance(keys, set):
                keys.add(key)
            elif keys != key:
                self._held[held] = {keys, key}

    def of(self, held: Held) -> frozenset[ObjectKey] | set[ObjectKey]:
        """The Machines that hold the name."""
        keys = self._held.get(held)
        if keys is None:
            return _NONE
        return {keys} if isinstance(keys, tuple) else keys
