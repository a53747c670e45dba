from __future__ import annotations

import copy
import hashlib
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.contract import Security
from signer.model.cluster import ClusterKey
from signer.model.record import MachineKey
from signer.model.reservation import (
    InvalidReservation,
    Pair,
    Reservation,
    ReservationSide,
    parse_reservation,
)
from tests.support.reservations import ATTESTED, reservation_spec
from tests.unit.signer.builders import attested_identity, machine_view
from tests.unit.signer.model.test_record_object import IDENTITIES, JSON, TEXT

PAIR = Pair(MachineKey.of(machine_view()), attested_identity())
FORM = reservation_spec(ReservationSide.IDENTITY, PAIR)
PATHS = [
    ("metadata",),
    ("spec",),
    *(("metadata", key) for key in ("name", "uid", "resourceVersion")),
    *(("spec", key) for key in FORM),
    *(("spec", name, key) for name in ("machineRef", "attestedFor") for key in FORM[name]),
]


def manifest(pair: Pair = PAIR, side: ReservationSide = ReservationSide.IDENTITY) -> dict[str, Any]:
    return {
        "metadata": {"name": pair.name(side), "uid": "u", "resourceVersion": "7"},
        "spec": reservation_spec(side, pair),
    }


def changed(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    made = copy.deepcopy(manifest())
    parent: Any = made
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    return made


NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?", fullmatch=True)
NAMED = st.builds(MachineKey, st.builds(ClusterKey, NAMES, NAMES), TEXT, NAMES, TEXT)


@pytest.mark.parametrize("name", ["a%b", "a/b", "..", "A", "a" * 254, "a\n", "-a"])
@pytest.mark.parametrize("field", ["namespace", "clusterName", "name"])
def test_a_name_that_no_object_can_have(field: str, name: str) -> None:
    """Upkeep asks for that object: such a name must move no call to another one."""
    key = MachineKey(
        ClusterKey(name if field == "namespace" else "team-a", name if field == "clusterName" else "prod"),
        "Machine",
        name if field == "name" else "m",
        "p:///1",
    )
    with pytest.raises(InvalidReservation):
        parse_reservation(manifest(Pair(key, attested_identity())))


@given(st.builds(Pair, NAMED, IDENTITIES), st.sampled_from(ReservationSide))
def test_round_trip(pair: Pair, side: ReservationSide) -> None:
    parsed = parse_reservation(manifest(pair, side))
    assert parsed == Reservation(side, pair, "u", "7", basis=ATTESTED)
    assert parsed.name == manifest(pair, side)["metadata"]["name"]


def test_names() -> None:
    assert PAIR.name(ReservationSide.MACHINE) == f"machine-{PAIR.machine.digest}"
    assert PAIR.name(ReservationSide.IDENTITY) == f"identity-{PAIR.identity.digest}"


def test_a_pair_of_hardware_is_apart_from_that_of_the_identity() -> None:
    """One Machine has both. Two keys of one chip, of two Machines, meet at one name."""
    hardware = PAIR.of_hardware("chip:1")
    other = Pair(replace(PAIR.machine, name="other"), attested_identity("ek:2")).of_hardware("chip:1")
    assert hardware.name(ReservationSide.IDENTITY) == other.name(ReservationSide.IDENTITY)
    key = PAIR.of_hardware_identity("chip:1")
    names = {pair.name(side) for pair in (PAIR, hardware, key, other) for side in ReservationSide}
    assert len(names) == 7
    for side, pair in product(ReservationSide, (hardware, key)):
        assert parse_reservation(manifest(pair, side)).pair == pair


def test_the_names_of_pairs_of_hardware_stay() -> None:
    """They are those of objects that exist."""
    assert PAIR.of_hardware("chip:1").name(ReservationSide.MACHINE) == (
        f"machine-{hashlib.sha256(f'{PAIR.machine.digest}+hardware'.encode()).hexdigest()}"
    )


def test_sides() -> None:
    assert ReservationSide.MACHINE.other is ReservationSide.IDENTITY
    assert ReservationSide.IDENTITY.other is ReservationSide.MACHINE


class TestPartner:
    MACHINE = Reservation(ReservationSide.MACHINE, PAIR, "u1", "1")

    def test_same_pair(self) -> None:
        assert self.MACHINE.is_partner_of(Reservation(ReservationSide.IDENTITY, PAIR, "u2", "2"))

    def test_however_secure_the_attestor_was_called(self) -> None:
        insecure = replace(PAIR, identity=replace(PAIR.identity, security=Security.INSECURE))
        assert self.MACHINE.is_partner_of(Reservation(ReservationSide.IDENTITY, insecure, "u2", "2"))

    @pytest.mark.parametrize(
        "pair",
        [
            replace(PAIR, machine=replace(PAIR.machine, name="other")),
            replace(PAIR, identity=attested_identity("ek:2")),
            Pair(replace(PAIR.machine, name="other"), attested_identity("ek:2")),
        ],
    )
    def test_another_pair(self, pair: Pair) -> None:
        assert not self.MACHINE.is_partner_of(Reservation(ReservationSide.IDENTITY, pair, "u2", "2"))


def test_contested() -> None:
    made = manifest()
    for given_annotations, contested in (
        (None, False),
        ({}, False),
        ({"other": "x"}, False),
        ({"attestation.cluster.x-k8s.io/contested": ""}, True),
    ):
        made["metadata"]["annotations"] = given_annotations
        assert parse_reservation(made).contested is contested
    with pytest.raises(InvalidReservation):
        parse_reservation(changed(("metadata", "annotations"), 5))


def test_form() -> None:
    assert {
        "machineRef": {"namespace": "team-a", "clusterName": "prod", "kind": "Machine", "name": "prod-md-0-x7k2p"},
        "providerID": "aws:///eu-west-1a/i-0123456789abcdef0",
        "attestor": "tpm",
        "identity": "ek:1",
        "security": "secure",
        "attestedFor": {"clusterUID": "c-1", "machineUID": "m-1", "time": "2020-01-01T00:00:00Z"},
        "seal": FORM["seal"],
    } == FORM


@pytest.mark.parametrize("path", PATHS, ids=lambda path: ".".join(path))
@pytest.mark.parametrize("value", [None, "", 5, True, [], {}, ["x"], {"a": "b"}, "\ud800"])
def test_ill_typed(path: tuple[str, ...], value: Any) -> None:
    with pytest.raises(InvalidReservation):
        parse_reservation(changed(path, value))


@pytest.mark.parametrize("path", [path for path in PATHS if path != ("spec", "attestedFor")], ids=".".join)
def test_missing(path: tuple[str, ...]) -> None:
    made = copy.deepcopy(manifest())
    parent: Any = made
    for key in path[:-1]:
        parent = parent[key]
    del parent[path[-1]]
    with pytest.raises(InvalidReservation, match="not a reservation of ours: KeyError"):
        parse_reservation(made)


@pytest.mark.parametrize(
    "name",
    [
        "x",
        PAIR.identity.digest,
        f"machine-{PAIR.identity.digest}",
        f"identity-{PAIR.machine.digest}",
        f"identity-{PAIR.identity.digest}0",
    ],
)
def test_name_that_is_not_the_digest(name: str) -> None:
    with pytest.raises(InvalidReservation, match="name is not the digest of its content"):
        parse_reservation(changed(("metadata", "name"), name))


@pytest.mark.parametrize("path", [("spec", "identity"), ("spec", "attestor")])
def test_content_that_is_not_the_names(path: tuple[str, ...]) -> None:
    with pytest.raises(InvalidReservation, match="digest"):
        parse_reservation(changed(path, "other"))


@given(st.dictionaries(st.sampled_from(["metadata", "spec"]), JSON))
def test_any_object(made: dict[str, Any]) -> None:
    with pytest.raises(InvalidReservation):
        parse_reservation(made)


@given(st.sampled_from(PATHS), JSON)
def test_any_value_is_a_reservation_or_invalid(path: tuple[str, ...], value: Any) -> None:
    made = changed(path, value)
    with suppress(InvalidReservation):
        found = parse_reservation(made)
        again = reservation_spec(found.side, found.pair, found.basis)
        assert {**again, "seal": found.seal} == made["spec"]
