"""Addresses and names as real fleets have them: other spellings, further networks, domains."""

from __future__ import annotations

from ipaddress import ip_address

from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.testing.world import WorldCluster
from tests.integration.fixtures import Harness, assert_readable, node_of, pending, provider_id
from tests.integration.kubelets import Kubelet, add_machine, attest, builtin_serving_request


def _serve(kubelet: Kubelet, csr: str, *names: str) -> WorldCluster:
    dns_names = [name for name in names if not name[0].isdigit()]
    addresses = [ip_address(name) for name in names if name not in dns_names]
    kubelet.submit(kubelet.node.serving_request(csr, dns_names=dns_names, ip_addresses=addresses))
    return kubelet.cluster


def test_addresses_with_a_prefix_length(harness: Harness) -> None:
    """Cluster API's Hetzner provider, issue 2137."""
    cluster = harness.cluster()
    addresses = [("InternalIP", "198.51.100.20/26"), ("InternalIP", "2001:db8:1::2/64"), ("Hostname", "bm-foo")]
    cluster.add_machine("foo", provider_id=provider_id("bm-foo"), addresses=addresses)
    harness.run()
    kubelet = attest(cluster, "bm-foo")
    _serve(kubelet, "serve", "bm-foo", "198.51.100.20", "2001:db8:1::2")
    assert cluster.wait_until_decided("serve").reason == "Attested"


def test_an_address_that_cannot_be_read(harness: Harness) -> None:
    """It is named, and stays its Machine's by each of its readings."""
    cluster = harness.cluster()
    add_machine(cluster, "m", "192.0.2.8")
    cluster.add_machine("other", provider_id=provider_id("other"), addresses=[("InternalIP", "192.0.2.010")])
    harness.run()
    kubelet = attest(cluster, "m")
    condition = harness.wait_for_condition(cluster, "MachineAddressesReadable", "False")
    assert condition["reason"] == "Unreadable"
    assert "Machine default/other: InternalIP '192.0.2.010' has leading zeros" in condition["message"]
    _serve(kubelet, "serve", "m", "192.0.2.8")
    assert_readable(
        harness.wait_for_event("MachineAmbiguous", "m", part="192.0.2.8 may be an address of another Machine")
    )
    pending(cluster, "serve")
    path = f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{cluster.namespace}/machines/other"
    addresses = [{"type": "InternalIP", "address": "192.0.2.10"}]
    cluster.set_machine_status(cluster.management.client.get(path), {"addresses": addresses})
    cluster.patch_machine("m", {"metadata": {"annotations": {"test.example/look": "again"}}})
    assert cluster.wait_until_decided("serve").reason == "Attested"


def test_a_guest_that_is_called_by_its_fully_qualified_name(harness: Harness) -> None:
    """As with Cluster API's vSphere provider, issues 1044 and 1679."""
    rules = {"sources": ["MachineName"], "domains": ["corp.example"]}
    cluster = harness.cluster(policy={"nodeNames": rules, "builtinServingRequests": "Approve"})
    addresses = [("InternalIP", "192.0.2.60"), ("InternalDNS", "md1")]
    cluster.add_machine("md1", provider_id=provider_id("md1"), addresses=addresses)
    harness.run()
    full = "md1.corp.example"
    cluster.submit_with_token(node_of(cluster, "md1", "md1.lab.example").client_request("elsewhere"))
    denied = cluster.wait_until_decided("elsewhere")
    assert denied.reason == "NodeNameMismatch"
    assert (
        "md1 or md1.corp.example (as md1, by domain) by nodeNames MachineName; domains corp.example" in denied.message
    )
    node = node_of(cluster, "md1", full)
    cluster.submit_with_token(node.client_request("join"))
    joined = cluster.wait_until_decided("join")
    assert joined.reason == "Attested", joined
    kubelet = Kubelet(cluster, node, joined.certificate)
    _serve(kubelet, "serve", "md1", full, "192.0.2.60")
    assert cluster.wait_until_decided("serve").reason == "Attested"
    kubelet.submit(builtin_serving_request("built-in", full, ["md1", full]))
    cluster.client().wait_for(CERTIFICATE_SIGNING_REQUESTS.collection(), "built-in", lambda item: "status" in item)
    assert cluster.verdict("built-in").reason == "Attested"


def test_a_derived_name_of_two_machines(harness: Harness) -> None:
    cluster = harness.cluster(policy={"nodeNames": {"domains": ["corp.example"]}})
    for name in ("web.a.example", "web.b.example"):
        add_machine(cluster, name)
    harness.run()
    cluster.submit_with_token(node_of(cluster, "web.a.example", "web.corp.example").client_request("derived"))
    harness.wait_for_event("NodeNameBlocked", "web.a.example", part="by a domain of the policy")
    pending(cluster, "derived")
    attest(cluster, "web.b.example")
