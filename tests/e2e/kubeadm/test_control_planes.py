"""A machine of the control plane joins with the real kubeadm: its kubelet starts the API server that it asks, too."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import Final

import pytest
import yaml

from signer.kube.kubeconfig import parse_kubeconfig
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
    serves,
    wait_for_agent,
    wait_ready,
)
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.control_plane import ControlPlane
from tests.support.etcd import Etcd
from tests.support.processes import Programs, wait_until
from tests.support.raw_client import RawClient

pytestmark = [pytest.mark.real, pytest.mark.slow]

KIND: Final = CONTROL_PLANE
SINCE_ASKED = (1, 32)
"""kubeadm asks the API server for the node's name."""
SINCE_LOCAL = (1, 33)
"""Kubelets of older control planes ask the control plane's endpoint."""


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
    kubeconfig = yaml.safe_load(machine.path("/etc/kubernetes/kubelet.conf").read_text(encoding="utf-8"))
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
    kubelet_conf = machine.path("/etc/kubernetes/kubelet.conf")
    before = kubelet_conf.read_text(encoding="utf-8")
    upgrade = "kubeadm upgrade node phase kubelet-config --dry-run"
    (commands,) = [block.text for block in blocks(ROOT / "docs/node.md") if "unshare --mount" in block.text]
    own = commands.replace("kubeadm upgrade node", upgrade)
    assert own != commands

    def upgraded(script: str) -> bool:
        machine.run(f"{script}\necho exit code $?")
        print(machine.output())
        return "exit code 0" in machine.output()

    asks_the_api_server = plane.binaries.kubernetes() >= SINCE_ASKED
    wait_until(lambda: upgraded(own), "the pod of its API server is mirrored", 60.0)
    assert upgraded(upgrade) is asks_the_api_server
    if not asks_the_api_server:
        assert "x509 certificate expected" in machine.output()
    assert kubelet_conf.read_text(encoding="utf-8") == before


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
        user = yaml.safe_load(machine.path("/etc/kubernetes/kubelet.conf").read_text(encoding="utf-8"))["users"][0]
        assert set(user["user"]) == {"client-certificate", "client-key"}
        assert agent(machine) == {"ActiveState=inactive", "NRestarts=0"}
        assert not list(machine.path("/var/lib/kubelet/pki").glob("kubelet-authenticator*"))
