"""The fleet: one task for each Cluster with a policy, restarted alone when it fails, drained at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from signer.controller.cluster import fleet as fleet_module
from signer.controller.cluster.fleet import Fleet
from signer.kube.backoff import Backoff
from signer.kube.resources import CLUSTERS_V1BETA2, MACHINES_V1BETA2
from signer.model.cluster import WATCH_FILTER_LABEL, ClusterKey, WatchFilter
from signer.model.floors import NO_FLOORS
from signer.model.shard import SomeShards, shard_of
from signer.store.caches import ALL_PROVIDER_IDS, Caches, ProviderIDs
from signer.store.cluster_api import ClusterAPIVersion


class Served:
    """A cluster's task that a test controls."""

    def __init__(self, key: ClusterKey) -> None:
        self.key = key
        self.running = False
        self.cancelled = False
        self.closed = False
        self.wakes: list[ProviderIDs] = []
        self.machine_changes = 0
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.finishes_when_stopped = True
        self.stopped = False
        self.busy = 0.0

    async def run(self) -> None:
        self.running = True
        try:
            await self._end
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        finally:
            self.running = False

    def stop(self) -> None:
        self.stopped = True
        if self.finishes_when_stopped and not self._end.done():
            self.finish()

    def finish(self) -> None:
        self._end.set_result(None)

    def wake(self, provider_ids: ProviderIDs) -> None:
        self.wakes.append(provider_ids)

    def machines_changed(self) -> None:
        self.machine_changes += 1

    def close(self) -> None:
        assert not self.running
        assert not self.closed
        self.closed = True

    def busy_seconds(self) -> float:
        return self.busy

    def fail(self, error: BaseException | None = None) -> None:
        self._end.set_exception(error or RuntimeError("broken"))

    def lose_what_it_waits_for(self) -> None:
        """Another task cancels what it awaits."""
        self._end.cancel()


