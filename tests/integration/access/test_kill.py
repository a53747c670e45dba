"""The controller dies between any two writes: no certificate, key id, bastion or object is left behind (test 36)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Final

import pytest

from attestors.wire.ssh.certificate import parse_certificate_line
from signer.audit.access_line import EndLine, IssuanceLine
from tests.integration.access.world import BASTION, Deadline, Killed, World, new_world, process

MINUTE: Final = timedelta(minutes=1)
MOST_WRITES: Final = 40
LONG: Final = bool(os.environ.get("NODE_ATTESTATION_ACCESS"))


async def life(world: World, settle: Callable[[], Awaitable[None]]) -> AsyncIterator[str]:
    """A grant with a bastion: made, kept alive, suspended, unsuspended, deleted. Yields the stages, by their ends."""
    world.begin_now()
    world.grant(**BASTION)
    await settle()
    yield "issued"
    world.pass_by(20 * MINUTE)
    world.beat("1")
    await settle()
    yield "kept alive"
    world.edit({"spec": {"suspend": True}})
    await settle()
    yield "suspended"
    world.edit({"spec": {"suspend": False}})
    await settle()
    yield "issued again"
    world.delete()
    await settle()
    yield "deleted"


class Restarting:
    """Processes one after the other, each of which makes at most so many writes; the last one lives."""

    def __init__(self, world: World, deadline: Deadline) -> None:
        self.world = world
        self.deadlines = [deadline]
        self.deaths = 0

    async def settle(self) -> None:
        while True:
            deadline = self.deadlines[-1]
            try:
                async with process(self.world, deadline) as running:
                    await running.settle()
                return
            except Killed:
                self.deaths += 1
                self.deadlines.append(Deadline())


async def scenario(world: World, deadline: Deadline) -> Restarting:
    restarting = Restarting(world, deadline)
    seen: set[str] = set()
    async for stage in life(world, restarting.settle):
        lines = [one["certificate"] for one in world.status().get("certificates") or []]
        seen.update(str(parse_certificate_line(line).certificate.key_id) for line in lines)
        if stage in ("issued", "kept alive", "issued again"):
            assert world.reason() == "CertificatesIssued", (stage, world.status())
            assert len(lines) == 2, stage
            assert len(world.bastions()) == 1, stage
        else:
            assert world.bastions() == [], stage
            assert not lines, stage
            assert seen <= world.revoked(), stage
    assert world.found() == {}
    issued = [line for line in world.audit.access if isinstance(line, IssuanceLine)]
    ended = {line.key_id for line in world.audit.access if isinstance(line, EndLine)}
    assert seen <= ended
    assert len(seen) == 2
    assert issued
    return restarting


async def test_36_without_a_kill() -> None:
    with new_world(World) as world:
        restarting = await scenario(world, Deadline())
        assert restarting.deaths == 0
        assert len(restarting.deadlines[0].made) <= MOST_WRITES


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_36_killed_at_each_write(after: bool) -> None:
    """One world for all kills: each is a life of its own. In CI, each fourth write; ``make access`` takes each."""
    deaths, step = 0, 1 if LONG else 4
    with new_world(World) as world:
        for number in range(int(after), MOST_WRITES, step):
            restarting = await scenario(world, Deadline(number, after=after))
            deaths += restarting.deaths
            if not restarting.deaths:
                break
            world.audit.access.clear()
            for name in [one["metadata"]["name"] for one in world.api.objects("configmaps", "team-a")]:
                world.api.delete("configmaps", name, "team-a")
        else:
            raise AssertionError("more writes than expected")
    assert deaths * step > 15
