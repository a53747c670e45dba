"""Each control plane provider's CA Secrets: the API server accepts what the controller signs with them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest

from signer.authority import load_certificate_authority
from signer.kube.resources import SECRETS
from signer.testing.certificates import (
    ClusterCertificateAuthority,
    EncryptionAlgorithm,
    new_cluster_certificate_authority,
)
from signer.testing.cluster_api import secret_manifest
from signer.testing.fixtures import embedded_api
from signer.testing.world import Verdict, WorldCluster
from tests.integration.fixtures import CONTROLLER_USER, Harness, certificate_of, keyed_mac, pending
from tests.integration.providers.control_planes import WORLDS, ControlPlaneWorld
from tests.integration.providers.nodes import KeyedMACNode
from tests.integration.providers.stage import csr

_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_MACHINE = "w-1"


@dataclass(frozen=True)
class Built:
    """A cluster of that control plane, with the node of its one Machine."""

    harness: Harness
    cluster: WorldCluster
    client: ClusterCertificateAuthority
    serving: ClusterCertificateAuthority
    node: KeyedMACNode


@pytest.fixture(scope="module")
def controller(shared_harness: Harness) -> Harness:
    """One controller for all control planes."""
    shared_harness.run(attestors=keyed_mac())
    return shared_harness


@pytest.fixture(scope="module", params=WORLDS, ids=lambda world: world.name)
def world(request: pytest.FixtureRequest) -> ControlPlaneWorld:
    """One control plane provider."""
    found: ControlPlaneWorld = request.param
    return found


@pytest.fixture(scope="module")
def built(world: ControlPlaneWorld, controller: Harness) -> Built:
    """The cluster with the Secrets that the provider writes."""
    return build(world, controller)


@pytest.fixture(scope="module")
def joined(built: Built) -> Verdict:
    """The verdict on the first request of the cluster's node."""
    return built.node.ask(csr())


def build(world: ControlPlaneWorld, harness: Harness) -> Built:
    """Create the cluster; the embedded API accepts certificates of the client CA, and no others."""
    client = new_cluster_certificate_authority(world.algorithm, common_name=f"{world.name}-client-ca")
    serving = client
    if world.serving != world.client:
        serving = new_cluster_certificate_authority(world.algorithm, common_name=f"{world.name}-server-ca")
    cluster = harness.cluster("prod", (), namespace=world.name, api={"authority": client})
    reference = {"apiGroup": "controlplane.cluster.x-k8s.io", "kind": world.kind, "name": "prod"}
    cluster.patch({"spec": {"controlPlaneRef": reference}})
    cluster.delete_secret("ca")
    for suffix, authority in {world.serving: serving, world.client: client}.items():
        data = dict(authority.secret_data)
        data |= {key: data[of] for key, of in world.copies}
        manifest = secret_manifest(cluster.key, suffix, data) | {"type": world.secret_type}
        harness.management.client.create(SECRETS.collection(cluster.namespace), manifest)
    for suffix in world.other_secrets:
        cluster.put_secret(suffix, {"value": b"unread"})
    cluster.authorize("keyed-mac")
    provider_id = f"test:///{world.name}"
    cluster.add_machine(_MACHINE, provider_id=provider_id)
    node = KeyedMACNode.of(cluster, _MACHINE, provider_id)
    return Built(harness, cluster, client, serving, node.but(ca_cert_hash=hash_of(serving)))


def hash_of(authority: ClusterCertificateAuthority) -> str:
    """By which the nodes' evidence names it."""
    loaded = load_certificate_authority(authority.secret_data, now=datetime.now(UTC))
    return loaded.certificate.public_key_hash


def is_issuer(authority: ClusterCertificateAuthority, verdict: Verdict) -> bool:
    """Whether the certificate names that CA."""
    loaded = load_certificate_authority(authority.secret_data, now=datetime.now(UTC))
    return certificate_of(verdict).issuer.public_bytes() == loaded.certificate.subject


def test_joins_and_the_api_server_accepts_the_certificate(built: Built, joined: Verdict) -> None:
    assert (joined.condition, joined.reason) == ("Approved", "Attested"), joined
    assert is_issuer(built.client, joined)
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    with built.cluster.client(built.node.joined(joined).credential) as client:
        answer = client.create(_REVIEWS, review)
    assert answer["status"]["userInfo"]["username"] == f"system:node:{_MACHINE}"


def test_renews_and_serves(built: Built, joined: Verdict) -> None:
    node = built.node.joined(joined)
    assert node.ask(csr()).reason == "Attested"
    assert is_issuer(built.serving, node.ask(csr(), (_MACHINE,)))


def test_ca_of_another_cluster_is_denied(built: Built) -> None:
    foreign = new_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P256)
    verdict = built.node.but(ca_cert_hash=hash_of(foreign)).ask(csr())
    assert (verdict.condition, verdict.reason) == ("Denied", "ClusterMismatch"), verdict


@pytest.mark.usefixtures("joined")
def test_only_the_cas_are_read(world: ControlPlaneWorld, built: Built) -> None:
    read = {
        entry.path.rpartition("/prod-")[2]
        for entry in built.harness.api.requests.matching(f"GET */namespaces/{world.name}/secrets/*")
        if entry.user == CONTROLLER_USER
    }
    assert {world.client, world.serving} <= read
    assert not read & set(world.other_secrets)


def test_control_plane_whose_ca_key_is_elsewhere(controller: Harness) -> None:
    """EKS, AKS and GKE: no Secret has a key that can sign."""
    managed = replace(WORLDS[0], name="managed", kind="AWSManagedControlPlane")
    built = build(managed, controller)
    built.cluster.delete_secret("ca")
    built.cluster.put_secret("ca", {"tls.crt": built.client.certificate})
    name = built.node.post(csr())
    controller.wait_for_event("CertificateAuthorityUnavailable", _MACHINE, namespace="managed")
    pending(built.cluster, name)


def test_api_server_accepts_the_client_ca_alone(built: Built) -> None:
    """The worlds would prove nothing if the API server accepted certificates of both CAs."""
    api = embedded_api(built.cluster)
    assert (api.ca_certificate_pem, api.ca_key_pem) == (built.client.certificate, built.client.private_key)
