"""Condition NodeAttested under Cluster API's own schemas (where they are given), on a real kube-apiserver."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from signer.configuration import Configuration
from signer.controller.status import machine_condition
from signer.kube.client import JsonObject
from signer.kube.resources import MACHINES_V1BETA2
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, RunningController, WorldCluster
from tests.integration.fixtures import keyed_mac, node_of, provider_id
from tests.support.cluster_api import cluster_api_crds
from tests.support.control_plane import ControlPlane
from tests.support.grants import as_service_account, restrict_in_workload_cluster
from tests.support.kubectl import run_kubectl

pytestmark = [pytest.mark.real, pytest.mark.slow]

NAMESPACE = "published"


@pytest.fixture
def cluster(real_control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorldCluster]:
    monkeypatch.setattr(machine_condition, "RESYNC_SECONDS", 0.5)
    monkeypatch.setattr(machine_condition, "WRITE_SECONDS", 0.0)
    with ManagementCluster(real_control_plane, capi_crds=cluster_api_crds()) as management:
        cluster = management.add_cluster("published", real_control_plane, namespace=NAMESPACE)
        restrict_in_workload_cluster(cluster, real_control_plane)
        cluster.authorize("keyed-mac")
        cluster.add_machine("published-1", provider_id=provider_id("published-1"))
        cluster.patch_machine("published-1", {"spec": {"readinessGates": [{"conditionType": "NodeAttested"}]}})
        configuration = Configuration(namespace=CONTROLLER_NAMESPACE, attestors=keyed_mac())
        with RunningController(as_service_account(real_control_plane, NAMESPACE), configuration):
            yield cluster
        cluster.remove()


def test_the_schema_keeps_the_condition_and_kubectl_shows_the_record(cluster: WorldCluster) -> None:
    def shows(status: str, reason: str) -> JsonObject:
        def fits(machine: JsonObject) -> bool:
            conditions = (machine.get("status") or {}).get("conditions") or []
            return any(
                (one["type"], one["status"], one["reason"]) == ("NodeAttested", status, reason) for one in conditions
            )

        return cluster.management.client.wait_for(MACHINES_V1BETA2.collection(NAMESPACE), "published-1", fits)

    shows("Unknown", "NotAttestedYet")
    cluster.submit_with_token(node_of(cluster, "published-1", "somebody-else").client_request("published-wrong"))
    shows("False", "NodeNameMismatch")
    cluster.submit_with_token(node_of(cluster, "published-1").client_request("published-right"))
    attested = shows("True", "Attested")
    assert attested["status"]["initialization"]["bootstrapDataSecretCreated"] is True

    kubeconfig = cluster.api.kubeconfig()
    described = run_kubectl(kubeconfig, ["describe", "machine", "--namespace", NAMESPACE, "published-1"]).stdout
    assert "NodeNameMismatch" in described.partition("Events:")[2]
    shown = run_kubectl(kubeconfig, ["get", "attestednodes", "--namespace", NAMESPACE]).stdout.splitlines()
    assert shown[0].split() == ["NAME", "NODE", "MACHINE", "ATTESTOR", "SINCE", "LAST", "UNTIL"]
    assert shown[1].split()[:4] == ["published.published-1", "published-1", "published-1", "keyed-mac"]
    policies = run_kubectl(kubeconfig, ["get", "nodeattestationpolicies", "--namespace", NAMESPACE]).stdout
    assert policies.splitlines()[1].split()[:3] == ["published", "Observe", "keyed-mac"]
