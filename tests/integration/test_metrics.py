"""A running controller's metrics for a cluster: while it is served, when it changes, and after its deletion."""

from __future__ import annotations

from datetime import datetime

import pytest

from signer.controller.diagnostics.health import State
from signer.kube.resources import MACHINES_V1BETA2, NODE_ATTESTATION_POLICIES, SECRETS
from signer.store import controller_key
from signer.testing.fixtures import embedded_api
from signer.testing.world import CONTROLLER_NAMESPACE, RunningController
from tests.integration.fixtures import Harness, certificate_of, node_of, provider_id
from tests.integration.kubelets import builtin_serving_request
from tests.support.processes import wait_until

pytestmark = pytest.mark.slow

KEY = "default/workload"


def value(controller: RunningController, name: str, **labels: str) -> float | None:
    """Of one series, as a scrape would show it."""
    return controller.options.metrics.registry.get_sample_value(f"node_attestation_{name}", labels)


def test_a_cluster_from_its_first_node_to_its_end(harness: Harness) -> None:
    cluster = harness.cluster()
    controller = harness.run()
    verdict = harness.join(cluster, "m")
    end: datetime = certificate_of(verdict).not_valid_after_utc

    def settled() -> bool:
        return value(controller, "cluster_condition", cluster=KEY, condition="Ready", status="True") == 1

    wait_until(lambda: value(controller, "outage_budget_timestamp_seconds", cluster=KEY) == end.timestamp(), "a budget")
    wait_until(settled, "the policy is ready")
    counted = {"provider": "keyed-mac", "purpose": "client"}
    wait_until(lambda: value(controller, "certificate_latency_seconds_count", **counted) == 1, "it is counted")
    assert controller.options.health.state() is State.READY
    assert controller.options.health.alive().passed
    assert value(controller, "ready") == 1
    assert value(controller, "management_watch_reachable", resource="machines") == 1
    assert value(controller, "nodes", cluster=KEY, certificate="valid") == 1
    assert value(controller, "workload_cluster_reachable", cluster=KEY) == 1
    assert value(controller, "cluster_info", cluster=KEY, mode="Observe") == 1
    assert (value(controller, "certificate_authority_expiry_timestamp_seconds", cluster=KEY) or 0) > end.timestamp()
    wait_until(lambda: value(controller, "pending_requests", cluster=KEY) == 0, "none waits")

    cluster.submit_with_token(node_of(cluster, "waits").client_request("waits"))
    wait_until(lambda: value(controller, "pending_requests", cluster=KEY) == 1, "one waits")
    assert (value(controller, "oldest_pending_request_seconds", cluster=KEY) or 0) > 0

    harness.management.client.delete(MACHINES_V1BETA2.object("m", cluster.namespace))
    wait_until(lambda: value(controller, "outage_budget_timestamp_seconds", cluster=KEY) is None, "its Machine is gone")
    assert value(controller, "nodes", cluster=KEY, certificate="valid") == 0

    cluster.remove()
    wait_until(lambda: value(controller, "pending_requests", cluster=KEY) is None, "the cluster is no longer served")
    left = [
        sample
        for family in controller.options.metrics.registry.collect()
        for sample in family.samples
        if sample.labels.get("cluster") == KEY
    ]
    assert left == []


def test_a_controller_key_that_is_deleted_while_it_runs(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller goes on, and the next one to start would create another key: an alert warns in time."""
    monkeypatch.setattr(controller_key, "READ_INTERVAL_SECONDS", 0.1)
    monkeypatch.setattr(controller_key, "MINIMUM_READ_INTERVAL_SECONDS", 0.1)
    cluster = harness.cluster()
    controller = harness.run()
    assert value(controller, "controller_key_readable") == 1
    path = SECRETS.object(controller_key.SECRET_NAME, CONTROLLER_NAMESPACE)
    copy = harness.management.client.get(path)
    harness.management.client.delete(path)
    wait_until(lambda: value(controller, "controller_key_readable") == 0, "it is seen to be gone")
    assert value(controller, "ready") == 1
    harness.join(cluster)
    kept = {name: copy["metadata"][name] for name in ("name", "namespace")}
    harness.management.client.create(SECRETS.collection(CONTROLLER_NAMESPACE), {**copy, "metadata": kept})
    wait_until(lambda: value(controller, "controller_key_readable") == 1, "its copy is back")


def test_a_policy_that_becomes_invalid_still_names_its_mode(harness: Harness) -> None:
    """An alert uses it to tell unproven removal of auto-approval from a policy that does not remove it."""
    cluster = harness.cluster(policy={"mode": "Enforce"}, api={"seed_kubeadm": True})
    controller = harness.run()
    auto_approval = {"cluster": KEY, "condition": "AutoApprovalRemoved"}
    wait_until(lambda: value(controller, "cluster_condition", **auto_approval, status="True") == 1, "it is enforced")
    path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    harness.management.client.patch(path, {"spec": {"certificates": {"clientDuration": "0h"}}})
    wait_until(
        lambda: value(controller, "cluster_condition", **auto_approval, status="Unknown") == 1,
        "it is not known any more",
    )
    assert value(controller, "cluster_info", cluster=KEY, mode="Enforce") == 1


def test_requests_that_the_policy_ignores_are_not_waiting(harness: Harness) -> None:
    """Under Observe, kubelets whose serving requests stay unapproved post another every quarter of an hour."""
    cluster = harness.cluster()
    controller = harness.run()
    cluster.add_machine("m", provider_id=provider_id("m"))
    node = node_of(cluster, "m")
    cluster.submit_with_token(node.client_request("join"))
    kubelet = node.connection(cluster.api.connection(), cluster.wait_until_decided("join").certificate)
    cluster.submit(builtin_serving_request("builtin", "m", ["m"]), kubelet)
    left_alone = {"cluster": KEY, "provider": "", "decision": "LeftAlone", "reason": "Attested"}
    wait_until(lambda: value(controller, "decisions_total", **left_alone) == 1, "it is left alone")
    assert value(controller, "pending_requests", cluster=KEY) == 0
    assert value(controller, "oldest_pending_request_seconds", cluster=KEY) == 0

    path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    harness.management.client.patch(path, {"spec": {"nodeNameReuse": "Immediate"}})
    cluster.submit_with_token(node_of(cluster, "waits").client_request("waits"))
    wait_until(lambda: value(controller, "pending_requests", cluster=KEY) == 1, "one waits")
    embedded_api(cluster).delete("certificatesigningrequests", "builtin")
    embedded_api(cluster).delete("certificatesigningrequests", "waits")
    wait_until(lambda: value(controller, "pending_requests", cluster=KEY) == 0, "none waits")
