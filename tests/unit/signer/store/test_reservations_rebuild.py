"""Reservations are rebuilt from authentic records before another Machine can take their place."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest

from attestors.contract import Security
from signer.kube.resources import ATTESTED_NODES, MACHINES_V1BETA2
from signer.model.decision import Deferred, Refused
from signer.model.record import AttestedNode, new_record
from signer.model.reservation import Pair
from signer.model.seal import ControllerKeys
from signer.rules.machine import NoRecord
from signer.store.authentic_records import KeysUnavailable
from signer.store.reservation_rebuild import ReservationRebuild, pair_of
from signer.store.reservations import Reservations
from tests.support.reservations import ATTESTED
from tests.unit.signer.builders import NOW, journal_entry, machine_view
from tests.unit.signer.store.interleavings import Calls, World, drive, inventory_of
from tests.unit.signer.store.scenario import Actor, Scenario, pair
from tests.unit.signer.store.test_authentic_records import KEYS, OTHER, manifest

OURS, IMPOSTOR, ELSEWHERE = pair("m1", "a"), pair("m1", "b"), pair("m2", "a")


def record_of(one: Pair, age_hours: int = 0) -> AttestedNode:
    machine = machine_view(
        cluster=one.machine.cluster, name=one.machine.name, provider_id=one.machine.provider_id, uid=one.machine.name
    )
    entry = journal_entry(decided=NOW - timedelta(hours=age_hours))
    return new_record(machine, f"node-{one.machine.name}-{one.identity.identity}", one.identity, entry)


class Restarted:
    """A controller with these records, in a management cluster without any reservation."""

    def __init__(
        self, *records: AttestedNode, keys: ControllerKeys = KEYS, machines: frozenset[str] | None = None
    ) -> None:
        self.world = World(Scenario((), machines=machines if machines is not None else frozenset({"m1", "m2"})))
        self.actor = Actor(0, OURS)
        self.caches = inventory_of(self.world, self.actor)
        self.caches.authentic.use_keys(KEYS)
        self.reservations = Reservations(Calls(self.world, self.actor), self.caches)
        self.rebuild = ReservationRebuild(self.caches, self.reservations)
        for made in records:
            self.caches.records.applied(manifest(made, keys=keys))
            path = ATTESTED_NODES.object(made.name, made.machine.cluster.namespace)
            self.world.records[path] = manifest(made, keys=keys)
        # No wait: the controller has just read its key.
        self.caches.authentic.begin_key_read()
        self.caches.authentic.use_keys(KEYS)

    def show_machine(self, record: AttestedNode, uid: str = "") -> None:
        """Cache the Machine that the record names; by default the very object."""
        machine = record.machine
        self.caches.machines.applied(
            {
                "metadata": {
                    "namespace": machine.cluster.namespace,
                    "name": machine.name,
                    "uid": uid or record.machine_uid,
                },
                "spec": {"clusterName": machine.cluster.name, "providerID": machine.provider_id},
            }
        )

    def join(self, wanted: Pair) -> None:
        """As the decider does."""
        drive(self.rebuild.rebuild(wanted))
        drive(self.reservations.reserve(wanted, NoRecord(), ATTESTED))

    @property
    def pairs(self) -> set[Pair]:
        return self.world.whole()


@pytest.mark.parametrize("wanted", [IMPOSTOR, ELSEWHERE], ids=["another identity", "another Machine"])
def test_an_impostor_that_comes_first_meets_the_conflict(wanted: Pair) -> None:
    restarted = Restarted(record_of(OURS))
    with pytest.raises(Refused, match="IdentityConflict"):
        restarted.join(wanted)
    assert restarted.pairs == {OURS}


def test_without_a_record_the_first_one_wins() -> None:
    restarted = Restarted()
    restarted.join(IMPOSTOR)
    assert restarted.pairs == {IMPOSTOR}


def test_an_unauthentic_record_reserves_nothing() -> None:
    """Forged by a tenant, or sealed by the controller of another management cluster."""
    restarted = Restarted(record_of(IMPOSTOR), keys=OTHER)
    restarted.join(OURS)
    assert restarted.pairs == {OURS}


def test_a_copy_in_another_namespace_reserves_nothing() -> None:
    restarted = Restarted()
    copy = manifest(record_of(OURS), namespace="team-b")
    restarted.caches.records.applied(copy)
    restarted.join(ELSEWHERE)
    assert restarted.pairs == {ELSEWHERE}


def test_the_owner_reserves_its_pair_again() -> None:
    restarted = Restarted(record_of(OURS))
    restarted.join(OURS)
    assert restarted.pairs == {OURS}


def test_its_own_newest_record_costs_no_call() -> None:
    restarted = Restarted(record_of(OURS), record_of(ELSEWHERE, age_hours=1))
    drive(restarted.rebuild.rebuild(OURS))
    assert restarted.actor.calls == 0


def test_a_cached_pair_costs_no_call() -> None:
    restarted = Restarted(record_of(OURS))
    drive(restarted.rebuild.rebuild(IMPOSTOR))
    assert restarted.pairs == {OURS}
    calls = restarted.actor.calls
    drive(restarted.rebuild.rebuild(IMPOSTOR))
    assert restarted.actor.calls == calls


def test_records_of_gone_machines_reserve_nothing() -> None:
    restarted = Restarted(record_of(OURS), machines=frozenset({"m2"}))
    drive(restarted.rebuild.rebuild(ELSEWHERE))
    assert restarted.world.objects == {}
    assert restarted.actor.calls == 2, "whether the record is gone, or the Machine"
    restarted.join(ELSEWHERE)
    assert restarted.pairs == {ELSEWHERE}


@pytest.mark.parametrize("anew", [False, True])
def test_a_deleted_record_reserves_nothing(anew: bool) -> None:
    """To free the identity for other hardware; the cache has not received it yet."""
    restarted = Restarted(record_of(IMPOSTOR))
    [revoked] = restarted.caches.authentic.values()
    [path] = restarted.world.records
    if anew:
        restarted.world.records[path]["metadata"]["uid"] = "another"
    else:
        del restarted.world.records[path]
    restarted.show_machine(revoked)
    drive(restarted.rebuild.ensure(revoked))
    restarted.join(OURS)
    assert restarted.pairs == {OURS}


def test_a_record_whose_key_was_not_read_yet_is_waited_for() -> None:
    """After a move, with the other controller's key: it may conflict with the identity, and with the Machine."""
    for wanted in (ELSEWHERE, IMPOSTOR):
        restarted = Restarted()
        restarted.caches.records.applied(manifest(record_of(OURS), keys=OTHER))
        with pytest.raises(Deferred, match="was not read yet"):
            restarted.join(wanted)
        assert restarted.pairs == set()
        restarted.caches.authentic.begin_key_read()
        restarted.caches.authentic.use_keys(KEYS)  # it is not authentic
        restarted.join(wanted)
        assert restarted.pairs == {wanted}