class World:
    def __init__(self) -> None:
        self.caches = Caches(
            ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2), own_namespace="own", floors=NO_FLOORS
        )
        self.started: list[Served] = []
        self.failures_at_start = 0
        self.failed: list[str] = []
        self.fleet = Fleet(self.caches, self._start, self.failed.append)

    def _start(self, key: ClusterKey) -> Served:
        if self.failures_at_start:
            self.failures_at_start -= 1
            raise RuntimeError("cannot even begin")
        self.started.append(Served(key))
        return self.started[-1]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(self.fleet.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def put(self, name: str, *, policy: bool = True, **metadata: Any) -> None:
        self.caches.clusters.applied({"metadata": {"namespace": "ns", "name": name, "uid": name, **metadata}})
        if policy:
            self.caches.policies.applied({"metadata": {"namespace": "ns", "name": name}, "spec": {}})

    def remove(self, name: str, *, policy_only: bool = False) -> None:
        manifest = {"metadata": {"namespace": "ns", "name": name}}
        self.caches.policies.removed(manifest)
        if not policy_only:
            self.caches.clusters.removed(manifest)

    def names(self) -> list[str]:
        """The clusters with a running task."""
        return sorted(served.key.name for served in self.started if served.running)


async def until(condition: Callable[[], bool]) -> None:
    """Run the event loop, one iteration at a time, until the condition holds."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - what it waits for has no event of its own
            await asyncio.sleep(0)


@asynccontextmanager
async def serving(*names: str, shards: SomeShards | None = None) -> AsyncIterator[World]:
    """A fleet that serves these clusters, with ``shards`` while it owns their shards."""
    world = World()
    for name in names:
        world.put(name)
    if shards is not None:
        world.caches.set_shards(shards)
    async with world.running():
        await until(lambda: world.names() == sorted(names))
        yield world


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "_RESTART", Backoff(base_seconds=0.001, maximum_seconds=0.002, jitter=0.5))


async def test_the_watch_filter_follows_the_label() -> None:
    world = World()
    world.caches.watch_filter = WatchFilter("ours")
    world.put("without")
    world.put("others", labels={WATCH_FILTER_LABEL: "others"})
    world.put("ours", labels={WATCH_FILTER_LABEL: "ours"})
    async with world.running():
        await until(lambda: world.names() == ["ours"])
        world.put("without", labels={WATCH_FILTER_LABEL: "ours"})
        await until(lambda: world.names() == ["ours", "without"])
        world.put("ours")
        await until(lambda: world.names() == ["without"])


async def test_clusters_with_a_policy_are_served_and_no_others() -> None:
    world = World()
    world.put("with")
    world.put("without", policy=False)
    moves = {"clusterctl.cluster.x-k8s.io/delete-for-move": ""}
    world.put("moves", deletionTimestamp="2026-03-01T12:00:00Z", annotations=moves)
    async with world.running():
        await until(lambda: world.names() == ["with"])
        assert world.fleet.served == {ClusterKey("ns", "with")}
        world.put("later")
        await until(lambda: world.names() == ["later", "with"])
    assert world.names() == []


async def test_cluster_that_is_being_deleted_is_served_until_it_is_gone() -> None:
    """Its nodes run, and may drain, for as long as hooks and finalizers keep it."""
    world = World()
    world.put("going")
    async with world.running():
        await until(lambda: world.names() == ["going"])
        world.put("going", deletionTimestamp="2026-03-01T12:00:00Z")
        world.put("later", deletionTimestamp="2026-03-01T12:00:00Z")
        await until(lambda: world.names() == ["going", "later"])
        assert len(world.started) == 2, "the first was not started again"
        world.remove("going", policy_only=False)
        await until(lambda: world.names() == ["later"])


async def test_unreadable_policy_is_a_policy() -> None:
    """Its task defers the requests and writes the condition that says why."""
    world = World()
    world.put("broken", policy=False)
    world.caches.policies.applied({"metadata": {"namespace": "ns", "name": "broken"}, "spec": {"mode": "?"}})
    async with world.running():
        await until(lambda: world.names() == ["broken"])


@pytest.mark.parametrize("policy_only", [True, False])
async def test_cluster_is_removed(policy_only: bool) -> None:
    async with serving("goes", "stays") as world:
        world.remove("goes", policy_only=policy_only)
        await until(lambda: world.names() == ["stays"])
        assert world.fleet.served == {ClusterKey("ns", "stays")}
        assert [served.key.name for served in world.started if served.closed] == ["goes"]
        world.put("goes")
        await until(lambda: world.names() == ["goes", "stays"])
        assert len(world.started) == 3


async def test_cluster_is_recreated_at_once() -> None:
    """The former task may still be ending; wake-ups must reach the new one."""
    async with serving("one") as world:
        world.remove("one")
        await until(lambda: world.fleet.served == frozenset())
        world.put("one")
        await until(lambda: len(world.started) == 2 and world.names() == ["one"])
        assert world.started[0].closed
        world.caches.policies.removed({"metadata": {"namespace": "ns", "name": "one"}})
        assert world.started[1].wakes == [ALL_PROVIDER_IDS]


async def test_changes_wake_the_affected_cluster() -> None:
    async with serving("one", "other") as world:
        one, other = sorted(world.started, key=lambda served: served.key.name)
        spec = {"clusterName": "one", "providerID": "p1"}
        world.caches.machines.applied({"metadata": {"namespace": "ns", "name": "m1"}, "spec": spec})
        assert (one.wakes, one.machine_changes) == ([frozenset({"p1"})], 1)
        assert (other.wakes, other.machine_changes) == ([], 0)
        world.put("other", policy=False, annotations={"cluster.x-k8s.io/paused": ""})
        assert (other.wakes, other.machine_changes) == ([ALL_PROVIDER_IDS], 0)


async def test_records_and_machines_cause_no_reconciliation_of_the_fleet() -> None:
    """A flood of joins changes records all the time; the set of clusters does not depend on them."""
    async with serving("one") as world:
        world.fleet._changed.clear()
        world.fleet.wake(ClusterKey("ns", "one"), frozenset({"p1"}))
        assert not world.fleet._changed.is_set()
        assert world.started[0].wakes == [frozenset({"p1"})]
        world.fleet.wake(ClusterKey("ns", "one"), ALL_PROVIDER_IDS)
        assert world.fleet._changed.is_set()


async def test_a_failed_task_restarts_and_others_continue(caplog: pytest.LogCaptureFixture) -> None:
    async with serving("fails", "well") as world:
        for _ in range(3):
            next(one for one in world.started if one.key.name == "fails" and one.running).fail()
            await until(lambda: "fails" not in world.names())
            assert "well" in world.names()
            await until(lambda: world.names() == ["fails", "well"])
        assert len(world.started) == 5
        assert len([served for served in world.started if served.closed]) == 3
    assert all(served.closed for served in world.started)
    assert [record.getMessage() for record in caplog.records].count("a cluster's task failed") == 3


@pytest.mark.parametrize(
    "end",
    [lambda served: served.fail(BaseException("panic")), Served.lose_what_it_waits_for],
    ids=["panic", "cancelled"],
)
async def test_no_defect_ends_a_task(end: Callable[[Served], None]) -> None:
    """Otherwise the cluster would stay unserved until the process ends."""
    async with serving("one") as world:
        end(world.started[0])
        await until(lambda: len(world.started) == 2 and world.names() == ["one"])
    assert world.failed == ["cluster"]


async def test_a_task_that_cannot_be_created_is_retried() -> None:
    world = World()
    world.failures_at_start = 2
    world.put("one")
    async with world.running():
        await until(lambda: world.names() == ["one"])


async def test_drain_lets_every_cluster_finish() -> None:
    async with serving("one", "other") as world:
        await world.fleet.drain(5)
        assert world.names() == []
        assert not any(served.cancelled for served in world.started)
        assert all(served.closed for served in world.started)


async def test_nothing_starts_while_draining() -> None:
    async with serving("one") as world:
        await world.fleet.drain(5)
        world.put("new")
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(world.started) == 1


async def test_drain_does_not_wait_for_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "_RESTART", Backoff(base_seconds=3600, maximum_seconds=3600, jitter=0))
    async with serving("fails") as world:
        world.started[0].fail()
        await until(lambda: world.names() == [])
        async with asyncio.timeout(5):
            await world.fleet.drain(3600)
        assert len(world.started) == 1


async def test_drain_times_out_and_cancels_the_rest() -> None:
    async with serving("hangs") as world:
        world.started[0].finishes_when_stopped = False
        await world.fleet.drain(0.01)
        assert world.names() == ["hangs"]
    assert world.started[0].cancelled


def everywhere(cluster: ClusterKey) -> bool:
    """Hand over every shard."""
    return True


def everything(handed_over: bool = False) -> SomeShards:
    """All shards, owned or being handed over."""
    every = frozenset(range(4))
    return SomeShards(4, frozenset() if handed_over else every, every if handed_over else frozenset())


async def handing_over(world: World) -> asyncio.Task[None]:
    """All shards are being handed over; the cluster's task was stopped and still runs."""
    world.started[0].finishes_when_stopped = False
    world.caches.set_shards(everything(handed_over=True))
    task = asyncio.create_task(world.fleet.hand_over(everywhere, 3600))
    await until(lambda: world.started[0].stopped)
    return task


class TestShards:
    """Clusters that move to another replica or to this one."""

    async def test_clusters_of_its_own_shards_are_served_and_no_others(self) -> None:
        world = World()
        for number in range(8):
            world.put(f"c{number}")
        world.caches.set_shards(SomeShards(2))
        async with world.running():
            for number in (0, 1):
                world.caches.set_shards(SomeShards(2, frozenset({number})))
                ours = [name for name in map("c{}".format, range(8)) if shard_of(ClusterKey("ns", name), 2) == number]
                assert 0 < len(ours) < 8
                await until(partial(lambda names: world.names() == names, ours))

    async def test_what_is_under_way_is_finished_before_it_is_handed_over(self) -> None:
        async with serving("one", shards=everything()) as world:
            handover = await handing_over(world)
            assert (world.names(), handover.done()) == (["one"], False)
            world.put("new")
            world.started[0].finish()
            await handover
            assert (world.names(), world.started[0].cancelled, world.fleet.served) == ([], False, frozenset())
        assert len(world.started) == 1, "nothing new begins in a shard that is left"

    async def test_what_does_not_end_in_time_is_cancelled(self) -> None:
        async with serving("hangs", shards=everything()) as world:
            world.started[0].finishes_when_stopped = False
            world.caches.set_shards(everything(handed_over=True))
            await world.fleet.hand_over(everywhere, 0.01)
            assert (world.started[0].cancelled, world.names()) == (True, [])

    async def test_a_shard_that_is_lost_is_cancelled_at_once(self) -> None:
        async with serving("one", shards=everything()) as world:
            world.caches.set_shards(SomeShards(4))
            await until(lambda: world.names() == [])
            assert (world.started[0].stopped, world.started[0].cancelled) == (False, True)

    async def test_one_that_waits_to_start_anew_holds_up_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fleet_module, "_RESTART", Backoff(base_seconds=3600, maximum_seconds=3600, jitter=0))
        async with serving("fails", shards=everything()) as world:
            world.started[0].fail()
            await until(lambda: world.names() == [])
            world.caches.set_shards(everything(handed_over=True))
            async with asyncio.timeout(5):
                await world.fleet.hand_over(everywhere, 3600)
            assert world.fleet.served == frozenset()

    async def test_one_that_fails_while_it_finishes_does_not_start_anew(self) -> None:
        async with serving("one", shards=everything()) as world:
            handover = await handing_over(world)
            world.started[0].fail()
            async with asyncio.timeout(5):
                await handover
        assert len(world.started) == 1

    async def test_a_shard_that_comes_back_is_served_when_the_former_task_has_ended(self) -> None:
        async with serving("one", shards=everything()) as world:
            handover = await handing_over(world)
            world.caches.set_shards(everything())
            for _ in range(10):
                await asyncio.sleep(0)
            assert len(world.started) == 1
            world.started[0].finish()
            await handover
            await until(lambda: len(world.started) == 2 and world.names() == ["one"])

    async def test_one_shard_does_not_wait_for_another(self) -> None:
        async with serving("hangs", "well", shards=everything()) as world:
            for served in world.started:
                served.finishes_when_stopped = served.key.name == "well"
            world.caches.set_shards(everything(handed_over=True))
            hanging = asyncio.create_task(world.fleet.hand_over(lambda cluster: cluster.name == "hangs", 3600))
            async with asyncio.timeout(5):
                await world.fleet.hand_over(lambda cluster: cluster.name == "well", 3600)
            assert (world.names(), hanging.done()) == (["hangs"], False)
            hanging.cancel()
            await asyncio.gather(hanging, return_exceptions=True)
            assert world.fleet.served == frozenset()

    async def test_with_nothing_to_hand_over_it_is_done(self) -> None:
        async with serving("one") as world:
            await world.fleet.hand_over(everywhere, 3600)
            assert world.names() == ["one"]
