"""As whom the gateway may act in a workload cluster: the creators of live grants for its containers.

RBAC has no prefixes for names, so the gateway's role there lists its users. A stolen token of the gateway thus acts as
nobody else. A creator is in the role before the first certificate of a grant is shown, and leaves it with the last one.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, Protocol

from signer.access.plan import NotIssued
from signer.access.record import GrantRecord, GrantSeals, Live
from signer.access.store import StoredGrant
from signer.model.access import AccessGrant, Container
from signer.model.cluster import ClusterKey
from signer.model.decision import Deferred
from signer.model.reasons import Reason
from signer.model.seal import ControllerKeys
from signer.store.cache import Cache

MAXIMUM_CREATORS: Final = 256
"""Of one workload cluster. API servers store objects of up to 1.5 MiB, and a name has at most 1024 characters."""
ASKED_SECONDS: Final = 600.0
"""How long a creator without a certificate stays in the role, for a grant that waits to be certified."""
GRACE: Final = timedelta(minutes=2)
"""After the end of a grant, the gateway ends its processes in containers, in the creator's name."""
NOT_READY: Final = "GatewayNotReady"


class GatewayUsers(Protocol):
    """Is asked before certificates for containers are shown."""

    def require(self, cluster: ClusterKey, uid: str, creator: str, *, has_certificate: bool) -> None:
        """The gateway may act as the creator of the grant with that UID. ``has_certificate``: the grant shows a living
        certificate already.

        Raises:
            NotIssued: ``GatewayNotReady``: not yet.
        """
        ...

    def ended(self, cluster: ClusterKey, uid: str, creator: str) -> None:
        """The grant with that UID has ended, or pauses."""
        ...


class NoGateway:
    """The controller gives the gateway no way into workload clusters: nothing is to be waited for."""

    def require(self, cluster: ClusterKey, uid: str, creator: str, *, has_certificate: bool) -> None:
        """See GatewayUsers."""

    def ended(self, cluster: ClusterKey, uid: str, creator: str) -> None:
        """See GatewayUsers."""


class Creators:
    """Implements :class:`GatewayUsers`. Made and used in one event loop."""

    def __init__(
        self,
        *,
        keys: Callable[[], ControllerKeys],
        grants: Cache[StoredGrant],
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        """``keys`` raises Deferred while there are none."""
        self._keys = keys
        self._grants = grants
        self._now = now
        self._monotonic = monotonic
        self._asked: dict[ClusterKey, dict[str, tuple[str, float]]] = {}
        """The creator and until when, by UID of the grant."""
        self._written: dict[ClusterKey, frozenset[str]] = {}
        self._wakes: dict[ClusterKey, Callable[[], None]] = {}
        self._on_written: Callable[[ClusterKey], None] = _nothing

    def on_written(self, call: Callable[[ClusterKey], None]) -> None:
        """Call it with each Cluster whose role has got another creator."""
        self._on_written = call

    # For grants

    def require(self, cluster: ClusterKey, uid: str, creator: str, *, has_certificate: bool) -> None:
        """See GatewayUsers. A renewal waits for nothing: the creator came into the role with the first certificate."""
        if has_certificate:
            return
        self._asked.setdefault(cluster, {})[uid] = (creator, self._monotonic() + ASKED_SECONDS)
        if creator in self._written.get(cluster, frozenset()):
            return
        self._wakes.get(cluster, _no_one)()
        if len(self._written.get(cluster, ())) >= MAXIMUM_CREATORS:
            message = f"{MAXIMUM_CREATORS} other people have grants for containers of the Cluster; wait until one ends"
        else:
            message = "the gateway may not act as you in the workload cluster yet; ContainerAccessReady may say why"
        raise NotIssued(NOT_READY, message)

    def ended(self, cluster: ClusterKey, uid: str, creator: str) -> None:
        """See GatewayUsers. The creator leaves the role after the time of grace, and never comes into it so."""
        asked = self._asked.setdefault(cluster, {})
        asked.pop(uid, None)
        if creator in self._written.get(cluster, frozenset()):
            asked[uid] = (creator, self._monotonic() + GRACE.total_seconds())
        self._wakes.get(cluster, _no_one)()

    def seconds_left(self, cluster: ClusterKey) -> float:
        """Until the next creator may leave the role."""
        times = [until for _, until in self._asked.get(cluster, {}).values()]
        return max(min(times, default=ASKED_SECONDS + self._monotonic()) - self._monotonic(), 0.0)

    # For workload clusters

    def follow(self, cluster: ClusterKey, wake: Callable[[], None]) -> None:
        """Call ``wake`` when the role may have to change."""
        self._wakes[cluster] = wake

    def wanted(self, cluster: ClusterKey) -> tuple[str, ...]:
        """Whom the role is to name, sorted. Those with certificates come before those who wait, the oldest first.

        Raises:
            Deferred: grants or the controller key are not known yet.
        """
        if not self._grants.filled.is_set():
            raise Deferred(Reason.MANAGEMENT_CLUSTER_UNREACHABLE, "the access grants are not known yet")
        found = dict.fromkeys(creator for _, creator in sorted(self._certified(cluster)))
        now = self._monotonic()
        asked = {uid: one for uid, one in self._asked.pop(cluster, {}).items() if one[1] > now}
        if asked:
            self._asked[cluster] = asked
        found.update(dict.fromkeys(creator for creator, _ in asked.values()))
        return tuple(sorted([*found][:MAXIMUM_CREATORS]))

    def _certified(self, cluster: ClusterKey) -> list[tuple[datetime, str]]:
        """When their grants were made, and the creators."""
        seals, now, found = GrantSeals(self._keys()), self._now(), []
        for stored in tuple(self._grants.values()):
            grant = stored.grant
            if stored.cluster != cluster or not isinstance(grant, AccessGrant):
                continue
            if not isinstance(grant.target, Container):
                continue
            record = stored.unsealed(seals)
            if not isinstance(record, GrantRecord) or record.cluster != cluster.name:
                continue
            if (
                isinstance(record.state, Live)
                and isinstance(record.last_end, datetime)
                and record.last_end + GRACE > now
            ):
                found.append((record.created, record.creator.username))
        return found

    def written(self, cluster: ClusterKey, creators: tuple[str, ...]) -> None:
        """The role names these, and nobody else."""
        before = self._written.get(cluster, frozenset())
        self._written[cluster] = frozenset(creators)
        if self._written[cluster] - before:
            self._on_written(cluster)

    def withdrawn(self, cluster: ClusterKey) -> None:
        """The role is gone, or is to go."""
        self._written.pop(cluster, None)
        self._asked.pop(cluster, None)


def _nothing(cluster: ClusterKey) -> None:
    """No grant waits."""


def _no_one() -> None:
    """The Cluster's part does not run."""


__all__ = ["ASKED_SECONDS", "MAXIMUM_CREATORS", "NOT_READY", "Creators", "GatewayUsers", "NoGateway"]
