"""What ``docs/security.md`` says is not stopped in this release is not: whoever stops it changes the document too."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from cryptography import x509
from keyed_mac.keys import derive_machine_key

from signer.controller.configuration import OperatorAttestor
from signer.kube.resources import ATTESTED_NODES, CERTIFICATE_SIGNING_REQUESTS
from signer.model.record import format_time
from signer.model.signing_request import spec_digest
from signer.testing.fixtures import MakeMachine, MakeNode, StartController
from signer.testing.nodes import SimulatedNode
from signer.testing.world import WorldCluster
from tests.documents.markdown import ROOT

MASTER_KEY: Final = bytes(range(32))
PROVIDER_ID: Final = "test:///1"


@pytest.fixture
def node(workload_cluster: WorldCluster, make_machine: MakeMachine, make_node: MakeNode) -> SimulatedNode:
    """The honest node of a cluster that accepts keyed-mac."""
    workload_cluster.authorize("keyed-mac")
    make_machine("worker-1", PROVIDER_ID)
    machine_key = base64.b64encode(derive_machine_key(MASTER_KEY, PROVIDER_ID)).decode("ascii")
    return make_node("worker-1", PROVIDER_ID, "keyed-mac", {"provider-id": PROVIDER_ID, "machine-key": machine_key})


@pytest.fixture
def impostor(node: SimulatedNode) -> SimulatedNode:
    """Claims to be that node, and does not hold its machine key."""
    return node.but(settings={"provider-id": PROVIDER_ID, "machine-key": base64.b64encode(bytes(32)).decode("ascii")})


def start(attestation_controller: StartController) -> None:
    """Start the controller, which knows the master key."""
    settings = {"masterKey": base64.b64encode(MASTER_KEY).decode("ascii")}
    attestation_controller(attestors={"keyed-mac": OperatorAttestor(settings=settings)})


def says(words: str) -> bool:
    return words in " ".join((ROOT / "docs/security.md").read_text(encoding="utf-8").split())


def test_the_same_key_may_present_the_same_evidence_again(
    workload_cluster: WorldCluster, node: SimulatedNode, attestation_controller: StartController
) -> None:
    assert says("**Freshness is the attestor's.**")
    start(attestation_controller)
    serial_numbers = set()
    evidence = node.evidence()
    for name in ("first", "again"):
        workload_cluster.submit_with_token(node.client_request(name, evidence_of=evidence))
        verdict = workload_cluster.wait_until_decided(name)
        serial_numbers.add(x509.load_pem_x509_certificate(verdict.certificate).serial_number)
    assert len(serial_numbers) == 2


@pytest.mark.parametrize("forged", [True, False], ids=["forged", "not forged"])
def test_a_forged_journal_entry_of_an_approved_request_becomes_a_certificate(
    forged: bool, workload_cluster: WorldCluster, impostor: SimulatedNode, attestation_controller: StartController
) -> None:
    assert says("**AttestedNodes are not sealed.**")
    posted = workload_cluster.submit_with_token(impostor.client_request("theft"))
    if forged:
        forge_record(workload_cluster, posted)
    approve(workload_cluster, posted)
    start(attestation_controller)
    verdict = workload_cluster.wait_until_decided("theft")
    assert (verdict.condition, bool(verdict.certificate)) == (("Approved", True) if forged else ("Failed", False))


def forge_record(cluster: WorldCluster, posted: dict[str, Any]) -> None:
    """What somebody with the right to create AttestedNodes writes."""
    now = datetime.now(UTC)
    until = format_time(now + timedelta(days=7))
    entry = {
        "csrName": posted["metadata"]["name"],
        "csrUID": posted["metadata"]["uid"],
        "specDigest": spec_digest(posted["spec"]),
        "signerName": posted["spec"]["signerName"],
        "requester": posted["spec"]["username"],
        "serialNumber": "f0f0",
        "notBefore": format_time(now - timedelta(minutes=5)),
        "notAfter": until,
        "caCertHash": cluster.ca_cert_hash,
        "decidedTime": format_time(now),
    }
    cluster.management.client.create(
        ATTESTED_NODES.collection(cluster.namespace),
        {
            "apiVersion": ATTESTED_NODES.api_version,
            "kind": "AttestedNode",
            "metadata": {"name": f"{cluster.name}.worker-1", "namespace": cluster.namespace},
            "spec": {
                "clusterName": cluster.name,
                "machineRef": {"kind": "Machine", "name": "worker-1", "uid": "forged"},
                "providerID": PROVIDER_ID,
                "nodeName": "worker-1",
                "attestor": "keyed-mac",
                "security": "secure",
                "identity": "forged",
                "firstAttestationTime": format_time(now),
                "lastAttestationTime": format_time(now),
                "lastNotAfter": until,
                "journal": [entry],
            },
        },
    )


def approve(cluster: WorldCluster, posted: dict[str, Any]) -> None:
    """An administrator of the workload cluster approves it."""
    condition = {"type": "Approved", "status": "True", "reason": "ByHand", "message": "by hand"}
    cluster.client().replace(
        CERTIFICATE_SIGNING_REQUESTS.object(posted["metadata"]["name"], subresource="approval"),
        {**posted, "status": {"conditions": [condition]}},
    )
