"""What users and other controllers see: policies, InfraClusters, Machines, records; with the real kubectl."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from signer.controller.status import machine_condition
from signer.kube.client import JsonObject
from signer.kube.errors import ResourceNotServed
from signer.kube.resources import (
    MACHINE_POOLS_V1BETA2,
    MACHINES_V1BETA2,
    NODE_ATTESTATION_POLICIES,
)
from signer.testing.fixtures import embedded_api
from signer.testing.world import WorldCluster
from tests.integration.fixtures import CONTROLLER_USER, Harness, assert_readable, node_of, pending, provider_id
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.infra_cluster import INFRASTRUCTURE, add_infra_cluster
from tests.support.kubectl import find_kubectl, run_kubectl

pytestmark = pytest.mark.slow

CLIENT: Final = "cluster.x-k8s.io/kube-apiserver-client-kubelet-keyed-mac"
SERVING: Final = "cluster.x-k8s.io/kubelet-serving-keyed-mac"
FIELDS: Final = ("kubeletClientCertificateSigner", "kubeletServingCertificateSigner")
GATES: Final = {"spec": {"readinessGates": [{"conditionType": "NodeAttested"}]}}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_condition, "SETTLE_SECONDS", 0.02)
    monkeypatch.setattr(machine_condition, "WRITE_SECONDS", 0.0)
    monkeypatch.setattr(machine_condition, "RESYNC_SECONDS", 0.1)


def kubectl(harness: Harness, *arguments: str) -> str:
    try:
        find_kubectl()
    except MissingPart as missing:
        skip_or_fail(missing)
    result = run_kubectl(harness.api.kubeconfig(), list(arguments))
    assert result.returncode == 0, result.stderr
    return result.stdout


def cells(printed: str) -> dict[str, str]:
    """The one line of ``kubectl get``, by heading."""
    heading, line = printed.splitlines()
    return dict(zip(heading.split(), line.split(), strict=True))


# The policy


def test_a_policy_shows_what_it_is_and_whether_it_works(harness: Harness) -> None:
    cluster = harness.cluster()
    harness.run()
    harness.wait_for_condition(cluster, "Ready", "True")
    shown = cells(kubectl(harness, "get", "nodeattestationpolicies"))
    assert shown.pop("AGE")
    assert shown == {
        "NAME": "workload",
        "MODE": "Observe",
        "ATTESTORS": "keyed-mac",
        "READY": "True",
        "REASON": "Ready",
    }


def test_a_condition_irrelevant_to_observe_does_not_make_a_policy_unready(harness: Harness) -> None:
    cluster = harness.cluster(policy={"mode": "Observe", "bootstrapTokens": {"untraceable": "Allow"}})
    harness.run()
    assert harness.wait_for_condition(cluster, "Ready", "True")["reason"] == "Ready"


def test_signers_that_the_operator_does_not_permit_are_not_published(harness: Harness) -> None:
    cluster = harness.cluster(attestors=("insecure", "keyed-mac"))
    harness.run()
    harness.wait_for_condition(cluster, "CertificateAuthorityAvailable", "True")
    status = harness.management.client.get(NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace))["status"]
    assert status["clientSignerNames"] == [CLIENT]
    assert status["attestors"] == "keyed-mac"


# The InfraCluster


def provisioned(cluster: WorldCluster, *fields: str) -> Callable[[], JsonObject]:
    """Its InfraCluster with a status; returns how to read it."""
    add_infra_cluster(cluster, *fields)
    client = cluster.management.client
    path = INFRASTRUCTURE.object(cluster.name, cluster.namespace)
    client.patch(f"{path}/status", {"status": {"phase": "Provisioned"}})
    return lambda: client.get(path)


def wait_for_signer(harness: Harness, cluster: WorldCluster, field: str, signer: str) -> JsonObject:
    shown = harness.management.client.wait_for(
        INFRASTRUCTURE.collection(cluster.namespace),
        cluster.name,
        lambda item: (item.get("status") or {}).get(field, "") == signer,
    )
    status: JsonObject = shown["status"]
    return status


def test_signer_names_on_the_infra_cluster(harness: Harness) -> None:
    cluster = harness.cluster()
    provisioned(cluster, *FIELDS)
    harness.run()
    status = wait_for_signer(harness, cluster, FIELDS[0], CLIENT)
    assert status == {"phase": "Provisioned", FIELDS[0]: CLIENT, FIELDS[1]: SERVING}


def test_an_infra_cluster_without_the_fields_is_not_changed(harness: Harness) -> None:
    cluster = harness.cluster()
    read = provisioned(cluster)
    before = read()
    harness.run()
    harness.wait_for_condition(cluster, "Ready", "True")
    harness.join(cluster)
    assert read() == before
    written = harness.api.requests.writes(f"* {INFRASTRUCTURE.collection(cluster.namespace)}*")
    assert not [entry for entry in written if entry.user == CONTROLLER_USER]


def test_without_an_infra_cluster_everything_else_works(harness: Harness) -> None:
    cluster = harness.cluster()
    with pytest.raises(ResourceNotServed):
        harness.management.client.get(INFRASTRUCTURE.object(cluster.name, cluster.namespace))
    harness.run()
    harness.wait_for_condition(cluster, "Ready", "True")
    harness.join(cluster)


# The Machine


def gated_machine(cluster: WorldCluster, name: str) -> None:
    cluster.add_machine(name, provider_id=provider_id(name))
    cluster.patch_machine(name, GATES)


def wait_for_node_attested(
    harness: Harness, cluster: WorldCluster, name: str, status: str, reason: str
) -> dict[str, Any]:
    def ours(machine: JsonObject) -> list[dict[str, Any]]:
        conditions = (machine.get("status") or {}).get("conditions") or []
        return [one for one in conditions if one["type"] == "NodeAttested"]

    def fits(machine: JsonObject) -> bool:
        return any((one["status"], one["reason"]) == (status, reason) for one in ours(machine))

    return ours(harness.management.client.wait_for(MACHINES_V1BETA2.collection(cluster.namespace), name, fits))[0]


def test_a_machine_that_waits_for_it_becomes_attested(harness: Harness) -> None:
    cluster = harness.cluster()
    gated_machine(cluster, "gated")
    harness.run()
    wait_for_node_attested(harness, cluster, "gated", "Unknown", "NotAttestedYet")
    cluster.submit_with_token(node_of(cluster, "gated", "other").client_request("wrong-name"))
    denied = wait_for_node_attested(harness, cluster, "gated", "False", "NodeNameMismatch")
    assert_readable(denied["message"])
    cluster.submit_with_token(node_of(cluster, "gated").client_request("right-name"))
    attested = wait_for_node_attested(harness, cluster, "gated", "True", "Attested")
    assert "attested by keyed-mac as node gated" in attested["message"]
    machine = harness.management.client.get(MACHINES_V1BETA2.object("gated", cluster.namespace))
    assert machine["status"]["initialization"] == {"bootstrapDataSecretCreated": True}


def test_the_condition_is_written_again_after_a_restart(harness: Harness) -> None:
    cluster = harness.cluster()
    gated_machine(cluster, "gated")
    first = harness.run()
    cluster.submit_with_token(node_of(cluster, "gated").client_request("join"))
    wait_for_node_attested(harness, cluster, "gated", "True", "Attested")
    first.kill()
    path = MACHINES_V1BETA2.object("gated", cluster.namespace, "status")
    harness.management.client.patch(path, {"status": {"conditions": []}})
    harness.run()
    wait_for_node_attested(harness, cluster, "gated", "True", "Attested")


def test_a_machine_that_does_not_wait_for_it_is_not_changed(harness: Harness) -> None:
    cluster = harness.cluster()
    harness.run()
    harness.join(cluster, "plain")
    gated_machine(cluster, "gated")
    wait_for_node_attested(harness, cluster, "gated", "Unknown", "NotAttestedYet")
    written = harness.api.requests.writes(f"* {MACHINES_V1BETA2.object('plain', cluster.namespace)}*")
    assert not [entry for entry in written if entry.user == CONTROLLER_USER]


def test_kubectl_describe_machine_shows_why_its_node_did_not_join(harness: Harness) -> None:
    cluster = harness.cluster()
    cluster.add_machine("lost", provider_id=provider_id("lost"))
    harness.run()
    cluster.submit_with_token(node_of(cluster, "lost", "somebody-else").client_request("lost-1"))
    message = harness.wait_for_event("NodeNameMismatch", "lost")
    described = kubectl(harness, "describe", "machine", "--namespace", cluster.namespace, "lost")
    event = next(line for line in described.splitlines() if "NodeNameMismatch" in line)
    assert event.split()[:2] == ["Warning", "NodeNameMismatch"]
    assert "node-attestation-controller" in event
    assert message in event


def test_a_machine_without_a_provider_id_reports_it(harness: Harness) -> None:
    cluster = harness.cluster()
    cluster.add_machine("young")
    harness.run()
    cluster.submit_with_token(node_of(cluster, "young").client_request("young-1"))
    assert provider_id("young") in harness.wait_for_event("MachineNotFound", "young")
    pending(cluster, "young-1")


def test_the_event_of_a_pools_instance_is_on_the_pool(harness: Harness) -> None:
    cluster = harness.cluster()
    harness.management.client.create(
        MACHINE_POOLS_V1BETA2.collection(cluster.namespace),
        {
            "apiVersion": MACHINE_POOLS_V1BETA2.api_version,
            "kind": "MachinePool",
            "metadata": {"name": "pool", "namespace": cluster.namespace},
            "spec": {
                "clusterName": cluster.name,
                "template": {
                    "spec": {
                        "clusterName": cluster.name,
                        "bootstrap": {"dataSecretName": "pool-bootstrap"},
                        "infrastructureRef": {"apiGroup": INFRASTRUCTURE.group, "kind": "TestPool", "name": "pool"},
                    }
                },
                "providerIDList": [provider_id("instance-1"), provider_id("instance-2")],
            },
        },
    )
    harness.run()
    cluster.submit_with_token(node_of(cluster, "instance-2").client_request("instance-2-1"))
    client = harness.management.client
    event = client.wait_for_any(
        f"/api/v1/namespaces/{cluster.namespace}/events",
        lambda item: item["involvedObject"]["kind"] == "MachinePool" and item["involvedObject"]["name"] == "pool",
    )
    assert event["message"].startswith(f"{provider_id('instance-2')}: ")
    described = kubectl(harness, "describe", "machinepool", "--namespace", cluster.namespace, "pool")
    assert provider_id("instance-2") in described.partition("Events:")[2]


# The record


def test_kubectl_get_attestednodes_shows_node_attestor_start_and_expiry(harness: Harness) -> None:
    cluster = harness.cluster()
    harness.run()
    harness.join(cluster, "m-1")
    (record,) = harness.records(cluster)
    shown = cells(kubectl(harness, "get", "attestednodes"))
    assert shown.pop("SINCE").endswith("s")
    assert shown.pop("LAST").endswith("s")
    assert shown == {
        "NAME": "workload.m-1",
        "NODE": "m-1",
        "MACHINE": "m-1",
        "ATTESTOR": "keyed-mac",
        "UNTIL": record["spec"]["lastNotAfter"],
    }
    wide = kubectl(harness, "get", "attestednodes", "-o", "wide")
    for text in ("PROVIDER ID", "IDENTITY", cluster.name, "Machine", provider_id("m-1")):
        assert text in wide
    assert embedded_api(cluster) is not harness.api
