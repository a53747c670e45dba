"""Sharding: writes, tolerated failures, and the shards that a replica owns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from signer.configuration import Sharding
from signer.controller.replicas.leadership import LeadershipLost
from signer.controller.replicas.shards import HAND_OVER_SECONDS, SharedShards
from signer.controller.telemetry.metrics import Metrics
from signer.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, Unreachable
from signer.kube.errors import Cause as UnreachableCause
from signer.kube.resources import CLUSTERS_V1BETA2, MACHINES_V1BETA2
from signer.model.cluster import ClusterKey
from signer.model.floors import NO_FLOORS
from signer.model.lease import ElectionTimes
from signer.model.shard import SHARD_COUNT_ANNOTATION, SHARDS_OF_LABEL, SomeShards, shard_of
from signer.rules.sharding import Disagreeing, Joining
from signer.rules.sharding import Sharing as HasItsPart
from signer.store.caches import Caches
from signer.store.cluster_api import ClusterAPIVersion
from tests.unit.signer.controller.support import Clock

COUNT = 4
COLLECTION = "/apis/coordination.k8s.io/v1/namespaces/own/leases"
CLUSTERS = [ClusterKey("default", f"c{number}") for number in range(20)]
"""In all shards."""
Fault = Callable[[str, str], ApiError | None]


def nothing_fails(verb: str, name: str) -> ApiError | None:
    return None


class Leases:
    """An API server with Leases that behaves like kube-apiserver."""

    def __init__(self) -> None:
        self.stored: dict[str, dict[str, Any]] = {}
        self.calls: list[str] = []
        self.fault: Fault = nothing_fails
        self.fault_after: Fault = nothing_fails
        """Of calls that are carried out, and whose answer is lost."""
        self._version = 0

    async def get(self, path: str) -> dict[str, Any]:
        return self._existing("get", path.removeprefix(f"{COLLECTION}/"))

    async def list_pages(
        self, path: str, params: Any = None, *arguments: Any, **options: Any
    ) -> AsyncGenerator[dict[str, Any], None]:
        assert (path, params) == (COLLECTION, {"labelSelector": f"{SHARDS_OF_LABEL}=lease"})
        self._called("list", "")
        ours = [
            item for item in self.stored.values() if item["metadata"].get("labels", {}).get(SHARDS_OF_LABEL) == "lease"
        ]
        for begin in range(0, len(ours), 2):
            yield {"items": ours[begin : begin + 2]}

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert path == COLLECTION
        name = body["metadata"]["name"]
        self._called("create", name)
        if name in self.stored:
            raise AlreadyExists("it exists", status=409)
        made = {"uid": f"uid-{name}", "creationTimestamp": f"2026-01-01T00:00:{self._version:02}Z"}
        return self._store("create", {**body, "metadata": {**body["metadata"], **made}})

    async def replace(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        existing = self._existing("update", path.removeprefix(f"{COLLECTION}/"))
        if body["metadata"]["resourceVersion"] != existing["metadata"]["resourceVersion"]:
            raise Conflict("it has changed", status=409)
        return self._store("update", body)

    async def delete(self, path: str, *, uid: str | None = None, resource_version: str | None = None) -> dict[str, Any]:
        name = path.removeprefix(f"{COLLECTION}/")
        existing = self._existing("delete", name)["metadata"]
        if (existing["uid"], existing["resourceVersion"]) != (uid, resource_version):
            raise Conflict("it is another, or has changed", status=409)
        return self.stored.pop(name)

    def _called(self, verb: str, name: str) -> None:
        self.calls.append(f"{verb} {name}".strip())
        if (error := self.fault(verb, name)) is not None:
            raise error

    def _existing(self, verb: str, name: str) -> dict[str, Any]:
        self._called(verb, name)
        if name not in self.stored:
            raise NotFound("no Lease", status=404)
        return self.stored[name]

    def _store(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        name = body["metadata"]["name"]
        self.stored[name] = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self._version)}}
        if (error := self.fault_after(verb, name)) is not None:
            raise error
        return self.stored[name]

    def assign(self, number: int, holder: str) -> None:
        """Another client writes a shard's Lease."""
        existing = self.stored[f"lease-shard-{number}"]
        self._store("", {**existing, "spec": {**existing["spec"], "holderIdentity": holder}})

    def owners(self) -> list[str]:
        """The owners of the shards, in order."""
        names = sorted(name for name in self.stored if "-shard-" in name)
        return [self.stored[name]["spec"]["holderIdentity"] for name in names]


