"""Garbage collection of records and reservations: slow, in the background, and never needed for a correct decision.

One round has three steps. It reserves again the pairs of records whose reservations are missing, as after ``clusterctl
move``. It deletes the AttestedNodes whose Machine is gone and whose last certificate expired at least ten minutes ago.
It releases reservations whose Machine is gone and that no authentic record names.

Each step runs only while the caches are in touch and the controller key is available, and acts only after the API
server confirmed that the Machine is gone. A Cluster that is paused or being deleted, as during a move, is skipped, and
so is a namespace over a limit: the caches dropped objects of it that are not gone.
Concurrent changes by other controllers are safe: every write has a UID and a resourceVersion as its precondition, and
releases follow the protocol of :mod:`signer.store.reservations`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from random import SystemRandom
from typing import Final, TypeVar

from signer.kube.calls import GetDelete
from signer.kube.clocks import CLOCK_PATH, ClockAnswers, ClocksAgree
from signer.kube.errors import ApiError, Conflict, NotFound
from signer.kube.resources import ATTESTED_NODES
from signer.model.cluster import ClusterKey, ClusterView, MachineView, cluster_view
from signer.model.decision import Deferred
from signer.model.reasons import Reason
from signer.model.record import AttestedNode, MachineKey
from signer.model.reservation import Pair, Reservation
from signer.store.caches import Caches
from signer.store.reservation_rebuild import ReservationRebuild, pair_of
from signer.store.reservations import Reservations

_LOG = logging.getLogger(__name__)
ROUND_SECONDS: Final = 300.0
_JITTER: Final = 0.2
"""Spreads the rounds of replicas that started together."""
OBJECTS_PER_ROUND: Final = 200
"""Maximum number of objects of each step in one round; the others follow in later rounds."""
_ITEMS_PER_YIELD: Final = 500
"""Number of cached values between two yields to the event loop."""

_RANDOM: Final = SystemRandom()

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class ClusterGone:
    """The Cluster does not exist."""


@dataclass(slots=True)
class Done:
    """The result of one round."""

    reserved: int = 0
    """Number of records whose reservations were missing."""
    deleted: int = 0
    """Number of AttestedNodes."""
    released: int = 0
    """Number of pairs, or single sides of pairs."""
    failed: int = 0
    """Number of objects that were contended or unreadable, and of steps that ended with an error."""


class GarbageCollector:
    """Collects garbage among records and reservations, for all clusters."""

    def __init__(
        self,
        client: GetDelete,
        caches: Caches,
        reservations: Reservations,
        rebuild: ReservationRebuild,
        *,
        now: Callable[[], datetime],
        clocks: ClockAnswers,
    ) -> None:
        """``clocks`` says whether ``now`` is the time of the management API server: else nothing has expired."""
        self._clocks = clocks
        self._client = client
        self._caches = caches
        self._reservations = reservations
        self._rebuild = rebuild
        self._now = now
        self._done = Done()

    async def run(self) -> None:
        """Run rounds until cancelled, the first one at once."""
        await self._caches.filled()
        while True:
            await self.round()
            await asyncio.sleep(ROUND_SECONDS * (1 - _JITTER * _RANDOM.random()))

    async def round(self) -> Done:
        """Do all work that is due now, up to ``OBJECTS_PER_ROUND`` objects for each step."""
        self._done = done = Done()
        for work in (self._reserve_again, self._delete_records, self._release_reservations):
            try:
                self._caches.require_in_touch()
                await work()
            except (Deferred, ApiError) as error:  # the next round tries again
                done.failed += 1
                _LOG.warning("garbage collection step failed", extra={"error": str(error)})
        if done != Done():
            _LOG.info(
                "garbage collection of records and reservations",
                extra={
                    "reserved": done.reserved,
                    "deleted": done.deleted,
                    "released": done.released,
                    "failed": done.failed,
                },
            )
        return done

    # Reserving again

    async def _reserve_again(self) -> None:
        async for record in _bounded(self._caches.authentic.values(), self._lacks_its_reservations):
            with self._one_object(record.name):
                await self._rebuild.ensure(record)
                self._done.reserved += self._reservations.cached(pair_of(record))

    def _lacks_its_reservations(self, record: AttestedNode) -> bool:
        return (
            self._caches.shards.own(record.machine.cluster)
            and self._is_all_kept(record.machine)
            and self._is_its_machine(record)
            and not _is_paused_or_deleting(self._cached_cluster(record.machine.cluster))
            and not self._reservations.cached(pair_of(record))
        )

    def _is_its_machine(self, record: AttestedNode) -> bool:
        machine = self._caches.machine(record.machine)
        return isinstance(machine, MachineView) and machine.uid == record.machine_uid

    # Deleting records

    async def _delete_records(self) -> None:
        clocks = await self._clocks.fresh(CLOCK_PATH)
        if not isinstance(clocks, ClocksAgree):
            raise Deferred(Reason.CLOCKS_DIFFER, clocks.message)
        async for record in _bounded(self._caches.authentic.values(), self._is_expired):
            with self._one_object(record.name):
                if await self._is_gone_for_good(record.machine):
                    await self._delete(record)

    def _is_expired(self, record: AttestedNode) -> bool:
        cluster = self._cached_cluster(record.machine.cluster)
        return (
            record.held_until <= self._now()
            and self._is_all_kept(record.machine)
            and not isinstance(self._caches.machine(record.machine), MachineView)
            # Without its Cluster, which owns it, Kubernetes' garbage collector deletes it.
            and isinstance(cluster, ClusterView)
            and not _is_paused_or_deleting(cluster)
            # A record belongs to its Cluster; a reservation belongs to the controller, for all Clusters.
            and self._caches.serves(cluster)
        )

    async def _delete(self, record: AttestedNode) -> None:
        namespace = record.machine.cluster.namespace
        path = ATTESTED_NODES.object(record.name, namespace)
        await self._client.delete(path, uid=record.uid, resource_version=record.resource_version)
        self._caches.records.forget(namespace, record.name)
        self._done.deleted += 1

    # Releasing reservations

    async def _release_reservations(self) -> None:
        seen: set[Pair] = set()  # the cache holds two sides of each pair

        def concerned(reservation: Reservation) -> bool:
            try:
                return self._is_abandoned(reservation.pair) and reservation.pair not in seen
            except Deferred:  # a record names it under a key that was not read yet: that holds up no other pair
                return False

        async for reservation in _bounded(self._caches.reservations.values(), concerned):
            pair = reservation.pair
            seen.add(pair)
            with self._one_object(str(pair.machine)):
                # Read the index of records again after the call: it may have changed meanwhile.
                if await self._is_gone_for_good(pair.machine) and self._is_abandoned(pair):
                    await self._reservations.release(pair)
                    self._done.released += 1

    def _is_abandoned(self, pair: Pair) -> bool:
        return (
            self._caches.watches(pair.machine.cluster.namespace)
            and self._caches.shards.own(pair.machine.cluster)
            and self._is_all_kept(pair.machine)
            and not isinstance(self._caches.machine(pair.machine), MachineView)
            and not _is_paused_or_deleting(self._cached_cluster(pair.machine.cluster))
            and not any(pair_of(record) == pair for record in self._caches.authentic.naming(pair))
        )

    # What may be deleted

    def _is_all_kept(self, machine: MachineKey) -> bool:
        """Whether the caches keep every object of the Machine's namespace, so that the absence of one means
        something.
        """
        return not self._caches.over_limits.of(machine.cluster.namespace)

    async def _is_gone_for_good(self, machine: MachineKey) -> bool:
        """Whether the API server says that the Machine is gone, and its Cluster is not being moved.

        A move pauses the Cluster before it deletes a Machine, so the Cluster is read second.
        """
        gone = await self._reservations.live_reads.is_gone(machine)
        return gone and not _is_paused_or_deleting(await self._cluster(machine.cluster))

    async def _cluster(self, key: ClusterKey) -> ClusterView | ClusterGone:
        path = self._caches.version.clusters.object(key.name, key.namespace)
        try:
            return cluster_view(await self._client.get(path))
        except NotFound:
            return ClusterGone()

    def _cached_cluster(self, key: ClusterKey) -> ClusterView | ClusterGone:
        return self._caches.clusters.get(key.namespace, key.name) or ClusterGone()

    @contextlib.contextmanager
    def _one_object(self, name: str) -> Iterator[None]:
        """Work on one object. If it is contended or another client changes it, the rest of the round goes on."""
        try:
            yield
        except (NotFound, Conflict):
            _LOG.debug("another client changed the object first", extra={"object": name})
        except (Deferred, ValueError) as error:  # ValueError: a name that is no path segment
            self._done.failed += 1
            _LOG.info("object deferred to the next round", extra={"object": name, "error": str(error)})


def _is_paused_or_deleting(cluster: ClusterView | ClusterGone) -> bool:
    return isinstance(cluster, ClusterView) and (cluster.paused or cluster.deleting)


async def _bounded(items: Iterable[Item], concerned: Callable[[Item], bool]) -> AsyncIterator[Item]:
    """At most ``OBJECTS_PER_ROUND`` of the ``concerned`` items, from a random start so that no item starves."""
    every = list(items)
    begin = _RANDOM.randrange(len(every)) if every else 0
    found = 0
    for number, item in enumerate(itertools.chain(every[begin:], every[:begin]), start=1):
        if number % _ITEMS_PER_YIELD == 0:
            await asyncio.sleep(0)
        if concerned(item):
            yield item
            found += 1
            if found == OBJECTS_PER_ROUND:
                return
