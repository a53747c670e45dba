"""The canary on a real kube-apiserver: what it accepts, what it refuses, and which CA it says that it trusts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from signer.configuration import Configuration
from signer.controller.canary import service
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, RunningController, WorldCluster
from tests.integration.fixtures import keyed_mac, node_of, provider_id
from tests.integration.test_authorities import hash_of, new_authority
from tests.support.control_plane import ControlPlane
from tests.support.processes import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]

NAMESPACE = "authorities"


@pytest.fixture
def cluster(real_control_plane: ControlPlane) -> Iterator[WorldCluster]:
    with ManagementCluster(real_control_plane) as management:
        made = management.add_cluster("by-purpose", real_control_plane, namespace=NAMESPACE)
        yield made
        made.remove()
        for suffix in ("ca", "cca"):
            made.put_secret(suffix, {})


def condition_of(cluster: WorldCluster) -> dict[str, str]:
    path = f"/apis/attestation.cluster.x-k8s.io/v1alpha1/namespaces/{NAMESPACE}/nodeattestationpolicies/{cluster.name}"
    conditions = (cluster.management.client.get(path).get("status") or {}).get("conditions") or []
    return next(
        (one for one in conditions if one["type"] == "CertificateAuthorityTrusted"), {"status": "", "message": ""}
    )


def test_a_client_ca_beside_a_server_ca(
    cluster: WorldCluster, real_control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server refuses certificates of the server CA, and accepts those of the client CA."""
    monkeypatch.setattr(service, "REFUSED_SECONDS", 1.0)
    server_ca = new_authority("server-ca")
    cluster.put_secret("ca", server_ca.secret_data)
    cluster.authorize("keyed-mac")
    cluster.add_machine("purpose-1", provider_id=provider_id("purpose-1"))
    node = replace(node_of(cluster, "purpose-1"), ca_cert_hash=hash_of(server_ca))
    configuration = Configuration(namespace=CONTROLLER_NAMESPACE, watch_namespace=NAMESPACE, attestors=keyed_mac())
    with RunningController(real_control_plane.connection(), configuration):
        cluster.submit_with_token(node.client_request("purpose-join-1"))
        wait_until(lambda: condition_of(cluster)["status"] == "False", "the canary is refused")
        message = condition_of(cluster)["message"]
        assert f"refuses client certificates of CA {hash_of(server_ca)} (401 Unauthorized" in message, message
        assert f"it accepts those of {cluster.ca_cert_hash}" in message, message
        assert cluster.verdict("purpose-join-1").condition == ""

        client_ca = {"tls.crt": real_control_plane.ca_certificate_pem, "tls.key": real_control_plane.ca_key_pem}
        cluster.put_secret("cca", client_ca)
        verdict = cluster.wait_until_decided("purpose-join-1")
        assert verdict.condition == "Approved", verdict
        wait_until(lambda: condition_of(cluster)["status"] == "True", "the canary is accepted")
    with cluster.client(node.connection(real_control_plane.connection(), verdict.certificate)) as client:
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        attributes = {"resource": "nodes", "verb": "get", "name": "purpose-1"}
        answer = client.create(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            {**review, "spec": {"resourceAttributes": attributes}},
        )
    assert "allowed" in answer["status"]
