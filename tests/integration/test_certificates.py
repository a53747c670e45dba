"""Certificates of honest nodes: first join, renewal, serving; and the objects in the management cluster."""

from __future__ import annotations

from datetime import timedelta
from ipaddress import IPv4Address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from signer.configuration import OperatorAttestor
from signer.kube.errors import Forbidden
from signer.kube.resources import ATTESTED_NODES, IDENTITY_RESERVATIONS, NODE_ATTESTATION_POLICIES
from signer.testing.fixtures import embedded_api
from signer.testing.world import CONTROLLER_NAMESPACE, WorldCluster
from tests.integration.fixtures import (
    Harness,
    assert_one_certificate,
    assert_readable,
    certificate_of,
    node_of,
    pending,
    provider_id,
    writes,
)
from tests.integration.kubelets import attest
from tests.support.journal import journal_of
from tests.support.processes import wait_until

BACKDATE = timedelta(minutes=5)


@pytest.fixture
def cluster(harness: Harness) -> WorldCluster:
    """A cluster with Machine ``m``, under a running controller."""
    cluster = harness.cluster()
    addresses = [("Hostname", "m"), ("InternalIP", "192.0.2.10"), ("InternalDNS", "m.internal.example")]
    cluster.add_machine("m", provider_id=provider_id("m"), addresses=addresses)
    harness.run()
    harness.wait_for_condition(cluster, "Ready", "True")
    return cluster


def _join(cluster: WorldCluster) -> x509.Certificate:
    cluster.submit_with_token(node_of(cluster, "m").client_request("join"))
    return certificate_of(cluster.wait_until_decided("join"))


def test_the_number_of_calls_of_first_join_and_renewal(harness: Harness, cluster: WorldCluster) -> None:
    """First join: two reservations and a record, then approval and certificate; renewal: the record alone."""
    harness.api.requests.clear()
    _join(cluster)
    assert [entry.method + " " + entry.path.rpartition("/")[2] for entry in writes(harness.api)] == [
        "POST identityreservations",
        "POST identityreservations",
        "POST attestednodes",
    ]
    expected = ["approval", "status"]
    assert [entry.path.rpartition("/")[2] for entry in writes(embedded_api(cluster))] == expected
    harness.api.requests.clear()
    embedded_api(cluster).requests.clear()
    cluster.submit_as_node(node_of(cluster, "m").client_request("renewal"), "m")
    assert cluster.wait_until_decided("renewal").reason == "Attested"
    assert [entry.method for entry in writes(harness.api)] == ["PUT"]
    assert [entry.path.rpartition("/")[2] for entry in writes(embedded_api(cluster))] == expected
    assert_one_certificate(harness, cluster, "m", "join", "renewal")


@pytest.mark.prompt
def test_a_first_join_reads_no_reservation(harness: Harness, cluster: WorldCluster) -> None:
    """The watch has delivered all changes of its two reservations by then."""
    harness.api.requests.clear()
    _join(cluster)
    assert harness.api.requests.matching(f"GET {IDENTITY_RESERVATIONS.collection(CONTROLLER_NAMESPACE)}/*") == []


def test_client_certificate_is_a_kubelets(harness: Harness, cluster: WorldCluster) -> None:
    certificate = _join(cluster)
    names = {attribute.oid: attribute.value for attribute in certificate.subject}
    assert names == {NameOID.COMMON_NAME: "system:node:m", NameOID.ORGANIZATION_NAME: "system:nodes"}
    usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usages) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    lifetime = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    assert timedelta(days=7) <= lifetime <= timedelta(days=7) + BACKDATE
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_certificate_opens_the_workload_api(harness: Harness, cluster: WorldCluster) -> None:
    """The API server authenticates its holder as the node, with a node's rights only."""
    node = node_of(cluster, "m")
    cluster.submit_with_token(node.client_request("join"))
    verdict = cluster.wait_until_decided("join")
    key = node.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    connection = embedded_api(cluster).certificate_connection(verdict.certificate, key)
    with cluster.client(connection) as client:
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "m"}}
        assert client.create("/api/v1/nodes", body)["metadata"]["name"] == "m"
        with pytest.raises(Forbidden):
            client.items("/api/v1/namespaces/kube-system/secrets")


def test_policy_durations(harness: Harness) -> None:
    cluster = harness.cluster(policy={"certificates": {"clientDuration": "2h", "servingDuration": "3h"}})
    cluster.add_machine("m", provider_id=provider_id("m"))
    harness.run()
    kubelet = attest(cluster, "m", "join")
    kubelet.submit(kubelet.node.serving_request("serving", dns_names=["m"]))
    for csr, hours in (("join", 2), ("serving", 3)):
        certificate = certificate_of(cluster.wait_until_decided(csr))
        lifetime = certificate.not_valid_after_utc - certificate.not_valid_before_utc
        assert timedelta(hours=hours) <= lifetime <= timedelta(hours=hours) + BACKDATE


def test_expiration_seconds_shorten(harness: Harness, cluster: WorldCluster) -> None:
    manifest = node_of(cluster, "m").client_request("short")
    manifest["spec"]["expirationSeconds"] = 1800
    cluster.submit_with_token(manifest)
    certificate = certificate_of(cluster.wait_until_decided("short"))
    lifetime = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    assert lifetime <= timedelta(seconds=1800) + BACKDATE


# Serving certificates