def test_an_unverified_record_of_another_namespace_delays_no_request() -> None:
    restarted = Restarted()
    restarted.caches.records.applied(manifest(record_of(in_another_namespace(OURS)), keys=OTHER))
    restarted.join(ELSEWHERE)
    assert restarted.pairs == {ELSEWHERE}


def test_a_machine_that_is_not_cached_yet_is_not_gone() -> None:
    restarted = Restarted(record_of(OURS))
    assert not list(restarted.caches.machines.values())
    with pytest.raises(Refused):
        restarted.join(ELSEWHERE)


# Two records of one identity


@pytest.mark.parametrize("newest_first", [True, False])
def test_where_neither_is_reserved_the_last_attested_wins(newest_first: bool) -> None:
    records = [record_of(ELSEWHERE), record_of(OURS, age_hours=5)]
    for wanted in (OURS, ELSEWHERE):
        restarted = Restarted(*(records if newest_first else reversed(records)))
        if wanted == OURS:
            with pytest.raises(Refused):
                restarted.join(wanted)
        else:
            restarted.join(wanted)
        assert restarted.pairs == {ELSEWHERE}


def test_an_existing_reservation_wins_over_a_newer_record() -> None:
    restarted = Restarted(record_of(OURS, age_hours=5))
    restarted.join(OURS)
    restarted.caches.records.applied(manifest(record_of(ELSEWHERE)))
    restarted.join(OURS)
    assert restarted.pairs == {OURS}
    with pytest.raises(Refused):
        restarted.join(ELSEWHERE)


