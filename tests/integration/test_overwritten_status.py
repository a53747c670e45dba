"""A policy's status that another client overwrites, such as a restored backup."""

from __future__ import annotations

from typing import Any

import pytest

from signer.controller.cluster import workload_cluster
from signer.controller.status import policy_status
from signer.kube.resources import NODE_ATTESTATION_POLICIES
from tests.integration.fixtures import Harness, provider_id
from tests.integration.test_auto_approval import wait_for

pytestmark = pytest.mark.slow


def test_it_is_corrected(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other change triggers a write."""
    monkeypatch.setattr(workload_cluster, "RECONCILE_SECONDS", 0.1)
    monkeypatch.setattr(policy_status, "WATCH_LAG_SECONDS", 0.0)
    monkeypatch.setattr(policy_status, "RESTORE_SECONDS", 0.0)
    cluster = harness.cluster(api={"seed_kubeadm": True}, policy={"mode": "Enforce"})
    cluster.add_machine("older", provider_id=provider_id("older"))
    harness.run()
    wait_for(harness, cluster, "False", "WaitingForAttestation")
    path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    said: list[dict[str, Any]] = harness.management.client.get(path)["status"]["conditions"]
    of_the_door = ("AutoApprovalRemoved", "Ready")
    others = [
        {**one, "status": "True", "reason": "Removed", "message": "out of a backup"}
        if one["type"] in of_the_door
        else one
        for one in said
    ]
    harness.management.client.patch(f"{path}/status", {"status": {"conditions": others}})
    wait_for(harness, cluster, "False", "WaitingForAttestation")
    ready = harness.wait_for_condition(cluster, "Ready", "False")
    assert ready["reason"] == "WaitingForAttestation"
