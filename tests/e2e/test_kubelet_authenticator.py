"""The node's program under the real kubectl and a real kubelet, on the real kube-apiserver.

A hollow node that registers and turns Ready is the last act for every attestor.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from keyed_mac.keys import derive_machine_key

from signer.configuration import Configuration, OperatorAttestor
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.testing.nodes import SimulatedNode
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, RunningController, WorldCluster
from tests.support.binaries import MissingPart, find_control_plane, skip_or_fail
from tests.support.cluster_api import cluster_api_crds
from tests.support.control_plane import ControlPlane
from tests.support.exec_kubeconfig import exec_kubeconfig
from tests.support.grants import as_service_account, restrict_in_workload_cluster
from tests.support.hollow_node import HollowNode
from tests.support.kubectl import run_kubectl
from tests.support.node_program import PROGRAM, V1, V1BETA1, NodeProgram
from tests.support.raw_client import RawClient

pytestmark = [pytest.mark.real, pytest.mark.slow]

MASTER_KEY = secrets.token_bytes(32)
MACHINES = ("by-kubectl", "by-kubelet-keyed-mac", "by-kubelet-insecure", "renewing", "prepared")
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


@pytest.fixture(scope="module")
def cluster(real_control_plane: ControlPlane) -> Iterator[WorldCluster]:
    """A cluster with its Machines, two attestors, and a controller; management and workload share one API server."""
    master_key = base64.b64encode(MASTER_KEY).decode("ascii")
    configuration = Configuration(
        namespace=CONTROLLER_NAMESPACE,
        attestors={"keyed-mac": OperatorAttestor(settings={"masterKey": master_key})},
        insecure_enabled=True,
        insecure_namespaces=frozenset({"authenticator"}),
    )
    real_control_plane.seed_kubeadm()
    with ManagementCluster(real_control_plane, capi_crds=cluster_api_crds()) as management:
        cluster = management.add_cluster("authenticator", real_control_plane, namespace="authenticator")
        for machine in MACHINES:
            cluster.add_machine(machine, provider_id=f"test:///{machine}", addresses=[("Hostname", machine)])
        restrict_in_workload_cluster(cluster, real_control_plane)
        cluster.authorize("keyed-mac", "insecure")
        with RunningController(as_service_account(real_control_plane, "authenticator"), configuration):
            yield cluster
        cluster.remove()


@pytest.fixture(scope="module")
def administrator(real_control_plane: ControlPlane) -> Iterator[RawClient]:
    with RawClient(real_control_plane.connection()) as client:
        yield client


@pytest.fixture
def kubemark() -> Path:
    try:
        return find_control_plane().kubemark()
    except MissingPart as missing:
        skip_or_fail(missing)


def node(cluster: WorldCluster, machine: str, attestor: str = "keyed-mac") -> SimulatedNode:
    """The machine of that name, with what it proves itself with."""
    provider_id = f"test:///{machine}"
    settings = {"provider-id": provider_id}
    if attestor == "keyed-mac":
        settings["machine-key"] = base64.b64encode(derive_machine_key(MASTER_KEY, provider_id)).decode("ascii")
    return SimulatedNode(machine, provider_id, cluster.ca_cert_hash, attestor, settings)


def kubeconfig(control_plane: ControlPlane, program: NodeProgram, api_version: str) -> str:
    """A kubeconfig whose user is the node's program."""
    arguments = ["credential", "--config", str(program.configuration)]
    return exec_kubeconfig(
        control_plane.server, control_plane.ca_certificate_pem, PROGRAM, arguments, {}, api_version=api_version
    )


def make_short_lived(
    control_plane: ControlPlane, program: NodeProgram, *, left: timedelta, age: timedelta
) -> x509.Certificate:
    """Put a certificate of the cluster's CA in place of the stored one: ``age`` old, ``left`` to live."""
    user = f"system:node:{program.node.node_name}"
    certificate, key = control_plane.ca.issue_client(user, ["system:nodes"], left, age)
    program.client_pair.write_bytes(certificate + key)
    return x509.load_pem_x509_certificate(certificate)


def stored(program: NodeProgram) -> x509.Certificate:
    """The stored client certificate."""
    return x509.load_pem_x509_certificate(program.client_pair.read_bytes())


def requests_of(cluster: WorldCluster, node_name: str) -> list[dict[str, Any]]:
    """The CertificateSigningRequests that the node has posted with its certificate."""
    items = cluster.client().get(CERTIFICATE_SIGNING_REQUESTS.collection())["items"]
    return [item for item in items if item["spec"]["username"] == f"system:node:{node_name}"]


