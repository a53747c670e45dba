"""The explorer goes on with copies of worlds: each is the world that its schedule makes from the beginning."""

from __future__ import annotations

from random import Random
from typing import Final

import pytest

from signer.model.reservation import ReservationSide
from signer.store import reservations
from tests.unit.signer.store.interleavings import World
from tests.unit.signer.store.programs import Answer, Call, Client, FollowedWatch, Program
from tests.unit.signer.store.scenario import End, ExistingSide, Scenario, pair

OLD: Final = tuple(ExistingSide(side, pair("m2", "a")) for side in ReservationSide)
SCENARIOS: Final = {
    "two for one Machine": Scenario((pair("m1", "a"), pair("m1", "b"))),
    "gone and back": Scenario(
        (pair("m1", "a"), pair("m2", "a")), OLD, frozenset({"m1", "m2"}), (("gone", "m2"), ("back", "m2"))
    ),
    "released, and another joins": Scenario(
        (pair("m1", "a"),), OLD, frozenset({"m1"}), (("join", "m1 b"),), (OLD[0].pair,)
    ),
}
COMPARED: Final = ("schedule", "objects", "log", "followed", "machines", "records", "events", "actors")


def choice(world: World, random: Random) -> str:
    """Now and then a crash."""
    found = random.choice(world.choices())
    return found.replace("step", "crash") if random.random() < 0.1 else found


def replayed(scenario: Scenario, schedule: list[str]) -> World:
    world = World(scenario)
    for chosen in schedule:
        world.happen(chosen)
    return world


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_copy_goes_its_own_way(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservations, "_ATTEMPTS", 3)
    random, scenario = Random(name), SCENARIOS[name]
    for _ in range(20):
        world = World(scenario)
        while world.choices():
            branch = world.copied()
            for one in (branch, world):
                one.happen(choice(one, random))
            while branch.choices() and random.random() < 0.8:
                branch.happen(choice(branch, random))
            for one in (branch, world):
                again = replayed(scenario, one.schedule)
                assert one.signature() == again.signature()
                assert set(one.followed) <= {actor.number for actor in one.actors if actor.end is End.RUNNING}
                assert one.whole() == again.whole()
                for field in COMPARED:
                    assert getattr(one, field) == getattr(again, field), field


def test_an_actors_code_runs_once_for_each_row_of_answers() -> None:
    runs: list[str] = []

    async def code(client: Client) -> None:
        runs.append("begins")
        runs.append((await client.get("/first"))["is"])
        await client.get("/second")

    program = Program(lambda client, watch: code(client), watched=True, end=End.HOLDS)
    for _ in range(3):
        for said in ("a", "b"):
            moment = program.first.after(Answer("told", {"is": said}))
            assert moment.call == Call("get", "/second")
            assert moment.after(Answer("told", {})).end is End.HOLDS
    assert runs == ["begins", "a", "begins", "b"]


def test_a_program_that_acts_on_more_than_its_answers_is_noticed() -> None:
    paths = iter(("/first", "/another"))

    async def code(client: Client, path: str) -> None:
        await client.get(path)

    program = Program(lambda client, watch: code(client, next(paths)), watched=True, end=End.HOLDS)
    program.first.after(Answer("one", {}))
    with pytest.raises(AssertionError):
        program.first.after(Answer("another", {}))


def test_a_watch_that_tells_nothing_is_not_asked() -> None:
    async def code(watch: FollowedWatch) -> None:
        with watch.follow([]):
            await watch.expect([(("n", "o"), "1")], 0.5)

    silent, told = (
        Program(lambda client, watch: code(watch), watched=watched, end=End.HOLDS) for watched in (False, True)
    )
    assert silent.first.end is End.HOLDS
    assert told.first.call == Call("expect", body=((("n", "o"), "1"),))
