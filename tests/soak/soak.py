"""One soak test: traffic under disruptions, then traffic without them, then a check of the invariant."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from rich.markup import escape

from signer.kube.client import Client
from signer.kube.errors import NotFound
from signer.testing.clients import LoopThread
from tests.integration.endorsement_key_sources import look, verdicts, violations
from tests.soak.chaos import Chaos, Pace
from tests.soak.crowd import Crowd
from tests.soak.ledger import Ledger
from tests.soak.nodes import HonestNode, Traffic
from tests.soak.outcome import Outcome
from tests.soak.passing import PassingClusters
from tests.soak.replicas import Ran, Replicas
from tests.soak.world import World, open_world
from tests.support.processes import Programs

_PROGRESS_SECONDS: Final = 5.0
_FIRST_JOIN_SECONDS: Final = 180.0
"""Time limit of the first joins, before faults start: a setup that does not work is not tested under faults."""
_END_SECONDS: Final = 120.0
_LOOK_SECONDS: Final = 0.5
_FEWEST_DISRUPTIONS: Final = 4
"""Kinds of disruptions without which a soak test says little."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Duration, load and faults of a soak test."""

    seconds: float
    seed: int
    most_seconds: float = 0.0
    """The faults go on up to this long, if a slow machine has not yet met what a soak test is for."""
    real_workload_clusters: int = 2
    nodes_at_once: int = 6
    """In each permanent cluster."""
    passing_nodes: int = 2
    """Nodes at once in the cluster that is added and deleted repeatedly."""
    replicas: int = 3
    sharings: tuple[int, ...] = (0, 4, 7)
    """Numbers of shards of the rollouts, chosen by the seed; 0 is leader election."""
    pace: Pace = field(default_factory=lambda: Pace(6.0, 15.0, lasting_seconds=25.0))
    stall_seconds: float = 40.0
    settle_seconds: float = 180.0

    @classmethod
    def short(cls, seed: int, seconds: float = 14.0) -> Plan:
        """The short form: one real API server for the management and a workload cluster, and an embedded one."""
        return cls(
            seconds,
            seed,
            most_seconds=seconds + 90.0,
            real_workload_clusters=0,
            nodes_at_once=4,
            replicas=2,
            sharings=(0, 4),
            pace=Pace(1.0, 5.0, lasting_seconds=2.5),
            stall_seconds=3.0,
            settle_seconds=180.0,
        )


def soak(plan: Plan, report: Callable[[str], None] = lambda line: None, logs: Path | None = None) -> Outcome:
    """Run a soak test; keeps the controllers' logs in ``logs``. Raises ``MissingPart`` without kube-apiserver."""
    ledger = Ledger()
    began = time.monotonic()
    with (
        open_world(
            plan.seed, real_workload_clusters=plan.real_workload_clusters, stall_seconds=plan.stall_seconds
        ) as world,
        Programs("soak-") as programs,
    ):
        with LoopThread("soak") as thread:  # closes all connections
            ran = thread.run(_Soak(plan, world, programs, ledger, report).run())
        decided = {cluster.name: verdicts(cluster.world) for cluster in world.clusters}
        try:
            broken = violations(look(world.management, [cluster.world for cluster in world.clusters]))
        except NotFound as error:  # a deleted Cluster was not added again in time
            broken = [f"cannot be read: {error}"]
        if logs is not None:
            logs.mkdir(parents=True, exist_ok=True)
            for log in programs.folder.glob("*.log"):
                shutil.copy(log, logs)
        faults = {server.name: dict(server.proxy.weather.met) for server in world.servers}
    return Outcome.of(plan.seed, plan.seconds, time.monotonic() - began, ledger, decided, broken, faults, ran)


