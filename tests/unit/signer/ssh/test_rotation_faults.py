"""A rotation whose controller ends at any of its calls, or misses an answer; and two controllers at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final

import pytest

from attestors.wire.ssh.keys import PublicKey
from signer.ssh.available import AvailableAuthorities
from signer.ssh.secrets import TRUST_VERSION_ANNOTATION
from tests.unit.signer.rotation.memory_api import Moment
from tests.unit.signer.ssh.test_faults import At, Interleaved, Killed
from tests.unit.signer.ssh.world import HOST, USER, Fleet, Process, World, order, ordered, run

Life = list[tuple[str, str]]
"""Orders, and the phase of both authorities at which each ends."""
FORWARD: Final[Life] = [("start-ssh-ca-rotation", "Prepared"), ("complete-ssh-ca-rotation", "Completed")]
BACK: Final[Life] = [
    ("start-ssh-ca-rotation", "Prepared"),
    ("rollback-ssh-ca-rotation", "RolledBack"),
]
REVOKED: Final[Life] = [("revoke-ssh-user-ca", "Completed")]
LIVES: Final = {"forward": FORWARD, "back": BACK, "revoked": REVOKED}


class Watching(Fleet):
    """Looks at each moment whether nodes trust what signs."""

    revoked = False

    def __init__(self, process: Process, *names: str) -> None:
        super().__init__(process, *names)
        self.ordered: list[str] = []
        """What the person has ordered, whatever became of the controller."""

    def attest(self) -> None:
        super().attest()
        self.look()

    def look(self) -> None:
        """The user authority that signs is one that every node trusts, except after its former one leaked."""
        found = self.process.of()
        if isinstance(found, AvailableAuthorities):
            assert found.user.public_key in found.trust.user_authorities
            assert found.host.public_key in found.trust.host_authorities
            for name, trust in self.trusts.items():
                assert self.revoked or found.user.public_key in trust.user_authorities, name


async def phase_of(process: Process) -> str:
    return str(process.reconciler.status.get("rotation", {}).get("phase", ""))


async def live(world: World, process: Process, fleet: Watching, life: Life) -> None:
    """Give the orders one by one, as a person does who looks at the phase first. It may begin anywhere."""
    fleet.process = process
    await settled(process)
    fleet.attest()
    await settled(process)
    fleet.attest()
    for operation, phase in life[max(0, len(fleet.ordered) - 1) :]:
        fleet.revoked = "revoke" in operation
        if operation not in fleet.ordered:
            fleet.ordered.append(operation)
            order(world, operation)
        for _ in range(12):
            await settled(process)
            fleet.attest()
            world.wait(0.1)
            if not ordered(world) and await phase_of(process) == phase:
                break
        else:
            raise AssertionError((await phase_of(process), process.shown(), process.errors))


async def settled(process: Process) -> None:
    """Until it waits, and its caches have seen the last write."""
    for _ in range(4):
        if (await process.until_it_waits()).startswith("Available: "):
            return
    raise AssertionError(process.shown())


def require_bounds(world: World, life: Life) -> None:
    """Whatever happened: at most one new authority for each, versions only grew, and one key is left."""
    for path in (USER, HOST):
        contents = world.api.objects.contents[path]
        keys = {value for one in contents for name, value in one["data"].items() if name.endswith("ssh-publickey")}
        assert len(keys) == (2 if life is not REVOKED or path == USER else 1), path
        assert set(world.found(path)["data"]) == {"ssh-privatekey", "ssh-publickey"}
    versions = [
        int(one["metadata"]["annotations"].get(TRUST_VERSION_ANNOTATION, 0)) for one in world.api.objects.contents[USER]
    ]
    assert versions == sorted(versions)


def new_world() -> World:
    return World(ssh={})


async def whole_life(world: World, process: Process, life: Life) -> None:
    await live(world, process, Watching(process, "a", "b"), life)


def calls_of(life: Life, moment: Moment) -> At:
    async def scenario() -> At:
        world, counting = new_world(), At(0, moment, kill=False)
        await whole_life(world, await Process.started(world, counting), life)
        return counting

    return run(scenario())


COUNTED: Final = {(name, moment): calls_of(life, moment) for name, life in LIVES.items() for moment in Moment}
POINTS: Final = [
    (name, moment, number)
    for (name, moment), counted in COUNTED.items()
    for number in range(1, counted.seen + 1)
    if number in counted.numbers_of_writes or number % 7 == 0
]
"""Each write, and every seventh read."""


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "lost"])
@pytest.mark.parametrize(("name", "moment", "number"), POINTS)
def test_at_every_write(name: str, moment: Moment, number: int, kill: bool) -> None:
    life = LIVES[name]

    async def scenario() -> None:
        world, fault = new_world(), At(number, moment, kill=kill)
        process = await Process.started(world, fault)
        fleet = Watching(process, "a", "b")
        try:
            await live(world, process, fleet, life)
        except Killed:
            process.stop()
            process = await Process.started(world)
            await live(world, process, fleet, life)
        assert fault.seen >= number, "the fault happened"
        require_bounds(world, life)

    run(scenario())


def test_how_many_writes_there_are() -> None:
    """Three make the authorities. Forward: two new ones, the order, trust, swap; two by the completion, the order,
    trust; two drops, trust after each, and the end.
    """
    counts = {name: {one.writes for (found, _), one in COUNTED.items() if found == name} for name in LIVES}
    assert counts == {"forward": {3 + 14}, "back": {3 + 12}, "revoked": {3 + 4}}


@pytest.mark.parametrize("seed", range(40))
def test_two_controllers_at_once(seed: int) -> None:
    """Both carry out the same orders, and each is carried out once."""

    async def scenario() -> None:
        world, random = new_world(), Random(seed)
        processes = [await Process.started(world, Interleaved(random)) for _ in range(2)]
        fleet = Watching(processes[0], "a", "b")

        async def together(act: Callable[[Process], Awaitable[Any]]) -> None:
            await asyncio.gather(*map(act, processes))

        for operation, phase in [("", ""), *FORWARD]:
            if operation:
                order(world, operation)
            for _ in range(15):
                await together(settled)
                await together(settled)
                fleet.attest()
                world.wait(0.1)
                if not ordered(world) and await phase_of(processes[0]) == phase:
                    break
            else:
                raise AssertionError((await phase_of(processes[0]), processes[0].shown()))
        await together(settled)
        require_bounds(world, FORWARD)
        keys: list[tuple[PublicKey, ...]] = [
            (one.available().user.public_key, one.available().host.public_key) for one in processes
        ]
        assert keys[0] == keys[1]
        assert processes[0].available().trust == processes[1].available().trust

    run(scenario())
