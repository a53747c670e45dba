"""T2: a controller that ends at any of its writes, or misses an answer; and two controllers at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any, Final

import pytest

from signer.kube.errors import Conflict, NotFound, Unreachable
from signer.rotation.authorities import AuthorityKind
from signer.rotation.operations import Operation
from signer.rotation.phases import Phase, Step, TakesBack
from signer.rotation.rotations import RotationChanged
from tests.unit.signer.rotation.fault_world import (
    Controller,
    Done,
    FaultWorld,
    State,
    at_step,
    in_phase,
    is_held,
    run,
)
from tests.unit.signer.rotation.memory_api import Call, Interfere, Moment

KINDS: Final = (AuthorityKind.CLUSTER, AuthorityKind.FRONT_PROXY)
"""The cluster's CA, which no Secret mixes with another, and one of those that are bundles in between."""
FORWARD: Final = ((Operation.START, in_phase(Phase.PREPARED)), (Operation.COMPLETE, in_phase(Phase.COMPLETED)))


@dataclass(frozen=True)
class Script:
    """Orders of people, each given once the one before has led where it should."""

    name: str
    parts: tuple[tuple[Operation, Done], ...]
    takes_back: TakesBack = TakesBack.NOT_LINKED


def back_from(step: Step, takes_back: TakesBack = TakesBack.NOT_LINKED) -> Script:
    """A rotation that is rolled back from that step."""
    back = (Operation.ROLLBACK, in_phase(Phase.ROLLED_BACK))
    if step in (Step.SWITCH, Step.SERVERS_PRESENT, Step.SIGN_SERVING):
        parts = (FORWARD[0], (Operation.COMPLETE, at_step(step)), back)
    else:
        parts = ((Operation.START, at_step(step)), back)
    return Script(f"back from {step.value}, {takes_back.value}", parts, takes_back)


SCRIPTS: Final = (
    Script("forward", FORWARD),
    Script("forward with a link", FORWARD, TakesBack.LINKED),
    back_from(Step.ACCEPT),
    back_from(Step.SERVERS_TRUST),
    back_from(Step.NODES_TRUST),
    back_from(Step.SWITCH),
    back_from(Step.SIGN_SERVING, TakesBack.LINKED),
    Script(
        "clients only, then again",
        (
            FORWARD[0],
            (Operation.COMPLETE, at_step(Step.SIGN_SERVING)),
            (Operation.ROLLBACK, is_held),
            (Operation.RETRY, in_phase(Phase.COMPLETED)),
        ),
    ),
)


class Killed(BaseException):
    """The process ended."""


class AtWrite(Interfere):
    """Something happens at the write of that number, counted from zero."""

    def __init__(self, number: int, moment: Moment, error: Callable[[], BaseException]) -> None:
        self.number, self.moment, self.error = number, moment, error
        self.writes = 0
        self.happened = False

    async def __call__(self, call: Call, moment: Moment) -> None:
        if not call.writes:
            return
        if moment is self.moment and self.writes == self.number and not self.happened:
            self.happened = True
            raise self.error()
        self.writes += moment is Moment.AFTER


FAULTS: Final[dict[str, tuple[Moment, Callable[[], BaseException]]]] = {
    "killed before": (Moment.BEFORE, Killed),
    "killed after": (Moment.AFTER, Killed),
    "answer lost": (Moment.AFTER, lambda: Unreachable("timed out", cause="timeout")),
}


@dataclass
class Player:
    """Plays a script, and starts another controller when one is killed."""

    world: FaultWorld
    script: Script
    interfere: Interfere
    part: int = 0
    ordered: bool = False
    before: Callable[[], None] = lambda: None
    """Called before each pass."""
    restarts: int = 0

    async def play(self) -> None:
        """To the end of the script."""
        controller = await Controller.started(self.world, self.interfere)
        idle = 0
        while idle < 80:
            if self.part == len(self.script.parts):
                return
            operation, done = self.script.parts[self.part]
            if not self.ordered:
                self.world.order(operation)
                self.ordered = True
            if done(self.world) and not self.world.has_order():
                self.part, self.ordered = self.part + 1, False
                continue
            self.before()
            try:
                pause = await controller.look()
            except Killed:
                controller.stop()
                controller = await Controller.started(self.world, Interfere())
                self.restarts += 1
                continue
            self.world.require_everybody_is_accepted()
            if pause:
                idle += 1
                await self.world.progress(controller)
                self.world.require_everybody_is_accepted()
        raise AssertionError(f"no end: {self.world.now_record}")


@dataclass(frozen=True)
class Pass:
    """The world before one pass that wrote."""

    state: State
    part: int
    ordered: bool
    writes: int
    """How many writes came before it."""


class Count(Interfere):
    """Counts writes."""

    writes = 0

    async def __call__(self, call: Call, moment: Moment) -> None:
        self.writes += call.writes and moment is Moment.AFTER


@cache
def undisturbed(script: Script) -> tuple[dict[str, Any], tuple[Pass, ...], int]:
    """The end of a script without faults, and the world before each pass."""
    world, count, passes = FaultWorld.new(kinds=KINDS, takes_back=script.takes_back, servers=1, nodes=1), Count(), []
    player = Player(world, script, count)

    def remember() -> None:
        if not passes or passes[-1].writes < count.writes:
            passes.append(Pass(world.backup(), player.part, player.ordered, count.writes))
        elif passes:  # nothing was written since: the later state is nearer to the write
            passes[-1] = Pass(world.backup(), player.part, player.ordered, count.writes)

    player.before = remember
    run(player.play())
    return world.end_state(), tuple(passes), count.writes


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda one: one.name)
def test_each_write_may_be_the_last(script: Script, fault: str) -> None:
    """Whatever write the process ends at: another one goes on, and leads to the same end with the same CAs."""
    end, passes, writes = undisturbed(script)
    moment, error = FAULTS[fault]
    for number in range(writes):
        start = max((one for one in passes if one.writes <= number), key=lambda one: one.writes)
        at = AtWrite(number - start.writes, moment, error)
        world = FaultWorld(start.state).copied()
        player = Player(world, script, at, start.part, start.ordered)
        run(player.play())
        assert at.happened
        assert world.end_state() == end, (number, world.now_record)
        assert set(world.new_authorities().values()) == {1}, number
        assert player.restarts == (error is Killed)
