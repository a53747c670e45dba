"""Addresses and names as real fleets have them: other spellings, further networks, domains."""

from __future__ import annotations

from ipaddress import ip_address

from signer.testing.world import WorldCluster
from tests.integration.fixtures import Harness, assert_readable, pending, provider_id
from tests.integration.kubelets import Kubelet, add_machine, attest


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
