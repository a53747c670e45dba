"""Machines and Clusters that are being deleted: their nodes run, and drain, until the objects are gone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from signer.kube.resources import CLUSTERS_V1BETA2, MACHINES_V1BETA2
from signer.testing.nodes import SimulatedNode
from signer.testing.world import Verdict, WorldCluster
from tests.integration.fixtures import Harness, certificate_of, node_of, provider_id
from tests.integration.kubelets import Kubelet, attest, builtin_serving_request

pytestmark = pytest.mark.slow

FINALIZERS: Final = {"metadata": {"finalizers": ["machine.cluster.x-k8s.io"]}}
BACKDATE: Final = timedelta(minutes=5)
NONE: Final = {"certificates": {"deletingDuration": "0s"}, "builtinServingRequests": "Approve"}
APPROVE: Final = {"builtinServingRequests": "Approve"}


def delete_machine(harness: Harness, cluster: WorldCluster) -> None:
    cluster.patch_machine("m", FINALIZERS)
    harness.management.client.delete(MACHINES_V1BETA2.object("m", cluster.namespace))
    _wait_until_known(harness, cluster)


def delete_cluster(harness: Harness, cluster: WorldCluster) -> None:
    cluster.patch(FINALIZERS)
    harness.management.client.delete(CLUSTERS_V1BETA2.object(cluster.name, cluster.namespace))
    _wait_until_known(harness, cluster)


def _wait_until_known(harness: Harness, cluster: WorldCluster) -> None:
    """Until the controller denies a first join: its watch has delivered the deletion."""
    for attempt in range(50):
        name = f"known-{attempt}"
        cluster.submit_with_token(_again(cluster, "m").client_request(name))
        verdict = cluster.wait_until_decided(name)
        if verdict.condition == "Denied":
            assert verdict.reason in ("MachineDeleting", "ClusterDeleting"), verdict
            return
    raise AssertionError("first joins are still approved")


def _again(cluster: WorldCluster, machine: str) -> SimulatedNode:
    """The node with a new key."""
    return node_of(cluster, machine).but(key=ec.generate_private_key(ec.SECP256R1()))


deletions = pytest.mark.parametrize(
    ("delete", "reason"),
    [(delete_machine, "MachineDeleting"), (delete_cluster, "ClusterDeleting")],
    ids=["machine", "cluster"],
)
Delete = Callable[[Harness, WorldCluster], None]


def draining(harness: Harness, delete: Delete, policy: dict[str, Any]) -> tuple[WorldCluster, Kubelet]:
    cluster = harness.cluster(policy=policy)
    cluster.add_machine("m", provider_id=provider_id("m"))
    harness.run()
    kubelet = attest(cluster, "m", "join")
    delete(harness, cluster)
    return cluster, kubelet


def approved(cluster: WorldCluster, csr: str) -> Verdict:
    verdict = cluster.wait_until_decided(csr)
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
    return verdict


@deletions
def test_an_attested_node_renews_for_a_short_time(harness: Harness, delete: Delete, reason: str) -> None:
    cluster, kubelet = draining(harness, delete, APPROVE)
    kubelet.submit(_again(cluster, "m").client_request("renewal"))
    kubelet.submit(kubelet.node.serving_request("serving", dns_names=["m"]))
    for csr in ("renewal", "serving"):
        verdict = approved(cluster, csr)
        certificate = certificate_of(verdict)
        assert certificate.not_valid_after_utc - certificate.not_valid_before_utc <= timedelta(hours=24) + BACKDATE
        assert "which is being deleted; the certificate is valid until" in verdict.message
    message = harness.wait_for_event("Attested", "m", part="which is being deleted")
    assert "the certificate is valid until" in message
    kubelet.submit(builtin_serving_request("builtin", "m", ["m"]))
    path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    found = cluster.client().wait_for(path, "builtin", lambda csr: bool(csr.get("status", {}).get("conditions")))
    assert Verdict.of(found).condition == "Approved"


@deletions
def test_the_policy_may_end_renewal(harness: Harness, delete: Delete, reason: str) -> None:
    cluster, kubelet = draining(harness, delete, NONE)
    kubelet.submit(_again(cluster, "m").client_request("renewal"))
    kubelet.submit(builtin_serving_request("builtin", "m", ["m"]))
    for csr in ("renewal", "builtin"):
        verdict = cluster.wait_until_decided(csr)
        assert (verdict.condition, verdict.reason) == ("Denied", reason), verdict


def test_no_node_takes_the_name_of_one_that_drains(harness: Harness) -> None:
    """The deleted Machine has no record: its node joined before this controller was installed."""
    cluster = harness.cluster(policy={"nodeNameReuse": "Immediate"})
    old = cluster.add_machine("old", provider_id=provider_id("old"), addresses=[("Hostname", "n1")])
    cluster.set_machine_status(old, {"nodeRef": {"name": "n1"}})
    cluster.patch_machine("old", FINALIZERS)
    harness.management.client.delete(MACHINES_V1BETA2.object("old", cluster.namespace))
    cluster.add_machine("new", provider_id=provider_id("new"), addresses=[("Hostname", "n1")])
    harness.run()
    cluster.submit_with_token(node_of(cluster, "new", "n1").client_request("join"))
    message = harness.wait_for_event("NodeNameBlocked", "new")
    assert "old has the name n1 too" in message
    cluster.patch_machine("old", {"metadata": {"finalizers": None}})
    approved(cluster, "join")


def test_bootstrap_data_and_addresses_are_asked_for_at_the_first_join_alone(harness: Harness) -> None:
    cluster = harness.cluster()
    machine = cluster.add_machine("m", provider_id=provider_id("m"))
    cluster.add_machine("late", provider_id=provider_id("late"))
    harness.run()
    kubelet = attest(cluster, "m", "join")
    gone = {
        "type": "BootstrapConfigReady",
        "status": "False",
        "reason": "DoesNotExist",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    cluster.set_machine_status(machine, {"nodeRef": {"name": "m"}, "addresses": None, "conditions": [gone]})
    cluster.submit_with_token(_again(cluster, "m").client_request("token"))
    harness.wait_for_event("MachineNotReady", "m")
    kubelet.submit(_again(cluster, "m").client_request("renewal"))
    approved(cluster, "renewal")
    kubelet.submit(kubelet.node.serving_request("serving", dns_names=["m"]))
    approved(cluster, "serving")
