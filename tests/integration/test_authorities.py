"""CAs by purpose, and the canary that proves that the API server accepts what the controller signs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from signer.authority import load_certificate_authority
from signer.configuration import AllowedAuthorities
from signer.controller.canary import service as canary_service
from signer.kube.backoff import Backoff
from signer.testing.certificates import (
    ClusterCertificateAuthority,
    EncryptionAlgorithm,
    new_cluster_certificate_authority,
)
from signer.testing.fixtures import embedded_api
from signer.testing.nodes import SimulatedNode
from signer.testing.world import WorldCluster
from tests.integration.fixtures import Harness, certificate_of, node_of, pending, provider_id

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


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def node_that_names(cluster: WorldCluster, authority: ClusterCertificateAuthority, machine: str) -> SimulatedNode:
    """A node whose kubeconfig has that CA."""
    return replace(node_of(cluster, machine), ca_cert_hash=hash_of(authority))


def join(cluster: WorldCluster, node: SimulatedNode) -> None:
    cluster.add_machine(node.node_name, provider_id=provider_id(node.node_name))
    cluster.submit_with_token(node.client_request(f"join-{node.node_name}"))


def canaries(cluster: WorldCluster) -> list[Any]:
    """What canaries asked the API server."""
    found = embedded_api(cluster).requests.matching("POST */selfsubjectreviews")
    return [entry for entry in found if not entry.user or entry.user.startswith(CANARY_USER)]


def assert_waits(harness: Harness, cluster: WorldCluster, machine: str, reason: str, part: str = "") -> None:
    """The request of that Machine's node waits for that reason."""
    harness.wait_for_event(reason, machine, part=part, seconds=10)
    pending(cluster, f"join-{machine}")


class TestOneCA:
    """kubeadm."""

    def test_one_canary_is_enough(self, harness: Harness) -> None:
        cluster = harness.cluster()
        harness.run()
        for machine in ("w1", "w2", "w3"):
            harness.join(cluster, machine)
        (canary,) = canaries(cluster)
        assert (canary.user, canary.status) == (CANARY_USER + cluster.ca_cert_hash[7:23], 201)
        condition = harness.wait_for_condition(cluster, "CertificateAuthorityTrusted", "True")
        assert "its own certificate chains to the CA that signs serving certificates" in condition["message"]

    def test_an_api_server_that_does_not_serve_the_review_names_the_user_too(self, harness: Harness) -> None:
        cluster = harness.cluster()
        embedded_api(cluster).delete("clusterrolebindings", "system:basic-user")
        harness.run()
        harness.join(cluster)
        assert {canary.status for canary in canaries(cluster)} == {403}

    def test_secrets_of_a_kubeadm_control_plane(self, harness: Harness) -> None:
        """Its other Secrets are never read."""
        cluster = harness.cluster(attestors=())
        cluster.patch({"spec": {"controlPlaneRef": reference("KubeadmControlPlane")}})
        cluster.put_secret("cca", new_authority().secret_data)
        cluster.authorize("keyed-mac")
        harness.run()
        harness.join(cluster)
        assert harness.api.requests.matching(f"GET */secrets/{cluster.name}-ca")
        assert not harness.api.requests.matching(f"GET */secrets/{cluster.name}-cca")


