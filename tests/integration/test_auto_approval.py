"""Auto-approval with the running controller: removed, re-checked, and restored."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from signer.controller.auto_approval import reconciler as reconciler
from signer.controller.auto_approval.findings import Situation
from signer.controller.auto_approval.removal import AutoApprovalRemoval
from signer.kube.backoff import Backoff
from signer.kube.resources import (
    CERTIFICATE_SIGNING_REQUESTS,
    CLUSTER_ROLE_BINDINGS,
    CONFIG_MAPS,
    NODE_ATTESTATION_POLICIES,
)
from signer.model.cluster import ClusterKey
from signer.model.condition import PolicyCondition
from signer.model.saved_bindings import saved_name, set_aside_name
from signer.testing.fixtures import embedded_api
from signer.testing.world import CONTROLLER_NAMESPACE, RunningController, WorldCluster
from tests.integration.fixtures import Harness, node_of, provider_id
from tests.integration.kubelets import builtin_client_request
from tests.support.processes import wait_until

pytestmark = pytest.mark.slow

BOOTSTRAP = "kubeadm:node-autoapprove-bootstrap"
ROTATION = "kubeadm:node-autoapprove-certificate-rotation"
CONDITION = "AutoApprovalRemoved"


@pytest.fixture(autouse=True)
def no_rest() -> Iterator[None]:
    """Looks may follow each other closely; what asks for them stays as it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reconciler, "MINIMUM_PAUSE_SECONDS", 0.05)
        yield


def bindings(cluster: WorldCluster) -> dict[str, dict[str, Any]]:
    """kubeadm's grants of automatic approval that are there, without what the API server adds."""
    found = {}
    for item in cluster.client().items(CLUSTER_ROLE_BINDINGS.collection()):
        if item["metadata"]["name"] in (BOOTSTRAP, ROTATION):
            metadata = {key: item["metadata"].get(key) for key in ("name", "labels", "annotations")}
            found[item["metadata"]["name"]] = {**item, "metadata": metadata}
    return found


def set_mode(harness: Harness, cluster: WorldCluster, mode: str) -> None:
    path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    harness.management.client.patch(path, {"spec": {"mode": mode}})


def wait_for(harness: Harness, cluster: WorldCluster, status: str, reason: str) -> str:
    """Wait for the condition; returns its message."""

    def found(policy: dict[str, Any]) -> bool:
        conditions = (policy.get("status") or {}).get("conditions") or []
        return any((one["type"], one["status"], one["reason"]) == (CONDITION, status, reason) for one in conditions)

    path = NODE_ATTESTATION_POLICIES.collection(cluster.namespace)
    policy = harness.management.client.wait_for(path, cluster.name, found)
    return str(next(one["message"] for one in policy["status"]["conditions"] if one["type"] == CONDITION))


def approve_as_others_would(cluster: WorldCluster, name: str) -> None:
    """Post a built-in client request with a token, and approve it as kube-controller-manager does."""
    posted = cluster.submit_with_token(builtin_client_request(name, "anybody"))
    posted["status"] = {
        "conditions": [{"type": "Approved", "status": "True", "reason": "AutoApproved", "message": "by a test"}]
    }
    path = CERTIFICATE_SIGNING_REQUESTS.object(name, subresource="approval")
    cluster.client().replace(path, posted)


@pytest.fixture
def controller(harness: Harness) -> RunningController:
    """A controller, started before there is any cluster."""
    return harness.run()


@pytest.fixture
def cluster(harness: Harness, controller: RunningController) -> WorldCluster:
    """A cluster with kubeadm's grants, under Observe."""
    return harness.cluster(api={"seed_kubeadm": True})


