"""When a Cluster's objects are read, and when the condition is there."""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from typing import Any, cast

import pytest

from signer.configuration import SSHPermission
from signer.kube.errors import Forbidden
from signer.ssh.ways_in import watch
from signer.ssh.ways_in.watch import WaysInWatch
from tests.unit.signer.ssh.ways_in.management import KEY as OTHER_KEY
from tests.unit.signer.ssh.ways_in.management import Management
from tests.unit.signer.ssh.world import ANYWHERE, CLUSTER, KEY, Process, World


class Watched:
    """A watch over a management cluster, with the caches of a process."""

    def __init__(self, process: Process, permission: SSHPermission = ANYWHERE) -> None:
        assert KEY == OTHER_KEY
        self.management = Management()
        self.changes = 0
        self.changed = asyncio.Event()
        self.watch = WaysInWatch(
            KEY,
            management=cast("Any", self.management),
            caches=process.caches,
            permission=permission,
            changed=self._changed,
            random=Random(0),
        )

    def _changed(self) -> None:
        self.changes += 1
        self.changed.set()

    @property
    def shown(self) -> list[tuple[bool | None, str]]:
        return [(one.met, one.reason) for one in self.watch.conditions]

    @property
    def passes(self) -> int:
        return sum(path.endswith(f"clusters/{KEY.name}") for path in self.management.asked)


async def test_it_says_what_is_declared_and_when_it_is_closed() -> None:
    world = World(ssh={})
    one = Watched(await Process.started(world))
    assert one.shown == []
    one.management.put("KubeadmConfig", "c", {"users": [{"sshAuthorizedKeys": ["k"]}]})
    configuration = {"configRef": {"apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "KubeadmConfig", "name": "c"}}
    machine = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "DockerMachine", "name": "m"}
    one.management.put("Machine", "m", {"infrastructureRef": machine, "bootstrap": configuration})
    assert await one.watch.look() == watch.LOOK_SECONDS
    assert (one.shown, one.changes) == ([(False, "Declared")], 1)
    await one.watch.look()
    assert one.changes == 1
    one.management.put("KubeadmConfig", "c", {})
    await one.watch.look()
    assert (one.shown, one.changes) == ([(True, "NoneDeclared")], 2)
    one.management.refuse("Cluster", KEY.name, Forbidden("may not", status=403))
    await one.watch.look()
    assert one.shown == [(None, "NotKnown")]
    world.choose(None)
    assert one.shown == []
    assert await one.watch.look() == watch.IDLE_SECONDS
    assert one.shown == []


@pytest.mark.parametrize("case", ["off", "not allowed", "deleting", "gone"])
async def test_nothing_is_read(case: str) -> None:
    world = World(ssh=None if case == "off" else {})
    one = Watched(
        await Process.started(world), SSHPermission(frozenset({"elsewhere"})) if case == "not allowed" else ANYWHERE
    )
    if case == "deleting":
        world.api.edit(CLUSTER, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    elif case == "gone":
        world.api.remove(CLUSTER)
    await one.watch.look()
    assert (one.shown, one.management.asked) == ([], [])


async def test_a_tenant_cannot_have_everything_listed_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise asyncio.CancelledError
        one.watch.wake()

    monkeypatch.setattr("signer.ssh.ways_in.watch.asyncio.sleep", sleep)
    one = Watched(await Process.started(World(ssh={})))
    with contextlib.suppress(asyncio.CancelledError):
        await one.watch.run()
    assert (pauses, one.passes) == ([watch.LEAST_SECONDS] * 3, 3)


async def test_a_change_is_seen_at_once_while_nothing_is_read() -> None:
    world = World()
    one = Watched(await Process.started(world))
    running = asyncio.create_task(one.watch.run())
    await asyncio.sleep(0)
    assert one.shown == []
    world.choose({})
    one.watch.wake()
    async with asyncio.timeout(10):
        await one.changed.wait()
    assert one.shown == [(True, "NoneDeclared")], "the Cluster has no Machines"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
