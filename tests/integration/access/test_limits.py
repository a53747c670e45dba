"""A namespace with more access grants, approvals or bastions than the operator's limit: nobody keeps access by it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest

from signer.model.access.grant import FINALIZER
from signer.model.namespace_limits import DEFAULT_NAMESPACE_LIMITS
from signer.store.authentic_records import KeysUnavailable
from signer.store.retention import Owed
from tests.integration.access.test_grants import issued
from tests.integration.access.world import BASTION, BOB, CAROL, NAMESPACE, Process, World, new_world, process
from tests.support.access_objects import ALICE

LIMIT: Final = 3
MINUTE: Final = timedelta(minutes=1)


@pytest.fixture
def world() -> Iterator[World]:
    limits = replace(DEFAULT_NAMESPACE_LIMITS, access_grants=LIMIT, access_approvals=LIMIT, bastions=LIMIT)
    with new_world(World) as made:
        made.limits = limits
        yield made


def flood(world: World, count: int = 2 * LIMIT, prefix: str = "a-flood") -> list[str]:
    """Grants whose names come before all others in a list."""
    names = [f"{prefix}-{number:02}" for number in range(count)]
    for name in names:
        world.grant(name)
    return names


def kept(running: Process) -> list[str]:
    return sorted(one.metadata.name for one in running.stores.grants.values())


def access_over(running: Process) -> list[str]:
    return [one.resource for one in running.caches.access_over_limits.of(NAMESPACE)]


async def test_what_was_believed_goes_on_and_nothing_else_is_believed(world: World) -> None:
    async with process(world) as running:
        await issued(world, running)
        names = flood(world)
        await running.settle()
        assert kept(running) == ["repair"]
        assert not any("status" in world.found(name) for name in names)
        assert access_over(running) == ["accessgrants"]
        running.caches.require_current(NAMESPACE)  # nodes do not wait
        world.pass_by(40 * MINUTE)
        world.beat("1")
        world.counts.issues.clear()
        await running.settle()
        assert len(world.counts.issues) == 1, "certificates are renewed"


async def test_a_right_that_is_withdrawn_ends_the_grant(world: World) -> None:
    async with process(world) as running:
        of = await issued(world, running, **BASTION)
        flood(world)
        await running.settle()
        world.withdraw("alice")
        world.pass_by(4 * MINUTE)
        await running.settle()
        assert world.reason() == "RightLost"
        assert world.revoked() == {of}
        assert world.bastions() == []


async def test_a_live_grant_that_is_deleted_ends_with_its_bastion(world: World) -> None:
    async with process(world) as running:
        of = await issued(world, running, **BASTION)
        flood(world)
        await running.settle()
        world.delete()
        await running.settle()
        assert world.found() == {}
        assert world.revoked() == {of}
        assert world.bastions() == []


async def test_no_heartbeat_ends_the_grant(world: World) -> None:
    world.policy({"timeToLive": "10m"})
    async with process(world) as running:
        await issued(world, running, **BASTION)
        flood(world)
        await running.settle()
        world.pass_by(11 * MINUTE)
        await running.settle()
        assert world.reason() == "HeartbeatMissing"
        assert world.bastions() == []


async def test_another_process_keeps_what_was_believed(world: World) -> None:
    """Whatever the order of the list, and however many grants claim a record."""
    async with process(world) as running:
        of = await issued(world, running, **BASTION)
        record = world.status()["record"]
        flood(world)
        for name in flood(world, 2 * LIMIT, "a-forged"):
            world.edit({"status": {"record": record}}, name, "status")
    async with process(world) as running:
        assert "repair" in kept(running)
        assert len(kept(running)) == 1 + LIMIT, "of the forged ones, as many as the limit"
        world.withdraw("alice")
        world.pass_by(4 * MINUTE)
        await running.look((NAMESPACE, "repair"))
        for _ in range(10):
            await running.look((NAMESPACE, "repair"))
            world.bastion_controller()
            await running.in_step()
        assert world.reason() == "RightLost"
        assert of in world.revoked()
        assert world.bastions() == []


async def test_a_namespace_with_one_more_while_no_controller_runs(world: World) -> None:
    async with process(world) as running:
        await issued(world, running)
    names = flood(world)
    async with process(world) as running:
        await running.settle()
        assert kept(running) == ["repair"]
        assert not any("status" in world.found(name) for name in names)


async def test_records_are_verified_once_there_is_a_key(world: World) -> None:
    async with process(world) as running:
        await issued(world, running)
        flood(world)
        await running.settle()
        grants, authentic = running.stores.grants, running.caches.authentic
        stored, owes, seals = grants.get(NAMESPACE, "repair"), grants._retention._owes, authentic._seals
        assert stored is not None
        authentic._seals = KeysUnavailable("not read")
        assert owes.owed(stored) is Owed.CLAIMED
        assert not grants.needs_list()
        authentic._seals = seals
        assert owes.owed(stored) is Owed.PROVEN
        assert grants.needs_list()


async def test_a_record_that_somebody_breaks_is_revoked(world: World) -> None:
    async with process(world) as running:
        of = await issued(world, running)
        flood(world)
        await running.settle()
        world.edit({"status": {"record": {"sequence": 77}}}, subresource="status")
        await running.settle()
        assert world.reason() == "RecordNotAuthentic"
        assert of in world.revoked()


async def test_a_record_that_somebody_takes_away_is_revoked(world: World) -> None:
    async with process(world) as running:
        of = await issued(world, running)
        flood(world)
        await running.settle()
        world.edit({"status": {"record": None}}, subresource="status")
        await running.settle()
        assert world.reason() == "RecordNotAuthentic"
        assert of in world.revoked()


async def test_an_ended_grant_is_dropped_and_does_not_come_back_to_life(world: World) -> None:
    async with process(world) as running:
        await issued(world, running)
        live = world.status()["record"]
        world.edit({"spec": {"suspend": True}})
        await running.settle()
        flood(world)
        await running.settle()
        assert kept(running) == []
        gone = dict.fromkeys(world.status()["record"].keys() - live.keys())
        world.edit({"status": {"record": {**gone, **live}}}, subresource="status")
        await until(lambda: kept(running) == ["repair"])
        await running.settle()
        assert world.reason() == "RecordNotAuthentic"


async def test_what_is_known_of_grants_that_are_gone_is_forgotten(world: World) -> None:
    async with process(world) as running:
        await issued(world, running)
        world.edit({"spec": {"suspend": True}})
        await running.settle()
        uid = world.found()["metadata"]["uid"]
        names = flood(world)
        await running.settle()
        running.reconciler._forget_dropped()
        assert running.reconciler.has_known_record(uid)
        world.delete()
        await until(lambda: kept(running) == ["repair"])
        await running.settle()
        assert world.found() == {}
        for name in names:
            world.delete(name)
        await until(lambda: not access_over(running))
        running.reconciler._forget_dropped()
        assert not running.reconciler.has_known_record(uid)


async def test_enough_deletions_end_it(world: World) -> None:
    async with process(world) as running:
        await issued(world, running)
        names = flood(world)
        await running.settle()
        for name in names[1:]:
            world.delete(name)
        await until(lambda: not access_over(running))
        await running.settle()
        assert world.reason(name=names[0]) == "CertificatesIssued"
        assert access_over(running) == []


async def test_deleted_grants_that_wait_for_the_finalizer_go(world: World) -> None:
    """Otherwise they would keep the namespace over its limit for ever."""
    async with process(world) as running:
        await issued(world, running)
        names = flood(world, 4 * LIMIT)
        await running.settle()
        for name in names:
            world.edit({"metadata": {"finalizers": [FINALIZER]}}, name)
            world.delete(name)
        for _ in range(20):
            await running.settle()
            if len(world.grants()) == 1:
                break
            world.pass_by(10 * MINUTE)
            world.beat(str(world.now))
            if running.stores.grants.needs_list():
                await relisted(running)
        assert [one["metadata"]["name"] for one in world.grants()] == ["repair"]


async def test_too_many_approvals_stop_certificates(world: World) -> None:
    """Somebody may deny the grant, also one that needs no approval."""
    world.allow("bob", "carol", verbs=("approve",))
    async with process(world) as running:
        await issued(world, running)
        grant = world.found()
        for number in range(2 * LIMIT):
            world.approve(f"flood-{number}", ALICE, grant)
        await running.settle()
        assert access_over(running) == ["accessapprovals"]
        assert world.reason("Approved") == "ApprovalsUnknown"
        world.approve("no", CAROL, grant, decision="Deny")
        world.pass_by(40 * MINUTE)
        world.beat("1")
        world.counts.issues.clear()
        await running.settle()
        assert world.counts.issues == [], "nothing is renewed"
        for number in range(2 * LIMIT):
            world.api.delete("accessapprovals", f"flood-{number}", NAMESPACE)
        await until(lambda: not access_over(running))
        await running.settle()
        assert world.reason() == "DeniedByApprover"


async def test_sealed_approvals_stay_sealed_while_there_are_too_many(world: World) -> None:
    world.policy({"approvals": 1})
    world.allow("bob", verbs=("approve",))
    async with process(world) as running:
        grant = world.grant()
        world.approve("yes", BOB, grant)
        await running.settle()
        assert world.reason() == "CertificatesIssued"
        sealed = world.status()["record"]["approvals"]
        for number in range(2 * LIMIT):
            world.approve(f"flood-{number}", ALICE, grant)
        await running.settle()
        assert world.status()["record"]["approvals"] == sealed != []


async def test_a_bastion_that_is_not_kept_is_not_absent(world: World) -> None:
    async with process(world) as running:
        await issued(world, running, **BASTION)
        [bastion] = world.bastions()
        for number in range(2 * LIMIT):
            metadata = {"name": f"other-{number}", "namespace": NAMESPACE, "finalizers": ["example.com/never-made"]}
            world.api.create({**bastion, "metadata": metadata})
        await running.in_step()
        assert access_over(running) == ["bastions"]
        assert len(running.stores.bastions) == 0
        world.pass_by(40 * MINUTE)
        world.beat("1")
        world.counts.issues.clear()
        await running.settle()
        assert len(world.counts.issues) == 2, "the grant goes on"
        world.delete()
        await running.settle()
        assert "repair" not in {one["metadata"]["name"] for one in world.bastions()}
        assert world.found() == {}


async def until(what: Callable[[], bool]) -> None:
    """The watch tells of it, or lists again by itself."""
    for _ in range(400):
        if what():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never becomes so")


async def relisted(running: Process) -> None:
    """The cache lists the grants again."""
    grants = running.stores.grants
    grants.list_begins()
    found = [one for one in running.world.grants() if grants.parse_list_item(one)]
    grants.replaced(found)
