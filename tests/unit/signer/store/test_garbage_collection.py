"""Garbage collection: missing objects are restored, expired ones deleted, and needed ones never touched."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from random import Random
from typing import Any, Final

import pytest

from signer.kube.clocks import ClocksAgree, ClocksDiffer
from signer.kube.errors import ApiError, ResourceNotServed, ServerError
from signer.kube.resources import ATTESTED_NODES, CLUSTERS_V1BETA2, IDENTITY_RESERVATIONS, SECRETS
from signer.model.floors import NO_FLOORS
from signer.model.reservation import CONTESTED_ANNOTATION, Pair, ReservationSide
from signer.model.shard import SomeShards
from signer.store import garbage_collection as upkeep_module
from signer.store.authentic_records import KeysUnavailable
from signer.store.caches import Caches
from signer.store.controller_key import SECRET_NAME, controller_key_secret
from signer.store.garbage_collection import Done, GarbageCollector
from signer.store.reservation_rebuild import ReservationRebuild, pair_of
from signer.store.reservations import Reservations
from tests.support.reservations import ATTESTED, reservation_spec
from tests.unit.signer.builders import NOW
from tests.unit.signer.store.garbage_collection_fixtures import LATER, OWN, VERSION, World, names, pair_for
from tests.unit.signer.store.test_authentic_records import KEYS, OTHER, manifest


@pytest.fixture
def world() -> World:
    return World()


async def test_a_consistent_state_costs_no_call(world: World) -> None:
    world.machine("m1")
    world.record()
    world.reserve(pair_for())
    assert await world.garbage_collector.round() == Done()
    assert (world.api.reads, world.api.writes) == (0, [])


async def test_many_reservations_are_handled_in_slices(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Computing a hundred thousand digests at once would block all clusters for a quarter of a second."""
    hashed: list[Pair] = []

    def noted(pair: Pair) -> int:
        hashed.append(pair)
        return 0

    monkeypatch.setattr(Pair, "__hash__", noted)
    for number in range(3):
        world.machine(f"m{number}")
        world.reserve(pair_for(f"m{number}", f"i{number}"))
    assert await world.garbage_collector.round() == Done()
    assert hashed == []


# Reserving again


async def test_missing_reservations_of_authentic_records_are_restored(world: World) -> None:
    for name, identity in (("m1", "a"), ("m2", "b")):
        world.machine(name)
        world.record(name, identity)
    world.reserve(pair_for("m2", "b"), ReservationSide.MACHINE)
    assert await world.garbage_collector.round() == Done(reserved=2)
    assert world.reserved() == names(pair_for("m1", "a"), pair_for("m2", "b"))
    assert await world.garbage_collector.round() == Done()


async def test_a_forged_record_reserves_nothing(world: World) -> None:
    world.machine("m1")
    made = world.record()
    path = ATTESTED_NODES.object(made.name, "team-a")
    found = world.api.objects[path]
    world.caches.records.applied(world.api.put(path, {**found, "spec": {**found["spec"], "identity": "forged"}}))
    assert await world.garbage_collector.round() == Done()
    assert world.reserved() == set()


async def test_a_record_whose_machine_is_gone_costs_no_call_while_it_blocks_the_name(world: World) -> None:
    world.record()
    assert await world.garbage_collector.round() == Done()
    assert (world.api.reads, world.api.writes) == (0, [])


async def test_reservations_of_others_are_kept(world: World) -> None:
    world.machine("m1")
    world.machine("m2")
    world.record("m1", "a")
    world.reserve(pair_for("m2", "a"))
    world.record("m2", "a")
    assert (await world.garbage_collector.round()).reserved == 0
    assert world.reserved() == names(pair_for("m2", "a"))


