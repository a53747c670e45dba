"""Garbage collection in the running controller: it restores reservations, deletes expired objects, disturbs no join."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from signer.controller.run import ControllerOptions
from signer.kube.resources import (
    ATTESTED_NODES,
    CERTIFICATE_SIGNING_REQUESTS,
    IDENTITY_RESERVATIONS,
    MACHINES_V1BETA2,
)
from signer.store import garbage_collection as garbage_collector
from signer.testing.fixtures import open_controllers
from signer.testing.world import CONTROLLER_NAMESPACE, RunningController, WorldCluster
from tests.integration.endorsement_key_sources import assert_every_certificate_is_permitted
from tests.integration.fixtures import CONTROLLER_USER, MASTERS, Harness, keyed_mac, node_of, provider_id
from tests.support.processes import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def rounds_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty rounds a second."""
    monkeypatch.setattr(garbage_collector, "ROUND_SECONDS", 0.05)


def run(harness: Harness, *, days_ahead: float = 0) -> RunningController:
    """A controller whose clock is so many days ahead."""
    ahead = timedelta(days=days_ahead)
    return harness.run(ControllerOptions(now=lambda: datetime.now(UTC) + ahead))


def delete_reservations(harness: Harness) -> None:
    """As ``clusterctl move`` leaves them behind."""
    for found in harness.reservations():
        name = found["metadata"]["name"]
        harness.management.client.delete(IDENTITY_RESERVATIONS.object(name, CONTROLLER_NAMESPACE))


def delete_machine(cluster: WorldCluster, name: str) -> None:
    cluster.management.client.delete(MACHINES_V1BETA2.object(name, cluster.namespace))


def test_a_fault_of_garbage_collection_does_not_end_decisions(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = 0

    async def fails(self: garbage_collector.GarbageCollector) -> None:
        nonlocal rounds
        rounds += 1
        raise RuntimeError("a defect")

    monkeypatch.setattr(garbage_collector.GarbageCollector, "round", fails)
    cluster = harness.cluster()
    run(harness)
    wait_until(lambda: rounds > 0, "upkeep has failed")
    harness.join(cluster, "m1")
    wait_until(lambda: rounds > 1, "upkeep begins anew")


def test_reservations_are_restored_before_any_request(harness: Harness) -> None:
    cluster = harness.cluster()
    with open_controllers(harness.management) as start:
        start(connection=harness.api.connection(CONTROLLER_USER, MASTERS), attestors=keyed_mac())
        for machine in ("m1", "m2"):
            harness.join(cluster, machine)
    before = reserved_for(harness)
    delete_reservations(harness)
    run(harness)
    wait_until(lambda: len(harness.reservations()) == len(before), "every reservation is back")
    assert reserved_for(harness) == before


def reserved_for(harness: Harness) -> dict[str, dict[str, Any]]:
    """By name, what is reserved; not for which attestation."""
    return {
        found["metadata"]["name"]: {k: v for k, v in found["spec"].items() if k not in ("attestedFor", "seal")}
        for found in harness.reservations()
    }


def test_a_deleted_machine_leaves_nothing_after_its_certificates_expire(harness: Harness) -> None:
    cluster = harness.cluster()
    with open_controllers(harness.management) as start:
        start(connection=harness.api.connection(CONTROLLER_USER, MASTERS), attestors=keyed_mac())
        for machine in ("m1", "m2"):
            harness.join(cluster, machine)
        delete_machine(cluster, "m1")
        harness.join(cluster, "m3")  # many rounds later
        assert len(harness.records(cluster)) == 3, "its certificate is still good"
        assert len(harness.reservations()) == 6
    run(harness, days_ahead=30)
    wait_until(lambda: len(harness.reservations()) == 4, "those of m1 are released")
    assert sorted(record["spec"]["nodeName"] for record in harness.records(cluster)) == ["m2", "m3"]


def test_a_paused_cluster_keeps_everything(harness: Harness) -> None:
    """What ``clusterctl move`` does at the source must not look like Machines that are gone."""
    cluster, other = harness.cluster(), harness.cluster("other")
    with open_controllers(harness.management) as start:
        start(connection=harness.api.connection(CONTROLLER_USER, MASTERS), attestors=keyed_mac())
        harness.join(cluster, "m1")
        harness.join(other, "o1")
    cluster.patch({"spec": {"paused": True}})
    delete_machine(cluster, "m1")
    delete_machine(other, "o1")
    run(harness, days_ahead=30)
    wait_until(lambda: len(harness.reservations()) == 2, "those of the other Cluster are released")
    assert harness.records(other) == []
    assert len(harness.records(cluster)) == 1
    assert {found["spec"]["machineRef"]["clusterName"] for found in harness.reservations()} == {cluster.name}


def test_nodes_that_join_again_and_again_are_not_disturbed(harness: Harness) -> None:
    """Machines come and go under the same names and provider IDs, under two controllers, and so do their records."""
    cluster = harness.cluster()
    controllers = [run(harness), run(harness)]
    assert controllers
    machines = [f"m{number}" for number in range(6)]
    for turn in range(4):
        for machine in machines:
            if turn:
                cluster.client().delete(CERTIFICATE_SIGNING_REQUESTS.object(f"{machine}-{turn - 1}"))
                delete_machine(cluster, machine)
                harness.management.client.delete(ATTESTED_NODES.object(f"{cluster.name}.{machine}", cluster.namespace))
            cluster.add_machine(machine, provider_id=provider_id(machine))
            cluster.submit_with_token(node_of(cluster, machine).client_request(f"{machine}-{turn}"))
        for machine in machines:
            verdict = cluster.wait_until_decided(f"{machine}-{turn}")
            assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
    records = assert_every_certificate_is_permitted(harness.management, [cluster])
    assert len(records) == len(machines)
