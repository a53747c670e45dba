"""A machine of the control plane joins with the real kubeadm: its kubelet starts the API server that it asks, too."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import Final

import pytest

from authenticator.model.kubeconfig import runs_this_program
from signer.kube.kubeconfig import parse_kubeconfig
from signer.kube.resources import CLUSTER_ROLE_BINDINGS
from signer.testing.world import WorldCluster
from tests.deploy.manifests import CONTROL_PLANE, of_class
from tests.deploy.running_machine import RunningMachine
from tests.documents.markdown import ROOT, blocks
from tests.e2e.kubeadm.cluster import init_user_data, with_control_plane
from tests.e2e.kubeadm.node import (
    BUILTIN_SERVING_SIGNER,
    CLIENT_SIGNER,
    NODE,
    add_addresses,
    agent,
    attestation,
    issued,
    issued_by_builtin_signer,
    join,
    machine_address,
    restart_kubelet,
    serves,
    succeeds,
    wait_for_agent,
    wait_ready,
)
from tests.support.binaries import ASSETS_VARIABLE, MissingPart, skip_or_fail
from tests.support.control_plane import ControlPlane
from tests.support.etcd import Etcd
from tests.support.processes import Programs, wait_until
from tests.support.raw_client import RawClient
from tests.support.yaml_documents import safe_load

pytestmark = [pytest.mark.real, pytest.mark.slow]

KIND: Final = CONTROL_PLANE
SINCE_ASKED = (1, 32)
"""kubeadm asks the API server for the node's name."""
SINCE_LOCAL = (1, 33)
"""Kubelets of older control planes ask the control plane's endpoint."""
KUBELET_CONF: Final = "/etc/kubernetes/kubelet.conf"
UPGRADE: Final = "kubeadm upgrade node --skip-phases=preflight"
"""The preflight checks would pull images, run a Job, and want more control groups than the machine has."""
APPLY: Final = "kubeadm upgrade apply {version} --yes --skip-phases=preflight"
AUTO_APPROVAL: Final = CLUSTER_ROLE_BINDINGS.object("kubeadm:node-autoapprove-bootstrap")


@pytest.fixture
def local() -> tuple[str, int]:
    """Where the machine's own API server is to listen: kubeadm takes no loopback address."""
    addresses = machine_address()
    if not addresses:
        skip_or_fail(MissingPart("this machine has no address but a loopback one"))
    with socket.socket() as probe:
        probe.bind((addresses[0], 0))
        return addresses[0], int(probe.getsockname()[1])


@pytest.fixture(autouse=True)
def images(machine: RunningMachine) -> None:
    """All are there, as far as kubeadm 1.20 asks for them; newer ones ask the container runtime."""
    machine.path("/programs/crictl").symlink_to("/usr/bin/true")


def join_as_control_plane(
    plane: ControlPlane, cluster: WorldCluster, machine: RunningMachine, local: tuple[str, int], serving: str
) -> None:
    """First boot of a machine of the class."""
    join(plane, cluster, machine, with_control_plane(plane, of_class(KIND, attestation(serving)), *local))


def test_a_control_plane_joins_and_comes_back(
    plane: ControlPlane,
    cluster: WorldCluster,
    administrator: RawClient,
    machine: RunningMachine,
    local: tuple[str, int],
) -> None:
    join_as_control_plane(plane, cluster, machine, local, "SelfSigned")
    since = wait_ready(administrator, machine)
    assert issued(administrator) == {CLIENT_SIGNER: "Attested"}
    labels = administrator.get(NODE).expect(200)["metadata"]["labels"]
    assert {name for name in labels if name.startswith("node-role")} >= {"node-role.kubernetes.io/control-plane"}

    own = f"https://{local[0]}:{local[1]}"
    kubeconfig = safe_load(machine.path("/etc/kubernetes/kubelet.conf").read_text(encoding="utf-8"))
    is_local = plane.binaries.kubernetes() >= SINCE_LOCAL
    assert kubeconfig["clusters"][0]["cluster"]["server"] == (own if is_local else plane.server)
    assert list(kubeconfig["users"][0]["user"]) == ["exec"]
    with RawClient(replace(plane.connection(), server=own)) as client:
        wait_until(lambda: client.get("/readyz").status == 200, "its own API server is ready", 60.0)

    # There is no bootstrap kubeconfig any more, nor an API server of its own before the kubelet runs.
    machine.reboot()
    wait_ready(administrator, machine, since)
    assert list(issued(administrator)) == [CLIENT_SIGNER]
    wait_for_agent(machine)


