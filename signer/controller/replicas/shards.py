"""One replica's part in the sharing of Clusters: takes shards, hands them over, and says which are its own.

Nothing that is decided rests upon it, as with leader election (:mod:`signer.controller.replicas.leadership`): two
replicas that both believe that a Cluster is theirs do no harm (``tests/integration/test_races.py``). It divides the
work, no more.
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
"""For what is under way in the shards that are left, as long as at the end of the process."""


class HandsOver(Protocol):
    """What is needed of the :class:`~signer.controller.cluster.fleet.Fleet`."""

    async def hand_over(self, concerned: Callable[[ClusterKey], bool], timeout_seconds: float) -> None:
        """See Fleet."""
        ...


class SharedShards:
    """This replica among those that share the shards.

    It lists the Leases each retry period, as it renews its own, and watches nothing: they are few, and most of what
    it waits for is that one does not change.
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

        When ``stop`` is set, it takes no shard any more, and none from itself: all are released together at the end.
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
        """The shards in which something is still being finished."""
        self._soon = asyncio.Event()
        self._said: dict[str, str] = {}

    @property
    def shards(self) -> SomeShards:
        """What this replica has."""
        return self._shards

    def standing(self) -> Standing:
        """Whether this replica has its part, as far as was last seen."""
        return self._plan.standing

    async def share(self, caches: Caches, fleet: HandsOver) -> NoReturn:
        """Take part until cancelled; to be called when decisions can be made.

        Raises:
            LeadershipLost: this replica's own Lease could not be renewed in time: others have taken its shards.
        """
        caches.own_shards(self._shards)
        self._metrics.shards.set(self._shards.count)
        await self._membership.lead()
        _LOG.info("joined", extra={"identity": self._membership.identity})
        event_history = asyncio.create_task(
            supervised("shards", lambda: self._follow(caches, fleet), self._metrics.task_failed), name="shards"
        )
        try:
            await self._membership.hold()
        finally:
            tasks = [event_history, *self._handing_over.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def leave(self) -> None:
        """Let others take all shards at once. To be called when all work has ended; never raises ApiError."""
        await self._membership.release()

    async def _follow(self, caches: Caches, fleet: HandsOver) -> NoReturn:
        while True:
            self._soon.clear()
            try:
                if not self._stop.is_set():
                    await self._turn(caches, fleet)
                    self._said.pop("fault", None)
            except (ApiError, InvalidLease) as error:
                self._say("fault", logging.WARNING, "cannot share shards with other replicas", str(error))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(
                    self._times.retry_period.total_seconds() * _RANDOM.uniform(1.0, JITTER_FACTOR)
                ):
                    await self._soon.wait()

    async def _turn(self, caches: Caches, fleet: HandsOver) -> None:
        """Look, and do what is to be done. Raises ApiError; what was done before it stays done."""
        asked = self._monotonic()
        self._division = self._division.read(await self._listed(), asked, self._monotonic())
        self._settle(caches)
        plan = self._plan = self._division.plan()
        self._say_how_it_stands(plan)
        if not isinstance(self._membership.standing(), Leading):
            return
        try:
            for number in plan.take:
                await self._take(number)
        finally:
            self._settle(caches)
        self._begin_handing_over(plan.release, caches, fleet)
        for number in sorted(self._shards.leaving - self._handing_over.keys()):
            await self._release(number)
        self._settle(caches)
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
        self._say("unreadable", logging.WARNING, "Leases of shards or replicas cannot be read", detail)
        return leases

    def _settle(self, caches: Caches) -> None:
        """What the Leases say is what this replica has."""
        ours = self._division.owned()
        leaving = self._shards.leaving & ours
        self._have(SomeShards(self._shards.count, ours - leaving, leaving), caches)

    def _have(self, shards: SomeShards, caches: Caches) -> None:
        if shards == self._shards:
            return
        before, self._shards = self._shards, shards
        self._metrics.shards_owned.set(len(shards.owned))
        self._metrics.leader.set(bool(shards.owned))
        caches.own_shards(shards)
        if shards.owned != before.owned:
            numbers = " ".join(str(number) for number in sorted(shards.owned))
            _LOG.info("owning shards", extra={"shards": numbers, "replicas": self._plan.living})

    # Taking

    async def _take(self, number: int) -> None:
        there = self._division.leases.shards.get(number)
        transitions = 0 if there is None else there.lease.holding.transitions + 1
        holding = taken(self._division.identity, self._times, self._now(), transitions)
        with contextlib.suppress(Conflict, NotFound):  # another was faster; the next list shows it
            if there is None:
                await self._make(number, holding)
            else:
                await self._change(number, there, holding)

    async def _make(self, number: int, holding: Holding) -> None:
        name = shard_lease(self._division.name, number)
        try:
            body = new_lease(name, self._namespace, holding, labels=self._labels)
            self._wrote(number, await self._calls.create(LEASES.collection(self._namespace), body))
        except AlreadyExists:
            await self._label(name)

    async def _label(self, name: str) -> None:
        """That Lease is there, and was not listed. Another was faster; or it has lost its label, and without it nobody
        would ever serve the shard: the next list shows whose it is.
        """
        path = LEASES.object(name, self._namespace)
        manifest = await self._calls.get(path)
        labels = mapping_of(mapping_of(manifest, "metadata"), "labels")
        if not self._labels.items() <= labels.items():
            _LOG.warning("the Lease of a shard had lost its label", extra={"lease": f"{self._namespace}/{name}"})
            lease = parse_lease(manifest)
            await self._calls.replace(path, changed_lease(lease, lease.holding, labels=self._labels))

    async def _change(self, number: int, there: ShardLease, holding: Holding) -> None:
        path = LEASES.object(there.lease_name, self._namespace)
        self._wrote(number, await self._calls.replace(path, changed_lease(there.lease, holding)))

    def _wrote(self, number: int, answer: JsonObject) -> None:
        written = parse_shard_leases(self._division.name, [answer])
        if number in written.shards:
            self._division = self._division.wrote(number, written.shards[number])

    # Handing over

    def _begin_handing_over(self, numbers: frozenset[int], caches: Caches, fleet: HandsOver) -> None:
        """Each by itself: a cluster that hangs holds up its own shard, and no other."""
        shards = self._shards
        leaving = (numbers & shards.owned) - self._handing_over.keys()
        self._have(SomeShards(shards.count, shards.owned - leaving, shards.leaving | leaving), caches)
        for number in leaving:
            task = asyncio.create_task(self._hand_over(number, fleet), name=f"handing over shard {number}")
            self._handing_over[number] = task

    async def _hand_over(self, number: int, fleet: HandsOver) -> None:
        count = self._shards.count
        try:
            await fleet.hand_over(lambda cluster: shard_of(cluster, count) == number, HAND_OVER_SECONDS)
        finally:
            del self._handing_over[number]
            self._soon.set()

    async def _release(self, number: int) -> None:
        """Somebody else may take it now; what fails is tried again at the next turn."""
        there = self._division.leases.shards[number]
        with contextlib.suppress(Conflict, NotFound):
            await self._change(number, there, released(there.lease.holding, self._now()))

    async def _remove(self, lease: Replica | ShardLease) -> None:
        version = lease.lease.manifest["metadata"]["resourceVersion"]
        with contextlib.suppress(Conflict, NotFound):
            path = LEASES.object(lease.lease_name, self._namespace)
            await self._calls.delete(path, uid=lease.uid, resource_version=version)

    # Saying

    def _say_how_it_stands(self, plan: Plan) -> None:
        detail = ""
        if isinstance(plan.standing, Disagreeing):
            theirs, ours = plan.standing.count, self._shards.count
            detail = f"the replica that came first runs with --shards {theirs}, this one with {ours}"
        self._say("standing", logging.WARNING, "standing by until those with another number of shards are gone", detail)

    def _say(self, kind: str, level: int, message: str, detail: str) -> None:
        """Once for as long as it stays the same; nothing where there is no detail."""
        if detail and self._said.get(kind) != detail:
            _LOG.log(level, message, extra={"detail": detail})
        self._said[kind] = detail
