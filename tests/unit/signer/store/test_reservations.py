"""The reservation protocol: every interleaving of two controllers, crashes included, and random ones of four."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attestors.contract import Security
from signer.model.decision import Deferred, Refused
from signer.model.record import AttestedNode
from signer.model.reservation import Pair, ReservationSide, reservation_spec
from signer.rules.machine import NoRecord
from signer.store.inventory import Inventory
from signer.store.reservations import Reservations
from tests.unit.signer.builders import record as a_record
from tests.unit.signer.store.interleavings import (
    NAMESPACE,
    VERSION,
    Calls,
    End,
    Half,
    Scenario,
    World,
    explore,
    identity,
    machine,
    pair,
)

INSECURE: Final = Security.INSECURE
MACHINE_SIDE, IDENTITY_SIDE = ReservationSide.MACHINE, ReservationSide.IDENTITY


def whole(one: Pair, *, contested: bool = False) -> tuple[Half, Half]:
    return Half(MACHINE_SIDE, one, contested), Half(IDENTITY_SIDE, one, contested)


SCENARIOS: Final[dict[str, Scenario]] = {
    "the same pair twice": Scenario((pair("m1", "a"), pair("m1", "a"))),
    "two identities for one Machine": Scenario((pair("m1", "a"), pair("m1", "b"))),
    "one identity for two Machines": Scenario((pair("m1", "a"), pair("m2", "a"))),
    "crossed": Scenario((pair("m1", "a"), pair("m2", "b")), (Half(MACHINE_SIDE, pair("m1", "b")),)),
    "insecure and secure": Scenario((pair("m1", "a", INSECURE), pair("m1", "b"))),
    "secure finds insecure": Scenario((pair("m1", "a", INSECURE), pair("m1", "b")), whole(pair("m1", "a", INSECURE))),
    "two secure find insecure": Scenario((pair("m1", "a"), pair("m1", "b")), whole(pair("m1", "x", INSECURE))),
    "two insecure": Scenario((pair("m1", "a", INSECURE), pair("m1", "b", INSECURE))),
    "half of the Machine's side": Scenario((pair("m1", "a"), pair("m1", "b")), (Half(MACHINE_SIDE, pair("m1", "a")),)),
    "half of the identity's side": Scenario(
        (pair("m1", "a"), pair("m2", "a")), (Half(IDENTITY_SIDE, pair("m1", "a")),)
    ),
    "a foreign half in the way": Scenario((pair("m1", "a"), pair("m1", "b")), (Half(MACHINE_SIDE, pair("m1", "x")),)),
    "a dead half of a moved identity": Scenario(
        (pair("m1", "a"), pair("m1", "b")), (Half(MACHINE_SIDE, pair("m1", "b")), *whole(pair("m2", "b")))
    ),
    "a dead identity's side": Scenario(
        (pair("m1", "a"), pair("m2", "a")), (Half(IDENTITY_SIDE, pair("m2", "a")), *whole(pair("m2", "b")))
    ),
    "marks left by a crash": Scenario((pair("m1", "a"), pair("m1", "b")), whole(pair("m1", "a"), contested=True)),
    "a marked half left by a crash": Scenario(
        (pair("m1", "a"), pair("m1", "b")), (Half(MACHINE_SIDE, pair("m1", "b"), contested=True),)
    ),
    "released by both": Scenario(
        (pair("m1", "a"), pair("m2", "a")), whole(pair("old", "a")), frozenset({"m1", "m2"})
    ),
    # The mover's new Machine is wanted by another too, who finds the mover's side dead while it becomes whole.
    "released while its new half looks dead": Scenario(
        (pair("m1", "a"), pair("m1", "b")), whole(pair("old", "a")), frozenset({"m1"})
    ),
    "its old half is found": Scenario(
        (pair("m1", "a"), pair("old", "b")), whole(pair("old", "a")), frozenset({"m1", "old"}), (("gone", "old"),)
    ),
    "gone at some time": Scenario(
        (pair("m1", "a"), pair("m2", "a")), whole(pair("m2", "a")), frozenset({"m1", "m2"}), (("gone", "m2"),)
    ),
    "gone and back": Scenario(
        (pair("m1", "a"), pair("m2", "a")),
        whole(pair("m2", "a")),
        frozenset({"m1", "m2"}),
        (("gone", "m2"), ("back", "m2")),
    ),
    "other word for its security": Scenario(
        (pair("m1", "a"), pair("m1", "a")),
        tuple(
            Half(side, Pair(machine("m1"), type(identity("a"))("tpm", "a", INSECURE)))
            for side in (MACHINE_SIDE, IDENTITY_SIDE)
        ),
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_interleaving_of_two(name: str) -> None:
    assert explore(SCENARIOS[name]) > 2


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_interleaving_of_two_with_crashes(name: str) -> None:
    assert explore(SCENARIOS[name], crashes=2) > 2
