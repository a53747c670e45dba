"""Reservations count only as the controller sealed them, and are sealed anew after an attestation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, cast

import pytest

from signer.decision.reserve_and_journal import ReserveAndJournal
from signer.kube.client import JsonObject
from signer.kube.errors import ApiError, Cause, Unreachable
from signer.kube.resources import SECRETS
from signer.model.decision import Deferred
from signer.model.record import MachineKey
from signer.model.reservation import (
    CLOCKS_APART,
    FROM_RECORD,
    Attested,
    Basis,
    Pair,
    Reservation,
    ReservationSeals,
    ReservationSide,
    parse_reservation,
)
from signer.model.seal import Authentic, ControllerKeys, Fault, Generation, Unauthentic
from signer.rules.machine import NoRecord
from signer.store import reservations
from signer.store.authentic_records import KeysUnavailable
from signer.store.controller_key import SECRET_NAME, controller_key_secret
from signer.store.reservations import Reservations
from tests.support.reservations import ATTESTED, KEYS, LONG_BEFORE, reservation_spec
from tests.unit.signer.builders import machine_facts, record, verified
from tests.unit.signer.store.interleavings import Calls, World, drive, explore, inventory_of
from tests.unit.signer.store.scenario import NAMESPACE, Actor, End, ExistingSide, Scenario, pair

OURS, THEIRS = pair("m1", "a"), pair("m1", "b")
ELSEWHERE = pair("m2", "a")
MACHINE, IDENTITY = ReservationSide.MACHINE, ReservationSide.IDENTITY
ROTATED: Final = ControllerKeys(b"n" * 32, KEYS.current)
STRANGER: Final = ControllerKeys(b"s" * 32)
SECRET: Final = SECRETS.object(SECRET_NAME, NAMESPACE)


class WithSecret(Calls):
    """A management API that also has the controller key."""

    def __init__(self, world: World, keys: ControllerKeys | ApiError) -> None:
        super().__init__(world, Actor(0, OURS))
        self._keys = keys
        self.reads = 0

    async def get(self, path: str) -> JsonObject:
        if path != SECRET:
            return await super().get(path)
        self.reads += 1
        if isinstance(self._keys, ApiError):
            raise self._keys
        return controller_key_secret(NAMESPACE, self._keys)


class Controller:
    """One that holds ``keys``, beside these objects; the Secret may hold others by now."""

    def __init__(
        self, *sides: ExistingSide, keys: ControllerKeys = KEYS, secret: ControllerKeys | ApiError = KEYS
    ) -> None:
        self.world = World(Scenario((), sides, frozenset({"m1", "m2"})))
        self.client = WithSecret(self.world, secret)
        self.caches = inventory_of(self.world, Actor(0, OURS))
        self.caches.authentic.use_keys(keys)
        self.reservations = Reservations(self.client, self.caches)

    def reserve(self, wanted: Pair = OURS, basis: Basis = ATTESTED) -> None:
        drive(self.reservations.reserve(wanted, NoRecord(), basis))

    def found(self, wanted: Pair = OURS) -> list[Reservation]:
        return [parse_reservation(self.world.objects[wanted.name(side)]) for side in ReservationSide]


def both(one: Pair, **how: Any) -> tuple[ExistingSide, ...]:
    return tuple(ExistingSide(side, one, **how) for side in ReservationSide)


# What a client without the controller key writes

FORGED: Final = {
    "half of a pair of another identity": (ExistingSide(MACHINE, THEIRS, forged=True),),
    "half of a pair of another Machine": (ExistingSide(IDENTITY, ELSEWHERE, forged=True),),
    "the other half of it, too": both(THEIRS, forged=True),
    "a whole pair of another Machine": both(ELSEWHERE, forged=True),
    "a forged half beside a real one": (
        ExistingSide(MACHINE, THEIRS, forged=True),
        ExistingSide(IDENTITY, OURS),
    ),
    "the own pair": both(OURS, forged=True),
}


@pytest.mark.parametrize("before", FORGED.values(), ids=FORGED)
def test_a_forged_reservation_takes_nothing(before: tuple[ExistingSide, ...]) -> None:
    controller = Controller(*before)
    controller.reserve()
    assert controller.world.whole() == {OURS}
    assert all(isinstance(ReservationSeals(KEYS).verify(side), Authentic) for side in controller.found())


def test_a_forged_reservation_gives_nothing() -> None:
    controller = Controller()
    for side in both(OURS, forged=True):
        controller.caches.reservations.written(controller.world.put(side.pair.name(side.side), "u", side.spec(), {}))
    assert not controller.reservations.cached(OURS)


def test_a_forged_half_is_not_completed() -> None:
    """The honest pair of the same identity stands, and the forged half would have denied it."""
    controller = Controller(ExistingSide(MACHINE, THEIRS, forged=True), *both(pair("m2", "b")))
    controller.reserve()
    assert controller.world.whole() == {OURS, pair("m2", "b")}


@pytest.mark.parametrize("side", ReservationSide)
def test_a_seal_of_the_other_side_is_no_seal(side: ReservationSide) -> None:
    spec = {**reservation_spec(side, OURS), "seal": reservation_spec(side.other, OURS)["seal"]}
    metadata = {"name": OURS.name(side), "uid": "u", "resourceVersion": "1"}
    moved = parse_reservation({"metadata": metadata, "spec": spec})
    assert ReservationSeals(KEYS).verify(moved) == Unauthentic(Fault.WRONG_SEAL)


CHANGES: Final[dict[str, Any]] = {
    "cluster's UID": {"attestedFor": {"clusterUID": "x", "machineUID": "m-1", "time": "2020-01-01T00:00:00Z"}},
    "Machine's UID": {"attestedFor": {"clusterUID": "c-1", "machineUID": "x", "time": "2020-01-01T00:00:00Z"}},
    "time": {"attestedFor": {"clusterUID": "c-1", "machineUID": "m-1", "time": "2020-01-01T00:00:01Z"}},
    "security": {"security": "insecure"},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_seal_covers_the_whole_spec(change: JsonObject) -> None:
    metadata = {"name": OURS.name(MACHINE), "uid": "u", "resourceVersion": "1"}
    changed = parse_reservation({"metadata": metadata, "spec": {**reservation_spec(MACHINE, OURS), **change}})
    assert ReservationSeals(KEYS).verify(changed) == Unauthentic(Fault.WRONG_SEAL)


def test_a_record_alone_does_not_become_an_attestation() -> None:
    spec = reservation_spec(MACHINE, OURS, FROM_RECORD)
    spec["attestedFor"] = reservation_spec(MACHINE, OURS)["attestedFor"]
    metadata = {"name": OURS.name(MACHINE), "uid": "u", "resourceVersion": "1"}
    found = parse_reservation({"metadata": metadata, "spec": spec})
    assert ReservationSeals(KEYS).verify(found) == Unauthentic(Fault.WRONG_SEAL)


@pytest.mark.parametrize(
    "forged", [ExistingSide(MACHINE, THEIRS, forged=True), ExistingSide(IDENTITY, ELSEWHERE, forged=True)]
)
def test_two_controllers_remove_it_in_any_order(forged: ExistingSide, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservations, "_ATTEMPTS", 3)
    assert explore(Scenario((OURS, OURS), (forged,))) > 10


# Another key


def test_under_the_key_of_another_controller_nothing_is_reserved() -> None:
    """As after a move without the key."""
    controller = Controller(*both(THEIRS, keys=STRANGER))
    controller.reserve()
    assert controller.world.whole() == {OURS}


def test_the_key_that_another_replica_has_read_already_counts() -> None:
    controller = Controller(*both(ELSEWHERE, keys=ROTATED), secret=ROTATED)
    with pytest.raises(Exception, match="IdentityConflict"):
        controller.reserve()
    assert controller.client.reads == 1
    assert len(controller.world.objects) == 2


def test_it_waits_while_the_key_cannot_be_read() -> None:
    controller = Controller(*both(THEIRS, keys=STRANGER), secret=Unreachable("down", cause=Cause.REFUSED))
    with pytest.raises(Deferred, match="controller key cannot be read") as deferred:
        controller.reserve()
    assert deferred.value.defer.reason == "ControllerKeyUnavailable"
    assert len(controller.world.objects) == 2


def test_without_a_key_nothing_is_reserved() -> None:
    controller = Controller()
    controller.caches.authentic.use_no_keys(KeysUnavailable("no key"))
    with pytest.raises(Deferred, match="no key"):
        controller.reserve()
    assert controller.world.objects == {}


# Written anew after an attestation

LATER: Final = Attested("c-1", "m-1", LONG_BEFORE + 2 * CLOCKS_APART)


@pytest.mark.parametrize(
    ("before", "wanted", "after"),
    [
        (FROM_RECORD, ATTESTED, ATTESTED),
        (ATTESTED, FROM_RECORD, ATTESTED),
        (ATTESTED, LATER, ATTESTED),
        (LATER, ATTESTED, ATTESTED),
        (ATTESTED, replace(LATER, machine_uid="m-2"), replace(LATER, machine_uid="m-2")),
        (ATTESTED, replace(LATER, cluster_uid="c-2"), replace(LATER, cluster_uid="c-2")),
    ],
    ids=[
        "rebuilt",
        "an attested one is not rebuilt",
        "renewed",
        "from the future",
        "another Machine",
        "another Cluster",
    ],
)
def test_the_basis_is_that_of_the_attestation(before: Basis, wanted: Basis, after: Basis) -> None:
    controller = Controller(*both(OURS, basis=before))
    controller.reserve(basis=wanted)
    assert [side.basis for side in controller.found()] == [after, after]
    assert all(isinstance(ReservationSeals(KEYS).verify(side), Authentic) for side in controller.found())


def test_after_a_rotation_of_the_key_it_is_sealed_anew() -> None:
    controller = Controller(*both(OURS), keys=ROTATED)
    for side in controller.found():
        controller.caches.reservations.written(controller.world.objects[side.name])
    drive(controller.reservations.reserve(OURS, of_this_pair(), ATTESTED))
    verified = [ReservationSeals(ROTATED).verify(side) for side in controller.found()]
    assert verified == [Authentic(Generation.CURRENT)] * 2


def test_after_a_rotation_of_the_key_the_pair_of_the_hardware_is_sealed_anew_too() -> None:
    """Otherwise all of them lapse with the previous key: another Machine could have the chip until the next renewal."""
    facts = machine_facts(proven=replace(verified(), hardware="chip:1"))
    pairs = [identity := Pair(MachineKey.of(facts.machine), facts.identity), identity.of_hardware("chip:1")]
    controller = Controller(*both(pairs[0]), *both(pairs[1]), keys=ROTATED)
    for side in (*controller.found(pairs[0]), *controller.found(pairs[1])):
        controller.caches.reservations.written(controller.world.objects[side.name])
    parts = cast("Any", (None, controller.caches, controller.reservations, None, None))
    nothing = cast("Any", None)
    renewal = ReserveAndJournal(facts.machine.cluster, *parts, serving=nothing, host_certificates=nothing)
    drive(renewal.reserve(facts, lambda compared: None))
    for one in pairs:
        verified_sides = [ReservationSeals(ROTATED).verify(side) for side in controller.found(one)]
        assert verified_sides == [Authentic(Generation.CURRENT)] * 2


@pytest.mark.parametrize("basis", [ATTESTED, LATER, FROM_RECORD])
def test_a_renewal_costs_no_call(basis: Basis) -> None:
    controller = Controller(*both(OURS))
    for side in controller.found():
        controller.caches.reservations.written(controller.world.objects[side.name])
    log = len(controller.world.log)
    drive(controller.reservations.reserve(OURS, of_this_pair(), basis))
    assert len(controller.world.log) == log
    assert controller.client._actor.calls == 0


def of_this_pair() -> Any:
    return replace(record(), machine=OURS.machine, identity=OURS.identity)


def test_a_half_that_is_completed_keeps_its_basis() -> None:
    """The finder has no attestation of that pair."""
    controller = Controller(ExistingSide(MACHINE, THEIRS, basis=FROM_RECORD))
    with pytest.raises(Exception, match="IdentityConflict"):
        controller.reserve()
    assert [side.basis for side in controller.found(THEIRS)] == [FROM_RECORD, FROM_RECORD]


def test_an_actor_refreshes_while_another_removes(monkeypatch: pytest.MonkeyPatch) -> None:
    """No order of calls loses the pair: see the invariants of the explorer."""
    monkeypatch.setattr(reservations, "_ATTEMPTS", 3)
    half_dead = ExistingSide(IDENTITY, OURS, contested=True, basis=FROM_RECORD)
    assert explore(Scenario((OURS, ELSEWHERE), (ExistingSide(MACHINE, OURS, basis=FROM_RECORD), half_dead))) > 10


def test_end() -> None:
    world = World(Scenario((OURS,), both(OURS, basis=FROM_RECORD)))
    world.run_alone(world.actors[0])
    assert world.actors[0].end is End.HOLDS
