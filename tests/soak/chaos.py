"""Schedules disruptions: three decks, shuffled by the seed and dealt until the end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, TypeAlias

from signer.kube.client import Client
from tests.soak.access import Access
from tests.soak.cluster_objects import create_all, delete_all, objects_of
from tests.soak.ledger import Ledger
from tests.soak.replicas import Replicas
from tests.soak.weather import CALM, STORM
from tests.soak.world import World

Disruption: TypeAlias = tuple[str, Callable[[], Awaitable[None]]]
_STEPS_SECONDS: Final = (3600.0, -3600.0, 120.0, -120.0)
_ROLLED_OUT: Final = "controllers rolled out with other flags"
_LEASE_SECONDS: Final = 5.0
_SERVED_SECONDS: Final = 30.0
"""Time limit for API servers to start and for replicas to serve every cluster again."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Upper bounds of the pauses between disruptions, and of their duration."""

    servers_quiet_seconds: float
    replicas_quiet_seconds: float
    """Longer, because a controller takes two or three seconds to start on a loaded machine."""
    lasting_seconds: float


class Chaos:
    """Disrupts API servers, the connections to them, controllers and clocks."""

    def __init__(
        self,
        world: World,
        management: Client,
        replicas: Replicas,
        ledger: Ledger,
        pace: Pace,
        seed: int,
        over: asyncio.Event,
    ) -> None:
        """``management`` is an administrator's client that bypasses the proxy."""
        self._accesses = world.accesses
        self._management = management
        self._clusters_chance = Random(f"{seed} clusters")
        self._servers = world.servers
        self._clusters = world.clusters
        self._replicas = replicas
        self._ledger = ledger
        self._pace = pace
        self._chance = Random(f"{seed} servers")
        self._replicas_chance = Random(f"{seed} replicas")
        self._over = over
        self.enough = asyncio.Event()

    async def run(self) -> None:
        """Deal all decks until ``enough`` is set. Then compact all history, and let only calls fail for a while:
        without relists, an object that a controller has lost stays lost. Then end all faults and set ``over``.
        """
        try:
            await self._break_everything()
            await self._break_calls()
        finally:
            for server in self._servers:
                server.proxy.calm_down()
            self._over.set()

    # After the faults, when no request waits: new connections relist, which would hide lost objects.

    async def rotate_all(self) -> None:
        """Rotate every kubeconfig and revoke every previous token."""
        await asyncio.gather(*(self._rotate_at_once(access) for access in self._accesses))

    async def add_all_again(self) -> None:
        """Delete every Cluster and add it again."""
        await asyncio.gather(*(self._delete_and_add(access) for access in self._accesses))

    # During the faults

    async def _break_everything(self) -> None:
        for server in self._servers:
            server.proxy.weather.severity = CALM
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._deal(self._of_servers(), self._chance, self._pace.servers_quiet_seconds))
            tasks.create_task(self._deal(self._of_clusters(), self._clusters_chance, self._pace.servers_quiet_seconds))
            tasks.create_task(self._disrupt_replicas())
        for replica in self._replicas.replicas:
            replica.clock.set(0.0)
            replica.signal(signal.SIGCONT)
        await asyncio.gather(*(asyncio.to_thread(server.compact) for server in self._servers))

    async def _break_calls(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SERVED_SECONDS):
                await self._ledger.all_join(cluster.name for cluster in self._clusters)
        for server in self._servers:
            server.proxy.weather.spares_watches = True
            server.proxy.weather.severity = STORM
        self._ledger.disruptions["storm over all calls, at the end"] += 1
        await asyncio.sleep(self._pace.lasting_seconds)

    async def _deal(
        self, deck: Sequence[Disruption], chance: Random, quiet_seconds: float, first: Sequence[Disruption] = ()
    ) -> None:
        dealt = [*first]
        while not self.enough.is_set():
            await self._wait(chance.uniform(quiet_seconds / 4, quiet_seconds))
            if not dealt:
                dealt = chance.sample(deck, len(deck))
            name, disrupt = dealt.pop()
            if not self.enough.is_set():
                self._ledger.disruptions[name] += 1
                await disrupt()

    async def _lasting(self, chance: Random) -> None:
        await self._wait(chance.uniform(self._pace.lasting_seconds / 4, self._pace.lasting_seconds))

    async def _wait(self, seconds: float) -> None:
        """Wait, or return early once ``enough`` is set."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.enough.wait()

    # API servers and the connections to them

    def _of_servers(self) -> list[Disruption]:
        return [
            ("API server restarted", lambda: self._restart(compact=False)),
            ("history compacted", lambda: self._restart(compact=True)),
            ("all connections cut", self._cut),
            ("all connections cut", self._cut),
            ("storm of faults", self._storm),
            ("storm of faults", self._storm),
            ("network partition", self._part),
        ]

    async def _restart(self, *, compact: bool) -> None:
        server = self._chance.choice(self._servers)
        await asyncio.to_thread(server.compact if compact else server.restart)

    async def _cut(self) -> None:
        for server in self._servers:
            if self._chance.random() < 0.7:
                server.proxy.cut()

    async def _storm(self) -> None:
        server = self._chance.choice(self._servers)
        server.proxy.weather.severity = self._chance.uniform(CALM, STORM)
        await self._lasting(self._chance)
        server.proxy.weather.severity = CALM

    async def _part(self) -> None:
        server = self._chance.choice(self._servers)
        server.proxy.part()
        await self._lasting(self._chance)
        server.proxy.join()

    # Workload clusters' objects in the management cluster

    def _of_clusters(self) -> list[Disruption]:
        return [
            ("kubeconfig rotated", self._rotate),
            ("kubeconfig rotated, its token revoked at once", lambda: self._rotate_at_once(self._some_access())),
            ("kubeconfig rotated after its token was revoked", self._rotate_late),
            ("Cluster deleted, and added again", self._delete_cluster),
        ]

    async def _rotate(self) -> None:
        """Rotate the token; both are valid for a while."""
        access = self._some_access()
        former = await access.renew(self._management)
        await self._lasting(self._clusters_chance)
        await access.revoke(former)

    def _some_access(self) -> Access:
        return self._clusters_chance.choice(self._accesses)

    async def _rotate_at_once(self, access: Access) -> None:
        await access.revoke(await access.renew(self._management))

    async def _rotate_late(self) -> None:
        """Revoke the token before writing a new kubeconfig."""
        access = self._some_access()
        await access.revoke(access.token)
        await self._lasting(self._clusters_chance)
        await access.renew(self._management)

    async def _delete_cluster(self) -> None:
        await self._delete_and_add(self._some_access())

    async def _delete_and_add(self, access: Access) -> None:
        """Delete a Cluster as if by mistake: its Machines and records stay, the rest is restored from a backup."""
        await delete_all(self._management, access, lambda: self._lasting(self._clusters_chance), with_dependents=False)
        await self._lasting(self._clusters_chance)
        await create_all(self._management, objects_of(access), self._clusters_chance)

    # Controllers and their clocks

    async def _disrupt_replicas(self) -> None:
        """Start with a rollout, so that each run has two settings of leader election or shards."""
        first = [(_ROLLED_OUT, self._roll_out)]
        await self._deal(self._of_replicas(), self._replicas_chance, self._pace.replicas_quiet_seconds, first)

    def _of_replicas(self) -> list[Disruption]:
        return [
            ("controller killed", lambda: self._signal(signal.SIGKILL)),
            ("controller killed", lambda: self._signal(signal.SIGKILL)),
            ("controller terminated", lambda: self._signal(signal.SIGTERM)),
            ("controller suspended for longer than its Lease", self._stop_for_a_while),
            (_ROLLED_OUT, self._roll_out),
            *((f"clock stepped by {seconds:+.0f} s", self._stepping(seconds)) for seconds in _STEPS_SECONDS),
        ]

    async def _signal(self, number: signal.Signals) -> None:
        self._replicas_chance.choice(self._replicas.replicas).signal(number)

    async def _roll_out(self) -> None:
        self._replicas.roll_out()

    async def _stop_for_a_while(self) -> None:
        """Suspend a replica; when it resumes, it may believe that it still leads, while another does."""
        replica = self._replicas_chance.choice(self._replicas.replicas)
        replica.signal(signal.SIGSTOP)
        await self._wait(_LEASE_SECONDS + self._replicas_chance.uniform(0.5, 2.0))
        replica.signal(signal.SIGCONT)

    def _stepping(self, seconds: float) -> Callable[[], Awaitable[None]]:
        async def step() -> None:
            """Step the clocks of all replicas, as by a common time source, or of one."""
            chance = self._replicas_chance
            moved = chance.choice((self._replicas.replicas, [chance.choice(self._replicas.replicas)]))
            for replica in moved:
                replica.clock.set(seconds)
            await self._lasting(chance)
            for replica in moved:
                replica.clock.set(0.0)

        return step
