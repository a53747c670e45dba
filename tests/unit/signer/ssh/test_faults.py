"""A controller that ends at any of its calls, or misses an answer; and two controllers at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

import pytest

from signer.kube.errors import Cause, Unreachable
from signer.model.seal import ControllerKeys
from tests.unit.signer.rotation.memory_api import Call, Interfere, Moment
from tests.unit.signer.ssh.world import HOST, USER, Process, World, new_line, run

BREAK_GLASS: Final = {"breakGlass": {"publicKeys": [{"key": new_line()}]}}


class Killed(BaseException):
    """The process ends here."""


class At(Interfere):
    """At one call, the process is killed, or the answer gets lost."""

    def __init__(self, number: int, moment: Moment, *, kill: bool) -> None:
        self.number, self.moment, self.kill = number, moment, kill
        self.seen = 0
        self.numbers_of_writes: list[int] = []

    @property
    def writes(self) -> int:
        """How many of the calls were writes."""
        return len(self.numbers_of_writes)

    async def __call__(self, call: Call, moment: Moment) -> None:
        if moment is not self.moment:
            return
        self.seen += 1
        if call.writes:
            self.numbers_of_writes.append(self.seen)
        if self.seen == self.number:
            raise Killed if self.kill else Unreachable("lost", cause=Cause.NETWORK)


async def whole_life(world: World, process: Process) -> None:
    """Make, change trust, rotate the controller key."""
    await ends_available(process)
    world.choose(BREAK_GLASS)
    await ends_available(process)
    world.set_keys(ControllerKeys(b"n" * 32, ControllerKeys(bytes(range(32))).current))
    await process.read_key()
    await ends_available(process)


async def ends_available(process: Process) -> None:
    for _ in range(4):
        if (await process.until_it_waits()).startswith("Available: "):
            return
    raise AssertionError(process.shown())


def require_one_authority_each(world: World) -> None:
    """Whatever happened: each Secret had one pair for ever, and the recorded version only grew."""
    for path in (USER, HOST):
        assert len(world.keys_ever(path)) == 1, path
    versions = [
        int(one["metadata"]["annotations"].get("attestation.cluster.x-k8s.io/ssh-trust-version", 0))
        for one in world.api.objects.contents[USER]
    ]
    assert versions == sorted(versions)


def calls_of_a_life(moment: Moment) -> At:
    async def scenario() -> At:
        world, counting = World(ssh={}), At(0, moment, kill=False)
        await whole_life(world, await Process.started(world, counting))
        return counting

    return run(scenario())


COUNTED: Final = {moment: calls_of_a_life(moment) for moment in Moment}


def test_how_many_writes_there_are() -> None:
    """Host, user, trust; trust; two seals."""
    assert {one.writes for one in COUNTED.values()} == {6}


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "lost"])
@pytest.mark.parametrize(
    ("moment", "number"),
    [(moment, number) for moment, counted in COUNTED.items() for number in range(1, counted.seen + 1)],
)
def test_at_every_call(number: int, moment: Moment, kill: bool) -> None:
    async def scenario() -> None:
        world, fault = World(ssh={}), At(number, moment, kill=kill)
        process = await Process.started(world, fault)
        try:
            await whole_life(world, process)
        except Killed:
            process.stop()
            process = await Process.started(world)
            await whole_life(world, process)
        assert fault.seen >= number, "the fault happened"
        require_one_authority_each(world)
        assert world.public_key(USER) in str(process.reconciler.status)

    run(scenario())


class Interleaved(Interfere):
    """Gives way at random before and after each call."""

    def __init__(self, random: Random) -> None:
        self.random = random

    async def __call__(self, call: Call, moment: Moment) -> None:
        for _ in range(self.random.randrange(4)):
            await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(50))
def test_two_controllers_at_once(seed: int) -> None:
    """They end with the same authorities, and neither replaces what the other made."""

    async def scenario() -> None:
        world, random = World(ssh={}), Random(seed)
        processes = [await Process.started(world, Interleaved(random)) for _ in range(2)]

        async def together(act: Callable[[Process], Awaitable[None]]) -> None:
            await asyncio.gather(*map(act, processes))

        await together(ends_available)
        world.choose(BREAK_GLASS)
        await together(ends_available)
        world.set_keys(ControllerKeys(b"n" * 32, world.keys.current))
        for one in processes:
            await one.read_key()
        await together(ends_available)
        await together(ends_available)
        require_one_authority_each(world)
        first, second = (one.available() for one in processes)
        assert (first.user.public_key, first.host.public_key, first.trust.version) == (
            second.user.public_key,
            second.host.public_key,
            second.trust.version,
        )

    run(scenario())
