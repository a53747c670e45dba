"""A cluster that has nothing but IPv6: everything is asked of a real kube-apiserver at [::1], and by every program."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from keyed_mac.keys import derive_machine_key

from signer.cli import main
from signer.configuration import Configuration, OperatorAttestor
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.testing.nodes import SimulatedNode
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, RunningController, WorldCluster
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.cluster_api import cluster_api_crds
from tests.support.control_plane import ControlPlane
from tests.support.exec_kubeconfig import exec_kubeconfig
from tests.support.grants import as_service_account, restrict_in_workload_cluster
from tests.support.kubectl import run_kubectl
from tests.support.node_program import PROGRAM, V1, NodeProgram

pytestmark = [pytest.mark.real, pytest.mark.slow]

MASTER_KEY = secrets.token_bytes(32)
NAMESPACE = "ipv6"
SETTINGS = {"masterKey": base64.b64encode(MASTER_KEY).decode("ascii")}
ADDRESSES = {
    "six": [("InternalIP", "2001:DB8:0:0::0010"), ("InternalIP", "2001:db8::11%eth0"), ("Hostname", "six")],
    "other": [("InternalIP", "2001:db8::20"), ("Hostname", "other")],
}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    try:
        with ControlPlane(address="::1") as running:
            running.seed_kubeadm()
            yield running
    except MissingPart as missing:
        skip_or_fail(missing)


@pytest.fixture(scope="module")
def cluster(plane: ControlPlane) -> Iterator[WorldCluster]:
    """Management and workload share the API server."""
    configuration = Configuration(
        namespace=CONTROLLER_NAMESPACE, attestors={"keyed-mac": OperatorAttestor(settings=SETTINGS)}
    )
    with ManagementCluster(plane, capi_crds=cluster_api_crds()) as management:
        found = management.add_cluster("six", plane, namespace=NAMESPACE)
        services = {"cidrBlocks": ["fd00:10:96::/112", "10.96.0.0/12"]}
        endpoint = {"host": "2001:DB8::1", "port": 6443}
        found.patch({"spec": {"clusterNetwork": {"services": services}, "controlPlaneEndpoint": endpoint}})
        for machine, addresses in ADDRESSES.items():
            found.add_machine(machine, provider_id=f"test:///{machine}", addresses=addresses)
        restrict_in_workload_cluster(found, plane)
        found.authorize("keyed-mac")
        with RunningController(as_service_account(plane, NAMESPACE), configuration):
            yield found
        found.remove()


@pytest.fixture
def program(cluster: WorldCluster, tmp_path: Path) -> NodeProgram:
    """That of the Machine whose addresses are written oddly."""
    machine_key = base64.b64encode(derive_machine_key(MASTER_KEY, "test:///six")).decode("ascii")
    settings = {"provider-id": "test:///six", "machine-key": machine_key}
    made = NodeProgram(
        tmp_path / "node", SimulatedNode("six", "test:///six", cluster.ca_cert_hash, "keyed-mac", settings)
    )
    made.supply_bootstrap(cluster)
    return made


def test_a_node_joins_serves_and_is_a_node(plane: ControlPlane, program: NodeProgram) -> None:
    assert plane.server.startswith("https://[::1]:")
    assert program.run("request").exit_code == 0
    addresses = ("2001:db8::10", "2001:db8::11")
    served = program.run("request", *(f"--serving-ip-address={address}" for address in addresses))
    assert served.exit_code == 0, served.log
    certificate = x509.load_pem_x509_certificate(program.serving_pair.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.IPAddress) == [ip_address(address) for address in addresses]

    arguments = ["credential", "--config", str(program.configuration)]
    user = exec_kubeconfig(plane.server, plane.ca_certificate_pem, PROGRAM, arguments, {}, api_version=V1)
    assert 'User "system:node:six"' in run_kubectl(user, ["get", "secrets", "--all-namespaces"]).stderr
    told = program.run("status", "--output", "json")
    assert told.exit_code == 0, told.log
    assert plane.server in told.output
    assert program.run("prepare").exit_code == 0
    assert f"server: {plane.server}" in program.kubeconfig.read_text()


@pytest.mark.parametrize(
    "address", ["::1", "fe80::1", "fd00:10:96::1", "::ffff:10.96.0.1", "2001:db8::1", "2001:db8::20"]
)
def test_whose_address_it_is_not(program: NodeProgram, address: str) -> None:
    """Those of this host, of its link, of Services, of the control plane, and of another Machine."""
    assert program.run("request").exit_code == 0
    refused = program.run("request", f"--serving-ip-address={address}")
    assert refused.exit_code != 0
    assert "InvalidSubjectAlternativeNames" in refused.log
    assert not program.serving_pair.exists()


def test_what_is_asked_on_the_command_line(
    plane: ControlPlane, cluster: WorldCluster, program: NodeProgram, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    requests = CERTIFICATE_SIGNING_REQUESTS.collection()
    before = {item["metadata"]["name"] for item in cluster.client().get(requests)["items"]}
    assert program.run("request").exit_code == 0
    [name] = {item["metadata"]["name"] for item in cluster.client().get(requests)["items"]} - before
    kubeconfig, configuration = tmp_path / "kubeconfig", tmp_path / "configuration.yaml"
    kubeconfig.write_text(plane.kubeconfig())
    configuration.write_text(json.dumps({"attestors": {"keyed-mac": {"settings": SETTINGS}}}))
    judging = ("--config", str(configuration))
    for command, said in (
        (["status"], f"{NAMESPACE}/six"),
        (["preflight", f"{NAMESPACE}/six", *judging], "kubeadm:node-autoapprove-bootstrap"),
        (["explain", name, "--all", "--cluster", f"{NAMESPACE}/six", *judging], "test:///six"),
    ):
        assert main([*command, "--kubeconfig", str(kubeconfig)]) in (0, 3)
        assert said in capsys.readouterr().out


@pytest.mark.parametrize("name", ["::1", "0:0::0:1", "kubernetes"])
def test_the_name_to_verify(plane: ControlPlane, cluster: WorldCluster, name: str) -> None:
    """A node and the controller reach it so, and no other name."""
    connection = replace(plane.connection(), tls_server_name=name)
    with cluster.client(connection) as client:
        assert client.get("/version")["major"] == "1"