PAUSES: Final[dict[str, dict[str, Any]]] = {
    "paused": {"spec": {"paused": True}},
    "paused by annotation": {"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}},
    "deleting": {"metadata": {"deletionTimestamp": "2026-03-01T12:00:00Z"}},
}


@pytest.mark.parametrize("name", PAUSES)
async def test_a_paused_cluster_is_left_alone(world: World, name: str) -> None:
    world.cluster(**PAUSES[name])
    world.machine("m1")
    world.record("m1", "a")  # lacks its reservations
    world.record("m2", "b")  # has expired, and its Machine is gone
    world.reserve(pair_for("m3", "c"))  # without an owner
    world.now = LATER
    assert await world.garbage_collector.round() == Done()
    assert world.api.writes == []


@pytest.mark.parametrize("name", PAUSES)
async def test_a_pause_that_is_not_cached_yet(world: World, name: str) -> None:
    """``clusterctl move`` pauses the Cluster, then deletes its Machines; watches may deliver that in another order."""
    world.record("m2", "b")
    world.reserve(pair_for("m3", "c"))
    world.cluster(cached=False, **PAUSES[name])
    world.now = LATER
    assert await world.garbage_collector.round() == Done()
    assert world.api.writes == []


# Deleting records


async def test_a_record_is_deleted_when_its_machine_is_gone_and_its_last_certificate_expired(world: World) -> None:
    made = world.record()
    world.reserve(pair_for())
    world.now = made.held_until - timedelta(seconds=1)
    assert await world.garbage_collector.round() == Done()
    assert world.recorded() == {made.name}
    world.now = made.held_until
    assert await world.garbage_collector.round() == Done(deleted=1, released=1)
    assert world.recorded() == world.reserved() == set()
    assert world.caches.authentic.values() == ()


async def test_a_record_stays_while_its_machine_exists(world: World) -> None:
    world.machine("m1")
    world.record()
    world.reserve(pair_for())
    world.now = LATER
    assert await world.garbage_collector.round() == Done()


async def test_the_api_server_says_whether_the_machine_is_gone(world: World) -> None:
    world.machine("m1", cached=False)
    world.record()
    world.reserve(pair_for())
    world.now = LATER
    assert await world.garbage_collector.round() == Done()
    assert world.api.writes == []


@pytest.mark.parametrize("asked", ["machines/m1", "clusters/"])
async def test_an_api_server_that_has_just_started_makes_nothing_count_as_gone(world: World, asked: str) -> None:
    """Until it has read the definitions, the path of every custom resource is unknown to it."""
    if asked == "machines/m1":
        world.machine("m1", cached=False)
    world.record()
    world.reserve(pair_for())
    world.now = LATER

    def starting(method: str, path: str) -> None:
        if method == "get" and asked in path:
            raise ResourceNotServed("404 page not found", status=404)

    world.api.before = starting
    assert await world.garbage_collector.round() != Done()
    assert world.api.writes == []


async def test_a_record_without_its_cluster_is_left_to_kubernetes_garbage_collection(world: World) -> None:
    made = world.record()
    world.reserve(pair_for())
    world.no_cluster()
    world.now = LATER
    assert await world.garbage_collector.round() == Done()
    assert world.recorded() == {made.name}


async def test_a_record_that_is_written_meanwhile_stays(world: World) -> None:
    made = world.record()
    world.reserve(pair_for())
    world.now = LATER

    def joins(method: str, path: str) -> None:
        if method == "delete" and "/attestednodes/" in path:
            world.api.put(path, world.api.objects[path])

    world.api.before = joins
    assert await world.garbage_collector.round() == Done()
    assert world.recorded() == {made.name}
    assert world.reserved() == names(pair_for())


async def test_an_unauthentic_record_is_not_touched(world: World) -> None:
    """Any client may have written its expiry; it reserves nothing, and is deleted with its Cluster."""
    made = world.record()
    path = ATTESTED_NODES.object(made.name, "team-a")
    found = world.api.objects[path]
    world.caches.records.applied(world.api.put(path, {**found, "spec": {**found["spec"], "seal": "v1.x.y"}}))
    world.now = LATER
    assert await world.garbage_collector.round() == Done()
    assert world.recorded() == {made.name}


# Releasing reservations


@pytest.mark.parametrize("sides", [(), (ReservationSide.MACHINE,), (ReservationSide.IDENTITY,)])
async def test_reservations_of_a_gone_machine_without_a_record_are_released(
    world: World, sides: tuple[ReservationSide, ...]
) -> None:
    world.reserve(pair_for(), *sides)
    assert await world.garbage_collector.round() == Done(released=1)
    assert world.reserved() == set()


async def test_reservations_stay_while_a_record_names_them(world: World) -> None:
    world.record()
    world.reserve(pair_for())
    assert await world.garbage_collector.round() == Done()
    assert world.reserved() == names(pair_for())


async def test_reservations_of_an_attested_node_that_has_no_record_yet_stay(world: World) -> None:
    world.machine("m1")
    world.reserve(pair_for())
    assert await world.garbage_collector.round() == Done()
    assert world.reserved() == names(pair_for())


async def test_reservations_of_a_deleted_cluster_are_released(world: World) -> None:
    world.reserve(pair_for())
    world.no_cluster()
    assert await world.garbage_collector.round() == Done(released=1)


async def test_reservations_of_a_namespace_that_is_not_watched_stay(world: World) -> None:
    """Its Machines and records are not cached here."""
    world.caches._watch_namespace = "team-b"
    world.reserve(pair_for())
    assert await world.garbage_collector.round() == Done()


async def test_objects_of_another_replicas_shard_are_skipped(world: World) -> None:
    lacking = ("m1", "a")
    world.machine(lacking[0])
    world.record(*lacking)
    gone = world.record("m2", "b")
    world.reserve(pair_for("m3", "c"))
    world.now = gone.held_until
    world.caches.set_shards(SomeShards(1))
    assert await world.garbage_collector.round() == Done()
    assert (world.api.reads, world.api.writes) == (0, [])
    world.caches.set_shards(SomeShards(1, frozenset({0})))
    assert await world.garbage_collector.round() == Done(reserved=1, deleted=1, released=1)


async def test_a_record_that_appears_during_the_live_read_keeps_its_pair(world: World) -> None:
    world.reserve(pair_for())

    def recorded(method: str, path: str) -> None:
        if path == CLUSTERS_V1BETA2.object("prod", "team-a"):
            world.record()

    world.api.before = recorded
    assert await world.garbage_collector.round() == Done()
    assert world.reserved() == names(pair_for())


async def test_a_machine_created_again_before_deletion_keeps_its_pair(world: World) -> None:
    world.reserve(pair_for())

    def back(method: str, path: str) -> None:
        if method == "patch":
            world.machine("m1")

    world.api.before = back
    await world.garbage_collector.round()
    assert world.reserved() == names(pair_for())
    await world.reservations.reserve(pair_for(), world.caches.authentic.get("team-a", "prod.node-m1"), ATTESTED)
    marks = [
        found["metadata"].get("annotations", {}).get(CONTESTED_ANNOTATION)
        for path, found in world.api.objects.items()
        if path.startswith(IDENTITY_RESERVATIONS.collection(OWN))
    ]
    assert marks == [None, None], "its owner took the marks off"


# Bounds and faults


async def test_work_of_one_round_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep_module, "OBJECTS_PER_ROUND", 3)
    for number in range(7):
        world.reserve(pair_for(f"m{number}", f"i{number}"))
    rounds = [(await world.garbage_collector.round()).released for _ in range(4)]
    assert rounds == [3, 3, 1, 0]


