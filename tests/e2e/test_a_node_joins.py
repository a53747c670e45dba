"""A node joins on a real kube-apiserver; a real kubectl is let in with its certificate, as that node and no more."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from keyed_mac.keys import derive_machine_key

from signer.cli import main
from signer.cli.explain import EXIT_DENIED
from signer.configuration import Configuration, OperatorAttestor
from signer.kube.resources import ATTESTED_NODES
from signer.testing.api.kubeconfig import kubeconfig_of
from signer.testing.nodes import SimulatedNode
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, RunningController, Verdict, WorldCluster
from tests.support.cluster_api import cluster_api_crds
from tests.support.control_plane import ControlPlane
from tests.support.grants import as_service_account, restrict_in_workload_cluster
from tests.support.journal import journal_of
from tests.support.kubectl import run_kubectl
from tests.support.processes import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]

MASTER_KEY = secrets.token_bytes(32)


@pytest.fixture(scope="module")
def cluster(real_control_plane: ControlPlane) -> Iterator[WorldCluster]:
    """A cluster with two Machines, and a controller that serves it; management and workload share one API server."""
    master_key = base64.b64encode(MASTER_KEY).decode("ascii")
    configuration = Configuration(
        namespace=CONTROLLER_NAMESPACE, attestors={"keyed-mac": OperatorAttestor(settings={"masterKey": master_key})}
    )
    with ManagementCluster(real_control_plane, capi_crds=cluster_api_crds()) as management:
        cluster = management.add_cluster("e2e", real_control_plane, namespace="e2e")
        for machine in ("e2e-1", "e2e-2"):
            cluster.add_machine(machine, provider_id=f"test:///{machine}", addresses=[("Hostname", machine)])
        restrict_in_workload_cluster(cluster, real_control_plane)
        cluster.authorize("keyed-mac")
        with RunningController(as_service_account(real_control_plane, "e2e"), configuration):
            yield cluster
        cluster.remove()


def node(cluster: WorldCluster, machine: str) -> SimulatedNode:
    """The machine of that name, which holds its key."""
    provider_id = f"test:///{machine}"
    machine_key = base64.b64encode(derive_machine_key(MASTER_KEY, provider_id)).decode("ascii")
    settings = {"provider-id": provider_id, "machine-key": machine_key}
    return SimulatedNode(machine, provider_id, cluster.ca_cert_hash, "keyed-mac", settings)


@pytest.fixture(scope="module")
def joined(cluster: WorldCluster) -> tuple[SimulatedNode, Verdict]:
    """Machine e2e-1 after it has joined with a bootstrap token."""
    honest = node(cluster, "e2e-1")
    cluster.submit_with_token(honest.client_request("e2e-join-1"))
    return honest, cluster.wait_until_decided("e2e-join-1")


@pytest.fixture(scope="module")
def as_the_node(cluster: WorldCluster, joined: tuple[SimulatedNode, Verdict]) -> str:
    """A kubeconfig with the issued certificate."""
    honest, verdict = joined
    key = honest.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    administrator = cluster.api.connection()
    connection = replace(administrator, client_certificate=verdict.certificate, client_key=key)
    return kubeconfig_of(connection, "e2e")


def test_the_certificate_is_the_nodes(joined: tuple[SimulatedNode, Verdict], cluster: WorldCluster) -> None:
    honest, verdict = joined
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested")
    certificate = x509.load_pem_x509_certificate(verdict.certificate)
    assert certificate.subject.rfc4514_string() == "CN=system:node:e2e-1,O=system:nodes"
    assert certificate.public_key() == honest.key.public_key()
    record = cluster.management.client.get(ATTESTED_NODES.object("e2e.e2e-1", "e2e"))
    assert [entry["serialNumber"] for entry in journal_of(record["spec"])] == [f"{certificate.serial_number:x}"]


def test_kubectl_registers_its_own_node(as_the_node: str) -> None:
    own = "apiVersion: v1\nkind: Node\nmetadata: {name: e2e-1}\n"
    created = run_kubectl(as_the_node, ["create", "-f", "-"], standard_input=own)
    assert (created.returncode, created.stdout) == (0, "node/e2e-1 created\n"), created.stderr
    assert run_kubectl(as_the_node, ["get", "node", "e2e-1", "-o", "name"]).stdout == "node/e2e-1\n"


@pytest.mark.parametrize(
    ("arguments", "standard_input"),
    [
        (["create", "-f", "-"], "apiVersion: v1\nkind: Node\nmetadata: {name: e2e-2}\n"),
        (["get", "secrets", "--all-namespaces"], ""),
        (["get", "clusterroles"], ""),
        (["certificate", "approve", "--force", "e2e-join-1"], ""),
    ],
    ids=["another's Node", "all Secrets", "roles", "approval"],
)
def test_kubectl_is_refused_what_a_node_may_not(as_the_node: str, arguments: list[str], standard_input: str) -> None:
    refused = run_kubectl(as_the_node, arguments, standard_input=standard_input)
    assert refused.returncode != 0
    assert "forbidden" in refused.stderr.lower()
    assert "e2e-1" in refused.stderr


def test_the_node_renews_with_its_certificate(
    cluster: WorldCluster, joined: tuple[SimulatedNode, Verdict], as_the_node: str
) -> None:
    renewing = node(cluster, "e2e-1")
    cluster.submit_as_node(renewing.client_request("e2e-renewal-1"), "e2e-1")
    renewed = cluster.wait_until_decided("e2e-renewal-1")
    assert (renewed.condition, renewed.reason) == ("Approved", "Attested")
    first = x509.load_pem_x509_certificate(joined[1].certificate)
    second = x509.load_pem_x509_certificate(renewed.certificate)
    assert second.serial_number != first.serial_number
    assert second.public_key() == renewing.key.public_key() != first.public_key()


def test_another_machine_cannot_have_its_name(cluster: WorldCluster, joined: tuple[SimulatedNode, Verdict]) -> None:
    impostor = node(cluster, "e2e-2").but(node_name="e2e-1")
    cluster.submit_with_token(impostor.client_request("e2e-impostor"))
    verdict = cluster.wait_until_decided("e2e-impostor")
    assert (verdict.condition, verdict.reason, verdict.certificate) == ("Denied", "NodeNameMismatch", b"")


def test_a_person_finds_out_why(
    cluster: WorldCluster,
    joined: tuple[SimulatedNode, Verdict],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By what ``kubectl describe machine`` says to type, live; and again from its recording."""
    impostor = node(cluster, "e2e-2").but(node_name="e2e-1")
    cluster.submit_with_token(impostor.client_request("e2e-explained"))
    verdict = cluster.wait_until_decided("e2e-explained")
    kubeconfig, config, recording = (tmp_path / name for name in ("kubeconfig", "config.yaml", "recording.yaml"))
    kubeconfig.write_text(cluster.api.kubeconfig())
    master_key = base64.b64encode(MASTER_KEY).decode("ascii")
    config.write_text(yaml.safe_dump({"attestors": {"keyed-mac": {"settings": {"masterKey": master_key}}}}))

    def told() -> str:
        arguments = ["describe", "machine", "--namespace", "e2e", "e2e-2"]
        return run_kubectl(str(kubeconfig.read_text()), arguments).stdout

    command = "node-attestation-controller explain e2e-explained --cluster e2e/e2e"
    wait_until(lambda: command in told() or "explain e2e-impostor --cluster e2e/e2e" in told(), "an Event says so")
    operators = ["--config", str(config), "--output", "json"]
    live = [*command.split()[1:], "--kubeconfig", str(kubeconfig), "--record", str(recording), *operators]
    capsys.readouterr()
    assert main(live) == EXIT_DENIED
    report = json.loads(capsys.readouterr().out)
    assert (report["verdict"], report["reason"], report["message"]) == ("deny", verdict.reason, verdict.message)
    assert report["standing"]["conditions"][0]["type"] == "Denied"
    assert main(["explain", "e2e-explained", "--objects", str(recording), *operators]) == EXIT_DENIED
    again = json.loads(capsys.readouterr().out)
    assert again["checks"] == report["checks"]
    main(["status", "--kubeconfig", str(kubeconfig), "--namespace", "e2e", "--output", "json"])
    (fleet,) = json.loads(capsys.readouterr().out)["clusters"]
    assert (fleet["cluster"], fleet["machines"], fleet["attested"]) == ("e2e/e2e", 2, 1)
    assert fleet["denied"]["NodeNameMismatch"] >= 1


def test_copied_evidence_is_worthless(cluster: WorldCluster, joined: tuple[SimulatedNode, Verdict]) -> None:
    honest, _ = joined
    thief = node(cluster, "e2e-2").but(node_name="e2e-1", provider_id="test:///e2e-1")
    cluster.submit_with_token(thief.client_request("e2e-thief", evidence_of=honest.evidence()))
    verdict = cluster.wait_until_decided("e2e-thief")
    assert (verdict.condition, verdict.reason, verdict.certificate) == ("Denied", "BindingMismatch", b"")
