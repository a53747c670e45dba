"""Cluster API is upgraded, or its API server restarts, while a controller runs."""

from __future__ import annotations

import pytest

from signer.controller import cluster_api_change
from signer.controller.cluster_api_change import ClusterAPIChanged
from signer.controller.run import ControllerOptions
from signer.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, MACHINES_V1BETA1, MACHINES_V1BETA2, Resource
from signer.model.lease import DEFAULT_LEASE_NAME
from signer.model.shard import replica_lease, shard_lease
from tests.integration.fixtures import Harness, node_of, provider_id
from tests.integration.replicas import holding, shards_owned, start_replica, wait_until_it_leads
from tests.support.processes import wait_until

_KINDS = ("clusters", "machines", "machinepools")


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_api_change, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(cluster_api_change, "CONFIRM_SECONDS", 0.01)


def serve_v1beta2(harness: Harness, *, served: bool) -> None:
    """Of all that Cluster API has: as before and after its upgrade to v1.11."""
    for plural in _KINDS:
        path = CUSTOM_RESOURCE_DEFINITIONS.object(f"{plural}.cluster.x-k8s.io")
        versions = harness.management.client.get(path)["spec"]["versions"]
        changed = [{**one, "served": served or one["name"] != "v1beta2"} for one in versions]
        harness.management.client.patch(path, {"spec": {"versions": changed}})


def is_listed_as(harness: Harness, resource: Resource, user: str) -> bool:
    """Whether that replica reads that resource."""
    return any(entry.user == user for entry in harness.api.requests.matching(f"GET {resource.collection()}"))


def test_a_controller_that_read_v1beta1_ends_and_reads_v1beta2(harness: Harness) -> None:
    cluster = harness.cluster()
    cluster.add_machine("m", provider_id=provider_id("m"))
    serve_v1beta2(harness, served=False)
    before = harness.run()
    assert any(entry.path == MACHINES_V1BETA1.collection() for entry in harness.api.requests.matching("GET *"))
    serve_v1beta2(harness, served=True)
    with pytest.raises(ClusterAPIChanged, match=r"now serves cluster\.x-k8s\.io/v1beta2 instead of .*/v1beta1$"):
        before.wait_ended()
    harness.run(ControllerOptions())
    assert any(entry.path == MACHINES_V1BETA2.collection() for entry in harness.api.requests.matching("GET *"))
    cluster.submit_with_token(node_of(cluster, "m").client_request("csr"))
    assert cluster.wait_until_decided("csr").reason == "Attested"


def test_a_leader_hands_over_to_one_that_reads_v1beta2(harness: Harness) -> None:
    """Its Lease is released when its work has ended, and the standby asks when it leads."""
    cluster = harness.cluster()
    cluster.add_machine("m", provider_id=provider_id("m"))
    serve_v1beta2(harness, served=False)
    leader = start_replica(harness, "first")
    wait_until_it_leads(leader)
    wait_until(lambda: is_listed_as(harness, MACHINES_V1BETA1, "first"), "the leader works")
    standby = start_replica(harness, "second")
    before = holding(harness.management)
    serve_v1beta2(harness, served=True)
    with pytest.raises(ClusterAPIChanged):
        leader.wait_ended()
    assert holding(harness.management).holder in ("", standby.leadership.identity), "released, and not run out"
    wait_until_it_leads(standby)
    assert holding(harness.management).transitions == before.transitions + 1
    cluster.submit_with_token(node_of(cluster, "m").client_request("csr"))
    assert cluster.wait_until_decided("csr").reason == "Attested"
    assert not is_listed_as(harness, MACHINES_V1BETA1, "second")


def test_a_replica_that_shares_shards_leaves_them(harness: Harness) -> None:
    serve_v1beta2(harness, served=False)
    replica = start_replica(harness, "first", shards=3)
    wait_until(lambda: shards_owned(replica) == 3, "it has all shards")
    serve_v1beta2(harness, served=True)
    with pytest.raises(ClusterAPIChanged):
        replica.wait_ended()
    identity = holding(harness.management, shard_lease(DEFAULT_LEASE_NAME, 0)).holder
    assert identity
    assert holding(harness.management, replica_lease(DEFAULT_LEASE_NAME, identity)).holder == "", "its part is released"


def test_the_version_changes_before_the_caches_are_filled(harness: Harness) -> None:
    """No list arrives, and it ends all the same."""
    serve_v1beta2(harness, served=False)
    listing = harness.api.faults.inject(f"GET {MACHINES_V1BETA1.collection()}", status=503, times=None)
    replica = start_replica(harness, "first")
    wait_until(lambda: listing.hits > 0, "it asks for Machines")
    serve_v1beta2(harness, served=True)
    with pytest.raises(ClusterAPIChanged):
        replica.wait_ended()
    assert holding(harness.management).holder == ""