def test_a_secure_attestor_still_displaces_an_insecure_one() -> None:
    insecure = pair("m1", "x", Security.INSECURE)
    restarted = Restarted(record_of(insecure))
    restarted.join(OURS)
    assert restarted.pairs == {OURS}


def test_an_insecure_claim_finds_the_secure_owner() -> None:
    restarted = Restarted(record_of(OURS))
    with pytest.raises(Refused):
        restarted.join(pair("m1", "x", Security.INSECURE))
    assert restarted.pairs == {OURS}


# At the start


def test_every_record_gets_its_pair_reserved_again() -> None:
    restarted = Restarted(record_of(OURS), record_of(pair("m2", "b")))
    records = restarted.caches.authentic.values()
    assert len(records) == 2
    for record in records:
        restarted.show_machine(record)
        drive(restarted.rebuild.ensure(record))
    assert restarted.pairs == {pair_of(record) for record in records}


def test_a_replayed_older_record_reserves_nothing() -> None:
    restarted = Restarted(record_of(OURS, age_hours=5), record_of(ELSEWHERE))
    older, newer = restarted.caches.authentic.values()
    for record in (older, newer):
        restarted.show_machine(record)
        drive(restarted.rebuild.ensure(record))
    assert restarted.pairs == {ELSEWHERE}


def test_a_machine_created_again_reserves_nothing_by_itself() -> None:
    """Its node is decided when it makes a request; garbage collection must not reserve for a Machine object alone."""
    record = record_of(OURS)
    restarted = Restarted(record)
    restarted.show_machine(record, uid="another")
    drive(restarted.rebuild.ensure(record))
    assert restarted.pairs == set()
    assert restarted.actor.calls == 0, "nor is anything asked because of it"


def test_a_machine_that_is_not_cached_reserves_nothing_by_itself() -> None:
    record = record_of(OURS)
    restarted = Restarted(record)
    drive(restarted.rebuild.ensure(record))
    assert restarted.world.objects == {}
    assert restarted.actor.calls == 0


def in_another_namespace(one: Pair) -> Pair:
    cluster = replace(one.machine.cluster, namespace="former-owner")
    return replace(one, machine=replace(one.machine, cluster=cluster))


def test_hardware_that_moved_to_another_namespace() -> None:
    """A former owner must not keep it by creating the Machine object again."""
    record = record_of(in_another_namespace(OURS), age_hours=5)
    restarted = Restarted(record)
    assert restarted.rebuild._still_stands(record, ELSEWHERE) is False, "no Machine at all"
    restarted.show_machine(record)
    assert restarted.rebuild._still_stands(record, ELSEWHERE) is True
    restarted.show_machine(record, uid="another")
    assert restarted.rebuild._still_stands(record, ELSEWHERE) is False
    [anew] = restarted.caches.machines.values()
    there = {"namespace": anew.cluster.namespace, "name": anew.name, "uid": anew.uid}
    restarted.world.records[MACHINES_V1BETA2.object(anew.name, anew.cluster.namespace)] = {
        "metadata": there,
        "spec": {"clusterName": anew.cluster.name, "providerID": anew.provider_id},
    }
    restarted.join(ELSEWHERE)
    assert restarted.pairs == {ELSEWHERE}


def test_within_the_namespace_a_move_changes_uids_and_nothing_else() -> None:
    record = record_of(OURS)
    restarted = Restarted(record)
    restarted.show_machine(record, uid="moved")
    with pytest.raises(Refused):
        restarted.join(IMPOSTOR)
    assert restarted.pairs == {OURS}


def test_without_the_controller_key_it_waits() -> None:
    restarted = Restarted(record_of(OURS))
    restarted.caches.authentic.use_no_keys(KeysUnavailable("no key"))
    with pytest.raises(Deferred, match="no key"):
        restarted.join(IMPOSTOR)
    assert restarted.pairs == set()


SECURITY_CHANGED: Final = replace(OURS, identity=replace(OURS.identity, security=Security.INSECURE))


def test_the_same_pair_with_another_security() -> None:
    restarted = Restarted(record_of(SECURITY_CHANGED))
    restarted.join(OURS)
    assert restarted.pairs == {OURS}
