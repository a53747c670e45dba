"""A tenant writes more objects of one kind than the operator's limit: its own nodes wait, and no one else's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from signer.controller.status import unserved_policies
from signer.kube.resources import (
    ATTESTED_NODES,
    CLUSTERS_V1BETA2,
    KUBEADM_CONFIGS_V1BETA2,
    MACHINES_V1BETA2,
    NODE_ATTESTATION_POLICIES,
    Resource,
)
from signer.model.namespace_limits import NamespaceLimits
from signer.testing.running_controller import RunningController
from signer.testing.world import WorldCluster
from tests.integration.fixtures import Harness, assert_one_certificate, node_of, pending, provider_id
from tests.support.processes import wait_until

pytestmark = pytest.mark.slow

LIMIT = 10
ENOUGH = LIMIT + 1
LIMITS = NamespaceLimits(clusters=LIMIT, machines=LIMIT, kubeadm_configs=LIMIT, attested_nodes=LIMIT, policies=LIMIT)


@pytest.fixture(scope="module")
def running(shared_harness: Harness, short_waits: None) -> Iterator[RunningController]:
    """One controller for all tests of the file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unserved_policies, "CHECK_SECONDS", 0.1)
        yield shared_harness.run(namespace_limits=LIMITS)


@pytest.fixture(scope="module")
def neighbour(shared_harness: Harness, running: RunningController) -> WorldCluster:
    """Another tenant's Cluster, whose nodes must go on joining."""
    return shared_harness.cluster("neighbour", namespace="honest")


def remove(harness: Harness, resource: Resource, namespace: str, *names: str) -> None:
    for name in names:
        harness.management.client.delete(resource.object(name, namespace))


def over(running: RunningController) -> list[tuple[str, str, int]]:
    """What the metric says."""
    gauges = running.options.metrics.gauges.process()
    return [(one.namespace, one.resource, one.count) for one in gauges.over_limits]


def submit(cluster: WorldCluster, machine: str) -> None:
    cluster.submit_with_token(node_of(cluster, machine).client_request(machine))


def test_too_many_machines(shared_harness: Harness, neighbour: WorldCluster) -> None:
    """The nodes that wait join without a restart, once the tenant has deleted enough."""
    harness = shared_harness
    claims = {"bootstrapTokens": {"matchMachines": "WithoutProviderID"}}
    flooding = harness.cluster("flooding", namespace="many-machines", policy=claims)
    harness.join(flooding, "early")
    names = [f"flood-{number}" for number in range(LIMIT)]
    for name in names:
        flooding.add_machine(name, provider_id=provider_id(name))
    submit(flooding, "flood-9")
    condition = harness.wait_for_condition(flooding, "NamespaceWithinLimits", "False")
    assert condition["reason"] == "NamespaceOverLimit"
    for part in (f"at least {ENOUGH} machines", f"limit is {LIMIT}", "until 9 are left"):
        assert part in condition["message"]
    message = harness.wait_for_event("NamespaceOverLimit", "flooding", "Cluster", "many-machines")
    assert "many-machines" in message
    assert harness.wait_for_condition(flooding, "Ready", "False")["reason"] == "NamespaceOverLimit"
    for kind in ("MachineAddressesReadable", "ClaimedProviderIDsAgree"):
        harness.wait_for_condition(flooding, kind, "Unknown")
    harness.join(neighbour)
    pending(flooding, "flood-9")

    remove(harness, MACHINES_V1BETA2, "many-machines", "flood-0")
    harness.join(neighbour)
    pending(flooding, "flood-9")  # at the limit, and not a tenth below it

    remove(harness, MACHINES_V1BETA2, "many-machines", "flood-1")
    verdict = flooding.wait_until_decided("flood-9")
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
    assert_one_certificate(harness, flooding, "flood-9", "flood-9")
    harness.wait_for_condition(flooding, "Ready", "True")