def test_kubeadm_upgrades_the_node(
    plane: ControlPlane,
    cluster: WorldCluster,
    administrator: RawClient,
    machine: RunningMachine,
    local: tuple[str, int],
) -> None:
    """As the document says: by itself, or with a kubelet.conf of kubeadm's own that names the certificate."""
    join_as_control_plane(plane, cluster, machine, local, "SelfSigned")
    wait_ready(administrator, machine)
    kubelet_conf, configuration = machine.path(KUBELET_CONF), machine.path("/var/lib/kubelet/config.yaml")
    before = kubelet_conf.read_text(encoding="utf-8")
    (commands,) = [block.text for block in blocks(ROOT / "docs/node.md") if "unshare --mount" in block.text]
    own = commands.replace("kubeadm upgrade node", UPGRADE)
    assert own != commands

    configuration.write_text("# as kubeadm join left it\n", encoding="utf-8")
    asks_the_api_server = plane.binaries.kubernetes() >= SINCE_ASKED
    wait_until(lambda: succeeds(machine, own), "the pod of its API server is mirrored", 60.0)
    assert succeeds(machine, UPGRADE) is asks_the_api_server
    if not asks_the_api_server:
        assert "x509 certificate expected" in machine.output()
    assert safe_load(configuration.read_text(encoding="utf-8"))["rotateCertificates"] is True
    assert kubelet_conf.read_text(encoding="utf-8") == before

    restart_kubelet(administrator, machine)
    assert list(issued(administrator)) == [CLIENT_SIGNER]
    assert kubelet_conf.read_text(encoding="utf-8") == before


@pytest.mark.parametrize("command", [pytest.param(UPGRADE, id="node"), pytest.param(APPLY, id="apply")])
def test_kubeadm_gives_the_kubelet_the_api_server_of_its_machine(
    plane: ControlPlane,
    cluster: WorldCluster,
    administrator: RawClient,
    machine: RunningMachine,
    local: tuple[str, int],
    command: str,
) -> None:
    """A machine that joined with an older kubeadm: its kubelet.conf names the control plane's endpoint."""
    if plane.binaries.kubernetes() < SINCE_LOCAL:
        pytest.skip(f"{ASSETS_VARIABLE} has no kubeadm that changes the server: 1.33 or newer")
    join_as_control_plane(plane, cluster, machine, local, "SelfSigned")
    wait_ready(administrator, machine)
    kubelet_conf = machine.path(KUBELET_CONF)
    expected = kubelet_conf.read_text(encoding="utf-8")
    own = f"https://{local[0]}:{local[1]}"
    assert own in expected
    kubelet_conf.write_text(expected.replace(own, plane.server), encoding="utf-8")
    restart_kubelet(administrator, machine)

    administrator.delete(AUTO_APPROVAL).expect(200)
    version = plane.versions()["kube-apiserver"].rpartition(" ")[2]
    assert succeeds(machine, command.format(version=version))
    assert (administrator.get(AUTO_APPROVAL).status == 200) is (command == APPLY)
    plane.seed_kubeadm()
    found = kubelet_conf.read_text(encoding="utf-8")
    assert runs_this_program(found.encode())
    found_document = safe_load(found)
    assert found_document["users"][0]["user"]["exec"].pop("env") is None
    assert found_document == safe_load(expected)
    assert kubelet_conf.stat().st_mode & 0o777 == 0o600

    restart_kubelet(administrator, machine)
    assert kubelet_conf.read_text(encoding="utf-8") == found
    assert list(issued(administrator)) == [CLIENT_SIGNER]
    wait_for_agent(machine)


def test_the_kubelet_asks_for_its_serving_certificate(
    plane: ControlPlane,
    cluster: WorldCluster,
    administrator: RawClient,
    machine: RunningMachine,
    local: tuple[str, int],
) -> None:
    join_as_control_plane(plane, cluster, machine, local, "Kubelet")
    wait_ready(administrator, machine)
    add_addresses(administrator)
    wait_until(lambda: BUILTIN_SERVING_SIGNER in issued(administrator), "the kubelet has a serving certificate", 60.0)
    assert issued(administrator) == {CLIENT_SIGNER: "Attested", BUILTIN_SERVING_SIGNER: "Attested"}
    wait_until(lambda: serves(plane, issued_by_builtin_signer(administrator)), "the kubelet serves it")


def test_a_machine_of_kubeadm_init_is_left_alone(
    plane: ControlPlane, machine: RunningMachine, local: tuple[str, int]
) -> None:
    """The first machine of a cluster has what the class gives to all, and a certificate of kubeadm's."""
    with Programs("node-attestation-kubeadm-init-") as programs:
        etcd = Etcd(programs, plane.binaries.etcd)
        machine.boot_with_cloud_config(init_user_data(plane, etcd.url, of_class(KIND, attestation("Kubelet")), *local))
        assert machine.joined(), machine.output()
        with RawClient(parse_kubeconfig(machine.path("/etc/kubernetes/admin.conf").read_bytes())) as administrator:
            wait_ready(administrator, machine)
            assert not issued(administrator)
        user = safe_load(machine.path("/etc/kubernetes/kubelet.conf").read_text(encoding="utf-8"))["users"][0]
        assert set(user["user"]) == {"client-certificate", "client-key"}
        assert agent(machine) == {"ActiveState=inactive", "NRestarts=0"}
        assert not list(machine.path("/var/lib/kubelet/pki").glob("kubelet-authenticator*"))
