"""Replicas under leader election: one works, the others stand by and take over."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from signer.configuration import Configuration, LeaderElection, NoLeaderElection
from signer.controller.diagnostics.health import State
from signer.controller.replicas.leadership import LeadershipLost
from signer.kube.errors import NotFound
from signer.model.lease import ElectionTimes
from signer.rules.leadership import Leading, StandingBy
from signer.testing.fixtures import embedded_api
from signer.testing.world import CONTROLLER_NAMESPACE, RunningController, WorldCluster
from tests.integration.endorsement_key_sources import assert_one_owner_each
from tests.integration.fixtures import (
    MASTERS,
    Harness,
    assert_one_certificate,
    keyed_mac,
    node_of,
    pending,
    provider_id,
)
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


def start_beside(harness: Harness) -> RunningController:
    """A controller without leader election, known to the API server as "beside"."""
    return harness.start(
        connection=harness.api.connection("beside", MASTERS),
        attestors=keyed_mac(),
        leader_election=NoLeaderElection(retry_period=timedelta(milliseconds=50)),
    )


def test_beside_a_leader_a_controller_without_election_waits_until_the_leader_has_died(
    harness: Harness, cluster: WorldCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    leader = start_replica(harness, "first", times=TIMES)
    wait_until_it_leads(leader)
    beside = start_beside(harness)
    health = beside.options.health
    wait_until(lambda: health.state() is State.BESIDE_A_LEADER, "it sees the leader")
    harness.join(cluster)
    assert (health.ready().passed, leads(beside)) == (False, 0.0)
    assert "runs without --leader-elect" in health.ready().brief()
    asked = [entry for entry in harness.api.requests.matching() if entry.user == "beside"]
    assert {(entry.method, entry.path) for entry in asked} == {
        ("GET", f"/apis/coordination.k8s.io/v1/namespaces/{CONTROLLER_NAMESPACE}/leases/node-attestation-controller")
    }, "it neither reads requests nor writes"
    (warned,) = [record for record in caplog.records if record.message.startswith("standing by: another controller")]
    assert warned.levelno == logging.WARNING
    assert f"led by {leader.leadership.identity}; give --leader-elect" in warned.__dict__["detail"]
    leader.kill()
    wait_until(lambda: health.state() is State.READY, "the Lease has expired, and it goes on", 60)
    harness.join(cluster)
    assert leads(beside) == 1.0


def test_beside_a_leader_a_controller_without_election_goes_on_once_the_lease_is_released(harness: Harness) -> None:
    leader = start_replica(harness, "first")
    wait_until_it_leads(leader)
    beside = start_beside(harness)
    wait_until(lambda: beside.options.health.state() is State.BESIDE_A_LEADER, "it sees the leader")
    leader.stop()
    leader.wait_ended()
    wait_until(lambda: beside.options.health.state() is State.READY, "it goes on")


def test_beside_a_leader_a_controller_without_election_can_be_stopped(harness: Harness) -> None:
    leader = start_replica(harness, "first")
    wait_until_it_leads(leader)
    beside = start_beside(harness)
    wait_until(lambda: beside.options.health.state() is State.BESIDE_A_LEADER, "it sees the leader")
    beside.stop()
    beside.wait_ended()
    assert leads(beside) == 0.0


def test_beside_a_leader_an_answer_that_fails_is_no_sign_that_the_leader_is_gone(harness: Harness) -> None:
    leader = start_replica(harness, "first")
    wait_until_it_leads(leader)
    beside = start_beside(harness)
    wait_until(lambda: beside.options.health.state() is State.BESIDE_A_LEADER, "it sees the leader")
    failed = harness.api.faults.inject("GET */leases/*", status=503, times=3)
    wait_until(lambda: failed.hits >= 3, "it cannot read the Lease for a while")
    assert beside.options.health.state() is State.BESIDE_A_LEADER


def test_a_controller_without_election_that_may_not_read_the_lease_starts(
    harness: Harness, cluster: WorldCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """No decision depends on the Lease."""
    harness.api.faults.inject("GET */leases/*", status=403, times=None)
    harness.run()
    harness.join(cluster)
    assert "cannot read whether another controller leads" in caplog.text