class HandsOver:
    """A fleet whose hand-over of a shard ends when a test says so."""

    def __init__(self) -> None:
        self.handed_over: list[int] = []
        self.finished = {number: asyncio.Event() for number in range(COUNT)}
        self.finish(*range(COUNT))

    async def hand_over(self, concerned: Callable[[ClusterKey], bool], timeout_seconds: float) -> None:
        assert timeout_seconds == HAND_OVER_SECONDS
        [number] = {shard_of(cluster, COUNT) for cluster in CLUSTERS if concerned(cluster)}
        self.handed_over.append(number)
        await self.finished[number].wait()

    def hang(self, *numbers: int) -> None:
        for number in numbers:
            self.finished[number].clear()

    def finish(self, *numbers: int) -> None:
        for number in numbers:
            self.finished[number].set()


class One:
    """A replica, with its caches and metrics."""

    def __init__(self, leases: Leases, clock: Clock, count: int = COUNT) -> None:
        self.stop = asyncio.Event()
        self.metrics = Metrics()
        self.fleet = HandsOver()
        version = ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2)
        self.caches = Caches(version, own_namespace="own", shards=SomeShards(count), floors=NO_FLOORS)
        self.shared = SharedShards(
            leases,
            "own",
            Sharding(count, ElectionTimes(), "lease"),
            stop=self.stop,
            metrics=self.metrics,
            now=clock.now,
            monotonic=clock.monotonic,
        )
        self.identity = self.shared._membership.identity

    async def join(self) -> One:
        await self.shared._membership.lead()
        return self

    async def reconcile(self) -> SomeShards:
        await self.shared._reconcile(self.caches, self.fleet)
        await asyncio.sleep(0)  # a hand-over that takes no time is done
        await asyncio.sleep(0)
        assert self.caches.shards == self.shared.shards
        assert self.sample("shards_owned") == len(self.shared.shards.owned)
        assert self.sample("leader") == bool(self.shared.shards.owned)
        return self.shared.shards

    async def until(self, shards: SomeShards) -> None:
        """Reconcile without pauses until the replica has these shards."""
        async with asyncio.timeout(5):
            while self.caches.shards != shards:
                self.shared._reconcile_soon.set()
                await asyncio.sleep(0)

    def sample(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"node_attestation_{name}")


class World:
    def __init__(self) -> None:
        self.leases = Leases()
        self.clock = Clock()

    async def replica(self, count: int = COUNT) -> One:
        return await One(self.leases, self.clock, count).join()


@pytest.fixture
def world() -> World:
    return World()


def owning(*numbers: int) -> SomeShards:
    return SomeShards(COUNT, frozenset(numbers))


async def test_the_first_takes_every_shard(world: World) -> None:
    one = await world.replica()
    assert isinstance(one.shared.standing(), Joining)
    assert await one.reconcile() == owning(0, 1, 2, 3)
    assert isinstance(one.shared.standing(), HasItsPart)
    assert world.leases.owners() == [one.identity] * COUNT
    assert all(item["metadata"]["labels"] == {SHARDS_OF_LABEL: "lease"} for item in world.leases.stored.values())
    [own] = [item for name, item in world.leases.stored.items() if "-replica-" in name]
    assert own["metadata"]["annotations"] == {SHARD_COUNT_ANNOTATION: str(COUNT)}


async def test_keeping_shards_costs_one_list(world: World) -> None:
    one = await world.replica()
    await one.reconcile()
    world.leases.calls.clear()
    for _ in range(3):
        await one.reconcile()
    assert world.leases.calls == ["list"] * 3


async def test_a_new_replica_gets_shards_once_they_are_released(world: World) -> None:
    first = await world.replica()
    await first.reconcile()
    second = await world.replica()
    assert await second.reconcile() == owning()
    first.fleet.hang(2, 3)
    assert await first.reconcile() == SomeShards(COUNT, frozenset({0, 1}), frozenset({2, 3}))
    for _ in range(3):  # while it finishes, it still owns them, and no other replica takes them
        await first.reconcile()
        assert await second.reconcile() == owning()
    assert (world.leases.owners(), sorted(first.fleet.handed_over)) == ([first.identity] * COUNT, [2, 3])
    first.fleet.finish(3)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert first.shared._reconcile_soon.is_set(), "it does not wait for the next retry period"
    assert await first.reconcile() == SomeShards(COUNT, frozenset({0, 1}), frozenset({2}))
    assert await second.reconcile() == owning(3)
    first.fleet.finish(2)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await first.reconcile() == owning(0, 1)
    assert await second.reconcile() == owning(2, 3)
    assert world.leases.owners() == [first.identity] * 2 + [second.identity] * 2


