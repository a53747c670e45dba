"""The shipped pytest fixtures, used as by an attestor's author."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from signer.kube.resources import EVENTS
from signer.testing.certificates import ClusterCertificateAuthority, EncryptionAlgorithm
from signer.testing.fixtures import (
    MakeCertificateAuthority,
    MakeMachine,
    MakeNode,
    MakeSigningRequest,
    MakeWorkloadCluster,
    StartController,
    embedded_api,
)
from signer.testing.world import ManagementCluster, WorldCluster
from tests.integration.fixtures import keyed_mac, node_of, provider_id


def test_a_machine_joins(
    workload_cluster: WorldCluster,
    make_machine: MakeMachine,
    make_node: MakeNode,
    attestation_controller: StartController,
) -> None:
    workload_cluster.authorize("keyed-mac")
    make_machine("machine-1")
    attestation_controller(attestors=keyed_mac())
    settings = node_of(workload_cluster, "machine-1").settings
    node = make_node("machine-1", provider_id("machine-1"), "keyed-mac", settings)
    workload_cluster.submit_with_token(node.client_request("csr-1"))
    assert workload_cluster.wait_until_decided("csr-1").reason == "Attested"


def test_a_timeout_names_the_awaited_condition(
    workload_cluster: WorldCluster, make_node: MakeNode, attestation_controller: StartController
) -> None:
    """What an author forgets: policy, controller, Machine. A request that waits says nothing itself."""
    workload_cluster.submit_with_token(make_node("m", "test:///m", "insecure").client_request("csr"))

    def why(seconds: float) -> str:
        with pytest.raises(TimeoutError, match="csr did not reach the expected state in") as late:
            workload_cluster.wait_until_decided("csr", seconds)
        return str(late.value)

    assert why(0.1).endswith("there is no NodeAttestationPolicy default/workload: create it with authorize()")
    workload_cluster.authorize("insecure")
    assert why(0.1).endswith("its policy has no conditions: no controller serves the Cluster")
    attestation_controller(insecure_enabled=True, insecure_namespaces=frozenset({"default"}))
    collection = EVENTS.collection("default")
    workload_cluster.management.client.wait_for_any(collection, lambda event: event["reason"] == "MachineNotFound")
    assert why(0.1).endswith("MachineNotFound: no Machine has provider ID test:///m yet")


def test_input_that_no_node_makes(
    workload_cluster: WorldCluster,
    make_signing_request: MakeSigningRequest,
    make_node: MakeNode,
    attestation_controller: StartController,
) -> None:
    workload_cluster.authorize("insecure")
    attestation_controller(insecure_enabled=True, insecure_namespaces=frozenset({"default"}))
    node = make_node("m", "test:///m", "insecure")
    signer_name = "cluster.x-k8s.io/kube-apiserver-client-kubelet-insecure"
    request = x509.load_der_x509_csr(node.certificate_request()).public_bytes(Encoding.PEM)
    manifest = make_signing_request("csr", request, signer_name, ["client auth"], 3600)
    assert manifest["spec"]["usages"] == ["client auth"]
    assert manifest["spec"]["expirationSeconds"] == 3600
    workload_cluster.submit_with_token(manifest)
    assert workload_cluster.wait_until_decided("csr").reason == "MalformedRequest"


def test_several_clusters(
    management_cluster: ManagementCluster,
    make_workload_cluster: MakeWorkloadCluster,
    make_machine: MakeMachine,
    make_node: MakeNode,
) -> None:
    first = make_workload_cluster("first")
    second = make_workload_cluster("second", namespace="team-b", server_version="1.31")
    assert embedded_api(first) is not embedded_api(second)
    assert first.ca_cert_hash != second.ca_cert_hash
    make_machine("m", cluster=second)
    (machine,) = embedded_api(management_cluster).objects("machines.cluster.x-k8s.io")
    assert (machine["metadata"]["namespace"], machine["spec"]["providerID"]) == ("team-b", "test:///m")
    assert make_node("m", "test:///m", "insecure", cluster=second).ca_cert_hash == second.ca_cert_hash


def test_certificate_authorities(
    workload_cluster: WorldCluster,
    cluster_certificate_authority: ClusterCertificateAuthority,
    make_cluster_certificate_authority: MakeCertificateAuthority,
) -> None:
    assert workload_cluster.api.ca_certificate_pem == cluster_certificate_authority.certificate
    other = make_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P384)
    assert other.certificate != cluster_certificate_authority.certificate
    assert "PRIVATE KEY" not in repr(other)


def test_another_api_server_is_not_embedded(workload_cluster: WorldCluster) -> None:
    with pytest.raises(TypeError, match="not an embedded API"):
        embedded_api(replace(workload_cluster, api=None))  # type: ignore[arg-type]


def test_importing_the_plugin_is_light() -> None:
    """pytest imports it in every run of every project on the machine."""
    heavy = {"aiohttp", "asyncio", "cryptography", "kubernetes", "msgspec", "yaml"}
    program = (
        "import sys, pytest; before = set(sys.modules); import signer.testing.fixtures; "
        f"print(sorted({heavy!r} & (set(sys.modules) - before)))"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "[]"
