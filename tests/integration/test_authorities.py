"""CAs by purpose, and the canary that proves that the API server accepts what the controller signs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from signer.authority import load_certificate_authority
from signer.controller.canary import service as canary_service
from signer.kube.errors import Unauthorized
from signer.testing.certificates import (
    ClusterCertificateAuthority,
    EncryptionAlgorithm,
    new_cluster_certificate_authority,
)
from signer.testing.fixtures import embedded_api
from signer.testing.nodes import SimulatedNode
from signer.testing.world import WorldCluster
from tests.integration.fixtures import Harness, node_of, pending, provider_id

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_waits")]

CANARY_USER = "node-attestation:ca-canary:"


@pytest.fixture(autouse=True)
def _retried_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary_service, "REFUSED_SECONDS", 0.2)


def new_authority(common_name: str = "kubernetes") -> ClusterCertificateAuthority:
    return new_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P256, common_name=common_name)


def hash_of(authority: ClusterCertificateAuthority) -> str:
    loaded = load_certificate_authority(authority.secret_data, now=datetime.now(UTC))
    return loaded.certificate.public_key_hash


def node_that_names(cluster: WorldCluster, authority: ClusterCertificateAuthority, machine: str) -> SimulatedNode:
    """A node whose kubeconfig has that CA."""
    return replace(node_of(cluster, machine), ca_cert_hash=hash_of(authority))


def join(cluster: WorldCluster, node: SimulatedNode, csr: str = "join") -> None:
    cluster.add_machine(node.node_name, provider_id=provider_id(node.node_name))
    cluster.submit_with_token(node.client_request(csr))


def canaries(cluster: WorldCluster) -> list[Any]:
    """What canaries asked the API server."""
    found = embedded_api(cluster).requests.matching("POST */selfsubjectreviews")
    return [entry for entry in found if not entry.user or entry.user.startswith(CANARY_USER)]


class TestClientAndServerCA:
    """RKE2 and K3s: ``-cca`` signs client certificates, ``-ca`` is the server CA."""

    client_ca, server_ca = new_authority("rke2-client-ca"), new_authority("rke2-server-ca")

    @pytest.fixture
    def cluster(self, harness: Harness) -> WorldCluster:
        # The embedded API takes client certificates of its CA, and no others.
        cluster = harness.cluster(api={"authority": self.client_ca})
        cluster.put_secret("ca", self.server_ca.secret_data)
        cluster.put_secret("cca", self.client_ca.secret_data)
        return cluster

    def test_a_node_joins_and_its_certificate_works(self, harness: Harness, cluster: WorldCluster) -> None:
        node = node_that_names(cluster, self.server_ca, "w1")
        join(cluster, node)
        harness.run()
        verdict = cluster.wait_until_decided("join")
        assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
        with cluster.client(node.connection(cluster.api.connection(), verdict.certificate)) as client:
            client.create(
                "/apis/authentication.k8s.io/v1/selfsubjectreviews",
                {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
            )
        condition = harness.wait_for_condition(cluster, "CertificateAuthorityTrusted", "True")
        assert condition["reason"] == "Trusted"