async def test_a_failed_release_is_retried_and_the_shard_stays_unserved(world: World) -> None:
    first = await world.replica()
    await first.reconcile()
    await world.replica()
    await first.reconcile()
    world.leases.fault = lambda verb, name: Forbidden("no", status=403) if verb == "update" else None
    for _ in range(2):
        with pytest.raises(Forbidden):
            await first.reconcile()
        assert first.shared.shards == SomeShards(COUNT, frozenset({0, 1}), frozenset({2, 3}))
    world.leases.fault = nothing_fails
    assert await first.reconcile() == owning(0, 1)
    assert world.leases.owners() == [first.identity] * 2 + [""] * 2


async def test_a_release_with_a_lost_response_is_not_repeated(world: World) -> None:
    first = await world.replica()
    await first.reconcile()
    await world.replica()
    await first.reconcile()
    world.leases.fault_after = lambda verb, name: Unreachable("lost", cause=UnreachableCause.RESET)
    with pytest.raises(Unreachable):
        await first.reconcile()
    world.leases.fault_after = nothing_fails
    await first.reconcile()
    assert (first.shared.shards, world.leases.owners()[2:]) == (owning(0, 1), ["", ""])


async def test_an_acquisition_with_a_lost_response_is_found_by_the_next_list(world: World) -> None:
    one = await world.replica()
    world.leases.fault_after = lambda verb, name: Unreachable("lost", cause=UnreachableCause.RESET)
    with pytest.raises(Unreachable):
        await one.reconcile()
    assert one.shared.shards == owning()
    world.leases.fault_after = nothing_fails
    assert await one.reconcile() == owning(0, 1, 2, 3)


@pytest.mark.parametrize(("kind", "status"), [(AlreadyExists, 409), (Conflict, 409), (NotFound, 404)])
async def test_another_replica_acquires_a_shard_first(world: World, kind: type[ApiError], status: int) -> None:
    one, error = await world.replica(), kind("another was faster", status=status)
    world.leases.fault = lambda verb, name: error if (verb, name) == ("create", "lease-shard-1") else None
    assert await one.reconcile() == owning(0, 2, 3)


def without_metadata(leases: Leases, name: str, field: str) -> None:
    """Another client removes that field from a Lease."""
    existing = leases.stored[name]
    leases._store("", {**existing, "metadata": {**existing["metadata"], field: {"theirs": "kept"}}})


async def test_a_shard_whose_lease_lost_its_label_is_served_again(world: World) -> None:
    one = await world.replica()
    await one.reconcile()
    without_metadata(world.leases, "lease-shard-2", "labels")
    await one.reconcile()
    assert world.leases.stored["lease-shard-2"]["metadata"]["labels"] == {SHARDS_OF_LABEL: "lease", "theirs": "kept"}
    assert await one.reconcile() == owning(0, 1, 2, 3)


@pytest.mark.parametrize("field", ["labels", "annotations"])
async def test_a_replica_restores_the_label_and_annotation_of_its_lease(world: World, field: str) -> None:
    one = await world.replica()
    without_metadata(world.leases, one.shared._division.lease_name, field)
    await one.reconcile()
    assert isinstance(one.shared.standing(), Joining)
    await one.shared._membership._attempt()
    assert await one.reconcile() == owning(0, 1, 2, 3)
    assert world.leases.stored[one.shared._division.lease_name]["metadata"][field]["theirs"] == "kept"


async def test_a_shard_that_another_replica_took_is_no_longer_owned(world: World) -> None:
    one = await world.replica()
    await one.reconcile()
    world.leases.assign(2, "a person")
    assert await one.reconcile() == owning(0, 1, 3)
    assert one.fleet.handed_over == [], "there is nothing to hand over"


async def test_a_shard_lost_during_its_handover_can_be_handed_over_again(world: World) -> None:
    """And not before the current requests have ended."""
    first = await world.replica()
    await first.reconcile()
    await world.replica()
    first.fleet.hang(2, 3)
    await first.reconcile()
    world.leases.assign(3, "a person")
    assert await first.reconcile() == SomeShards(COUNT, frozenset({0, 1}), frozenset({2}))
    world.leases.assign(3, first.identity)
    assert await first.reconcile() == SomeShards(COUNT, frozenset({0, 1, 3}), frozenset({2}))
    first.fleet.finish(3)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await first.reconcile() == SomeShards(COUNT, frozenset({0, 1}), frozenset({2, 3}))
    assert sorted(first.fleet.handed_over) == [2, 3, 3]


