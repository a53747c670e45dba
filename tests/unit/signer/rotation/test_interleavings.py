"""T13: whatever the order of events, every member accepts every peer that it may meet."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from signer.rotation.operations import Operation, OperationRejected
from signer.rotation.phases import BACK, Phase, RollbackAvailable, SigningPairs, Step, TakesBack, forward
from signer.rotation.plan import UNSAFE, Advance, Finished, Make, Wait, carry_out
from signer.rotation.record import RotationRecord, parse_rotation
from tests.unit.signer.rotation.model_world import ModelWorld
from tests.unit.signer.rotation.records import rotation_object

WORLDS = 60
"""Of each kind; each sees some hundred events."""
EVENTS = 260


def order(world: ModelWorld, operation: Operation, number: int) -> None:
    """A person orders an operation, at any time. One that is rejected changes nothing."""
    with contextlib.suppress(OperationRejected):
        world.record = carry_out(world.order(operation, number), world.record, world.facts(), stalled=True)


def make_server(world: ModelWorld) -> None:
    """KCP makes one at a time."""
    if all(server.joined for server in world.servers):
        world.make_server()


def renew(world: ModelWorld, random: Random) -> None:
    """One node."""
    world.renew(random.randrange(len(world.nodes)))


EVENT_WEIGHTS: dict[str, int] = {
    "step": 30, "roll": 12, "renew": 40, "make server": 3, "join servers": 6, "make worker": 3,
    "join worker": 3, "minute": 6, "hour": 12, "day": 4, "complete": 12, "roll back": 1, "retry": 3,
}  # fmt: skip


def happen(world: ModelWorld, event: str, number: int, random: Random) -> None:
    """One event."""
    happenings: dict[str, Callable[[], object]] = {
        "step": world.step,
        "roll": world.roll_one,
        "renew": lambda: renew(world, random),
        "make server": lambda: make_server(world),
        "join servers": world.join_servers,
        "make worker": world.make_worker,
        "join worker": world.join_worker,
        "minute": lambda: world.wait(60),
        "hour": lambda: world.wait(3600),
        "day": lambda: world.wait(86400),
        "complete": lambda: order(world, Operation.COMPLETE, number),
        "roll back": lambda: order(world, Operation.ROLLBACK, number),
        "retry": lambda: order(world, Operation.RETRY, number),
    }
    happenings[event]()


def random_world(
    seed: int, takes_back: TakesBack, pairs: SigningPairs, *, rolls_back: bool
) -> tuple[ModelWorld, list[str]]:
    """A world after events in a random order, each of which left every member accepted."""
    random = Random(seed)
    world = ModelWorld(random.randint(1, 3), random.randint(1, 3), takes_back, pairs)
    weights = dict(EVENT_WEIGHTS) if rolls_back else {**EVENT_WEIGHTS, "roll back": 0}
    events: list[str] = []
    for number in range(2, 2 + random.randrange(12)):  # random events alone seldom get far
        world.run()
        progress(world)
        order(world, Operation.COMPLETE, number)
    for number in range(100, 100 + EVENTS):
        event = random.choices(list(weights), list(weights.values()))[0]
        events.append(event)
        happen(world, event, number, random)
        world.require_everybody_is_accepted()
    return world, events


@pytest.mark.parametrize("rolls_back", [False, True], ids=["forward", "with rollbacks"])
@pytest.mark.parametrize("takes_back", TakesBack)
@pytest.mark.parametrize("pairs", SigningPairs)
def test_every_member_accepts_every_peer(pairs: SigningPairs, takes_back: TakesBack, rolls_back: bool) -> None:
    """In every order; and the orders reach every step, so that the test tests each."""
    reached: set[Step] = set()
    for seed in range(WORLDS):
        try:
            world, _ = random_world(seed, takes_back, pairs, rolls_back=rolls_back)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        reached |= {move.record.step for move in world.moves if isinstance(move, Advance)}
    entered = set(forward(pairs)) - {Step.NEW_AUTHORITY}  # the first record has it
    assert entered | (set(BACK) - {Step.SIGN_BY_OLD} if rolls_back else set()) <= reached


@pytest.mark.parametrize("takes_back", TakesBack)
@pytest.mark.parametrize("pairs", SigningPairs)
def test_every_rotation_ends_when_the_world_follows(pairs: SigningPairs, takes_back: TakesBack) -> None:
    """Whatever happened before: once Machines roll, nodes renew and a person completes, the rotation ends, and no move
    was held by an invariant alone.
    """
    for seed in range(WORLDS):
        world, events = random_world(seed, takes_back, pairs, rolls_back=True)
        end(world)
        assert world.record.phase in (Phase.COMPLETED, Phase.ROLLED_BACK), (seed, events, world.moves[-1])
        assert world.record.rollback_available is RollbackAvailable.NONE


def end(world: ModelWorld) -> None:
    """The world follows."""
    for number in range(1000, 1080):
        move = world.run()
        if isinstance(move, Finished):
            return
        if isinstance(world.record.held_at, Step):
            order(world, Operation.RETRY, number)
        order(world, Operation.COMPLETE, number + 1000)
        while world.joining:
            world.join_worker()
        progress(world)


def progress(world: ModelWorld) -> None:
    """One Machine of the control plane is replaced, and every node renews."""
    world.roll_one()
    for node in range(len(world.nodes)):
        world.renew(node)
    world.wait(7200)
    world.require_everybody_is_accepted()


@pytest.mark.parametrize("takes_back", TakesBack)
@pytest.mark.parametrize("pairs", SigningPairs)
def test_every_record_on_any_way_is_one_that_the_parser_takes(pairs: SigningPairs, takes_back: TakesBack) -> None:
    for seed in range(WORLDS):
        world, _ = random_world(seed, takes_back, pairs, rolls_back=True)
        for move in world.moves:
            if isinstance(move, Advance):
                assert parse_rotation(rotation_object(move.record)).claimed == move.record


@pytest.mark.parametrize("pairs", SigningPairs)
def test_the_straight_way_makes_each_write_once(pairs: SigningPairs) -> None:
    """No write is repeated, each step is entered once, and no invariant holds a move."""
    world = ModelWorld(signing_pairs=pairs)
    for number in range(40):
        if isinstance(world.run(), Finished):
            break
        progress(world)
        order(world, Operation.COMPLETE, 100 + number)
    writes = [repr(move.write) for move in world.moves if isinstance(move, Make)]
    assert len(writes) == len(set(writes))
    steps = [move.record.step for move in world.moves if isinstance(move, Advance)]
    entered = [step for step, before in zip(steps, [None, *steps], strict=False) if step is not before]
    assert len(entered) == len(set(entered))
    assert entered[-1] is Step.FORGET
    assert world.record.phase is Phase.COMPLETED
    assert not [move for move in world.moves if isinstance(move, Wait) and move.reason == UNSAFE]


def twin(world: ModelWorld) -> ModelWorld:
    """The same world, to be changed on its own."""
    made = copy.copy(world)
    made.secrets, made.authentication, made.moves = dict(world.secrets), set(world.authentication), []
    made.pairs = {kind: dict(pairs) for kind, pairs in world.pairs.items()}
    made.servers = [replace(one) for one in world.servers]
    made.nodes = [replace(one) for one in world.nodes]
    made.joining = [replace(one) for one in world.joining]
    return made


@pytest.mark.parametrize("takes_back", TakesBack)
@pytest.mark.parametrize("pairs", SigningPairs)
def test_an_older_record_makes_no_write_that_breaks_a_member(pairs: SigningPairs, takes_back: TakesBack) -> None:
    """A backup is restored, or a tenant puts an older object back: its seal is valid. At each moment of a rotation,
    with the first record of each step before it. A canary holds what would be signed then; it is not in this model.
    """
    world = ModelWorld(takes_back=takes_back, signing_pairs=pairs)
    older: dict[Step, RotationRecord] = {}
    for number in range(60):
        for _ in range(200):
            move = world.step()
            older.setdefault(world.record.step, world.record)
            for record in older.values():
                replayed = twin(world)
                replayed.record = record
                replayed.run()
                replayed.require_everybody_is_accepted()
            if not isinstance(move, Make | Advance):
                break
        progress(world)
        order(world, Operation.COMPLETE, 100 + number)
        if world.record.phase.is_over:
            break
    assert older.keys() == set(forward(pairs))
