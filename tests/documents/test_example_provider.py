"""The tests of a provider that ``docs/testing.md`` quotes: it has no attestor, and takes one that proves nothing."""

from __future__ import annotations

from typing import Any

from signer.testing.fixtures import MakeMachine, MakeNode, StartController
from signer.testing.world import WorldCluster

TRIAL: dict[str, Any] = {"insecure_enabled": True, "insecure_namespaces": frozenset({"default"})}
PROVIDER_ID = "my-cloud:///zone-1/instance-7"
EVENTS = "/api/v1/namespaces/default/events"


def test_a_node_joins_and_renews_not(
    workload_cluster: WorldCluster,
    make_machine: MakeMachine,
    make_node: MakeNode,
    attestation_controller: StartController,
) -> None:
    workload_cluster.authorize("insecure")
    make_machine("worker-1", PROVIDER_ID, addresses=[("Hostname", "worker-1"), ("InternalIP", "10.0.0.1")])
    attestation_controller(**TRIAL)
    node = make_node("worker-1", PROVIDER_ID, "insecure")

    workload_cluster.submit_with_token(node.client_request("join"))
    joined = workload_cluster.wait_until_decided("join")
    assert (joined.condition, joined.reason) == ("Approved", "AssertedInsecurely")

    # With its own certificate, as a kubelet asks for the next one.
    own = node.connection(workload_cluster.api.connection(), joined.certificate)
    workload_cluster.submit(node.client_request("renewal"), own)
    assert workload_cluster.wait_until_decided("renewal").reason == "RenewalNotSupported"


def test_a_node_waits_until_its_machine_has_its_provider_id(
    workload_cluster: WorldCluster,
    make_machine: MakeMachine,
    make_node: MakeNode,
    attestation_controller: StartController,
) -> None:
    workload_cluster.authorize("insecure")
    make_machine("worker-1", provider_id="")
    attestation_controller(**TRIAL)
    workload_cluster.submit_with_token(make_node("worker-1", PROVIDER_ID, "insecure").client_request("join"))

    # Nothing is said on a request that waits: an Event has the reason.
    workload_cluster.management.client.wait_for_any(EVENTS, lambda event: event["reason"] == "MachineNotFound")
    assert workload_cluster.verdict("join").condition == ""

    workload_cluster.patch_machine("worker-1", {"spec": {"providerID": PROVIDER_ID}})
    assert workload_cluster.wait_until_decided("join").reason == "AssertedInsecurely"


def test_a_node_of_another_name_than_its_machines_is_denied(
    workload_cluster: WorldCluster,
    make_machine: MakeMachine,
    make_node: MakeNode,
    attestation_controller: StartController,
) -> None:
    workload_cluster.authorize("insecure")
    make_machine("worker-1", PROVIDER_ID)
    attestation_controller(**TRIAL)
    workload_cluster.submit_with_token(make_node("worker-2", PROVIDER_ID, "insecure").client_request("join"))
    assert workload_cluster.wait_until_decided("join").reason == "NodeNameMismatch"