def test_too_many_kubeadm_configs(shared_harness: Harness, neighbour: WorldCluster) -> None:
    """Whose tokens tell Machines apart. They have a cache of their own."""
    harness = shared_harness
    flooding = harness.cluster("flooding", namespace="many-configs")
    owner = flooding.add_machine("owner", provider_id=provider_id("configured"))
    names = [f"config-{number}" for number in range(ENOUGH)]
    for number, name in enumerate(names):
        flooding.add_kubeadm_config(name, f"abcd{number:02}.0123456789abcdef", owner)
    condition = harness.wait_for_condition(flooding, "NamespaceWithinLimits", "False")
    assert f"at least {ENOUGH} kubeadmconfigs" in condition["message"]
    harness.join(neighbour)
    remove(harness, KUBEADM_CONFIGS_V1BETA2, "many-configs", *names[:2])
    harness.wait_for_condition(flooding, "Ready", "True")
    harness.join(flooding, "with-few-configs")


def test_too_many_clusters(shared_harness: Harness, neighbour: WorldCluster) -> None:
    """Their policies say so, and do not blame a missing Cluster."""
    harness = shared_harness
    flooding = harness.cluster("flooding", namespace="many-clusters")
    harness.join(flooding)
    others = [f"empty-{number}" for number in range(LIMIT)]
    for name in others:
        harness.management.client.create(
            CLUSTERS_V1BETA2.collection("many-clusters"),
            {
                "apiVersion": CLUSTERS_V1BETA2.api_version,
                "kind": "Cluster",
                "metadata": {"name": name, "namespace": "many-clusters"},
                "spec": {"controlPlaneEndpoint": {"host": "192.0.2.1", "port": 6443}},
            },
        )
    flooding.add_machine("late", provider_id=provider_id("late"))
    submit(flooding, "late")
    condition = harness.wait_for_condition(flooding, "NamespaceWithinLimits", "False")
    assert f"at least {ENOUGH} clusters" in condition["message"]
    harness.join(neighbour)
    pending(flooding, "late")
    remove(harness, CLUSTERS_V1BETA2, "many-clusters", *others[:2])
    verdict = flooding.wait_until_decided("late")
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict


def test_the_metric_names_the_namespace(
    shared_harness: Harness, running: RunningController, neighbour: WorldCluster
) -> None:
    """Only while it is over its limit."""
    harness = shared_harness
    flooding = harness.cluster("flooding", namespace="many-policies")
    names = [f"unserved-{number}" for number in range(LIMIT)]
    for name in names:
        harness.management.client.create(
            NODE_ATTESTATION_POLICIES.collection("many-policies"),
            {
                "apiVersion": NODE_ATTESTATION_POLICIES.api_version,
                "kind": "NodeAttestationPolicy",
                "metadata": {"name": name, "namespace": "many-policies"},
                "spec": {"authorizedAttestors": [{"name": "keyed-mac"}]},
            },
        )
    harness.join(neighbour)
    wait_until(
        lambda: over(running) == [("many-policies", "nodeattestationpolicies", ENOUGH)], "the namespace over its limit"
    )
    flooding.add_machine("later", provider_id=provider_id("later"))
    submit(flooding, "later")
    harness.join(neighbour)
    pending(flooding, "later")
    remove(harness, NODE_ATTESTATION_POLICIES, "many-policies", *names[:2])
    verdict = flooding.wait_until_decided("later")
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
    assert over(running) == []


def test_machines_that_come_and_go_reserve_no_more_than_the_limit(
    shared_harness: Harness, neighbour: WorldCluster
) -> None:
    """Reservations stay for a while after their Machines, in the controller's namespace and memory. Their records are
    gone with the Cluster when a tenant deletes it.
    """
    harness = shared_harness
    churning = harness.cluster("churning", namespace="churn")
    harness.join(churning, "stays")
    for number in range(LIMIT - 1):
        name = f"goes-{number}"
        harness.join(churning, name)
        remove(harness, MACHINES_V1BETA2, "churn", name)
        records = [one["metadata"]["name"] for one in harness.records(churning) if name in str(one["spec"])]
        remove(harness, ATTESTED_NODES, "churn", *records)
    churning.add_machine("more", provider_id=provider_id("more"))
    submit(churning, "more")
    message = harness.wait_for_event("NamespaceOverLimit", "more", namespace="churn")
    assert f"{LIMIT} Machines of namespace churn are reserved" in message
    pending(churning, "more")
    churning.submit_as_node(node_of(churning, "stays").client_request("renewal"), "stays")
    assert churning.wait_until_decided("renewal").condition == "Approved"
    harness.join(neighbour, "joins-meanwhile")
