"""Replicas under leader election: one works, the others stand by and take over."""

from __future__ import annotations

import logging

import pytest

from signer.configuration import Configuration, LeaderElection
from signer.controller.diagnostics.health import State
from signer.controller.replicas.leadership import LeadershipLost
from signer.kube.errors import NotFound
from signer.model.lease import ElectionTimes
from signer.rules.leadership import Leading, StandingBy
from signer.testing.fixtures import embedded_api
from signer.testing.world import CONTROLLER_NAMESPACE, RunningController, WorldCluster
from tests.integration.endorsement_key_sources import assert_one_owner_each
from tests.integration.fixtures import Harness, assert_one_certificate, node_of, pending, provider_id
from tests.integration.replicas import DEADLINE, LONG_TIMES, TIMES, holding, start_replica, wait_until_it_leads
from tests.support.processes import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(harness: Harness) -> WorldCluster:
    return harness.cluster()


def start_two(
    harness: Harness, *, first: ElectionTimes = LONG_TIMES, second: ElectionTimes = LONG_TIMES
) -> tuple[RunningController, RunningController]:
    """The first leads, the second stands by."""
    leader = start_replica(harness, "first", times=first)
    wait_until_it_leads(leader)
    standby = start_replica(harness, "second", times=second)
    expected = StandingBy(leader.leadership.identity)
    wait_until(lambda: standby.leadership.standing() == expected, "the standby stands by")
    return leader, standby


def leads(replica: RunningController) -> float | None:
    """What the metric says."""
    return replica.options.metrics.registry.get_sample_value("node_attestation_leader")


def test_one_replica_works_and_the_other_watches_nothing(harness: Harness, cluster: WorldCluster) -> None:
    leader, standby = start_two(harness)
    harness.join(cluster)
    assert (leads(leader), leads(standby)) == (1.0, 0.0)
    asked = [entry for entry in harness.api.requests.matching() if entry.user == "second"]
    assert {entry.path.rpartition("/namespaces/")[0] for entry in asked} == {"/apis/coordination.k8s.io/v1"}
    assert {entry.method for entry in asked} == {"GET"}
    health = standby.options.health
    assert (health.state(), health.ready().passed) == (State.STANDING_BY, True)
    assert health.ready().brief() == "standing by: another replica leads"
    assert leader.options.health.ready().brief() == "ok"


def test_a_leader_that_stops_hands_over_at_once(harness: Harness, cluster: WorldCluster) -> None:
    leader, standby = start_two(harness)
    harness.join(cluster)
    before = holding(harness.management)
    leader.stop()
    leader.wait_ended()
    assert holding(harness.management).holder in ("", standby.leadership.identity)
    wait_until_it_leads(standby)
    harness.join(cluster)
    after = holding(harness.management)
    assert (after.holder, after.transitions) == (standby.leadership.identity, before.transitions + 1)
    assert (leads(leader), leads(standby)) == (0.0, 1.0)
    assert_one_owner_each(harness, (cluster,))


def test_a_leader_that_dies_is_replaced(
    harness: Harness, cluster: WorldCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Amid a certificate's write: the next leader carries it on."""
    caplog.set_level(logging.INFO)
    leader, standby = start_two(harness, first=TIMES)
    harness.join(cluster)
    workload = embedded_api(cluster)
    fault = workload.faults.inject("PUT */status", drop="before", times=None)
    cluster.add_machine("m", provider_id=provider_id("m"))
    cluster.submit_with_token(node_of(cluster, "m").client_request("left"))
    wait_until(lambda: fault.hits > 0, "the certificate's write is under way")
    leader.kill()
    wait_until_it_leads(standby)
    assert leads(leader) == 0.0
    assert "released the Lease" not in caplog.text
    workload.faults.clear()
    assert cluster.wait_until_decided("left").certificate
    assert_one_certificate(harness, cluster, "m", "left")


def test_a_leader_that_cannot_renew_ends(
    harness: Harness, cluster: WorldCluster, caplog: pytest.LogCaptureFixture
) -> None:
    leader, standby = start_two(harness, first=TIMES)
    harness.join(cluster)
    harness.api.faults.inject(
        lambda request: request.user.name == "first" and "/leases" in request.path, status=503, times=None
    )
    with pytest.raises(LeadershipLost, match=f"could not be renewed within {DEADLINE} seconds"):
        leader.wait_ended()
    assert leads(leader) == 0.0
    wait_until(lambda: "a controller has ended: leadership lost" in caplog.text, "what waits for it is told")
    wait_until_it_leads(standby)
    harness.join(cluster)


def test_a_standby_out_of_touch_is_not_ready_and_stays_standby(harness: Harness, cluster: WorldCluster) -> None:
    """Its own way to the API server is cut; it neither leads nor ends, and leads when it can."""
    leader, standby = start_two(harness, second=TIMES)
    harness.api.faults.inject(lambda request: request.user.name == "second", status=503, times=None)
    health = standby.options.health
    wait_until(lambda: health.state() is State.OUT_OF_TOUCH, "the standby is out of touch")
    assert not health.ready().passed
    leader.stop()
    leader.wait_ended()
    cluster.add_machine("m", provider_id=provider_id("m"))
    cluster.submit_with_token(node_of(cluster, "m").client_request("waits"))
    assert isinstance(standby.leadership.standing(), StandingBy)
    pending(cluster, "waits")
    harness.api.faults.clear()
    wait_until_it_leads(standby)
    assert cluster.wait_until_decided("waits").certificate


def test_a_leader_that_fails_at_its_start_releases_the_lease(harness: Harness) -> None:
    harness.api.faults.inject("GET /apis/cluster.x-k8s.io/*", status=404, times=None)
    configuration = Configuration(namespace=CONTROLLER_NAMESPACE, leader_election=LeaderElection(TIMES))
    replica = RunningController(harness.api.connection(), configuration)
    with pytest.raises(NotFound), replica:
        replica.wait_ended()
    assert not isinstance(replica.leadership.standing(), Leading)
    assert holding(harness.management).holder == ""
