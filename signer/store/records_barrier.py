"""Clusters that came, or were unpaused, while the caches were kept.

``clusterctl move`` creates a Cluster paused, its AttestedNodes after it, and unpauses it at last. Reservations stay
behind, so that records alone stand in an impostor's way, and each collection has a watch of its own: that of records
may hang while the others go on. So before anything of such a Cluster is judged the records of its namespace are listed,
all of them: a Cluster that came with it may have the identity that is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from signer.model.cluster import ClusterKey, ClusterView


@dataclass(frozen=True, slots=True, eq=False)
class UnlistedNamespace:
    """Clusters of one namespace that came before its records were listed; whoever comes later is of another."""

    namespace: str


@dataclass(frozen=True, slots=True)
class Listed:
    """The cache of records holds what stood there when the Cluster came."""


class RecordsBarrier:
    """What is known of each Cluster's records."""

    def __init__(self) -> None:
        self._unlisted: dict[ClusterKey, UnlistedNamespace] = {}
        self._gathering: dict[str, UnlistedNamespace] = {}
        """By namespace, those whose list was not begun yet."""
        self._recent: set[ClusterKey] = set()
        """Who came since the cache's own last list. The next may have been begun before, and undo what was listed."""

    def cluster_changed(self, key: ClusterKey, before: ClusterView | None, after: ClusterView | None) -> None:
        """One Cluster appeared, changed or went."""
        if after is None or after.paused:  # nothing of it is judged
            self._forget(key)
        elif before is None or before.paused or before.uid != after.uid:
            self._arrive(key)
            self._recent.add(key)

    def of(self, key: ClusterKey) -> RecordsState:
        """What there is to do before a request of that Cluster is judged."""
        return self._unlisted.get(key, _LISTED)

    def begins(self, unlisted: UnlistedNamespace) -> None:
        """The records of its namespace are about to be listed."""
        if self._gathering.get(unlisted.namespace) is unlisted:
            del self._gathering[unlisted.namespace]

    def listed(self, unlisted: UnlistedNamespace) -> None:
        """They were listed."""
        for key in [key for key, of in self._unlisted.items() if of is unlisted]:
            del self._unlisted[key]

    def all_are_listed(self) -> None:
        """The cache is about to list all records, and nothing is judged before it has."""
        self._unlisted.clear()
        self._gathering.clear()
        self._recent.clear()

    def cache_listed(self) -> None:
        """The cache has listed all records, nobody knows since when. It begins its next list after this one."""
        for key in self._recent:
            self._arrive(key)
        self._recent.clear()

    def _arrive(self, key: ClusterKey) -> None:
        self._unlisted[key] = self._gathering.setdefault(key.namespace, UnlistedNamespace(key.namespace))

    def _forget(self, key: ClusterKey) -> None:
        unlisted = self._unlisted.pop(key, None)
        self._recent.discard(key)
        if unlisted is not None and unlisted not in self._unlisted.values():
            self.begins(unlisted)


RecordsState: TypeAlias = UnlistedNamespace | Listed
_LISTED = Listed()
