"""Serving certificates of the controller's signers: the names, and the requester's credential."""

from __future__ import annotations

import uuid
from ipaddress import ip_address
from typing import Final

import pytest
from cryptography import x509

from signer.kube.resources import CONFIG_MAPS, KUBEADM_CONTROL_PLANES_V1BETA2
from signer.testing.world import Verdict, WorldCluster
from tests.integration.fixtures import Harness, assert_readable, certificate_of, node_of, pending
from tests.integration.kubelets import Kubelet, add_machine, attest

API_SERVER: Final = ("api.example.net", "lb.example.com")
CONTROL_PLANE_KIND: Final = {"apiGroup": KUBEADM_CONTROL_PLANES_V1BETA2.group, "kind": "KubeadmControlPlane"}
STATED: Final = ("kcp.example.com", "192.0.2.78", "x.kcp-apps.example.com", "cm.example.com", "vip.example.com")
"""Names of kubeadm's configuration that no certificate of the embedded API shows."""
CONTROL_PLANE_SERVICES: Final = ("konnectivity-server", "konnectivity-server.kube-system", "etcd-0.etcd", "m1.etcd")


@pytest.fixture(scope="module")
def neighbourhood(shared_harness: Harness) -> Kubelet:
    """The attested node ``m``, in a cluster with neighbours, under a running controller."""
    cluster = shared_harness.cluster(api={"serving_names": [*API_SERVER, "*.apps.example.net"]})
    cluster.patch({"spec": {"clusterNetwork": {"services": {"cidrBlocks": ["10.200.0.0/16", "2001:db8:1::/112"]}}}})
    cluster.patch({"spec": {"clusterNetwork": {"serviceDomain": "Prod.Example."}}})
    add_machine(cluster, "m", "192.0.2.10", "M.Internal.Example.", "10.200.0.9", "127.0.0.9", "kubernetes-m", "x.svc")
    add_machine(cluster, "guest", "192.0.2.77", *API_SERVER, *CONTROL_PLANE_SERVICES, *STATED, "x.apps.example.net")
    add_machine(cluster, "neighbour", "192.0.2.11", "2001:DB8:0::11")
    state_names(cluster)
    shared_harness.run()
    return attest(cluster, "m")


def state_names(cluster: WorldCluster) -> None:
    """In the KubeadmControlPlane, and in the ConfigMap that kubeadm keeps in the workload cluster."""
    cluster.patch({"spec": {"controlPlaneRef": {**CONTROL_PLANE_KIND, "name": "production-cp"}}})
    server = {"certSANs": ["KCP.example.com", "192.0.2.78", "*.kcp-apps.example.com"]}
    spec = {"replicas": 1, "version": "v1.33.0", "kubeadmConfigSpec": {"clusterConfiguration": {"apiServer": server}}}
    control_plane = {
        "apiVersion": KUBEADM_CONTROL_PLANES_V1BETA2.api_version,
        "kind": CONTROL_PLANE_KIND["kind"],
        "metadata": {"name": "production-cp", "namespace": cluster.namespace},
        "spec": {**spec, "machineTemplate": {"spec": {}}},
    }
    path = KUBEADM_CONTROL_PLANES_V1BETA2.collection(cluster.namespace)
    cluster.management.client.create(path, control_plane)
    configuration = 'apiServer:\n  certSANs: ["cm.example.com"]\ncontrolPlaneEndpoint: vip.example.com:6443\n'
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kubeadm-config", "namespace": "kube-system"},
        "data": {"ClusterConfiguration": configuration},
    }
    cluster.client().create(CONFIG_MAPS.collection("kube-system"), config_map)


@pytest.fixture(scope="module")
def guest(neighbourhood: Kubelet) -> Kubelet:
    """A node whose Machine has every name that its guest reports."""
    return attest(neighbourhood.cluster, "guest")


def _ask(kubelet: Kubelet, *names: str, csr: str = "") -> str:
    """Post a serving request with evidence and the kubelet's own credential."""
    name = csr or f"serving-{uuid.uuid4()}"
    kubelet.submit(
        kubelet.node.serving_request(
            name,
            dns_names=[text for text in names if not _is_address(text)],
            ip_addresses=[ip_address(text) for text in names if _is_address(text)],
        )
    )
    return name


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _denied(cluster: WorldCluster, csr: str, reason: str) -> Verdict:
    verdict = cluster.wait_until_decided(csr)
    assert (verdict.condition, verdict.reason, verdict.certificate) == ("Denied", reason, b""), verdict
    assert_readable(verdict.message)
    return verdict


def test_own(neighbourhood: Kubelet) -> None:
    csr = _ask(neighbourhood, "m", "m.internal.example", "192.0.2.10")
    names = certificate_of(neighbourhood.cluster.wait_until_decided(csr)).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert names.value.get_values_for_type(x509.DNSName) == ["m", "m.internal.example"]
    assert names.value.get_values_for_type(x509.IPAddress) == [ip_address("192.0.2.10")]


