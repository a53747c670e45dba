"""Everybody who wants something of one cluster: some honest nodes at a time, and impostors."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.soak.nodes import HonestNode, Traffic, impostor

_IMPOSTORS: Final = 0.2
"""For each honest node so many impostors, on average."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """Comes until the traffic stops; whoever is there then stays until the last of its requests is decided."""

    traffic: Traffic
    name: str
    """Of its Machines, at the beginning."""
    seed: int
    nodes_at_once: int

    async def come(self) -> None:
        """All of them; what one of them raises ends all."""
        async with asyncio.TaskGroup() as tasks:
            for flow in range(self.nodes_at_once):
                tasks.create_task(self._flow(flow))
            tasks.create_task(self._impostors(tasks))

    async def _flow(self, flow: int) -> None:
        """One machine after the other."""
        for number in itertools.count(1):
            if self.traffic.stop.is_set():
                return
            chance = Random(f"{self.seed} {self.name} {flow} {number}")
            await HonestNode(self.traffic, f"node-{self.name}-{flow}-{number}", chance).live()

    async def _impostors(self, tasks: asyncio.TaskGroup) -> None:
        chance = Random(f"{self.seed} {self.name} impostors")
        for number in itertools.count():
            await self.traffic.pause(chance.expovariate(_IMPOSTORS * self.nodes_at_once / 2))
            if self.traffic.stop.is_set():
                return
            if len(self.traffic.present) > 1:
                tasks.create_task(impostor(self.traffic, number, chance))