class _Soak:
    """The part that runs in an event loop."""

    def __init__(
        self, plan: Plan, world: World, programs: Programs, ledger: Ledger, report: Callable[[str], None]
    ) -> None:
        self._plan = plan
        self._world = world
        self._programs = programs
        self._ledger = ledger
        self._report = report
        self._over = asyncio.Event()

    async def run(self) -> Ran:
        """Run; returns the controllers' counts."""
        async with contextlib.AsyncExitStack() as stack:
            for server in self._world.servers:
                await stack.enter_async_context(server.proxy)
            connection = await asyncio.to_thread(self._world.route_through_proxies)
            replicas = Replicas(
                self._programs, connection, self._ledger, Random(f"{self._plan.seed} restarts"), self._plan.sharings
            )
            replicas.prepare(self._plan.replicas)
            running = asyncio.create_task(replicas.run())
            reporting = asyncio.create_task(self._report_progress())
            try:
                await self._soak(stack, replicas)
            finally:
                reporting.cancel()
                replicas.stop()
                async with asyncio.timeout(_END_SECONDS):
                    await running
            for complaint in replicas.complaints():
                self._ledger.found(complaint)
            return replicas.ran()

    async def _soak(self, stack: contextlib.AsyncExitStack, replicas: Replicas) -> None:
        plan, world = self._plan, self._world
        management = await stack.enter_async_context(Client(world.management.api.connection(), connection_limit=32))
        chaos = Chaos(world, management, replicas, self._ledger, plan.pace, plan.seed, self._over)
        nodes: list[asyncio.Task[None]] = []
        traffics: list[Traffic] = []
        for cluster in world.clusters:
            bootstrap = await stack.enter_async_context(Client(cluster.bootstrap, connection_limit=64))
            traffic = Traffic(cluster, self._ledger, management, bootstrap, self._over)
            crowd = Crowd(traffic, cluster.name, plan.seed, plan.nodes_at_once)
            nodes.append(asyncio.create_task(crowd.run()))
            traffics.append(traffic)
        async with asyncio.timeout(_FIRST_JOIN_SECONDS):
            await self._ledger.all_join(cluster.name for cluster in world.clusters)
        passing = PassingClusters(
            world, management, self._ledger, plan.pace, plan.seed, plan.passing_nodes, plan.stall_seconds, chaos.enough
        )
        everything = asyncio.gather(chaos.run(), passing.run(), *nodes)
        await asyncio.wait({everything}, timeout=plan.seconds)  # ends early if one of them fails
        until = time.monotonic() + plan.most_seconds - plan.seconds
        while not self._has_met_enough(replicas) and time.monotonic() < until and not everything.done():
            await asyncio.wait({everything}, timeout=_LOOK_SECONDS)
        chaos.enough.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(plan.settle_seconds):
                await everything
                # Only a controller that has recovered from all faults decides these requests. No controller restarts
                # from here on, because a new one would relist, which hides lost objects.
                for change in (chaos.rotate_all, chaos.add_all_again):
                    await change()
                    await asyncio.gather(*(self._last_node(traffic, change.__name__).live() for traffic in traffics))

    def _has_met_enough(self, replicas: Replicas) -> bool:
        disruptions = self._ledger.disruptions
        return (
            len(disruptions) >= _FEWEST_DISRUPTIONS
            and disruptions["Cluster added"] > 0
            and self._ledger.impostors_denied > 0
            and len(replicas.seen_divisions) == len(self._plan.sharings)
        )

    def _last_node(self, traffic: Traffic, after: str) -> HonestNode:
        name = f"{after}-{traffic.cluster.name}".replace("_", "-")
        return HonestNode(traffic, f"last-{name}", Random(f"{self._plan.seed} {name}"))

    async def _report_progress(self) -> None:
        began, reported = time.monotonic(), 0
        while True:
            await asyncio.sleep(_PROGRESS_SECONDS)
            for finding in self._ledger.findings[reported:]:
                self._report(f"finding: {escape(finding)}")
            reported = len(self._ledger.findings)
            phase = "settling" if self._over.is_set() else f"of {self._plan.seconds:.0f} s"
            self._report(f"{time.monotonic() - began:5.0f} s {phase}: {self._ledger.progress}")
