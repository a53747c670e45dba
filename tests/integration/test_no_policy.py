"""Installing or upgrading touches no cluster without a policy."""

from __future__ import annotations

import pytest

from signer.kube.resources import EVENTS, NODE_ATTESTATION_POLICIES
from signer.testing.fixtures import embedded_api, open_controllers
from signer.testing.world import WorldCluster
from tests.integration.fixtures import CONTROLLER_USER, MASTERS, Harness, keyed_mac, node_of, pending, provider_id

pytestmark = pytest.mark.slow

NAMESPACE = "team-b"


def asked_of(cluster: WorldCluster) -> list[str]:
    """Every request of the controller's to the workload API, refused ones too."""
    return [
        f"{entry.method} {entry.path}"
        for entry in embedded_api(cluster).requests.matching()
        if entry.user == CONTROLLER_USER
    ]


def asked_about(harness: Harness, cluster: WorldCluster) -> list[str]:
    """The controller's requests to the management API that name the Cluster or its namespace."""
    return [
        f"{entry.method} {entry.path}"
        for entry in harness.api.requests.matching()
        if entry.user == CONTROLLER_USER and (NAMESPACE in entry.path or cluster.name in entry.path)
    ]


def test_a_cluster_without_a_policy_is_not_touched(harness: Harness) -> None:
    untouched = harness.cluster("untouched", (), namespace=NAMESPACE)
    served = harness.cluster("served")
    untouched.add_machine("m", provider_id=provider_id("m"))
    untouched.submit_with_token(node_of(untouched, "m").client_request("csr"))
    before = harness.management.client.items(f"/api/v1/namespaces/{NAMESPACE}/secrets")
    for _ in ("installed", "upgraded"):
        with open_controllers(harness.management) as start:
            start(connection=harness.api.connection(CONTROLLER_USER, MASTERS), attestors=keyed_mac())
            harness.join(served)  # it works, and had its time
    assert asked_of(served)
    assert asked_of(untouched) == []
    assert asked_about(harness, untouched) == []
    pending(untouched, "csr")
    assert harness.records(untouched) == []
    assert harness.management.client.items(EVENTS.collection(NAMESPACE)) == []
    assert harness.management.client.items(f"/api/v1/namespaces/{NAMESPACE}/secrets") == before


def test_with_a_policy_it_is(harness: Harness) -> None:
    """The test above would see it."""
    cluster = harness.cluster("untouched", (), namespace=NAMESPACE)
    cluster.add_machine("m", provider_id=provider_id("m"))
    cluster.submit_with_token(node_of(cluster, "m").client_request("csr"))
    harness.run()
    cluster.authorize("keyed-mac")
    assert cluster.wait_until_decided("csr").reason == "Attested"
    assert asked_of(cluster)
    assert any(NODE_ATTESTATION_POLICIES.plural in line or "secrets" in line for line in asked_about(harness, cluster))
