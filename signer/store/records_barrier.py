"""Clusters that were created or unpaused while the caches were running, and whose records the cache may lack.

``clusterctl move`` creates a Cluster paused, then its AttestedNodes, and unpauses it last. Reservations are not moved,
so only records stop an impostor. Each collection has its own watch, and the watch of records may hang while the others
go on. So the records of the namespace are listed before any decision for such a Cluster. All records of the namespace
are needed: another Cluster that was moved with it may hold the requested identity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from signer.model.cluster import ClusterKey, ClusterView


@dataclass(frozen=True, slots=True, eq=False)
class UnlistedNamespace:
    """Clusters of one namespace that appeared before a list of its records began; later ones wait for another list."""

    namespace: str


@dataclass(frozen=True, slots=True)
class Listed:
    """The cache holds all records that existed when the Cluster appeared."""


class RecordsBarrier:
    """Tracks whether the records of each Cluster are listed."""

    def __init__(self) -> None:
        self._unlisted: dict[ClusterKey, UnlistedNamespace] = {}
        self._waiting: dict[str, UnlistedNamespace] = {}
        """By namespace: Clusters whose list has not begun."""
        self._recent: set[ClusterKey] = set()
        """Clusters that appeared since the cache's last list. The cache's next list may have begun before, and undo
        what was listed."""

    def cluster_changed(self, key: ClusterKey, before: ClusterView | None, after: ClusterView | None) -> None:
        """A Cluster was added, changed or deleted."""
        if after is None or after.paused:  # it gets no decisions
            self._forget(key)
        elif before is None or before.paused or before.uid != after.uid:
            self._arrive(key)
            self._recent.add(key)

    def state_of(self, key: ClusterKey) -> RecordsState:
        """What must be listed before a decision for that Cluster."""
        return self._unlisted.get(key, _LISTED)

    def list_begins(self, unlisted: UnlistedNamespace) -> None:
        """A list of the namespace's records begins."""
        if self._waiting.get(unlisted.namespace) is unlisted:
            del self._waiting[unlisted.namespace]

    def list_completed(self, unlisted: UnlistedNamespace) -> None:
        """The list has completed."""
        for key in [key for key, of in self._unlisted.items() if of is unlisted]:
            del self._unlisted[key]

    def cache_begins(self) -> None:
        """The cache begins its first list of all records, and no decision is made before it completes."""
        self._unlisted.clear()
        self._waiting.clear()
        self._recent.clear()

    def cache_listed(self) -> None:
        """The cache has completed a list, which may have begun at any time. Its next list begins after this call."""
        for key in self._recent:
            self._arrive(key)
        self._recent.clear()

    def _arrive(self, key: ClusterKey) -> None:
        self._unlisted[key] = self._waiting.setdefault(key.namespace, UnlistedNamespace(key.namespace))

    def _forget(self, key: ClusterKey) -> None:
        unlisted = self._unlisted.pop(key, None)
        self._recent.discard(key)
        if unlisted is not None and unlisted not in self._unlisted.values():
            self.list_begins(unlisted)


RecordsState: TypeAlias = UnlistedNamespace | Listed
_LISTED = Listed()
