"""Clusters that came, or were unpaused, while the mirrors were kept.

``clusterctl move`` creates a Cluster paused, its AttestedNodes after it, and unpauses it at last. Reservations stay
behind, so that records alone stand in an impostor's way, and each collection has a watch of its own: that of records
may hang while the others go on. So the records of such a Cluster are listed before anything of it is judged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from signer.model.cluster import ClusterKey, ClusterView


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """One Cluster came once; each is another."""


@dataclass(frozen=True, slots=True)
class Listed:
    """The mirror of records holds what stood there when the Cluster came."""


class Arrivals:
    """What is known of each Cluster's records."""

    def __init__(self) -> None:
        self._unlisted: dict[ClusterKey, Arrival] = {}
        self._recent: set[ClusterKey] = set()
        """Who came since the mirror's own last list. The next may have been begun before, and undo what was listed."""

    def cluster_changed(self, key: ClusterKey, before: ClusterView | None, after: ClusterView | None) -> None:
        """One Cluster appeared, changed or went."""
        if after is None or after.paused:  # nothing of it is judged
            self._unlisted.pop(key, None)
            self._recent.discard(key)
        elif before is None or before.paused or before.uid != after.uid:
            self._unlisted[key] = Arrival()
            self._recent.add(key)

    def of(self, key: ClusterKey) -> ArrivalState:
        """What there is to do before a request of that Cluster is judged."""
        return self._unlisted.get(key, _LISTED)

    def listed(self, key: ClusterKey, arrival: Arrival) -> None:
        """Its records were listed after that arrival."""
        if self._unlisted.get(key) is arrival:
            del self._unlisted[key]

    def all_are_listed(self) -> None:
        """The mirror is about to list all records, and nothing is judged before it has."""
        self._unlisted.clear()
        self._recent.clear()

    def mirror_listed(self) -> None:
        """The mirror has listed all records, nobody knows since when. It begins its next list after this one."""
        self._unlisted |= {key: Arrival() for key in self._recent}
        self._recent.clear()


ArrivalState: TypeAlias = Arrival | Listed
_LISTED = Listed()
