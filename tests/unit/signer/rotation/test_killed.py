"""T2: a controller that ends at any of its writes, or misses an answer; and two controllers at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any, Final

import pytest

from attestors.wire.statement.names import STATEMENT_CONFIG_MAP, STATEMENT_NAMESPACE
from signer.kube.errors import AlreadyExists, Cause, Conflict, Unreachable
from signer.kube.resources import CONFIG_MAPS
from signer.rotation.authorities import AuthorityKind
from signer.rotation.operations import Operation
from signer.rotation.phases import Phase, SigningPairs, Step, TakesBack
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

pytestmark = pytest.mark.usefixtures("parsed_once")

KINDS: Final = (AuthorityKind.CLUSTER, AuthorityKind.FRONT_PROXY)
"""The cluster's CA, which no Secret mixes with another, and one of those that are bundles in between."""
STATEMENTS: Final = (
    CONFIG_MAPS.collection(STATEMENT_NAMESPACE),
    CONFIG_MAPS.object(STATEMENT_CONFIG_MAP, STATEMENT_NAMESPACE),
)
FORWARD: Final = ((Operation.START, in_phase(Phase.PREPARED)), (Operation.COMPLETE, in_phase(Phase.COMPLETED)))


@dataclass(frozen=True)
class Script:
    """Orders of people, each given once the one before has led where it should."""

    name: str
    parts: tuple[tuple[Operation, Done], ...]
    takes_back: TakesBack = TakesBack.NOT_LINKED
    pairs: SigningPairs = SigningPairs.ONE_PAIR

    def world(self) -> FaultWorld:
        """The cluster at its beginning."""
        return FaultWorld.new(kinds=KINDS, takes_back=self.takes_back, servers=1, nodes=1, signing_pairs=self.pairs)


def back_from(
    step: Step, takes_back: TakesBack = TakesBack.NOT_LINKED, pairs: SigningPairs = SigningPairs.ONE_PAIR
) -> Script:
    """A rotation that is rolled back from that step."""
    back = (Operation.ROLLBACK, in_phase(Phase.ROLLED_BACK))
    parts: tuple[tuple[Operation, Done], ...]
    if step in (Step.SWITCH, Step.SERVERS_PRESENT, Step.SIGN_SERVING):
        parts = (FORWARD[0], (Operation.COMPLETE, at_step(step)), back)
    else:
        parts = ((Operation.START, at_step(step)), back)
    split = ", split pairs" if pairs is SigningPairs.SPLIT else ""
    return Script(f"back from {step.value}, {takes_back.value}{split}", parts, takes_back, pairs)


SCRIPTS: Final = (
    Script("forward", FORWARD),
    Script("forward with a link", FORWARD, TakesBack.LINKED),
    Script("forward, split pairs", FORWARD, pairs=SigningPairs.SPLIT),
    back_from(Step.ACCEPT),
    back_from(Step.SERVERS_TRUST),
    back_from(Step.NODES_TRUST),
    back_from(Step.SWITCH),
    back_from(Step.SIGN_SERVING, TakesBack.LINKED),
    back_from(Step.CONTROLLER_MANAGERS_SIGN, pairs=SigningPairs.SPLIT),
    back_from(Step.SWITCH, pairs=SigningPairs.SPLIT),
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
    """Something happens at the write of that number, counted from zero, or at every one that comes again after it."""

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


class AtEveryWrite(Interfere):
    """Something happens at the first attempt of each write: of the second in the process, if none would go on."""

    def __init__(self, moment: Moment, error: Callable[[], BaseException]) -> None:
        self.moment, self.error = moment, error
        self.spared = False
        self.hit: Counter[Call] = Counter()

    async def __call__(self, call: Call, moment: Moment) -> None:
        if not call.writes or moment is not self.moment:
            return
        self.spared = not self.spared if self.moment is Moment.BEFORE else False
        if self.moment is Moment.AFTER or self.spared:
            self.hit[call] += 1
            raise self.error()


FAULTS: Final[dict[str, tuple[Moment, Callable[[], BaseException]]]] = {
    "killed before": (Moment.BEFORE, Killed),
    "killed after": (Moment.AFTER, Killed),
    "answer lost": (Moment.AFTER, lambda: Unreachable("timed out", cause=Cause.TIMEOUT)),
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
    most: int = 80
    """Passes that wait, before the test gives up."""

    async def play(self) -> None:
        """To the end of the script."""
        controller = await Controller.started(self.world, self.interfere)
        idle = 0
        for _ in range(20 * self.most):
            if idle == self.most:
                break
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
                controller = await Controller.started(self.world, self.interfere)
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

    def __init__(self) -> None:
        self.calls: Counter[Call] = Counter()

    @property
    def writes(self) -> int:
        return self.calls.total()

    async def __call__(self, call: Call, moment: Moment) -> None:
        if call.writes and moment is Moment.AFTER:
            self.calls[call] += 1


def required(calls: Counter[Call], world: FaultWorld) -> Counter[Call]:
    """Each write as often as it comes, whatever the rotation's ID. All statements count as one: after some that could
    not be published, the next step's may be the first.
    """
    found: Counter[Call] = Counter()
    for call, times in calls.items():
        path = call.path.replace(world.now_record.rotation_id, "ID")
        if path in STATEMENTS:
            found[Call("PUT", path="statement")] = 1
        else:
            found[replace(call, path=path)] += times
    return found


@dataclass(frozen=True)
class Undisturbed:
    """A script that was played without faults."""

    end: dict[str, Any]
    passes: tuple[Pass, ...]
    writes: int
    required: Counter[Call]


@cache
def undisturbed(script: Script) -> Undisturbed:
    """Play it once."""
    world, count = script.world(), Count()
    passes: list[Pass] = []
    player = Player(world, script, count)

    def remember() -> None:
        if not passes or passes[-1].writes < count.writes:
            passes.append(Pass(world.backup(), player.part, player.ordered, count.writes))
        elif passes:  # nothing was written since: the later state is nearer to the write
            passes[-1] = Pass(world.backup(), player.part, player.ordered, count.writes)

    player.before = remember
    run(player.play())
    return Undisturbed(world.end_state(), tuple(passes), count.writes, required(count.calls, world))


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda one: one.name)
def test_a_fault_at_every_write(script: Script, fault: str) -> None:
    """One process after another ends at its next write, or every write's answer is lost: the end is the same, with the
    same number of CAs.
    """
    played = undisturbed(script)
    every = AtEveryWrite(*FAULTS[fault])
    world = script.world()
    run(Player(world, script, every, most=400).play())
    assert world.end_state() == played.end
    assert set(world.new_authorities().values()) == {1}
    assert not played.required - required(every.hit, world), "the fault came at every write"


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda one: one.name)
def test_each_write_may_be_the_last(script: Script, fault: str) -> None:
    """Whatever write the process ends at: another one goes on, and leads to the same end with the same CAs."""
    played = undisturbed(script)
    moment, error = FAULTS[fault]
    for number in range(played.writes):
        start = max((one for one in played.passes if one.writes <= number), key=lambda one: one.writes)
        if moment is Moment.BEFORE and number > start.writes:
            continue  # the same pass has written before: what is left is the world of "killed after" that write
        at = AtWrite(number - start.writes, moment, error)
        world = FaultWorld(start.state).copied()
        player = Player(world, script, at, start.part, start.ordered)
        run(player.play())
        assert at.happened
        assert world.end_state() == played.end, (number, world.now_record)
        assert set(world.new_authorities().values()) == {1}, number
        assert player.restarts == (error is Killed)


