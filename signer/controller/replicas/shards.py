"""Sharding: acquires and hands over this replica's shards of Clusters.

No decision depends on it, as with leader election (:mod:`signer.controller.replicas.leadership`): two replicas that
both serve a Cluster do no harm (``tests/integration/test_races.py``). Sharding only divides the work.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from datetime import datetime
from random import SystemRandom
from typing import Final, NoReturn, Protocol

from signer.configuration import LeaderElection, Sharding
from signer.controller.replicas.leadership import Leadership, new_identity
from signer.controller.telemetry.metrics import Metrics
from signer.kube.calls import GetListCreateReplaceDelete
from signer.kube.client import JsonObject
from signer.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from signer.kube.resources import LEASES
from signer.kube.supervision import supervised
from signer.model.cluster import ClusterKey
from signer.model.decision import printable
from signer.model.fields import mapping_of
from signer.model.lease import (
    JITTER_FACTOR,
    Holding,
    InvalidLease,
    changed_lease,
    new_lease,
    parse_lease,
    released,
    taken,
)
from signer.model.shard import (
    SHARD_COUNT_ANNOTATION,
    SHARDS_OF_LABEL,
    Replica,
    ShardLease,
    ShardLeases,
    SomeShards,
    parse_shard_leases,
    shard_lease,
    shard_of,
)
from signer.rules.leadership import Leading
from signer.rules.sharding import Disagreeing, Division, Joining, Plan, Standing
from signer.store.caches import Caches

_LOG = logging.getLogger(__name__)
_RANDOM: Final = SystemRandom()
HAND_OVER_SECONDS: Final = 8.0
"""Time for the current requests of a shard that is handed over; the same as at the end of the process."""


class HandsOver(Protocol):
    """The part of :class:`~signer.controller.cluster.fleet.Fleet` that is used."""

    async def hand_over(self, concerned: Callable[[ClusterKey], bool], timeout_seconds: float) -> None:
        """See Fleet."""
        ...


class SharedShards:
    """This replica's part in the sharding.

    It lists the Leases every retry period instead of watching them: they are few, and expiry, the event that matters
    most, is the absence of a change.
    """

    def __init__(
        self,
        calls: GetListCreateReplaceDelete,
        namespace: str,
        sharding: Sharding,
        *,
        stop: asyncio.Event,
        metrics: Metrics,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        """``namespace`` is the controller's own. No call of ``calls`` may take longer than half the renew deadline.

        Once ``stop`` is set, the replica neither acquires nor hands over shards: it releases all of them at the end.
        """
        self._calls = calls
        self._namespace = namespace
        self._stop = stop
        self._metrics = metrics
        self._now = now
        self._monotonic = monotonic
        self._times = sharding.times
        self._division = Division(sharding.lease_name, new_identity(), sharding.count, sharding.times)
        self._labels = {SHARDS_OF_LABEL: sharding.lease_name}
        self._membership = Leadership(
            calls,
            namespace,
            LeaderElection(sharding.times, self._division.lease_name),
            now=now,
            monotonic=monotonic,
            identity=self._division.identity,
            labels=self._labels,
            annotations={SHARD_COUNT_ANNOTATION: str(sharding.count)},
        )
        self._plan = Plan(Joining(), living=0)
        self._shards = SomeShards(sharding.count)
        self._handing_over: dict[int, asyncio.Task[None]] = {}
        """Shards whose current requests are being finished."""
        self._reconcile_soon = asyncio.Event()
        self._logged: dict[str, str] = {}

    @property
    def shards(self) -> SomeShards:
        """The shards of this replica."""
        return self._shards

    def standing(self) -> Standing:
        """This replica's standing as of the last list."""
        return self._plan.standing

    async def share(self, caches: Caches, fleet: HandsOver) -> NoReturn:
        """Acquire and hand over shards until cancelled. Call it when decisions can be made.

        Raises:
            LeadershipLost: this replica's own Lease was not renewed in time, so others take its shards.
        """
        caches.set_shards(self._shards)
        self._metrics.shards.set(self._shards.count)
        await self._membership.lead()
        _LOG.info("joined", extra={"identity": self._membership.identity})
        reconciling = asyncio.create_task(
            supervised("shards", lambda: self._reconcile_forever(caches, fleet), self._metrics.task_failed),
            name="shards",
        )
        try:
            await self._membership.renew_until_lost()
        finally:
            tasks = [reconciling, *self._handing_over.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def release(self) -> None:
        """Release this replica's own Lease so that others take all its shards at once.

        Call it when all work has ended. It never raises ApiError.
        """
        await self._membership.release()

    async def _reconcile_forever(self, caches: Caches, fleet: HandsOver) -> NoReturn:
        while True:
            self._reconcile_soon.clear()
            try:
                if not self._stop.is_set():
                    await self._reconcile(caches, fleet)
                    self._logged.pop("fault", None)
            except (ApiError, InvalidLease) as error:
                self._log_once("fault", logging.WARNING, "cannot share shards with other replicas", str(error))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(
                    self._times.retry_period.total_seconds() * _RANDOM.uniform(1.0, JITTER_FACTOR)
                ):
                    await self._reconcile_soon.wait()

    async def _reconcile(self, caches: Caches, fleet: HandsOver) -> None:
        """List the Leases and act on them once. Raises ApiError; earlier steps stay in effect."""
        requested_at = self._monotonic()
        self._division = self._division.read(await self._listed(), requested_at, self._monotonic())
        self._apply_leases(caches)
        plan = self._plan = self._division.plan()
        self._log_disagreement(plan)
        if not isinstance(self._membership.standing(), Leading):
            return
        try:
            for number in plan.take:
                await self._take(number)
        finally:
            self._apply_leases(caches)
        self._begin_handing_over(plan.release, caches, fleet)
        for number in sorted(self._shards.leaving - self._handing_over.keys()):
            await self._release(number)
        self._apply_leases(caches)
        for lease in plan.remove:
            await self._remove(lease)

    async def _listed(self) -> ShardLeases:
        items: list[JsonObject] = []
        selector = {"labelSelector": f"{SHARDS_OF_LABEL}={self._division.name}"}
        async with contextlib.aclosing(self._calls.list_pages(LEASES.collection(self._namespace), selector)) as pages:
            async for page in pages:
                items += [item for item in page["items"] if isinstance(item, dict)]
        leases = parse_shard_leases(self._division.name, items)
        detail = ", ".join(printable(name) for name in leases.unreadable)
        self._log_once("unreadable", logging.WARNING, "Leases of shards or replicas cannot be read", detail)
        return leases

    def _apply_leases(self, caches: Caches) -> None:
        """Adopt the shards that the Leases assign to this replica."""
        ours = self._division.owned()
        leaving = self._shards.leaving & ours
        self._set_shards(SomeShards(self._shards.count, ours - leaving, leaving), caches)

    def _set_shards(self, shards: SomeShards, caches: Caches) -> None:
        if shards == self._shards:
            return
        before, self._shards = self._shards, shards
        self._metrics.shards_owned.set(len(shards.owned))
        self._metrics.leader.set(bool(shards.owned))
        caches.set_shards(shards)
        if shards.owned != before.owned:
            numbers = " ".join(str(number) for number in sorted(shards.owned))
            _LOG.info("owning shards", extra={"shards": numbers, "replicas": self._plan.living})

    # Acquiring

    async def _take(self, number: int) -> None:
        existing = self._division.leases.shards.get(number)
        transitions = 0 if existing is None else existing.lease.holding.transitions + 1
        holding = taken(self._division.identity, self._times, self._now(), transitions)
        with contextlib.suppress(Conflict, NotFound):  # another was faster; the next list shows it
            if existing is None:
                await self._create_lease(number, holding)
            else:
                await self._change(number, existing, holding)

    async def _create_lease(self, number: int, holding: Holding) -> None:
        name = shard_lease(self._division.name, number)
        try:
            body = new_lease(name, self._namespace, holding, labels=self._labels)
            self._wrote(number, await self._calls.create(LEASES.collection(self._namespace), body))
        except AlreadyExists:
            await self._label(name)

    async def _label(self, name: str) -> None:
        """Restore the label of a Lease that exists but was not listed.

        Either another replica was faster, or the Lease has lost its label; without the label no replica would serve the
        shard. The next list shows who owns it.
        """
        path = LEASES.object(name, self._namespace)
        manifest = await self._calls.get(path)
        labels = mapping_of(mapping_of(manifest, "metadata"), "labels")
        if not self._labels.items() <= labels.items():
            _LOG.warning("restored the missing label of a shard's Lease", extra={"lease": f"{self._namespace}/{name}"})
            lease = parse_lease(manifest)
            await self._calls.replace(path, changed_lease(lease, lease.holding, labels=self._labels))

    async def _change(self, number: int, existing: ShardLease, holding: Holding) -> None:
        path = LEASES.object(existing.lease_name, self._namespace)
        self._wrote(number, await self._calls.replace(path, changed_lease(existing.lease, holding)))

    def _wrote(self, number: int, answer: JsonObject) -> None:
        written = parse_shard_leases(self._division.name, [answer])
        if number in written.shards:
            self._division = self._division.wrote(number, written.shards[number])

    # Handing over

    def _begin_handing_over(self, numbers: frozenset[int], caches: Caches, fleet: HandsOver) -> None:
        """Hand over each shard in its own task, so that a cluster that hangs delays no other shard."""
        shards = self._shards
        leaving = (numbers & shards.owned) - self._handing_over.keys()
        self._set_shards(SomeShards(shards.count, shards.owned - leaving, shards.leaving | leaving), caches)
        for number in leaving:
            task = asyncio.create_task(self._hand_over(number, fleet), name=f"handing over shard {number}")
            self._handing_over[number] = task

    async def _hand_over(self, number: int, fleet: HandsOver) -> None:
        count = self._shards.count
        try:
            await fleet.hand_over(lambda cluster: shard_of(cluster, count) == number, HAND_OVER_SECONDS)
        finally:
            del self._handing_over[number]
            self._reconcile_soon.set()

    async def _release(self, number: int) -> None:
        """Release the Lease of a shard; a failure is retried at the next reconciliation."""
        existing = self._division.leases.shards[number]
        with contextlib.suppress(Conflict, NotFound):
            await self._change(number, existing, released(existing.lease.holding, self._now()))

    async def _remove(self, lease: Replica | ShardLease) -> None:
        version = lease.lease.manifest["metadata"]["resourceVersion"]
        with contextlib.suppress(Conflict, NotFound):
            path = LEASES.object(lease.lease_name, self._namespace)
            await self._calls.delete(path, uid=lease.uid, resource_version=version)

    # Logging

    def _log_disagreement(self, plan: Plan) -> None:
        detail = ""
        if isinstance(plan.standing, Disagreeing):
            theirs, ours = plan.standing.count, self._shards.count
            detail = f"the replica that came first runs with --shards {theirs}, this one with {ours}"
        self._log_once(
            "standing", logging.WARNING, "standing by until those with another number of shards are gone", detail
        )

    def _log_once(self, kind: str, level: int, message: str, detail: str) -> None:
        """Log a message once until its detail changes; an empty ``detail`` resets it."""
        if detail and self._logged.get(kind) != detail:
            _LOG.log(level, message, extra={"detail": detail})
        self._logged[kind] = detail
