"""What a stolen controller key, write access to the controller's objects, and both together can do."""

from __future__ import annotations

import copy
import json
from typing import Any, Final

import pytest

from attestors.contract import Security
from signer.kube.resources import ATTESTED_NODES, IDENTITY_RESERVATIONS, MACHINES_V1BETA2
from signer.model.cluster import machine_view
from signer.model.record import AttestedIdentity, MachineKey
from signer.model.record_object import parse_record
from signer.model.reservation import Attested, Pair, ReservationSeals, ReservationSide, parse_reservation
from signer.model.seal import Authentic, ControllerKeys, RecordSeals
from signer.store import garbage_collection
from signer.testing.world import CONTROLLER_NAMESPACE, WorldCluster
from tests.integration.fixtures import Harness, keys_of, node_of, pending, provider_id
from tests.integration.kubelets import add_machine, attest, builtin_serving_request
from tests.support.journal import journal_of
from tests.support.processes import wait_until
from tests.support.reservations import reservation_spec

pytestmark = pytest.mark.slow

FINALIZER: Final = "example.com/kept"
APPROVE: Final = {"mode": "Enforce", "builtinServingRequests": "Approve"}


@pytest.fixture
def cluster(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> WorldCluster:
    """Its node ``m`` has joined, and Machine ``victim`` has no node yet. Garbage collection hardly pauses."""
    monkeypatch.setattr(garbage_collection, "ROUND_SECONDS", 0.2)
    cluster = harness.cluster(policy=APPROVE, api={"server_version": "1.20"})
    for name in ("m", "victim"):
        add_machine(cluster, name)
    harness.run()
    attest(cluster, "m")
    return cluster


def pair_of_forger(harness: Harness, cluster: WorldCluster, machine: str) -> Pair:
    path = MACHINES_V1BETA2.object(machine, cluster.namespace)
    view = machine_view(harness.management.client.get(path))
    return Pair(MachineKey.of(view), AttestedIdentity("keyed-mac", "keyed-mac:forged", Security.SECURE))


def forge_half(harness: Harness, pair: Pair, side: ReservationSide, *finalizers: str) -> None:
    """As the controller's ServiceAccount can write it, with a seal under a key that is not the controller's."""
    spec = reservation_spec(side, pair, keys=ControllerKeys(b"t" * 32))
    harness.management.client.create(
        IDENTITY_RESERVATIONS.collection(CONTROLLER_NAMESPACE),
        {
            "apiVersion": IDENTITY_RESERVATIONS.api_version,
            "kind": "IdentityReservation",
            "metadata": {"name": pair.name(side), "namespace": CONTROLLER_NAMESPACE, "finalizers": list(finalizers)},
            "spec": spec,
        },
    )


def forge_record(harness: Harness, cluster: WorldCluster, machine: str) -> Pair:
    """By the controller key, and write access to AttestedNodes: the Machine belongs to another identity."""
    pair = pair_of_forger(harness, cluster, machine)
    uid = harness.management.client.get(MACHINES_V1BETA2.object(machine, cluster.namespace))["metadata"]["uid"]
    forged = copy.deepcopy(harness.records(cluster)[0])
    forged["metadata"] = {"name": f"{cluster.name}.{machine}", "namespace": cluster.namespace}
    spec = forged["spec"]
    spec["machineRef"] = {"kind": "Machine", "name": machine, "uid": uid}
    spec |= {"providerID": provider_id(machine), "nodeName": machine, "identity": pair.identity.identity}
    spec["certificates"] = [json.dumps(entry) for entry in journal_of(spec)]
    claimed = parse_record({**forged, "metadata": {**forged["metadata"], "uid": "u", "resourceVersion": "1"}})
    spec["seal"] = RecordSeals(keys_of(harness)).seal(claimed)
    harness.management.client.create(ATTESTED_NODES.collection(cluster.namespace), forged)
    return pair


def sides(harness: Harness, machine: str) -> list[dict[str, Any]]:
    return [one for one in harness.reservations() if one["spec"]["machineRef"]["name"] == machine]


# Write access to reservations, without the controller key


def test_half_a_reservation_denies_no_join(harness: Harness, cluster: WorldCluster) -> None:
    """Nor does a finalizer, which would keep it when the controller removes it."""
    forge_half(harness, pair_of_forger(harness, cluster, "victim"), ReservationSide.MACHINE, FINALIZER)
    attest(cluster, "victim")
    found = [parse_reservation(one) for one in sides(harness, "victim")]
    assert [ReservationSeals(keys_of(harness)).verify(one) for one in found] == [Authentic()] * 2


def test_half_a_reservation_in_place_of_the_real_one_denies_no_renewal(harness: Harness, cluster: WorldCluster) -> None:
    pair = pair_of_forger(harness, cluster, "m")
    path = IDENTITY_RESERVATIONS.object(pair.name(ReservationSide.MACHINE), CONTROLLER_NAMESPACE)
    harness.management.client.delete(path)
    forge_half(harness, pair, ReservationSide.MACHINE)
    cluster.submit_as_node(node_of(cluster, "m").client_request("renewal"), "m")
    verdict = cluster.wait_until_decided("renewal")
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
    assert {one["spec"]["identity"] for one in sides(harness, "m")} == {harness.records(cluster)[0]["spec"]["identity"]}


def test_a_finalizer_keeps_no_pair_of_a_machine_that_is_gone(harness: Harness, cluster: WorldCluster) -> None:
    """Neither a side that somebody has deleted already."""
    client = harness.management.client
    paths = [IDENTITY_RESERVATIONS.object(one["metadata"]["name"], CONTROLLER_NAMESPACE) for one in sides(harness, "m")]
    for path in paths:
        client.patch(path, {"metadata": {"finalizers": [FINALIZER]}})
    client.delete(paths[0])
    client.delete(MACHINES_V1BETA2.object("m", cluster.namespace))
    client.delete(ATTESTED_NODES.object(harness.records(cluster)[0]["metadata"]["name"], cluster.namespace))
    wait_until(lambda: not sides(harness, "m"), "both sides are released")


# The controller key, and write access to AttestedNodes


def test_a_forged_record_approves_no_builtin_serving_request(harness: Harness, cluster: WorldCluster) -> None:
    """Its pair is rebuilt, as after a move, and keeps the Machine from others. Nothing else comes of it."""
    forged = forge_record(harness, cluster, "victim")
    wait_until(lambda: len(sides(harness, "victim")) == 2, "the forged pair is rebuilt")
    cluster.submit_as_node(builtin_serving_request("serving", "victim", ["victim"]), "victim")
    message = harness.wait_for_event("NodeNotAttested", "victim", part="only because of the record")
    assert str(forged.machine) in message
    pending(cluster, "serving")


def test_what_was_rebuilt_from_a_record_is_attested_anew_by_a_renewal(harness: Harness, cluster: WorldCluster) -> None:
    for one in sides(harness, "m"):
        harness.management.client.delete(IDENTITY_RESERVATIONS.object(one["metadata"]["name"], CONTROLLER_NAMESPACE))
    wait_until(lambda: len(sides(harness, "m")) == 2, "its pair is rebuilt")
    cluster.submit_as_node(builtin_serving_request("serving", "m", ["m"]), "m")
    harness.wait_for_event("NodeNotAttested", "m", part="only because of the record")
    cluster.submit_as_node(node_of(cluster, "m").client_request("renewal"), "m")
    assert cluster.wait_until_decided("renewal").condition == "Approved"
    assert all(isinstance(parse_reservation(one).basis, Attested) for one in sides(harness, "m"))
    wait_until(lambda: cluster.verdict("serving").condition == "Approved", "the renewal wakes it")
