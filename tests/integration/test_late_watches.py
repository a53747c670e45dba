"""One collection's watch hangs while the others go on: what it does not tell is no reason to let anybody in.

Each collection has a watch of its own. What stands in somebody's way may be known later than what lets him in.
"""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta
from threading import Thread
from typing import Final

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from signer.kube.resources import (
    ATTESTED_NODES,
    IDENTITY_RESERVATIONS,
    MACHINE_POOLS_V1BETA2,
    MACHINES_V1BETA2,
    SECRETS,
)
from signer.model.policy import DEFAULT_CERTIFICATE_DURATION
from signer.model.record import AttestedNode
from signer.model.reservation import Basis, Pair
from signer.rules.machine import NoRecord
from signer.store import controller_key
from signer.store.controller_key import SECRET_NAME
from signer.store.reservations import Reservations
from signer.testing.api.faults import Fault
from signer.testing.world import CONTROLLER_NAMESPACE, Verdict, WorldCluster
from tests.integration.fixtures import Harness, pending, provider_id
from tests.integration.move import Move, copy_controller_key
from tests.integration.reporting import Reporting
from tests.support.processes import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_waits")]
FINALIZERS: Final = {"metadata": {"finalizers": ["machine.cluster.x-k8s.io"]}}
LATE = pytest.mark.parametrize("late", [False, True], ids=["in time", "late"])


@pytest.fixture
def source(harness: Harness) -> Reporting:
    """A management cluster with a controller, whose attestor believes what a node says that it is."""
    reporting = Reporting(harness)
    reporting.run()
    return reporting


@pytest.fixture
def target(target: Harness) -> Reporting:
    """The other one; its controller is started by the test."""
    return Reporting(target)


def hold_up(at: Reporting, collection: str) -> Fault:
    """From now on the watch of that collection delivers nothing."""
    api, watched = at.harness.api, f"GET {collection}"
    wait_until(lambda: len(api.requests.matching(watched)) > 1, "it is listed and watched")
    hangs = api.faults.inject(watched, status=503, times=None)
    api.close_watches()
    wait_until(lambda: hangs.hits > 0, "it hangs")
    return hangs


def post(at: Reporting, cluster: WorldCluster, csr: str, machine: str, identity: str, node_name: str = "") -> None:
    """Make a request for the node of that Machine, with proof of that identity."""
    identifier = machine if "://" in machine else provider_id(machine)
    node = at.node(cluster, node_name or machine, identity=identity, provider_id=identifier)
    cluster.submit_with_token(node.but(provider_id=identifier).client_request(csr))


def ask(at: Reporting, cluster: WorldCluster, csr: str, machine: str, identity: str, node_name: str = "") -> Verdict:
    post(at, cluster, csr, machine, identity, node_name)
    return cluster.wait_until_decided(csr)


def add(cluster: WorldCluster, *machines: str) -> None:
    for machine in machines:
        cluster.add_machine(machine, provider_id=provider_id(machine))


def assert_joins(at: Reporting, cluster: WorldCluster, machine: str, identity: str) -> None:
    assert ask(at, cluster, f"join-{machine}", machine, identity).condition == "Approved"


def assert_conflict(verdict: Verdict) -> None:
    assert (verdict.condition, verdict.reason, verdict.certificate) == ("Denied", "IdentityConflict", b""), verdict


def move(*moves: Move) -> None:
    for step in (Move.pause, Move.create, Move.delete, Move.unpause, Move.reconcile):
        for one in moves:
            step(one)


@LATE
def test_an_identity_of_a_cluster_that_was_moved_too(source: Reporting, target: Reporting, late: bool) -> None:
    first, second = source.cluster("first"), source.cluster("second")
    add(first, "wanted")
    add(second, "owner")
    assert_joins(source, second, "owner", "chip")
    copy_controller_key(source.harness.management, target.harness.management)
    target.run()
    if late:
        hold_up(target, ATTESTED_NODES.collection())
    move(*(Move(cluster, target.harness.management) for cluster in (first, second)))
    assert_conflict(ask(target, first, "impostor", "wanted", "chip"))


