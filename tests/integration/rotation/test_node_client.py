"""A CA of its own for the nodes' client certificates, by a running controller."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509

from signer.cli import main
from signer.configuration import RotationSettings
from signer.controller.cluster import workload_cluster
from signer.kube.backoff import Backoff
from signer.kube.errors import NotFound, Unauthorized
from signer.kube.resources import CONFIG_MAPS, MACHINES_V1BETA2, NODE_ATTESTATION_POLICIES, SECRETS
from signer.model.cluster import CONTROL_PLANE_LABEL
from signer.rotation.node_client import plan, reconciler
from signer.rotation.secrets import decoded
from signer.testing.api.authorities import Issuer
from signer.testing.certificates import EncryptionAlgorithm, new_cluster_certificate_authority
from signer.testing.fixtures import embedded_api
from signer.testing.world import WorldCluster
from tests.integration.fixtures import Harness, certificate_of, node_of, provider_id
from tests.support.processes import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_waits")]

SIGNS: Final = "NodeClientAuthoritySigns"
ALLOWED: Final = RotationSettings(node_client_namespaces=frozenset({"default"}))
CONTROL_PLANE: Final = "control-plane-1"
REVIEWS: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "WAITING", Backoff(base_seconds=0.1, maximum_seconds=0.2, jitter=0.0))
    monkeypatch.setattr(reconciler, "PROVEN_SECONDS", 0.3)
    monkeypatch.setattr(workload_cluster, "RECONCILE_REFILL_SECONDS", 0.1)  # each stage changes the status


@pytest.fixture
def cluster(harness: Harness) -> WorldCluster:
    """Of kubeadm, with one API server whose certificate names its Machine's node."""
    authority = new_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P256, now=datetime.now(UTC))
    issuer = Issuer.load(authority.certificate, authority.private_key)
    serving = issuer.serving(["localhost", "kubernetes", CONTROL_PLANE], ["127.0.0.1"])
    policy = {"nodeClientAuthority": "Separate"}
    cluster = harness.cluster(policy=policy, api={"authority": authority, "serving": serving})
    reference = {"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "KubeadmControlPlane", "name": "control-plane"}
    cluster.patch({"spec": {"controlPlaneRef": reference}})
    machine = cluster.add_machine(CONTROL_PLANE, provider_id=provider_id(CONTROL_PLANE))
    cluster.patch_machine(CONTROL_PLANE, {"metadata": {"labels": {CONTROL_PLANE_LABEL: ""}}})
    cluster.set_machine_status(machine, {"nodeRef": {"name": CONTROL_PLANE}})
    return cluster


def secret(cluster: WorldCluster, suffix: str) -> dict[str, bytes]:
    """The decoded data of Secret ``<cluster>-<suffix>``; empty without it."""
    try:
        return decoded(cluster.management.client.get(SECRETS.object(f"{cluster.name}-{suffix}", cluster.namespace)))
    except NotFound:
        return {}


def condition(cluster: WorldCluster) -> dict[str, Any]:
    """The condition; empty without it."""
    path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    conditions = (cluster.management.client.get(path).get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one["type"] == SIGNS), {})


def wait_for_reason(cluster: WorldCluster, reason: str) -> str:
    wait_until(lambda: condition(cluster).get("reason") == reason, f"its reason is {reason}")
    return str(condition(cluster)["message"])


def issuer_of(harness: Harness, cluster: WorldCluster, machine: str) -> str:
    """The CA that signs for a node that joins."""
    return certificate_of(harness.join(cluster, machine)).issuer.rfc4514_string()


def own_name(cluster: WorldCluster) -> str:
    certificate = x509.load_pem_x509_certificate(secret(cluster, "node-client-ca")["tls.crt"])
    return certificate.subject.rfc4514_string()


def reload(cluster: WorldCluster) -> None:
    """Write the published file to the API server's Machine."""
    embedded_api(cluster).accept_clients_of(secret(cluster, "trust")["client-ca.crt"])


def test_from_the_choice_to_its_end(harness: Harness, cluster: WorldCluster) -> None:
    controller = harness.run(rotation=ALLOWED)
    assert CONTROL_PLANE in wait_for_reason(cluster, "NotAccepted")
    assert issuer_of(harness, cluster, "w1") == "CN=kubernetes"

    reload(cluster)
    wait_for_reason(cluster, "Signing")
    name = own_name(cluster)
    assert name.startswith("CN=kubernetes-node-client-")
    node = node_of(cluster, "w2")
    cluster.add_machine("w2", provider_id=provider_id("w2"))
    cluster.submit_with_token(node.client_request("join-w2"))
    verdict = cluster.wait_until_decided("join-w2")
    assert certificate_of(verdict).issuer.rfc4514_string() == name
    with cluster.client(node.connection(cluster.api.connection(), verdict.certificate)) as client:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        user = client.create(REVIEWS, review)["status"]["userInfo"]
    assert (user["username"], "system:nodes" in user["groups"]) == ("system:node:w2", True)
    metric, labels = "node_attestation_node_client_authority_nodes", {"cluster": "default/workload"}
    wait_until(lambda: controller.options.metrics.registry.get_sample_value(metric, labels) == 1, "the node is counted")

    cluster.put_secret("node-client-ca", new_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P256).secret_data)
    wait_for_reason(cluster, "ForeignAuthority")
    assert issuer_of(harness, cluster, "w3") == "CN=kubernetes"
    ready = harness.wait_for_condition(cluster, "Ready", "True")
    assert ready["reason"] == "Ready", "it does not count"

    path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    cluster.management.client.patch(path, {"spec": {"nodeClientAuthority": "Shared"}})
    wait_for_reason(cluster, "NotChosen")


