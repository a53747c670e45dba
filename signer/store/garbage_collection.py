"""Upkeep of records and reservations: slow, in the background, and never needed for a decision to be right.

One round reserves again what records of ours ask for, as after ``clusterctl move``; then it deletes the AttestedNodes
whose Machine is gone and whose last certificate ran out ten minutes ago; then it releases reservations whose Machine is
gone and that no record of ours names. It does so only while the caches are in touch and the controller key is at hand,
and only after the API server itself said that the Machine is gone. A Cluster that is paused or being deleted, which is
how a move looks, is left alone. What other controllers do meanwhile is safe: every write has a UID and a
resourceVersion for its precondition, and releases go by the contest of :mod:`signer.store.reservations`.
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
from signer.kube.errors import ApiError, Conflict, NotFound
from signer.kube.resources import ATTESTED_NODES
from signer.model.cluster import ClusterKey, ClusterView, MachineView, cluster_view
from signer.model.decision import Deferred
from signer.model.record import AttestedNode, MachineKey
from signer.model.reservation import Pair, Reservation
from signer.store.caches import Caches
from signer.store.reservations import ReservationRebuild, Reservations, pair_of

_LOG = logging.getLogger(__name__)
ROUND_SECONDS: Final = 300.0
_JITTER: Final = 0.2
"""Replicas that were started together do not stay together."""
OBJECTS_PER_ROUND: Final = 200
"""Of each kind of work, so many objects are asked about in one round; the others have their turn later."""
_LOOKED_AT: Final = 500
"""Mirrored values that are looked at before others may run."""

_RANDOM: Final = SystemRandom()

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class ClusterGone:
    """There is no such Cluster."""


@dataclass(slots=True)
class Done:
    """What one round did."""

    reserved: int = 0
    """Records whose reservations were missing."""
    deleted: int = 0
    """AttestedNodes."""
    released: int = 0
    """Pairs, or halves of them."""
    failed: int = 0
    """Objects that are contended or cannot be read, and kinds of work that the API server did not let us finish."""


class GarbageCollector:
    """Keeps records and reservations in order, for all clusters."""

    def __init__(
        self,
        client: GetDelete,
        caches: Caches,
        reservations: Reservations,
        rebuild: ReservationRebuild,
        *,
        now: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._caches = caches
        self._reservations = reservations
        self._rebuild = rebuild
        self._now = now
        self._done = Done()

    async def run(self) -> None:
        """One round after the other, the first at once, until cancelled."""
        await self._caches.filled()
        while True:
            await self.round()
            await asyncio.sleep(ROUND_SECONDS * (1 - _JITTER * _RANDOM.random()))

    async def round(self) -> Done:
        """All there is to do now, or as much of it as fits into one round."""
        self._done = done = Done()
        for work in (self._reserve_again, self._delete_records, self._release_reservations):
            try:
                self._caches.require_in_touch()
                await work()
            except (Deferred, ApiError) as error:  # the next round begins anew
                done.failed += 1
                _LOG.warning("upkeep of records and reservations was cut short", extra={"error": str(error)})
        if done != Done():
            _LOG.info(
                "upkeep of records and reservations",
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
            with self._one(record.name):
                await self._rebuild.ensure(record)
                self._done.reserved += self._reservations.cached(pair_of(record))

    def _lacks_its_reservations(self, record: AttestedNode) -> bool:
        return (
            self._caches.shards.own(record.machine.cluster)
            and self._is_its_machine(record)
            and not _is_left_alone(self._cached_cluster(record.machine.cluster))
            and not self._reservations.cached(pair_of(record))
        )

    def _is_its_machine(self, record: AttestedNode) -> bool:
        machine = self._caches.machine(record.machine)
        return isinstance(machine, MachineView) and machine.uid == record.machine_uid

    # Deleting records

    async def _delete_records(self) -> None:
        async for record in _bounded(self._caches.authentic.values(), self._has_run_out):
            with self._one(record.name):
                if await self._is_gone_for_good(record.machine):
                    await self._delete(record)

    def _has_run_out(self, record: AttestedNode) -> bool:
        cluster = self._cached_cluster(record.machine.cluster)
        return (
            record.held_until <= self._now()
            and not isinstance(self._caches.machine(record.machine), MachineView)
            # Without its Cluster it is the garbage collector's: the Cluster owns it.
            and isinstance(cluster, ClusterView)
            and not _is_left_alone(cluster)
            # Reservations are the controller's own and one space for all Clusters, but records are the Cluster's.
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
        looked_at: set[Pair] = set()  # each stands there twice

        def concerned(reservation: Reservation) -> bool:
            return self._is_abandoned(reservation.pair) and reservation.pair not in looked_at

        async for reservation in _bounded(self._caches.reservations.values(), concerned):
            pair = reservation.pair
            looked_at.add(pair)
            with self._one(str(pair.machine)):
                # The index of records is asked once more, after the API server: others wrote while we waited.
                if await self._is_gone_for_good(pair.machine) and self._is_abandoned(pair):
                    await self._reservations.release(pair)
                    self._done.released += 1

    def _is_abandoned(self, pair: Pair) -> bool:
        return (
            self._caches.watches(pair.machine.cluster.namespace)
            and self._caches.shards.own(pair.machine.cluster)
            and not isinstance(self._caches.machine(pair.machine), MachineView)
            and not _is_left_alone(self._cached_cluster(pair.machine.cluster))
            and not any(pair_of(record) == pair for record in self._caches.authentic.naming(pair))
        )

    # What may be touched

    async def _is_gone_for_good(self, machine: MachineKey) -> bool:
        """Whether the API server says that it is gone, and not because its Cluster is being moved.

        A move pauses the Cluster before it deletes a Machine, so the Cluster is asked second.
        """
        gone = await self._reservations.live_reads.is_gone(machine)
        return gone and not _is_left_alone(await self._cluster(machine.cluster))

    async def _cluster(self, key: ClusterKey) -> ClusterView | ClusterGone:
        path = self._caches.version.clusters.object(key.name, key.namespace)
        try:
            return cluster_view(await self._client.get(path))
        except NotFound:
            return ClusterGone()

    def _cached_cluster(self, key: ClusterKey) -> ClusterView | ClusterGone:
        return self._caches.clusters.get(key.namespace, key.name) or ClusterGone()

    @contextlib.contextmanager
    def _one(self, name: str) -> Iterator[None]:
        """One object, which may be changed by others or be contended: the rest of the round goes on."""
        try:
            yield
        except (NotFound, Conflict):
            _LOG.debug("somebody else was faster", extra={"object": name})
        except (Deferred, ValueError) as error:  # ValueError: a name that no path can have
            self._done.failed += 1
            _LOG.info("left for the next round", extra={"object": name, "error": str(error)})


def _is_left_alone(cluster: ClusterView | ClusterGone) -> bool:
    return isinstance(cluster, ClusterView) and (cluster.paused or cluster.deleting)


async def _bounded(items: Iterable[Item], concerned: Callable[[Item], bool]) -> AsyncIterator[Item]:
    """Those that are concerned, at most ``OBJECTS_PER_ROUND``, beginning anywhere so that all have their turn."""
    every = list(items)
    begin = _RANDOM.randrange(len(every)) if every else 0
    found = 0
    for number, item in enumerate(itertools.chain(every[begin:], every[:begin]), start=1):
        if number % _LOOKED_AT == 0:
            await asyncio.sleep(0)
        if concerned(item):
            yield item
            found += 1
            if found == OBJECTS_PER_ROUND:
                return