def reference(kind: str) -> dict[str, str]:
    return {"apiGroup": "controlplane.cluster.x-k8s.io", "kind": kind, "name": "control-plane"}


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
        verdict = cluster.wait_until_decided("join-w1")
        assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
        with cluster.client(node.connection(cluster.api.connection(), verdict.certificate)) as client:
            client.create(
                "/apis/authentication.k8s.io/v1/selfsubjectreviews",
                {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
            )
        condition = harness.wait_for_condition(cluster, "CertificateAuthorityTrusted", "True")
        assert condition["reason"] == "Trusted"

    @pytest.mark.parametrize("kind", ["RKE2ControlPlane", "KThreesControlPlane"])
    def test_the_kind_of_control_plane_tells(self, harness: Harness, kind: str) -> None:
        """Before Secret -cca is there, nothing is signed by the server CA."""
        cluster = harness.cluster(attestors=(), api={"authority": self.client_ca})
        cluster.patch({"spec": {"controlPlaneRef": reference(kind)}})
        cluster.put_secret("ca", self.server_ca.secret_data)
        cluster.authorize("keyed-mac")
        node = node_that_names(cluster, self.server_ca, "w1")
        join(cluster, node)
        harness.run()
        assert_waits(harness, cluster, "w1", "CertificateAuthorityUnavailable", "workload-cca does not exist")
        assert canaries(cluster) == []
        cluster.put_secret("cca", self.client_ca.secret_data)
        assert cluster.wait_until_decided("join-w1").reason == "Attested"

    def test_the_policy_tells(self, harness: Harness) -> None:
        policy = {"certificateAuthorities": {"client": "kubelet-clients", "serving": "ca"}}
        cluster = harness.cluster(api={"authority": self.client_ca}, policy=policy)
        cluster.put_secret("ca", self.server_ca.secret_data)
        cluster.put_secret("kubelet-clients", self.client_ca.secret_data)
        join(cluster, node_that_names(cluster, self.server_ca, "w1"))
        first = harness.run()
        message = harness.wait_for_condition(cluster, "CertificateAuthorityAvailable", "False")["message"]
        assert "does not allow in namespace default" in message
        pending(cluster, "join-w1")
        first.stop()
        first.wait_ended()
        allowed = AllowedAuthorities(by_namespace={"default": frozenset({"ca", "kubelet-clients"})})
        harness.run(authorities=allowed)
        assert cluster.wait_until_decided("join-w1").reason == "Attested"

    def test_serving_certificates_are_of_the_server_ca(self, harness: Harness, cluster: WorldCluster) -> None:
        node = node_that_names(cluster, self.server_ca, "w1")
        join(cluster, node)
        harness.run()
        certificate = cluster.wait_until_decided("join-w1").certificate
        own = node.connection(cluster.api.connection(), certificate)
        cluster.submit(node.but(key=new_key()).serving_request("serving", dns_names=["w1"]), own)
        serving = certificate_of(cluster.wait_until_decided("serving"))
        for issued, authority in (
            (serving, self.server_ca),
            (x509.load_pem_x509_certificate(certificate), self.client_ca),
        ):
            issuer = load_certificate_authority(authority.secret_data, now=datetime.now(UTC)).certificate
            assert issued.issuer.public_bytes() == issuer.subject


class TestCanary:
    """What waits until the API server has accepted a certificate."""

    def test_a_wrong_ca_issues_nothing_until_the_secret_is_right(self, harness: Harness) -> None:
        cluster, wrong = harness.cluster(), new_authority("wrong")
        right = {"tls.crt": cluster.api.ca_certificate_pem, "tls.key": cluster.api.ca_key_pem}
        cluster.put_secret("ca", wrong.secret_data)
        embedded_api(cluster).create(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
                "data": {"client-ca-file": cluster.api.ca_certificate_pem.decode()},
            }
        )
        # The node's kubeconfig has the CA that the controller was given: its evidence is in order.
        join(cluster, node_that_names(cluster, wrong, "w1"))
        harness.run()
        condition = harness.wait_for_condition(cluster, "CertificateAuthorityTrusted", "False")
        assert condition["reason"] == "CertificateAuthorityNotTrusted"
        assert f"refuses client certificates of CA {hash_of(wrong)}" in condition["message"]
        assert f"it accepts those of {cluster.ca_cert_hash}" in condition["message"]
        assert_waits(harness, cluster, "w1", "CertificateAuthorityNotTrusted")
        assert harness.records(cluster) == [], "nothing is reserved or journaled"
        assert harness.wait_for_condition(cluster, "Ready", "False")["reason"] == "CertificateAuthorityNotTrusted"

        cluster.put_secret("ca", right)
        harness.wait_for_condition(cluster, "CertificateAuthorityTrusted", "True")
        harness.join(cluster, "w2")

    def test_a_request_proceeds_by_itself_once_the_api_server_accepts_the_ca(self, harness: Harness) -> None:
        cluster = harness.cluster()
        refused = embedded_api(cluster).faults.inject("POST */selfsubjectreviews", status=401, times=None)
        join(cluster, node_of(cluster, "w1"))
        harness.run()
        assert_waits(harness, cluster, "w1", "CertificateAuthorityNotTrusted", "which CAs it accepts is unknown")
        embedded_api(cluster).faults.clear()
        assert cluster.wait_until_decided("join-w1").reason == "Attested"
        assert refused.hits >= 1

    @pytest.mark.parametrize("status", [500, 503, 429])
    def test_an_answer_that_shows_nothing_is_waited_for(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch, status: int
    ) -> None:
        monkeypatch.setattr(canary_service, "RETRY", Backoff(base_seconds=0.1, maximum_seconds=0.1, jitter=0))
        cluster = harness.cluster()
        embedded_api(cluster).faults.inject("POST */selfsubjectreviews", status=status, times=None)
        join(cluster, node_of(cluster, "w1"))
        harness.run()
        assert_waits(harness, cluster, "w1", "CertificateAuthorityNotProven", str(status))
        condition = harness.wait_for_condition(cluster, "CertificateAuthorityTrusted", "Unknown")
        assert condition["reason"] == "CertificateAuthorityNotProven"
        embedded_api(cluster).faults.clear()
        assert cluster.wait_until_decided("join-w1").reason == "Attested"

    def test_a_changed_ca_is_proven_anew(self, harness: Harness) -> None:
        cluster = harness.cluster()
        harness.run()
        harness.join(cluster)
        assert len(canaries(cluster)) == 1
        renewed = new_authority()
        cluster.put_secret("ca", renewed.secret_data)
        harness.wait_for_condition(cluster, "CertificateAuthorityTrusted", "False")
        join(cluster, node_that_names(cluster, renewed, "w2"))
        assert_waits(harness, cluster, "w2", "CertificateAuthorityNotTrusted")

    def test_an_outage_of_one_api_server_stops_its_own_cluster_only(self, harness: Harness) -> None:
        down, up = harness.cluster("down"), harness.cluster("up")
        join(down, node_of(down, "w1"))
        embedded_api(down).stop_listening()
        harness.run()
        harness.join(up)
        embedded_api(down).start_listening()
        assert down.wait_until_decided("join-w1").reason == "Attested"

    def test_what_is_proven_survives_a_reconnection(self, harness: Harness) -> None:
        cluster = harness.cluster()
        harness.run()
        harness.join(cluster)
        embedded_api(cluster).restart()
        harness.join(cluster)
        assert len(canaries(cluster)) == 1