def test_bindings_are_removed_step_by_step_and_restored_exactly(harness: Harness, cluster: WorldCluster) -> None:
    before = bindings(cluster)
    assert set(before) == {BOOTSTRAP, ROTATION}
    wait_for(harness, cluster, "False", "Observing")
    cluster.add_machine("older", provider_id=provider_id("older"))
    harness.join(cluster, "first")
    assert bindings(cluster) == before, "Observe touches nothing"
    set_mode(harness, cluster, "Enforce")
    message = wait_for(harness, cluster, "False", "WaitingForAttestation")
    assert "Machine default/older (has no AttestedNode that counts)" in message
    assert set(bindings(cluster)) == {ROTATION}, "renewal stays for the node that is not attested yet"
    # The attested request of a node that is there already adopts it, and it was the last one.
    cluster.submit_as_node(node_of(cluster, "older").client_request("adopted"), "older")
    assert cluster.wait_until_decided("adopted").reason == "Attested"
    wait_for(harness, cluster, "True", "Removed")
    assert bindings(cluster) == {}
    harness.wait_for_condition(cluster, "Ready", "True")
    set_mode(harness, cluster, "Observe")
    wait_for(harness, cluster, "False", "Observing")
    assert bindings(cluster) == before


def test_an_unusable_config_map_of_saved_bindings_keeps_enforce_open_for_nobody(
    harness: Harness, cluster: WorldCluster
) -> None:
    """It may be immutable, and a finalizer may keep it from being deleted."""
    client, key = harness.management.client, ClusterKey(cluster.namespace, cluster.name)
    metadata = {"name": saved_name(key), "namespace": CONTROLLER_NAMESPACE, "finalizers": ["example.com/kept"]}
    made_up = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"x": "y"}, "immutable": True}
    client.create(CONFIG_MAPS.collection(CONTROLLER_NAMESPACE), made_up)
    set_mode(harness, cluster, "Enforce")
    wait_until(lambda: BOOTSTRAP not in bindings(cluster), "tokens get no certificate any more")
    assert client.get(CONFIG_MAPS.object(set_aside_name(key), CONTROLLER_NAMESPACE))["data"] == {"x": "y"}
    saved = client.get(CONFIG_MAPS.object(saved_name(key), CONTROLLER_NAMESPACE))
    assert BOOTSTRAP in json.dumps(saved["data"])


