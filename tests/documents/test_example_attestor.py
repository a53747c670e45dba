"""The tests of a plugin that ``docs/writing-an-attestor.md`` quotes: shipped fixtures and the example attestor."""

from __future__ import annotations

import base64
from ipaddress import IPv4Address

import pytest
from keyed_mac.keys import derive_machine_key

from signer.configuration import OperatorAttestor
from signer.testing.fixtures import MakeMachine, MakeNode, StartController
from signer.testing.world import WorldCluster

MASTER_KEY = bytes(range(32))
OPERATOR = {"keyed-mac": OperatorAttestor(settings={"masterKey": base64.b64encode(MASTER_KEY).decode("ascii")})}


def node_settings(provider_id: str) -> dict[str, str]:
    """What the provisioning tool left on the machine."""
    machine_key = derive_machine_key(MASTER_KEY, provider_id)
    return {"provider-id": provider_id, "machine-key": base64.b64encode(machine_key).decode("ascii")}


def test_a_machine_joins(
    workload_cluster: WorldCluster,
    make_machine: MakeMachine,
    make_node: MakeNode,
    attestation_controller: StartController,
) -> None:
    workload_cluster.authorize("keyed-mac")
    make_machine("worker-1", "test:///1")
    attestation_controller(attestors=OPERATOR)
    node = make_node("worker-1", "test:///1", "keyed-mac", node_settings("test:///1"))

    workload_cluster.submit_with_token(node.client_request("join"))

    verdict = workload_cluster.wait_until_decided("join")
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested")


def test_a_node_gets_a_serving_certificate(
    workload_cluster: WorldCluster,
    make_machine: MakeMachine,
    make_node: MakeNode,
    attestation_controller: StartController,
) -> None:
    workload_cluster.authorize("keyed-mac")
    make_machine("worker-1", "test:///1", addresses=[("InternalIP", "10.0.0.1")])
    attestation_controller(attestors=OPERATOR)
    node = make_node("worker-1", "test:///1", "keyed-mac", node_settings("test:///1"))
    workload_cluster.submit_with_token(node.client_request("join"))
    joined = workload_cluster.wait_until_decided("join")

    # As the kubelet asks: with the certificate that it joined with. Renewals are posted in the same way.
    own = node.connection(workload_cluster.api.connection(), joined.certificate)
    workload_cluster.submit(node.serving_request("serving", ip_addresses=[IPv4Address("10.0.0.1")]), own)

    verdict = workload_cluster.wait_until_decided("serving")
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested")


def test_copied_evidence_is_worthless(
    workload_cluster: WorldCluster,
    make_machine: MakeMachine,
    make_node: MakeNode,
    attestation_controller: StartController,
) -> None:
    workload_cluster.authorize("keyed-mac")
    make_machine("worker-1", "test:///1")
    attestation_controller(attestors=OPERATOR)
    honest = make_node("worker-1", "test:///1", "keyed-mac", node_settings("test:///1"))
    thief = make_node("worker-1", "test:///1", "keyed-mac", node_settings("test:///2"))

    workload_cluster.submit_with_token(thief.client_request("theft", evidence_of=honest.evidence()))

    verdict = workload_cluster.wait_until_decided("theft")
    assert (verdict.reason, verdict.certificate) == ("BindingMismatch", b"")


@pytest.mark.parametrize("provider_id", ["test:///1", "test:///2"])
def test_the_settings_are_those_of_the_agent_plugin(provider_id: str, make_node: MakeNode) -> None:
    node = make_node("worker-1", provider_id, "keyed-mac", node_settings(provider_id))
    assert set(node.evidence().fields) == {"mac", "madeAt"}