def rotate(cluster: WorldCluster, harness: Harness, folder: Path, *arguments: str) -> int:
    """The exit code of ``rotate CLUSTER node-client-authority``."""
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(harness.api.kubeconfig())
    name = f"{cluster.namespace}/{cluster.name}"
    return main(["rotate", name, "node-client-authority", *arguments, "--yes", "--kubeconfig", str(kubeconfig)])


def test_it_is_replaced_on_an_order(
    harness: Harness,
    cluster: WorldCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan, "AGAIN", timedelta(seconds=0.5))
    harness.run(rotation=ALLOWED)
    wait_for_reason(cluster, "NotAccepted")
    assert rotate(cluster, harness, tmp_path, "--skip-gates", "unreachable-nodes") == 4
    assert "without skip-gates first" in capsys.readouterr().out
    reload(cluster)
    wait_for_reason(cluster, "Signing")
    node = node_of(cluster, "w1")
    cluster.add_machine("w1", provider_id=provider_id("w1"))
    cluster.submit_with_token(node.client_request("join-w1"))
    verdict = cluster.wait_until_decided("join-w1")
    first = own_name(cluster)
    assert certificate_of(verdict).issuer.rfc4514_string() == first

    assert rotate(cluster, harness, tmp_path) == 0
    assert "is accepted" in capsys.readouterr().out
    wait_for_reason(cluster, "NotAccepted")
    assert own_name(cluster) != first
    assert rotate(cluster, harness, tmp_path) == 4
    assert "still being retired" in capsys.readouterr().out
    reload(cluster)
    assert "w1" in wait_for_reason(cluster, "NodesRenew")
    with cluster.client(node.connection(cluster.api.connection(), verdict.certificate)) as client:
        told = client.get(CONFIG_MAPS.object("node-attestation-trust", "kube-system"))["data"]["client-renewal"]
    assert json.loads(told)["statement"]["kind"] == "ClientRenewal"
    assert rotate(cluster, harness, tmp_path, "--skip-gates", "unreachable-nodes") == 0
    assert "accept the former authority: control-plane-1" in wait_for_reason(cluster, "ServersDropFormer")
    reload(cluster)
    wait_for_reason(cluster, "Signing")
    assert set(secret(cluster, "node-client-ca-old")) == {"tls.crt"}
    refused = node.connection(cluster.api.connection(), verdict.certificate)
    with cluster.client(refused) as client, pytest.raises(Unauthorized):
        client.get(CONFIG_MAPS.object("node-attestation-trust", "kube-system"))


def test_where_the_operator_does_not_allow_it(harness: Harness, cluster: WorldCluster) -> None:
    harness.run(rotation=RotationSettings(node_client_namespaces=frozenset({"elsewhere"})))
    assert "rotation.nodeClientAuthority" in wait_for_reason(cluster, "NotAllowed")
    assert issuer_of(harness, cluster, "w1") == "CN=kubernetes"
    assert (secret(cluster, "node-client-ca"), secret(cluster, "trust")) == ({}, {})


def test_where_rotation_is_off(harness: Harness, cluster: WorldCluster) -> None:
    harness.run()
    assert "--rotate-authorities" in wait_for_reason(cluster, "NotAllowed")
    assert issuer_of(harness, cluster, "w1") == "CN=kubernetes"
    assert (secret(cluster, "node-client-ca"), secret(cluster, "trust")) == ({}, {})


def test_a_new_machine_without_the_file_stops_it(harness: Harness, cluster: WorldCluster) -> None:
    """Nodes get certificates that every API server accepts, from then on."""
    harness.run(rotation=ALLOWED)
    wait_for_reason(cluster, "NotAccepted")
    reload(cluster)
    wait_for_reason(cluster, "Signing")
    assert issuer_of(harness, cluster, "w1") == own_name(cluster)
    embedded_api(cluster).accept_clients_of(cluster.api.ca_certificate_pem)
    wait_for_reason(cluster, "NotAccepted")
    assert issuer_of(harness, cluster, "w2") == "CN=kubernetes"


def test_before_there_is_a_control_plane_nothing_is_proven(harness: Harness, cluster: WorldCluster) -> None:
    cluster.management.client.delete(MACHINES_V1BETA2.object(CONTROL_PLANE, cluster.namespace))
    harness.run(rotation=ALLOWED)
    assert "no control-plane Machine" in wait_for_reason(cluster, "NotProven")
