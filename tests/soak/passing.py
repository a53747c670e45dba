"""A Cluster that is added and deleted repeatedly under one name, each time with a new API server and CA."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Final

from signer.kube.client import Client
from signer.testing.api import EmbeddedAPI
from signer.testing.world import WorldCluster
from tests.integration.endorsement_key_sources import look, violations
from tests.soak.access import Access
from tests.soak.chaos import Pace
from tests.soak.cluster_objects import create_all, delete_all, objects_of
from tests.soak.crowd import Crowd
from tests.soak.ledger import Ledger
from tests.soak.nodes import HonestNode, Traffic
from tests.soak.proxy import FaultyProxy
from tests.soak.requests import PASSING, post
from tests.soak.weather import CALM, Weather
from tests.soak.world import SoakedCluster, World, open_access, soaked

_NAME: Final = "passing"
_RETURNING: Final = "node-returning"
"""A machine that is reused each time: remains of earlier clusters must not delay it."""
_LEFT_BEHIND: Final = 3
"""Requests posted just before the Cluster is deleted, whose verdicts do not matter."""
_AGAIN_SECONDS: Final = 0.3


@dataclass
class PassingClusters:
    """Adds and deletes Clusters one after another until ``enough`` is set."""

    world: World
    management: Client
    """An administrator's client."""
    ledger: Ledger
    pace: Pace
    seed: int
    nodes_at_once: int
    stall_seconds: float
    enough: asyncio.Event

    async def run(self) -> None:
        """Run. On return, every Cluster is deleted, after all requests of its honest nodes were decided."""
        for number in itertools.count(1):
            chance = Random(f"{self.seed} {_NAME} {number}")
            async with self._opened(number) as (cluster, access), Client(cluster.bootstrap) as bootstrap:
                self.ledger.disruptions["Cluster added"] += 1
                await create_all(self.management, objects_of(access), chance)
                traffic = Traffic(cluster, self.ledger, self.management, bootstrap, asyncio.Event())
                await self._live(traffic, number, chance)
                for violation in await asyncio.to_thread(_violations, cluster.world):
                    self.ledger.found(f"{_NAME} {number}: {violation}")
                self.ledger.disruptions["Cluster deleted"] += 1
                await self._leave_behind(traffic, number)
                await delete_all(self.management, access, partial(self._last, chance), with_dependents=True)
            await self._last(chance)
            if self.enough.is_set():
                return

    @contextlib.asynccontextmanager
    async def _opened(self, number: int) -> AsyncIterator[tuple[SoakedCluster, Access]]:
        """Start a new API server behind its own proxy."""
        api = EmbeddedAPI(seed_kubeadm=True, watch_window=500)
        await asyncio.to_thread(api.__enter__)
        try:
            weather = Weather(Random(f"{self.seed} {_NAME} {number} weather"))
            weather.severity = CALM
            async with FaultyProxy(_NAME, api, weather, self.stall_seconds) as proxy:
                world = WorldCluster(self.world.management, _NAME, self.world.clusters[0].world.namespace, api)
                try:
                    access = await asyncio.to_thread(open_access, world, proxy)
                    yield await asyncio.to_thread(soaked, world, api), access
                finally:
                    await asyncio.to_thread(world.close)
        finally:
            await asyncio.to_thread(api.close)

    async def _live(self, traffic: Traffic, number: int, chance: Random) -> None:
        async with asyncio.TaskGroup() as tasks:
            reinstated = HonestNode(traffic, _RETURNING, chance, may_have_chip=False)
            tasks.create_task(reinstated.live())
            tasks.create_task(Crowd(traffic, f"{_NAME}-{number}", self.seed, self.nodes_at_once).run())
            await self._last(chance)
            traffic.stop.set()

    async def _leave_behind(self, traffic: Traffic, number: int) -> None:
        for index in range(_LEFT_BEHIND):
            machine = f"left-behind-{number}-{index}"
            await traffic.add_machine(machine, {})
            await post(traffic.bootstrap, traffic.mac_node(machine).client_request(machine))

    async def _last(self, chance: Random) -> None:
        """Wait for a while, or return early once ``enough`` is set."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(chance.uniform(self.pace.lasting_seconds / 4, self.pace.lasting_seconds)):
                await self.enough.wait()


def _violations(cluster: WorldCluster) -> list[str]:
    """Violations in this cluster only: others have undecided requests. Retries while the management cluster is down."""
    while True:
        try:
            shown = look(cluster.management, [cluster])
        except PASSING:
            time.sleep(_AGAIN_SECONDS)
        else:
            ours = tuple(record for record in shown.records if record["spec"]["clusterName"] == cluster.name)
            return violations(replace(shown, records=ours))