async def test_nothing_is_done_without_the_controller_key(world: World) -> None:
    world.reserve(pair_for())
    world.caches.authentic.use_no_keys(KeysUnavailable("no key"))
    assert await world.garbage_collector.round() == Done(failed=3)
    assert (world.api.reads, world.api.writes) == (0, [])


async def test_no_record_has_expired_by_a_wrong_clock(world: World) -> None:
    world.record()
    world.now += timedelta(days=3000)
    world.clocks.said = ClocksDiffer("three thousand days", NOW)
    assert (await world.garbage_collector.round()).deleted == 0
    world.clocks.said = ClocksAgree()
    assert (await world.garbage_collector.round()).deleted == 1


async def test_nothing_is_done_out_of_touch(world: World) -> None:
    at = 0.0
    world.caches = Caches(VERSION, own_namespace=OWN, monotonic=lambda: at, floors=NO_FLOORS)
    world.caches.authentic.use_keys(KEYS)
    reservations = Reservations(world.api, world.caches)
    rebuild = ReservationRebuild(world.caches, reservations)
    garbage_collector = GarbageCollector(
        world.api, world.caches, reservations, rebuild, now=lambda: NOW, clocks=world.clocks
    )
    world.reserve(pair_for())
    world.caches.machines.failed(ServerError("etcd", status=500), 1.0)
    at = 1000.0
    assert await garbage_collector.round() == Done(failed=3)
    assert world.api.reads == 0