# Two controllers


class Turn(Interfere):
    """Each call waits until the schedule lets it go on."""

    def __init__(self) -> None:
        self.waiting: asyncio.Future[None] | None = None

    async def __call__(self, call: Call, moment: Moment) -> None:
        if moment is Moment.BEFORE:
            self.waiting = asyncio.get_running_loop().create_future()
            await self.waiting


BURSTS: Final = (1, 2, 5, 20, 100, 400)
"""How many calls one of the two makes before the other's turn comes: 400 are whole steps of the rotation."""
DRAINED: Final = 60
"""Calls of one pass at most."""
MOST_BURSTS: Final = 150


class TwoLeaders:
    """Two controllers that both take themselves for the leader, and a schedule of their calls."""

    def __init__(self, world: FaultWorld, script: Script, random: Random) -> None:
        self.world, self.script, self.random = world, script, random
        self.turns = (Turn(), Turn())
        self.controllers: list[Controller] = []
        self.pauses = [0.0, 0.0]
        self.part = 0

    async def play(self) -> None:
        """To the end of the script, and of both controllers' passes."""
        self.controllers = [await Controller.started(self.world, turn) for turn in self.turns]
        self.world.order(self.script.parts[0][0])
        tasks = [asyncio.create_task(self._work(number)) for number in range(2)]
        try:
            for _ in range(MOST_BURSTS):
                if self.part == len(self.script.parts):
                    break
                number = self.random.randrange(2)
                for _ in range(self.random.choice(BURSTS)):
                    await self._step(number, tasks)
                    await self._follow()
                    if self.part == len(self.script.parts):
                        break
            assert self.part == len(self.script.parts), self.world.now_record
            for number in range(2):  # whatever was under way arrives
                for _ in range(DRAINED):
                    await self._step(number, tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self, number: int) -> None:
        while True:
            self.pauses[number] = await self.controllers[number].look()

    async def _step(self, number: int, tasks: list[asyncio.Task[None]]) -> None:
        """One call of that controller."""
        turn = self.turns[number]
        while turn.waiting is None:
            if tasks[number].done():
                tasks[number].result()
            await asyncio.sleep(0)
        waiting, turn.waiting = turn.waiting, None
        waiting.set_result(None)
        while self._is_working(number) and not tasks[number].done():  # noqa: ASYNC110
            await asyncio.sleep(0)
        self.world.require_everybody_is_accepted()

    def _is_working(self, number: int) -> bool:
        return self.turns[number].waiting is None

    async def _follow(self) -> None:
        """The world acts when one of the controllers waits; a person orders what comes next."""
        _, done = self.script.parts[self.part]
        if done(self.world):  # the annotation may be there still: the next order takes its place
            self.part += 1
            if self.part < len(self.script.parts):
                self.world.order(self.script.parts[self.part][0])
        elif any(self.pauses) and not self.world.has_order():
            self.pauses = [0.0, 0.0]
            await self.world.progress(self.controllers[0])
            self.world.require_everybody_is_accepted()


SEEDS: Final = 2


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda one: one.name)
def test_two_leaders(script: Script) -> None:
    """Each comes between the other's calls, or long after them: the end is the same, and the second to write at a
    version gets a conflict.
    """
    end = undisturbed(script).end
    for seed in range(SEEDS):
        world = script.world()
        two = TwoLeaders(world, script, Random(seed))
        run(two.play())
        assert world.end_state() == end, seed
        assert set(world.new_authorities().values()) == {1}, seed
        errors = {type(error) for one in two.controllers for error in one.errors}
        assert errors <= {RotationChanged, Conflict, AlreadyExists}, (seed, errors)