def test_own_in_upper_case(neighbourhood: Kubelet) -> None:
    """The certificate has exactly the requested names: otherwise a kubelet would make another request."""
    csr = _ask(neighbourhood, "M", "M.Internal.EXAMPLE", "192.0.2.10")
    names = certificate_of(neighbourhood.cluster.wait_until_decided(csr)).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert names.value.get_values_for_type(x509.DNSName) == ["M", "M.Internal.EXAMPLE"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        # Of the control plane, of Services and of every host, even where the platform says that they are the Machine's.
        ("kubernetes-m", "begins with kubernetes"),
        ("kubernetes.default.svc.prod.example", "begins with kubernetes"),
        ("x.svc", "in the domain svc"),
        ("api.default.svc.cluster.local", "in the domain cluster.local"),
        ("api.default.svc.prod.example", "in the domain prod.example"),
        ("control-plane.example", "is the control-plane endpoint"),
        ("localhost", "is a localhost name, which every host has"),
        ("10.200.0.9", "the cluster's Services"),
        ("2001:db8:1::1", "the cluster's Services"),
        ("64:ff9b::10.200.0.1", "the cluster's Services"),
        ("127.0.0.9", "is a special-purpose address that identifies no single host"),
        ("64:ff9b::127.0.0.1", "is a special-purpose address that identifies no single host"),
        ("::ffff:192.0.2.10", "is an IPv4 address written as IPv6"),
        # In another spelling.
        ("KUBERNETES-m", "begins with kubernetes"),
        ("Neighbour", "does not belong to"),
        ("m.", "is not a host name"),
        ("*.internal.example", "is not a host name"),
        # Of somebody else.
        ("neighbour", "does not belong to Machine default/m"),
        ("192.0.2.11", "does not belong to Machine default/m"),
        ("2001:db8::11", "does not belong to Machine default/m"),
        ("internal.example", "does not belong to Machine default/m"),
        ("198.51.100.1", "does not belong to Machine default/m"),
    ],
)
def test_not_the_machines(neighbourhood: Kubelet, name: str, why: str) -> None:
    verdict = _denied(neighbourhood.cluster, _ask(neighbourhood, "m", name), "InvalidSubjectAlternativeNames")
    assert why in verdict.message


@pytest.mark.parametrize(
    ("name", "why"),
    [
        *((name, "is a name of the API server") for name in (*API_SERVER, "API.example.net", *STATED)),
        ("x.apps.example.net", "is a name of the API server"),
        *((name, "that the operator reserves") for name in CONTROL_PLANE_SERVICES),
    ],
)
def test_names_of_the_control_plane_that_a_guest_reports(guest: Kubelet, name: str, why: str) -> None:
    """The provider writes what the guest reports into the Machine, such as vSphere's: a stolen node names itself."""
    verdict = _denied(guest.cluster, _ask(guest, "guest", name), "InvalidSubjectAlternativeNames")
    assert why in verdict.message


def test_the_names_of_the_guest_itself(guest: Kubelet) -> None:
    assert guest.cluster.wait_until_decided(_ask(guest, "guest", "192.0.2.77")).reason == "Attested"


def test_no_names(neighbourhood: Kubelet) -> None:
    _denied(neighbourhood.cluster, _ask(neighbourhood), "InvalidSubjectAlternativeNames")


def test_names_of_two_machines_at_once(neighbourhood: Kubelet) -> None:
    """The data are wrong, not the node: it waits until they are right."""
    cluster = neighbourhood.cluster
    for name in ("one", "two"):
        add_machine(cluster, name, "192.0.2.99")
    csr = _ask(attest(cluster, "one"), "one", "192.0.2.99")
    meanwhile = _ask(attest(cluster, "two"), "two")
    assert cluster.wait_until_decided(meanwhile).reason == "Attested"
    pending(cluster, csr)
    two = cluster.management.client.get(f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{cluster.namespace}/machines/two")
    cluster.set_machine_status(two, {"addresses": [{"type": "Hostname", "address": "two"}]})
    cluster.patch_machine("one", {"metadata": {"annotations": {"test.example/look": "again"}}})
    assert cluster.wait_until_decided(csr).reason == "Attested"


def test_addresses_that_the_platform_shows_later(neighbourhood: Kubelet) -> None:
    """The node has both families from the start, and its Machine shows IPv4 first: the same request is answered."""
    cluster = neighbourhood.cluster
    add_machine(cluster, "dual", "192.0.2.12")
    kubelet = attest(cluster, "dual")
    csr = _ask(kubelet, "dual", "192.0.2.12", "2001:db8::12")
    meanwhile = _ask(kubelet, "dual", "192.0.2.12")
    assert cluster.wait_until_decided(meanwhile).reason == "Attested"
    pending(cluster, csr)
    dual = cluster.management.client.get(f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{cluster.namespace}/machines/dual")
    addresses = [{"type": "InternalIP", "address": text} for text in ("192.0.2.12", "2001:db8::12")]
    cluster.set_machine_status(dual, {"addresses": [{"type": "Hostname", "address": "dual"}, *addresses]})
    assert cluster.wait_until_decided(csr).reason == "Attested"


def test_a_foreign_credential(neighbourhood: Kubelet) -> None:
    """Valid evidence, but the client certificate is an older one, or another node's."""
    cluster = neighbourhood.cluster
    cluster.submit_as_node(neighbourhood.node.serving_request("foreign", dns_names=["m"]), "m")
    verdict = _denied(cluster, "foreign", "ForeignCredential")
    assert "that was not issued to it here" in verdict.message


def test_a_renewal_may_come_with_a_foreign_credential(neighbourhood: Kubelet) -> None:
    """So that a node from before attestation gets its first attested certificate."""
    cluster = neighbourhood.cluster
    cluster.submit_as_node(node_of(cluster, "m").client_request("adopted"), "m")
    assert cluster.wait_until_decided("adopted").reason == "Attested"


def test_a_credential_that_was_issued_first_still_serves_after_a_renewal(neighbourhood: Kubelet) -> None:
    cluster = neighbourhood.cluster
    add_machine(cluster, "renewing")
    first = attest(cluster, "renewing")
    renewal = node_of(cluster, "renewing")
    first.submit(renewal.client_request("renewal"))
    second = Kubelet(cluster, renewal, cluster.wait_until_decided("renewal").certificate)
    for kubelet in (first, second):
        assert cluster.wait_until_decided(_ask(kubelet, "renewing")).reason == "Attested"