def test_serving_certificate(harness: Harness, cluster: WorldCluster) -> None:
    kubelet = attest(cluster, "m", "join")
    kubelet.submit(kubelet.node.serving_request("serving", dns_names=["m"], ip_addresses=[IPv4Address("192.0.2.10")]))
    certificate = certificate_of(cluster.wait_until_decided("serving"))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["m"]
    assert names.get_values_for_type(x509.IPAddress) == [IPv4Address("192.0.2.10")]
    usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usages) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert_one_certificate(harness, cluster, "m", "join", "serving")


def test_serving_certificates_are_for_nodes_only(harness: Harness, cluster: WorldCluster) -> None:
    cluster.submit_with_token(node_of(cluster, "m").serving_request("serving", dns_names=["m"]))
    verdict = cluster.wait_until_decided("serving")
    assert (verdict.condition, verdict.reason) == ("Denied", "RequesterNotAllowed")


# What is recorded


def test_record_and_its_columns(harness: Harness, cluster: WorldCluster) -> None:
    certificate = _join(cluster)
    (record,) = harness.records(cluster)
    spec = record["spec"]
    assert record["metadata"]["name"] == f"{cluster.name}.m"
    assert [owner["kind"] for owner in record["metadata"]["ownerReferences"]] == ["Cluster"]
    columns = {
        "clusterName": cluster.name,
        "nodeName": "m",
        "attestor": "keyed-mac",
        "security": "secure",
        "providerID": provider_id("m"),
    }
    assert {name: spec[name] for name in columns} == columns
    assert spec["machineRef"]["name"] == "m"
    (entry,) = journal_of(spec)
    assert spec["firstAttestationTime"] == spec["lastAttestationTime"] == entry["decidedTime"]
    assert spec["lastNotAfter"] == certificate.not_valid_after_utc.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert entry["caCertHash"] == cluster.ca_cert_hash
    definition = embedded_api(harness.management).get(
        "customresourcedefinitions", f"attestednodes.{ATTESTED_NODES.group}"
    )
    printed = {
        column["name"]: column["jsonPath"] for column in definition["spec"]["versions"][0]["additionalPrinterColumns"]
    }
    for path in printed.values():
        value = record
        for part in path.strip(".").split("."):
            value = value[part]
        assert value, path


def test_policy_status(harness: Harness, cluster: WorldCluster) -> None:
    path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)

    def all_looked_at() -> bool:
        conditions = (harness.management.client.get(path).get("status") or {}).get("conditions") or []
        return bool(conditions) and all(item["status"] != "Unknown" for item in conditions)

    wait_until(all_looked_at, "everything was looked at once")
    policy = harness.management.client.get(path)
    status = policy["status"]
    assert status["clientSignerNames"] == ["cluster.x-k8s.io/kube-apiserver-client-kubelet-keyed-mac"]
    assert status["servingSignerNames"] == ["cluster.x-k8s.io/kubelet-serving-keyed-mac"]
    assert status["observedGeneration"] == policy["metadata"]["generation"]
    conditions = {item["type"]: item["status"] for item in status["conditions"]}
    assert conditions == {
        "Ready": "True",
        "CertificateAuthorityAvailable": "True",
        "CertificateAuthorityTrusted": "True",
        "WorkloadClusterReachable": "True",
        "AttestorsConfigured": "True",
        "BootstrapTokensTraceable": "True",
        "MachineAddressesReadable": "True",
        "AutoApprovalRemoved": "False",
    }
    for item in status["conditions"]:
        assert_readable(item["message"])


def test_broken_settings_show_in_the_policy(harness: Harness) -> None:
    """The test attestor without its key: a condition, and requests wait."""
    cluster = harness.cluster()
    cluster.add_machine("m", provider_id=provider_id("m"))
    harness.run(attestors={"keyed-mac": OperatorAttestor()})
    condition = harness.wait_for_condition(cluster, "AttestorsConfigured", "False")
    assert condition["reason"] == "AttestorUnavailable"
    cluster.submit_with_token(node_of(cluster, "m").client_request("csr"))
    assert_readable(harness.wait_for_event("AttestorUnavailable", "m"))
    pending(cluster, "csr")


# Which clusters are served


def test_cluster_without_policy_is_never_touched(harness: Harness, cluster: WorldCluster) -> None:
    """Not so much as a connection."""
    untouched = harness.cluster("untouched", ())
    untouched.add_machine("u", provider_id=provider_id("u"))
    untouched.submit_with_token(node_of(untouched, "u").client_request("csr"))
    untouched.close()
    embedded_api(untouched).requests.clear()
    harness.join(cluster)
    assert embedded_api(untouched).requests.matching() == []
    assert not [entry for entry in harness.api.requests.matching("* */secrets/untouched-*") if entry.method == "GET"]
    untouched.authorize("keyed-mac")
    assert untouched.wait_until_decided("csr").condition == "Approved"


def test_deleted_policy_ends_the_service(harness: Harness, cluster: WorldCluster) -> None:
    other = harness.cluster("other")
    _join(cluster)
    api = embedded_api(cluster)
    harness.management.client.delete(NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace))
    # The controller has seen the deletion once it serves a cluster whose policy came after it.
    harness.join(harness.cluster("later"))
    api.requests.clear()
    cluster.submit_as_node(node_of(cluster, "m").client_request("renewal"), "m")
    harness.join(other)
    pending(cluster, "renewal")
    assert writes(api) == []
    cluster.authorize("keyed-mac")
    assert cluster.wait_until_decided("renewal").condition == "Approved"