class TestLineage:
    """Evidence that names another CA of this cluster waits. Only a foreign CA is denied."""

    @pytest.mark.parametrize("old_first", [True, False])
    def test_a_bundle_in_any_order(self, harness: Harness, old_first: bool) -> None:
        cluster, old = harness.cluster(), new_authority()
        own = cluster.api.ca_certificate_pem
        bundle = (old.certificate + own) if old_first else (own + old.certificate)
        cluster.put_secret("ca", {"tls.crt": bundle, "tls.key": cluster.api.ca_key_pem})
        harness.run()
        harness.join(cluster)
        join(cluster, node_that_names(cluster, old, "w2"))
        assert_waits(harness, cluster, "w2", "CertificateAuthorityChanging")

    def test_the_ca_of_earlier_certificates(self, harness: Harness) -> None:
        """The Secret was replaced, and nothing but the records tells that the former CA was this cluster's."""
        renewed = new_authority()
        cluster = harness.cluster(api={"client_authorities": renewed.certificate})
        harness.run()
        harness.join(cluster)
        cluster.put_secret("ca", renewed.secret_data)
        harness.wait_for_condition(cluster, "CertificateAuthorityTrusted", "True")
        join(cluster, node_that_names(cluster, renewed, "w2"))
        assert cluster.wait_until_decided("join-w2").reason == "Attested"
        join(cluster, node_of(cluster, "w3"))
        assert_waits(harness, cluster, "w3", "CertificateAuthorityChanging")
        join(cluster, node_that_names(cluster, new_authority(), "w4"))
        assert cluster.wait_until_decided("join-w4").reason == "ClusterMismatch"
