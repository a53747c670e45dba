"""Garbage collection releases a gone Machine's pair: every interleaving with joining nodes, crashes included."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Final

import pytest

from signer.model import record as record_module
from signer.model.reservation import ReservationSide
from signer.store import reservations
from tests.unit.signer.store.interleavings import World, explore
from tests.unit.signer.store.scenario import End, ExistingSide, Scenario, pair

OLD: Final = pair("old", "a")
WHOLE: Final = (ExistingSide(ReservationSide.MACHINE, OLD), ExistingSide(ReservationSide.IDENTITY, OLD))
BACK: Final = (("back", "old"), ("join", "old a"))
M1: Final = frozenset({"m1"})
SCENARIOS: Final[dict[str, Scenario]] = {
    "its Machine is back": Scenario((), WHOLE, M1, BACK, (OLD,)),
    "its Machine is back with another identity": Scenario((), WHOLE, M1, (("back", "old"), ("join", "old b")), (OLD,)),
    "its identity joins as another Machine": Scenario((pair("m1", "a"),), WHOLE, M1, released=(OLD,)),
    "only the Machine's side": Scenario((), WHOLE[:1], M1, BACK, (OLD,)),
    "only the identity's side": Scenario((), WHOLE[1:], M1, BACK, (OLD,)),
    "only the identity's side, and it joins elsewhere": Scenario((pair("m1", "a"),), WHOLE[1:], M1, released=(OLD,)),
    "by two": Scenario((), WHOLE, M1, BACK, (OLD, OLD)),
    "its Machine goes again": Scenario((), WHOLE, M1, (*BACK, ("gone", "old")), (OLD,)),
}
LARGE: Final = "by two"
"""Takes more than a second: only among the slow tests."""


@pytest.fixture(autouse=True, scope="module")
def fewer_attempts() -> Iterator[None]:
    """See ``test_reservations``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reservations, "_ATTEMPTS", 3)
        patch.setattr(record_module, "_digest", functools.cache(record_module._digest))
        yield


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name != LARGE])
def test_every_interleaving_with_a_joining_node(name: str) -> None:
    assert explore(SCENARIOS[name]) > 2


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_interleaving_with_a_joining_node_and_crashes(name: str) -> None:
    assert explore(SCENARIOS[name], crashes=2) > 2


def alone(scenario: Scenario) -> World:
    """Run garbage collection to its end."""
    world = World(scenario)
    world.run_alone(world.actors[0])
    assert world.actors[0].end is End.RELEASED
    return world


@pytest.mark.parametrize("before", [WHOLE, WHOLE[:1], WHOLE[1:], ()], ids=["whole", "Machine", "identity", "nothing"])
def test_the_remaining_sides_of_a_gone_machines_pair_are_released(before: tuple[ExistingSide, ...]) -> None:
    assert alone(Scenario((), before, released=(OLD,))).objects == {}


def test_nothing_is_released_while_the_machine_exists() -> None:
    world = alone(Scenario((), WHOLE, frozenset({"old"}), released=(OLD,)))
    assert world.whole() == {OLD}
    assert world.actors[0].calls == 1


@pytest.mark.parametrize("theirs", [pair("m1", "a"), pair("old", "b")], ids=["identity", "Machine"])
def test_only_that_pair_is_released(theirs: object) -> None:
    """Its identity or its Machine belongs to others meanwhile: their pair stays."""
    assert isinstance(theirs, type(OLD))
    sides = tuple(ExistingSide(side, theirs) for side in ReservationSide)
    assert alone(Scenario((), sides, released=(OLD,))).whole() == {theirs}
