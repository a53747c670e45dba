"""Upkeep in the running controller: reservations come back, what has run out goes, joining nodes are not disturbed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

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
from tests.integration.fixtures import CONTROLLER_USER, MASTERS, House, keyed_mac, node_of, provider_id
from tests.support.processes import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def rounds_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty rounds a second."""
    monkeypatch.setattr(garbage_collector, "ROUND_SECONDS", 0.05)


def run(house: House, *, days_ahead: float = 0) -> RunningController:
    """A controller whose clock is so many days ahead."""
    ahead = timedelta(days=days_ahead)
    return house.run(ControllerOptions(now=lambda: datetime.now(UTC) + ahead))


def delete_reservations(house: House) -> None:
    """As ``clusterctl move`` leaves them behind."""
    for found in house.reservations():
        name = found["metadata"]["name"]
        house.management.client.delete(IDENTITY_RESERVATIONS.object(name, CONTROLLER_NAMESPACE))


def delete_machine(cluster: WorldCluster, name: str) -> None:
    cluster.management.client.delete(MACHINES_V1BETA2.object(name, cluster.namespace))


def test_a_defect_of_upkeep_does_not_end_decisions(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = 0

    async def fails(self: garbage_collector.GarbageCollector) -> None:
        nonlocal rounds
        rounds += 1
        raise RuntimeError("a defect")

    monkeypatch.setattr(garbage_collector.GarbageCollector, "round", fails)
    cluster = house.cluster()
    run(house)
    wait_until(lambda: rounds > 0, "upkeep has failed")
    house.join(cluster, "m1")
    wait_until(lambda: rounds > 1, "upkeep begins anew")


def test_reservations_come_back_before_anybody_asks(house: House) -> None:
    cluster = house.cluster()
    with open_controllers(house.management) as start:
        start(connection=house.api.connection(CONTROLLER_USER, MASTERS), attestors=keyed_mac())
        for machine in ("m1", "m2"):
            house.join(cluster, machine)
    before = {found["metadata"]["name"]: found["spec"] for found in house.reservations()}
    delete_reservations(house)
    run(house)
    wait_until(lambda: len(house.reservations()) == len(before), "every reservation is back")
    assert {found["metadata"]["name"]: found["spec"] for found in house.reservations()} == before


def test_a_deleted_machine_leaves_nothing_when_its_certificates_have_run_out(house: House) -> None:
    cluster = house.cluster()
    with open_controllers(house.management) as start:
        start(connection=house.api.connection(CONTROLLER_USER, MASTERS), attestors=keyed_mac())
        for machine in ("m1", "m2"):
            house.join(cluster, machine)
        delete_machine(cluster, "m1")
        house.join(cluster, "m3")  # many rounds later
        assert len(house.records(cluster)) == 3, "its certificate is still good"
        assert len(house.reservations()) == 6
    run(house, days_ahead=30)
    wait_until(lambda: len(house.reservations()) == 4, "those of m1 are released")
    assert sorted(record["spec"]["nodeName"] for record in house.records(cluster)) == ["m2", "m3"]


def test_a_paused_cluster_keeps_everything(house: House) -> None:
    """What ``clusterctl move`` does at the source must not look like Machines that are gone."""
    cluster, other = house.cluster(), house.cluster("other")
    with open_controllers(house.management) as start:
        start(connection=house.api.connection(CONTROLLER_USER, MASTERS), attestors=keyed_mac())
        house.join(cluster, "m1")
        house.join(other, "o1")
    cluster.patch({"spec": {"paused": True}})
    delete_machine(cluster, "m1")
    delete_machine(other, "o1")
    run(house, days_ahead=30)
    wait_until(lambda: len(house.reservations()) == 2, "those of the other Cluster are released")
    assert house.records(other) == []
    assert len(house.records(cluster)) == 1
    assert {found["spec"]["machineRef"]["clusterName"] for found in house.reservations()} == {cluster.name}


def test_nodes_that_join_again_and_again_are_not_disturbed(house: House) -> None:
    """Machines come and go under the same names and provider IDs, under two controllers, and so do their records."""
    cluster = house.cluster()
    controllers = [run(house), run(house)]
    assert controllers
    machines = [f"m{number}" for number in range(6)]
    for turn in range(4):
        for machine in machines:
            if turn:
                cluster.client().delete(CERTIFICATE_SIGNING_REQUESTS.object(f"{machine}-{turn - 1}"))
                delete_machine(cluster, machine)
                house.management.client.delete(ATTESTED_NODES.object(f"{cluster.name}.{machine}", cluster.namespace))
            cluster.add_machine(machine, provider_id=provider_id(machine))
            cluster.submit_with_token(node_of(cluster, machine).client_request(f"{machine}-{turn}"))
        for machine in machines:
            verdict = cluster.wait_until_decided(f"{machine}-{turn}")
            assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
    records = assert_every_certificate_is_permitted(house.management, [cluster])
    assert len(records) == len(machines)
