"""Replicas that share the Clusters by shards: they join, leave and die, and each request gets one certificate."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import pytest

from signer.controller.diagnostics.health import State
from signer.controller.replicas.leadership import LeadershipLost
from signer.testing.world import CONTROLLER_NAMESPACE, RunningController, WorldCluster
from tests.documents.grants import requests_of, used
from tests.integration.fixtures import Harness, assert_one_certificate, node_of, provider_id
from tests.integration.replicas import DEADLINE, TIMES, USED_BY_SHARDS, shards_owned, start_replica, watched
from tests.support.processes import wait_until

pytestmark = pytest.mark.slow

SHARDS = 8
CLUSTERS = 30


def ask(cluster: WorldCluster, when: str) -> None:
    """The node on a new Machine asks to join."""
    machine = f"{cluster.name}-{when}"
    cluster.add_machine(machine, provider_id=provider_id(machine))
    cluster.submit_with_token(node_of(cluster, machine).client_request(machine))


def wait_until_shared(clusters: Iterable[WorldCluster], *replicas: RunningController) -> None:
    """Wait until these replicas have the same number of shards but for one, and each cluster is served by one."""
    names = sorted(f"{cluster.namespace}/{cluster.name}" for cluster in clusters)

    def shared() -> bool:
        owned = [shards_owned(replica) for replica in replicas]
        served = sorted(name for replica in replicas for name in watched(replica))
        return (sum(owned), max(owned) - min(owned) <= 1, served) == (SHARDS, True, names)

    wait_until(shared, f"{len(replicas)} replicas share all clusters")


def test_replicas_join_and_leave_during_requests(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clusters = [harness.cluster(f"c{number}") for number in range(CLUSTERS)]

    def all_ask(when: str) -> None:
        for cluster in clusters:
            ask(cluster, when)

    first = start_replica(harness, "first", shards=SHARDS, times=TIMES)  # it dies
    wait_until_shared(clusters, first)
    all_ask("alone")
    second = start_replica(harness, "second", shards=SHARDS)
    all_ask("second-joins")
    wait_until_shared(clusters, first, second)
    third = start_replica(harness, "third", shards=SHARDS)
    all_ask("third-joins")
    wait_until_shared(clusters, first, second, third)
    second.stop()
    all_ask("second-leaves")
    wait_until_shared(clusters, first, third)
    second.wait_ended()
    caplog.clear()
    first.kill()
    all_ask("first-dies")
    wait_until_shared(clusters, third)
    assert "released the Lease" not in caplog.text
    for cluster in clusters:
        for when in ("alone", "second-joins", "third-joins", "second-leaves", "first-dies"):
            machine = f"{cluster.name}-{when}"
            assert cluster.wait_until_decided(machine).certificate
            assert_one_certificate(harness, cluster, machine, machine)
    asked = [entry for user in ("first", "second", "third") for entry in requests_of(harness.api, user)]
    assert used(entry for entry in asked if "/leases" in entry.path) == USED_BY_SHARDS


def test_the_number_of_shards_is_that_of_the_first_replica(harness: Harness) -> None:
    """A rollout of another number: the new one is ready and takes nothing, and takes all when the last old one ends."""
    clusters = [harness.cluster(f"c{number}") for number in range(3)]
    old = start_replica(harness, "old", shards=4)
    wait_until(lambda: shards_owned(old) == 4, "the old one owns its shards")
    new = start_replica(harness, "new", shards=SHARDS)
    health = new.options.health
    wait_until(lambda: health.state() is State.OTHER_SHARDS, "the new one stands by")
    assert health.ready().passed
    assert health.ready().brief() == "standing by: other replicas run with another number of shards"
    ask(clusters[0], "meanwhile")
    assert clusters[0].wait_until_decided("c0-meanwhile").certificate
    assert (shards_owned(old), watched(new)) == (4, set())
    old.stop()
    old.wait_ended()
    wait_until_shared(clusters, new)
    assert health.ready().brief() == "ok"


def test_a_replica_that_cannot_renew_ends_and_the_other_takes_its_shards(harness: Harness) -> None:
    """A partition between it and the management cluster's Leases; its Clusters' nodes wait no longer than that."""
    clusters = [harness.cluster(f"c{number}") for number in range(4)]
    first = start_replica(harness, "first", shards=SHARDS, times=TIMES)
    second = start_replica(harness, "second", shards=SHARDS)
    wait_until_shared(clusters, first, second)
    harness.api.faults.inject(
        lambda request: request.user.name == "first" and "/leases" in request.path, status=503, times=None
    )
    for cluster in clusters:
        ask(cluster, "amid")
    with pytest.raises(LeadershipLost, match=f"could not be renewed within {DEADLINE} seconds"):
        first.wait_ended()
    assert (shards_owned(first), watched(first)) == (0, set())
    wait_until_shared(clusters, second)
    for cluster in clusters:
        ask(cluster, "later")
        for when in ("amid", "later"):
            assert cluster.wait_until_decided(f"{cluster.name}-{when}").certificate
            assert_one_certificate(harness, cluster, f"{cluster.name}-{when}", f"{cluster.name}-{when}")


def test_a_replica_without_shards_is_ready_and_watches_no_cluster(harness: Harness) -> None:
    cluster = harness.cluster()
    first = start_replica(harness, "first", shards=1)
    wait_until(lambda: shards_owned(first) == 1, "the first owns the one shard")
    second = start_replica(harness, "second", shards=1)
    health = second.options.health
    wait_until(lambda: health.state() is State.WITHOUT_SHARDS, "the second has none")
    assert (health.ready().passed, watched(second)) == (True, set())
    harness.join(cluster)
    ours = [entry for entry in harness.api.requests.writes() if entry.user == "second"]
    assert {entry.path.rpartition("/")[0].rpartition("/")[2] for entry in ours} <= {"leases", CONTROLLER_NAMESPACE}