async def test_a_fault_ends_one_step_and_not_the_next(world: World) -> None:
    world.machine("m1")
    world.record()
    world.reserve(pair_for("m2", "b"))

    def fault(method: str, path: str) -> None:
        if method == "create":
            raise ServerError("etcd", status=500)

    world.api.before = fault
    assert await world.garbage_collector.round() == Done(released=1, failed=1)


async def test_one_object_that_cannot_be_verified_does_not_stop_the_others(world: World) -> None:
    world.machine("m1")
    world.machine("m2")
    world.record("m1", "a")
    world.record("m2", "b")
    secret = SECRETS.object(SECRET_NAME, OWN)
    world.api.put(secret, controller_key_secret(OWN, KEYS))
    assert await world.caches.controller_key.refresh(world.api)
    path = IDENTITY_RESERVATIONS.object(pair_for("m1", "a").name(ReservationSide.MACHINE), OWN)
    spec = reservation_spec(ReservationSide.MACHINE, pair_for("m1", "a"), keys=OTHER)
    world.api.put(path, {"metadata": {"namespace": OWN, "name": path.rpartition("/")[2]}, "spec": spec})

    def fault(method: str, called: str) -> None:
        if called == secret:
            raise ServerError("etcd", status=500)

    world.api.before = fault
    assert await world.garbage_collector.round() == Done(reserved=1, failed=1)


async def test_a_record_under_an_unknown_key_does_not_stop_the_release_of_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer of AttestedNodes of one namespace, whose Machine is gone, stops nothing for other Machines."""
    monkeypatch.setattr(upkeep_module, "_RANDOM", Random(0))
    monkeypatch.setattr(upkeep_module._RANDOM, "randrange", lambda end: 0)
    made = world.record("m1", "a")
    path = ATTESTED_NODES.object(made.name, "team-a")
    world.caches.records.applied(world.api.put(path, manifest(made, keys=OTHER)))
    for name, identity in (("m1", "a"), ("m2", "b"), ("m3", "c")):
        world.reserve(pair_for(name, identity))
    assert await world.garbage_collector.round() == Done(released=2)
    assert world.reserved() == names(pair_for("m1", "a"))


async def test_it_goes_on_round_after_round(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep_module, "ROUND_SECONDS", 0.001)
    errors: list[ApiError] = [ServerError("etcd", status=500)]
    done = asyncio.Event()

    def fault_once(method: str, path: str) -> None:
        if errors:
            raise errors.pop()
        if method == "delete":
            done.set()

    world.api.before = fault_once
    world.reserve(pair_for())
    for cache in world.caches.watched():
        cache.filled.set()
    world.caches.controller_key.attempted.set()
    running = asyncio.create_task(world.garbage_collector.run())
    await asyncio.wait_for(done.wait(), 10)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert not errors


def test_pairs_of_records() -> None:
    world = World()
    assert pair_of(world.record()) == pair_for()