async def test_the_shards_of_a_released_replica_are_taken_at_once(world: World) -> None:
    first, second = await world.replica(), await world.replica()
    await first.reconcile()
    await second.reconcile()
    theirs = f"lease-shard-{world.leases.owners().index(second.identity)}"
    world.leases.calls.clear()
    await second.shared.release()
    assert world.leases.calls == [f"update {second.shared._division.lease_name}"], "one write for all shards"
    assert await first.reconcile() == owning(0, 1, 2, 3)
    assert second.shared._division.lease_name in world.leases.stored
    await first.reconcile()
    assert second.shared._division.lease_name not in world.leases.stored
    spec = world.leases.stored[theirs]["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == (first.identity, 1)


async def test_a_changed_lease_is_not_removed(world: World) -> None:
    first, second = await world.replica(), await world.replica()
    await second.shared.release()
    name = second.shared._division.lease_name
    world.leases.fault = lambda verb, _: Conflict("it is another", status=409) if verb == "delete" else None
    await first.reconcile()
    assert name in world.leases.stored


async def test_after_a_stall_it_writes_nothing(world: World) -> None:
    """Its own Lease has expired, so others may have taken its shards."""
    one = await world.replica()
    world.clock.pass_by(10)
    assert await one.reconcile() == owning()
    assert {call.partition(" ")[0] for call in world.leases.calls} == {"get", "create", "list"}
    assert world.leases.owners() == []


async def test_after_stop_no_shard_is_taken_or_handed_over(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    one = await world.replica()
    one.stop.set()
    world.leases.calls.clear()
    event_history = asyncio.create_task(one.shared._reconcile_forever(one.caches, one.fleet))
    for _ in range(5):
        one.shared._reconcile_soon.set()
        await asyncio.sleep(0)
    event_history.cancel()
    assert world.leases.calls == []


async def test_failures_are_retried_and_logged_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    one = await world.replica()
    world.leases.fault = lambda verb, name: Forbidden("no list", status=403) if verb == "list" else None
    event_history = asyncio.create_task(one.shared._reconcile_forever(one.caches, one.fleet))
    for _ in range(10):
        one.shared._reconcile_soon.set()
        await asyncio.sleep(0)
    assert world.leases.calls.count("list") > 1
    world.leases.fault = nothing_fails
    await one.until(owning(0, 1, 2, 3))
    event_history.cancel()
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == ["cannot share shards with other replicas"]


async def test_malformed_leases_are_logged_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    one = await world.replica()
    labels = {"labels": {SHARDS_OF_LABEL: "lease"}}
    world.leases._store("", {"metadata": {"name": "lease-shard-99999", **labels}, "spec": {}})
    for _ in range(3):
        assert await one.reconcile() == owning(0, 1, 2, 3)
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [vars(record)["detail"] for record in warnings] == ["lease-shard-99999"]


async def test_a_replica_with_another_number_of_shards_stands_by(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    old = await world.replica(8)
    await old.reconcile()
    new = await world.replica()
    for _ in range(3):
        assert await new.reconcile() == owning()
    assert new.shared.standing() == Disagreeing(8)
    [warning] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert vars(warning)["detail"] == "the replica that came first runs with --shards 8, this one with 4"
    await old.shared.release()
    assert await new.reconcile() == owning(0, 1, 2, 3)
    await new.reconcile()
    assert set(world.leases.owners()) == {new.identity}, "the Leases of shards that no longer exist are gone"


async def test_it_ends_when_its_own_lease_is_lost(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    one = One(world.leases, world.clock)
    monkeypatch.setattr(one.shared._membership, "_pause", lambda: 0.0)
    sharing = asyncio.create_task(one.shared.share(one.caches, one.fleet))
    await one.until(owning(0, 1, 2, 3))
    assert one.sample("shards") == COUNT
    world.clock.pass_by(11)
    with pytest.raises(LeadershipLost, match="could not be renewed within 10 seconds"):
        async with asyncio.timeout(5):
            await sharing
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "shards"]


async def test_what_it_was_handing_over_ends_with_it(world: World) -> None:
    one = One(world.leases, world.clock)
    one.fleet.hang(2, 3)
    sharing = asyncio.create_task(one.shared.share(one.caches, one.fleet))
    await one.until(owning(0, 1, 2, 3))
    await world.replica()
    await one.until(SomeShards(COUNT, frozenset({0, 1}), frozenset({2, 3})))
    await asyncio.sleep(0)
    assert sorted(one.fleet.handed_over) == [2, 3]
    sharing.cancel()
    await asyncio.gather(sharing, return_exceptions=True)
    assert not [task for task in asyncio.all_tasks() if "shard" in task.get_name()]