@pytest.mark.parametrize("api_version", [V1, V1BETA1])
def test_kubectl_is_the_node_and_renews(
    cluster: WorldCluster, real_control_plane: ControlPlane, tmp_path: Path, api_version: str
) -> None:
    program = NodeProgram(tmp_path / "node", node(cluster, "by-kubectl"))
    program.supply_bootstrap(cluster)
    user = kubeconfig(real_control_plane, program, api_version)
    manifest = "apiVersion: v1\nkind: Node\nmetadata: {name: by-kubectl}\n"
    applied = run_kubectl(user, ["create", "-f", "-"], standard_input=manifest)
    assert applied.returncode == 0 or "AlreadyExists" in applied.stderr, applied.stderr
    assert run_kubectl(user, ["get", "node", "by-kubectl", "-o", "name"]).stdout == "node/by-kubectl\n"
    forbidden = run_kubectl(user, ["get", "secrets", "--all-namespaces"])
    assert 'User "system:node:by-kubectl"' in forbidden.stderr
    first = stored(program)

    almost_over = make_short_lived(real_control_plane, program, left=timedelta(minutes=19), age=timedelta(minutes=81))
    before = len(requests_of(cluster, "by-kubectl"))
    assert run_kubectl(user, ["get", "node", "by-kubectl", "-o", "name"]).stdout == "node/by-kubectl\n"
    renewed = stored(program)
    assert renewed.serial_number not in (first.serial_number, almost_over.serial_number)
    assert len(requests_of(cluster, "by-kubectl")) == before + 1

    assert run_kubectl(user, ["get", "node", "by-kubectl", "-o", "name"]).stdout == "node/by-kubectl\n"
    assert stored(program) == renewed
    assert len(requests_of(cluster, "by-kubectl")) == before + 1


def test_a_running_kubelet_goes_on_with_the_renewed_certificate(
    cluster: WorldCluster,
    real_control_plane: ControlPlane,
    administrator: RawClient,
    kubemark: Path,
    tmp_path: Path,
) -> None:
    program = NodeProgram(tmp_path / "node", node(cluster, "renewing"))
    program.supply_bootstrap(cluster)
    assert program.run("request").exit_code == 0
    user = kubeconfig(real_control_plane, program, V1BETA1)
    # Due for renewal some seconds after the kubelet has begun with it, and over half a minute later.
    passing = make_short_lived(real_control_plane, program, left=timedelta(seconds=32), age=timedelta(seconds=80))
    with HollowNode("renewing", user, binary=kubemark) as kubelet:
        kubelet.wait_ready(administrator)
        kubelet.wait_until(lambda: stored(program) != passing, "the certificate is renewed")
        # API servers judge a client certificate with each request, so whoever is let in later holds the new one.
        after = f"{passing.not_valid_after_utc:%Y-%m-%dT%H:%M:%S}"

        def has_renewed_its_lease_later() -> bool:
            lease = administrator.get(f"{LEASES}/renewing")
            return lease.status == 200 and str(lease.body["spec"]["renewTime"]) > after

        kubelet.wait_until(has_renewed_its_lease_later, "the kubelet goes on when the former certificate is over")
        kubelet.remove_from(administrator)
    assert len(requests_of(cluster, "renewing")) == 1


def test_what_prepare_writes_is_what_a_kubelet_needs(
    cluster: WorldCluster, administrator: RawClient, kubemark: Path, tmp_path: Path
) -> None:
    program = NodeProgram(tmp_path / "node", node(cluster, "prepared"))
    program.supply_bootstrap(cluster)
    prepared = program.run("prepare", "--exec-api-version", V1BETA1)
    assert prepared.exit_code == 0, prepared.log
    program.bootstrap_kubeconfig.unlink()  # as kubeadm does, long before anybody has decided
    with HollowNode("prepared", program.kubeconfig.read_text(), binary=kubemark) as kubelet:
        kubelet.wait_ready(administrator)
        kubelet.remove_from(administrator)
    assert sorted(path.name for path in program.store.iterdir()) == [
        "kubelet-authenticator-bootstrap.lock",
        "kubelet-authenticator-ca.crt",
        "kubelet-authenticator-client.lock",
        "kubelet-authenticator-client.pem",
        "kubelet-authenticator-cluster.json",
        "kubelet-authenticator-controller.json",
    ]


@pytest.mark.parametrize("attestor", ["keyed-mac", "insecure"])
def test_a_kubelet_registers_and_turns_ready(
    cluster: WorldCluster,
    real_control_plane: ControlPlane,
    administrator: RawClient,
    kubemark: Path,
    tmp_path: Path,
    attestor: str,
) -> None:
    name = f"by-kubelet-{attestor}"
    program = NodeProgram(tmp_path / "node", node(cluster, name, attestor))
    program.supply_bootstrap(cluster)
    with HollowNode(name, kubeconfig(real_control_plane, program, V1BETA1), binary=kubemark) as kubelet:
        kubelet.wait_registered(administrator)
        kubelet.wait_ready(administrator)
        kubelet.remove_from(administrator)
    assert stored(program).subject.rfc4514_string() == f"CN=system:node:{name},O=system:nodes"


def test_a_kubelet_that_is_denied_registers_nothing_and_says_why(
    cluster: WorldCluster, real_control_plane: ControlPlane, administrator: RawClient, kubemark: Path, tmp_path: Path
) -> None:
    impostor = node(cluster, "by-kubectl").but(node_name="prepared")
    program = NodeProgram(tmp_path / "node", impostor)
    program.supply_bootstrap(cluster)
    with HollowNode("prepared", kubeconfig(real_control_plane, program, V1BETA1), binary=kubemark) as kubelet:
        kubelet.wait_until(lambda: "Denied with reason NodeNameMismatch" in kubelet.log, "the denial is in the log")
        assert administrator.get("/api/v1/nodes/prepared").status == 404
