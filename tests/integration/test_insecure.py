"""The insecure attestor: off unless three people say so, loud, and good for one certificate only."""

from __future__ import annotations

from datetime import timedelta
from ipaddress import IPv4Address

import pytest

from signer.kube.resources import EVENTS
from signer.testing.nodes import SERVING_USAGES, SimulatedNode
from signer.testing.world import WorldCluster
from tests.integration.fixtures import Harness, assert_one_certificate, certificate_of, provider_id
from tests.integration.requests import blocks_of, manifest_of

pytestmark = pytest.mark.slow


def _node(cluster: WorldCluster, machine: str) -> SimulatedNode:
    return SimulatedNode(machine, provider_id(machine), cluster.ca_cert_hash, "insecure")


def _warnings(harness: Harness, machine: str) -> list[str]:
    events = harness.management.client.items(EVENTS.collection("default"))
    return [
        event["reason"] for event in events if event["type"] == "Warning" and event["involvedObject"]["name"] == machine
    ]


@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize("namespace", [False, True])
@pytest.mark.parametrize("policy", [False, True])
def test_all_three_must_name_it(harness: Harness, flag: bool, namespace: bool, policy: bool) -> None:
    cluster = harness.cluster(attestors=["keyed-mac", "insecure"] if policy else ["keyed-mac"])
    cluster.add_machine("m", provider_id=provider_id("m"))
    harness.run(insecure_enabled=flag, insecure_namespaces=frozenset(["default"] if namespace else ["another"]))
    cluster.submit_with_token(_node(cluster, "m").client_request("csr"))
    verdict = cluster.wait_until_decided("csr")
    if flag and namespace and policy:
        assert (verdict.condition, verdict.reason) == ("Approved", "AssertedInsecurely")
        assert_one_certificate(harness, cluster, "m", "csr")
    else:
        assert (verdict.condition, verdict.reason) == ("Denied", "AttestorNotAuthorized")
        assert verdict.certificate == b""
        assert harness.records(cluster) == []
    if policy and not (flag and namespace):
        shown = harness.wait_for_condition(cluster, "AttestorsConfigured", "False")
        assert shown["reason"] == "AttestorNotAllowed"
        assert "--enable-insecure-attestor" in shown["message"]
    harness.wait_for_event(verdict.reason, "m")


def _allowed(harness: Harness) -> WorldCluster:
    cluster = harness.cluster(attestors=["insecure"])
    cluster.add_machine("m", provider_id=provider_id("m"))
    harness.run(insecure_enabled=True, insecure_namespaces=frozenset(["default"]))
    return cluster


def test_a_year_of_validity_with_a_warning_each_time(harness: Harness) -> None:
    cluster = _allowed(harness)
    for name in ("first", "second"):
        cluster.submit_with_token(_node(cluster, "m").client_request(name))
        certificate = certificate_of(cluster.wait_until_decided(name))
        lifetime = certificate.not_valid_after_utc - certificate.not_valid_before_utc
        # Backdated by five minutes.
        assert timedelta(days=365) <= lifetime <= timedelta(days=365, minutes=5)
        harness.management.client.wait_for_any(
            EVENTS.collection("default"),
            lambda event, name=name: event["type"] == "Warning" and f"(CSR {name})" in event["message"],  # type: ignore[misc]
        )
    assert _warnings(harness, "m") == ["AssertedInsecurely"] * 2
    assert harness.records(cluster)[0]["spec"]["security"] == "insecure"


def test_no_renewal(harness: Harness) -> None:
    cluster = _allowed(harness)
    cluster.submit_as_node(_node(cluster, "m").client_request("renewal"), "m")
    verdict = cluster.wait_until_decided("renewal")
    assert (verdict.condition, verdict.reason, verdict.certificate) == ("Denied", "RenewalNotSupported", b"")
    assert "bootstrap token" in verdict.message


def test_no_serving(harness: Harness) -> None:
    cluster = _allowed(harness)
    node = _node(cluster, "m")
    serving = node.serving_request("serving", dns_names=["m"], ip_addresses=[IPv4Address("192.0.2.1")])
    cluster.submit_as_node(serving, "m")
    verdict = cluster.wait_until_decided("serving")
    assert (verdict.condition, verdict.reason, verdict.certificate) == ("Denied", "ServingNotSupported", b"")


def test_client_signer_gives_no_serving_certificate(harness: Harness) -> None:
    cluster = _allowed(harness)
    manifest = manifest_of(
        "usages", b"".join(blocks_of(_node(cluster, "m"))), "cluster.x-k8s.io/kube-apiserver-client-kubelet-insecure"
    )
    manifest["spec"]["usages"] = list(SERVING_USAGES)
    cluster.submit_with_token(manifest)
    verdict = cluster.wait_until_decided("usages")
    assert (verdict.condition, verdict.reason, verdict.certificate) == ("Denied", "InvalidUsages", b"")
