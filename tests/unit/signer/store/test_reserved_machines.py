"""How many Machines of a namespace may be reserved."""

from __future__ import annotations

from typing import Any, Final

import pytest

from signer.model.decision import Deferred
from signer.model.floors import NO_FLOORS
from signer.model.namespace_limits import NamespaceLimits
from signer.model.reservation import Pair, ReservationSide
from signer.store.caches import Caches
from tests.support.reservations import reservation_spec
from tests.unit.signer.store.scenario import pair
from tests.unit.signer.store.test_caches import VERSION

OWN: Final = "own"
FIRST, SECOND = pair("m1", "a"), pair("m2", "b")


def stored(of: Pair, side: ReservationSide) -> dict[str, Any]:
    metadata = {"namespace": OWN, "name": of.name(side), "uid": of.name(side), "resourceVersion": "1"}
    return {"metadata": metadata, "spec": reservation_spec(side, of)}


@pytest.fixture
def caches() -> Caches:
    """One Machine may be reserved, and is, with its hardware."""
    caches = Caches(VERSION, own_namespace=OWN, floors=NO_FLOORS, limits=NamespaceLimits(attested_nodes=1))
    for of in (FIRST, FIRST.of_hardware("chip")):
        for side in ReservationSide:
            caches.reservations.applied(stored(of, side))
    return caches


def test_another_machine_waits_and_that_one_does_not(caches: Caches) -> None:
    caches.require_room(FIRST)
    caches.require_room(FIRST.of_hardware("another chip"))
    with pytest.raises(Deferred, match=r"1 Machines of namespace .* limit of AttestedNodes is 1"):
        caches.require_room(SECOND)


def test_the_release_of_a_machine_makes_room(caches: Caches) -> None:
    caches.reservations.removed(stored(FIRST, ReservationSide.MACHINE))
    caches.require_room(SECOND)


def test_the_last_machine_gets_its_hardware(caches: Caches) -> None:
    """Its identity is reserved before, so that the limit is reached by itself."""
    caches.require_room(SECOND.of_hardware("chip"))


def test_hardware_is_no_other_machine(caches: Caches) -> None:
    caches.reservations.removed(stored(FIRST.of_hardware("chip"), ReservationSide.MACHINE))
    with pytest.raises(Deferred):
        caches.require_room(SECOND)