def test_earlier_findings_are_not_reported_for_a_changed_policy(
    harness: Harness, cluster: WorldCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Giving back goes on, with doors open already, when the cluster enters Enforce again."""
    before, go_on, observe = bindings(cluster), threading.Event(), AutoApprovalRemoval._observe

    async def held_up(auto_approval: AutoApprovalRemoval, client: Any, situation: Situation) -> PolicyCondition:
        found = await observe(auto_approval, client, situation)
        await asyncio.to_thread(go_on.wait, 60)
        return found

    set_mode(harness, cluster, "Enforce")
    wait_for(harness, cluster, "True", "Removed")
    monkeypatch.setattr(AutoApprovalRemoval, "_observe", held_up)
    set_mode(harness, cluster, "Observe")
    wait_for(harness, cluster, "Unknown", "PolicyChanged")
    wait_until(lambda: bindings(cluster) == before, "they are restored")
    set_mode(harness, cluster, "Enforce")
    path = NODE_ATTESTATION_POLICIES.collection(cluster.namespace)
    policy = harness.management.client.wait_for(
        path, cluster.name, lambda item: item["status"]["observedGeneration"] == item["metadata"]["generation"]
    )
    said = {one["type"]: (one["status"], one["reason"]) for one in policy["status"]["conditions"]}
    assert said[CONDITION] == said["Ready"] == ("Unknown", "PolicyChanged")
    assert bindings(cluster) == before
    go_on.set()
    wait_for(harness, cluster, "True", "Removed")
    assert bindings(cluster) == {}


def test_a_reinstated_binding_is_removed_when_a_request_is_approved(
    harness: Harness, cluster: WorldCluster, controller: RunningController
) -> None:
    harness.join(cluster, "m")
    kubeadm = bindings(cluster)[BOOTSTRAP]
    set_mode(harness, cluster, "Enforce")
    wait_for(harness, cluster, "True", "Removed")
    cluster.client().create(CLUSTER_ROLE_BINDINGS.collection(), {**kubeadm, "metadata": {"name": "as-before"}})
    approve_as_others_would(cluster, "stolen")

    def is_removed() -> bool:
        items = cluster.client().items(CLUSTER_ROLE_BINDINGS.collection())
        return all(item["metadata"]["name"] != "as-before" for item in items)

    wait_until(is_removed, "the binding is removed")
    wait_for(harness, cluster, "True", "Removed")


def test_a_repeatedly_reinstated_binding_is_reported(harness: Harness, cluster: WorldCluster) -> None:
    """As GitOps does: auto-approval is nearly always possible, and removed at each check."""
    kubeadm = bindings(cluster)
    set_mode(harness, cluster, "Enforce")
    wait_for(harness, cluster, "True", "Removed")
    for name in ("first", "second"):
        cluster.client().create(CLUSTER_ROLE_BINDINGS.collection(), kubeadm[BOOTSTRAP])
        approve_as_others_would(cluster, name)
        wait_until(lambda: bindings(cluster) == {}, "it is removed again")
    assert BOOTSTRAP in wait_for(harness, cluster, "False", "RemovedGrantReturns")
    assert harness.wait_for_condition(cluster, "Ready", "False")["reason"] == "RemovedGrantReturns"
    assert bindings(cluster) == {}
    set_mode(harness, cluster, "Observe")
    wait_for(harness, cluster, "False", "Observing")
    assert bindings(cluster) == kubeadm
    set_mode(harness, cluster, "Enforce")
    wait_for(harness, cluster, "True", "Removed")


def test_a_transient_fault_does_not_leave_auto_approval_possible_for_minutes(
    harness: Harness, cluster: WorldCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else triggers a check meanwhile."""
    monkeypatch.setattr(reconciler, "RETRY_BACKOFF", Backoff(base_seconds=0.05, maximum_seconds=1.0, jitter=0.5))
    wait_for(harness, cluster, "False", "Observing")
    fault = embedded_api(cluster).faults.inject("DELETE */clusterrolebindings/*", status=503, times=4)
    set_mode(harness, cluster, "Enforce")
    wait_for(harness, cluster, "True", "Removed")
    assert bindings(cluster) == {}
    assert fault.hits == 4


def test_observe_reports_what_enforce_would_refuse(
    harness: Harness, cluster: WorldCluster, controller: RunningController
) -> None:
    harness.join(cluster, "m")
    wait_for(harness, cluster, "False", "Observing")
    approve_as_others_would(cluster, "one")
    approve_as_others_would(cluster, "two")

    def counted(policy: dict[str, Any]) -> bool:
        return any(
            "2 built-in requests were approved without attestation" in one["message"]
            for one in (policy.get("status") or {}).get("conditions") or []
        )

    harness.management.client.wait_for(NODE_ATTESTATION_POLICIES.collection("default"), cluster.name, counted)
    metric = controller.options.metrics.builtin_approvals.labels("default/workload")
    assert metric._value.get() == 2
    harness.wait_for_condition(cluster, "Ready", "True")


def test_a_node_without_a_machine_is_named_after_a_refused_request(
    harness: Harness, cluster: WorldCluster, controller: RunningController
) -> None:
    """Only its requests show it; it keeps no auto-approval."""
    harness.join(cluster, "m")
    set_mode(harness, cluster, "Enforce")
    wait_for(harness, cluster, "True", "Removed")
    cluster.submit_as_node(builtin_client_request("by-hand-1", "by-hand"), "by-hand")

    def is_named(policy: dict[str, Any]) -> bool:
        (found,) = [one for one in policy["status"]["conditions"] if one["type"] == CONDITION]
        return found["status"] == "True" and "got none: system:node:by-hand;" in found["message"]

    harness.management.client.wait_for(NODE_ATTESTATION_POLICIES.collection(cluster.namespace), cluster.name, is_named)
    found = controller.options.metrics.registry.get_sample_value(
        "node_attestation_unattested_requesters", {"cluster": "default/workload"}
    )
    assert found == 1
    assert bindings(cluster) == {}


def test_nodes_of_an_unauthorized_attestor_keep_renewal_auto_approval(harness: Harness, cluster: WorldCluster) -> None:
    """Its renewal would be denied: without auto-approval, the whole cluster would end with its certificates."""
    harness.join(cluster, "m")
    wait_for(harness, cluster, "False", "Observing")
    path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    changed = {"mode": "Enforce", "authorizedAttestors": [{"name": "tpm"}]}
    harness.management.client.patch(path, {"spec": changed})
    message = wait_for(harness, cluster, "False", "WaitingForAttestation")
    assert "Machine default/m (was attested by keyed-mac, which the policy no longer authorizes)" in message
    assert set(bindings(cluster)) == {ROTATION}
    cluster.submit_as_node(node_of(cluster, "m").client_request("renewal"), "m")
    assert cluster.wait_until_decided("renewal").reason == "AttestorNotAuthorized"
    harness.management.client.patch(path, {"spec": {"authorizedAttestors": [{"name": "tpm"}, {"name": "keyed-mac"}]}})
    wait_for(harness, cluster, "True", "Removed")
    assert bindings(cluster) == {}


def test_removing_an_attestor_restores_no_binding_and_its_machines_are_named(
    harness: Harness, cluster: WorldCluster
) -> None:
    harness.join(cluster, "m")
    set_mode(harness, cluster, "Enforce")
    wait_for(harness, cluster, "True", "Removed")
    path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    harness.management.client.patch(path, {"spec": {"authorizedAttestors": [{"name": "tpm"}]}})

    def is_named(policy: dict[str, Any]) -> bool:
        (found,) = [one for one in policy["status"]["conditions"] if one["type"] == CONDITION]
        return found["status"] == "True" and "cannot renew: Machine default/m (was attested by" in found["message"]

    harness.management.client.wait_for(NODE_ATTESTATION_POLICIES.collection(cluster.namespace), cluster.name, is_named)
    assert bindings(cluster) == {}


def test_a_paused_cluster_is_not_touched(harness: Harness, cluster: WorldCluster) -> None:
    harness.join(cluster, "m")
    wait_for(harness, cluster, "False", "Observing")
    cluster.patch({"spec": {"paused": True}})
    harness.join(harness.cluster("marker"))  # which comes later: the pause is known by then
    set_mode(harness, cluster, "Enforce")
    wait_for(harness, cluster, "False", "Paused")
    assert set(bindings(cluster)) == {BOOTSTRAP, ROTATION}
    cluster.patch({"spec": {"paused": False}})
    wait_for(harness, cluster, "True", "Removed")


def test_a_deleted_policy_restores_auto_approval(harness: Harness, cluster: WorldCluster) -> None:
    before = bindings(cluster)
    harness.join(cluster, "m")
    set_mode(harness, cluster, "Enforce")
    wait_for(harness, cluster, "True", "Removed")
    harness.management.client.delete(NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace))
    for name in (BOOTSTRAP, ROTATION):
        cluster.client().wait_for(CLUSTER_ROLE_BINDINGS.collection(), name, lambda binding: True)
    assert bindings(cluster) == before


def test_a_cluster_without_a_policy_is_never_touched(harness: Harness, controller: RunningController) -> None:
    without = harness.cluster("without", attestors=(), api={"seed_kubeadm": True})
    before = bindings(without)
    other = harness.cluster("enforced", policy={"mode": "Enforce"}, api={"seed_kubeadm": True})
    wait_for(harness, other, "True", "Removed")
    assert bindings(without) == before