@LATE
def test_an_identity_whose_record_has_a_key_that_was_not_read_yet(
    source: Reporting, target: Reporting, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source's key is the target's previous one now, which the target reads when it sees such a record."""
    monkeypatch.setattr(controller_key, "MINIMUM_READ_INTERVAL_SECONDS", 0.05)
    cluster = source.cluster()
    add(cluster, "owner", "wanted")
    assert_joins(source, cluster, "owner", "chip")
    target.run()
    path = SECRETS.object(SECRET_NAME, CONTROLLER_NAMESPACE)
    key = source.harness.management.client.get(path)["data"]["current"]
    unread = target.harness.api.faults.inject(f"GET {path}", status=503, times=None) if late else None
    target.harness.management.client.patch(path, {"data": {"previous": key}})
    move(Move(cluster, target.harness.management))
    post(target, cluster, "impostor", "wanted", "chip")
    if unread is not None:
        assert "was not read yet" in target.harness.wait_for_event("ControllerKeyUnavailable", "wanted")
        pending(cluster, "impostor")
        unread.times = 0
    assert_conflict(cluster.wait_until_decided("impostor"))


@LATE
def test_the_name_of_a_pools_instance(source: Reporting, target: Reporting, late: bool) -> None:
    """Names may be reused at once, and the instance that has it is not known yet."""
    cluster = source.cluster(policy={"nodeNameReuse": "Immediate"})
    cluster.add_machine_pool("pool", "docker:///instance")
    assert ask(source, cluster, "join", "docker:///instance", "its chip", "instance").condition == "Approved"
    add(cluster, "m")
    copy_controller_key(source.harness.management, target.harness.management)
    target.run()
    hangs = hold_up(target, MACHINE_POOLS_V1BETA2.collection()) if late else None
    moved = Move(cluster, target.harness.management)
    move(moved)
    machine = target.harness.management.client.get(MACHINES_V1BETA2.object("m", cluster.namespace))
    addresses = [{"type": "Hostname", "address": name} for name in ("m", "instance")]
    moved.target.set_machine_status(machine, {"addresses": addresses})
    add(moved.target, "later")
    assert_joins(target, cluster, "later", "another chip")  # all of this is known by then
    post(target, cluster, "impostor", "m", "chip of m", "instance")
    if hangs is not None:
        assert "is not known yet" in target.harness.wait_for_event("ReservationPending", "m")
        pending(cluster, "impostor")
        target.harness.api.faults.clear()
    assert_conflict(cluster.wait_until_decided("impostor"))


@LATE
def test_hardware_that_was_revoked_stays_so(source: Reporting, late: bool) -> None:
    """Its record was deleted, and then its reservations (docs/recovering.md): the new hardware is let in."""
    cluster = source.cluster()
    add(cluster, "m")
    assert_joins(source, cluster, "m", "old chip")
    if late:
        hold_up(source, ATTESTED_NODES.collection())
    client = source.harness.management.client
    [record] = source.harness.records(cluster)
    client.delete(ATTESTED_NODES.object(record["metadata"]["name"], cluster.namespace))
    for reservation in source.harness.reservations():
        client.delete(IDENTITY_RESERVATIONS.object(reservation["metadata"]["name"], CONTROLLER_NAMESPACE))
    assert ask(source, cluster, "new", "m", "new chip").condition == "Approved"
    assert_conflict(ask(source, cluster, "old", "m", "old chip"))


def call(cluster: WorldCluster, machine: str, host_name: str) -> None:
    """What the platform says from now on."""
    found = cluster.management.client.get(MACHINES_V1BETA2.object(machine, cluster.namespace))
    cluster.set_machine_status(found, {"addresses": [{"type": "Hostname", "address": host_name}]})


@LATE
def test_a_name_whose_record_was_deleted_is_free(source: Reporting, late: bool) -> None:
    """The name's former Machine has a new name, and an operator admitted the next one (reason IdentityConflict)."""
    cluster = source.cluster()
    add(cluster, "former", "m")
    call(cluster, "former", "database")
    assert ask(source, cluster, "join", "former", "its chip", "database").condition == "Approved"
    call(cluster, "former", "former")
    call(cluster, "m", "database")
    add(cluster, "later")
    assert_joins(source, cluster, "later", "another chip")  # all of this is known by then
    assert_conflict(ask(source, cluster, "too-early", "m", "chip of m", "database"))
    if late:
        hold_up(source, ATTESTED_NODES.collection())
    source.harness.management.client.delete(ATTESTED_NODES.object(f"{cluster.name}.database", cluster.namespace))
    assert ask(source, cluster, "wanted", "m", "chip of m", "database").condition == "Approved"


@LATE
def test_a_machine_whose_name_was_just_corrected(source: Reporting, late: bool) -> None:
    cluster = source.cluster()
    add(cluster, "m")
    call(cluster, "m", "wrong")
    add(cluster, "later")
    assert_joins(source, cluster, "later", "another chip")  # all of this is known by then
    hangs = hold_up(source, MACHINES_V1BETA2.collection()) if late else None
    call(cluster, "m", "m")
    post(source, cluster, "corrected", "m", "chip of m")
    if hangs is not None:
        assert "has changed" in source.harness.wait_for_event("ReservationPending", "m")
        pending(cluster, "corrected")
        source.harness.api.faults.clear()
    assert cluster.wait_until_decided("corrected").condition == "Approved"
    verdict = ask(source, cluster, "other", "m", "chip of m", "wrong")
    assert (verdict.condition, verdict.reason) == ("Denied", "NodeNameMismatch")


@LATE
def test_the_record_of_a_node_that_drains(source: Reporting, late: bool) -> None:
    """It was put back from a backup: the node was attested and renews, and is denied nothing as a first join."""
    cluster = source.cluster()
    add(cluster, "m", "later")
    client, node = source.harness.management.client, source.node(cluster, "m", identity="its chip")
    cluster.submit_with_token(node.client_request("join"))
    assert cluster.wait_until_decided("join").condition == "Approved"
    [record] = source.harness.records(cluster)
    path = ATTESTED_NODES.object(record["metadata"]["name"], cluster.namespace)
    client.delete(path)
    assert_joins(source, cluster, "later", "another chip")  # that is known by then
    if late:
        hold_up(source, ATTESTED_NODES.collection())
    metadata = {key: record["metadata"][key] for key in ("name", "namespace", "labels", "ownerReferences")}
    client.create(ATTESTED_NODES.collection(cluster.namespace), {**record, "metadata": metadata})
    for machine in ("m", "later"):
        cluster.patch_machine(machine, FINALIZERS)
        client.delete(MACHINES_V1BETA2.object(machine, cluster.namespace))
    wait_until(lambda: is_denied(source, cluster, "later", "another chip"), "the deletions are known")
    cluster.submit_as_node(node.but(key=ec.generate_private_key(ec.SECP256R1())).client_request("renew"), "m")
    assert cluster.wait_until_decided("renew").condition == "Approved"


def is_denied(at: Reporting, cluster: WorldCluster, machine: str, identity: str) -> bool:
    """Whether a first join of that Machine is denied now."""
    verdict = ask(at, cluster, f"try-{uuid.uuid4()}", machine, identity)
    return (verdict.condition, verdict.reason) == ("Denied", "MachineDeleting")


@LATE
def test_a_machine_that_is_gone_blocks_no_name(source: Reporting, late: bool) -> None:
    """It was deleted at once, without a finalizer, and is still cached: its node's name is free."""
    cluster = source.cluster(policy={"nodeNameReuse": "Immediate"})
    add(cluster, "former", "m")
    call(cluster, "former", "database")
    assert ask(source, cluster, "join", "former", "its chip", "database").condition == "Approved"
    call(cluster, "m", "database")
    add(cluster, "later")
    assert_joins(source, cluster, "later", "another chip")  # all of this is known by then
    hangs = hold_up(source, MACHINES_V1BETA2.collection()) if late else None
    source.harness.management.client.delete(MACHINES_V1BETA2.object("former", cluster.namespace))
    post(source, cluster, "wanted", "m", "chip of m", "database")
    if hangs is not None:
        assert "has changed" in source.harness.wait_for_event("ReservationPending", "m")
        pending(cluster, "wanted")
        source.harness.api.faults.clear()
    assert cluster.wait_until_decided("wanted").condition == "Approved"


def post_together(at: Reporting, cluster: WorldCluster, *names: str) -> None:
    """Let the node of Machine ``m`` ask for all of these names at once."""
    asking = [Thread(target=post, args=(at, cluster, name, "m", "chip", name)) for name in names]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()


@pytest.mark.parametrize("how", ["one after the other", "together", "one is overtaken"])
def test_two_names_of_one_machine(source: Reporting, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each name's record is an object of its own; the first of them is waited for."""
    cluster = source.cluster()
    cluster.add_machine("m", provider_id=provider_id("m"), addresses=[("Hostname", "one"), ("Hostname", "two")])
    add(cluster, "later")
    assert_joins(source, cluster, "later", "another chip")  # all of this is known by then
    names = ("one", "two")

    def one_is_decided() -> bool:
        return any(cluster.verdict(name).condition for name in names)

    if how == "one is overtaken":
        reserve, first = Reservations.reserve, [True]

        async def slow(self: Reservations, pair: Pair, record: AttestedNode | NoRecord, basis: Basis) -> None:
            await reserve(self, pair, record, basis)
            if first and first.pop():
                await asyncio.to_thread(wait_until, one_is_decided, "the other is")

        monkeypatch.setattr(Reservations, "reserve", slow)
    if how == "together":
        path = ATTESTED_NODES.collection(cluster.namespace)
        source.harness.api.faults.inject(f"POST {path}", delay_seconds=0.5, times=None)
        post_together(source, cluster, *names)
    else:
        for name in names:
            post(source, cluster, name, "m", "chip", name)
    assert "is node" in source.harness.wait_for_event("NodeNameBlocked", "m")
    wait_until(one_is_decided, "one is")
    assert sorted(cluster.verdict(name).condition for name in names) == ["", "Approved"]
    records = [record["spec"]["nodeName"] for record in source.harness.records(cluster)]
    assert len([name for name in records if name in names]) == 1


def test_two_names_of_former_nodes(harness: Harness) -> None:
    """Each has a record, of a Machine that is gone and a certificate that has run out: whoever takes one over waits for
    the other as well.
    """
    reporting, names, ahead = Reporting(harness), ("one", "two"), timedelta()
    reporting.run(ahead=lambda: ahead)
    cluster = reporting.cluster()
    add(cluster, *names)
    for name in names:
        assert_joins(reporting, cluster, name, f"chip of {name}")
        harness.management.client.delete(MACHINES_V1BETA2.object(name, cluster.namespace))
    cluster.add_machine("m", provider_id=provider_id("m"), addresses=[("Hostname", name) for name in names])
    add(cluster, "later")
    assert_joins(reporting, cluster, "later", "another chip")  # all of this is known by then
    ahead = DEFAULT_CERTIFICATE_DURATION + timedelta(minutes=11)
    harness.api.faults.inject(f"PUT {ATTESTED_NODES.collection(cluster.namespace)}/*", delay_seconds=0.5, times=None)
    post_together(reporting, cluster, *names)
    harness.wait_for_event("NodeNameBlocked", "m", part="is node")
    wait_until(lambda: any(cluster.verdict(name).condition for name in names), "one is decided")
    assert sorted(cluster.verdict(name).condition for name in names) == ["", "Approved"]
