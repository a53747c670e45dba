"""The clients of one cluster: honest nodes, several at a time, and impostors."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.soak.nodes import HonestNode, Traffic, impostor

_IMPOSTORS: Final = 0.2
"""Impostors per honest node, on average."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """Starts nodes until the traffic stops; running nodes end once their last request is decided."""

    traffic: Traffic
    name: str
    """Prefix of its Machines' names."""
    seed: int
    nodes_at_once: int

    async def run(self) -> None:
        """Run all clients; an error of one of them cancels all."""
        async with asyncio.TaskGroup() as tasks:
            for flow in range(self.nodes_at_once):
                tasks.create_task(self._flow(flow))
            tasks.create_task(self._impostors(tasks))

    async def _flow(self, flow: int) -> None:
        """Run one honest node after another."""
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
