"""A machine joins with the real kubeadm and the real kubelet, by the templates of deploy/node."""

from __future__ import annotations

import base64
import os
import secrets
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from keyed_mac.keys import derive_machine_key

from signer.controller.configuration import Configuration, OperatorAttestor
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, RunningController, WorldCluster
from tests.deploy.machine import HOSTNAME
from tests.deploy.manifests import WORKER, of_class
from tests.deploy.running_machine import RunningMachine, switch_on
from tests.e2e.kubeadm_cluster import (
    CONTROLLERS,
    RUNTIME_FOLDER,
    set_up,
    user_data,
    wait_until_discoverable,
)
from tests.support.binaries import MissingPart, find_control_plane, skip_or_fail
from tests.support.containerd import Containerd
from tests.support.control_plane import ControlPlane
from tests.support.grants import as_service_account, restrict_in_workload_cluster
from tests.support.processes import wait_until
from tests.support.raw_client import RawClient

# The kubelet's ports are those of every kubelet.
pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.serial]

MASTER_KEY = secrets.token_bytes(32)
PROVIDER_ID = "test:///node-1"
ADDRESS = "192.0.2.77"
"""Of the documentation's networks, for a cloud to have given: certificates are for no loopback addresses."""
KUBELET = ("127.0.0.1", 10250)
CLIENT_SIGNER = "cluster.x-k8s.io/kube-apiserver-client-kubelet-keyed-mac"
SERVING_SIGNER = "cluster.x-k8s.io/kubelet-serving-keyed-mac"
STOCK_SERVING_SIGNER = "kubernetes.io/kubelet-serving"
NODE = f"/api/v1/nodes/{HOSTNAME}"
SUBJECT = f"CN=system:node:{HOSTNAME},O=system:nodes"
SINCE_RELOAD = (1, 31)
"""Older kubelets read ``tlsCertFile`` once."""
SINCE_EXEC_V1 = (1, 22)
"""Older kubelets need one more flag (deploy/node/README.md)."""
EXEC_V1BETA1 = "--exec-api-version client.authentication.k8s.io/v1beta1"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane as kubeadm leaves it."""
    try:
        binaries = find_control_plane()
        kubeadm = binaries.program("kubeadm")
        binaries.program("kubelet")
        control_plane = ControlPlane(binaries=binaries)
    except MissingPart as missing:
        skip_or_fail(missing)
    with control_plane:
        control_plane.start_controllers(controllers=CONTROLLERS)
        set_up(control_plane, kubeadm, tmp_path_factory.mktemp("kubeadm"))
        yield control_plane


@pytest.fixture(scope="module")
def cluster(plane: ControlPlane) -> Iterator[WorldCluster]:
    """The cluster with its Machine, an attestor, and a controller."""
    master_key = base64.b64encode(MASTER_KEY).decode("ascii")
    configuration = Configuration(
        namespace=CONTROLLER_NAMESPACE,
        attestors={"keyed-mac": OperatorAttestor(settings={"masterKey": master_key})},
    )
    folder = os.environ.get("NODE_ATTESTATION_CAPI_CRDS")
    with ManagementCluster(plane, capi_crds=Path(folder) if folder else None) as management:
        cluster = management.add_cluster("kubeadm", plane, namespace="kubeadm")
        addresses = [("Hostname", HOSTNAME), ("InternalDNS", HOSTNAME), ("InternalIP", ADDRESS), *_addresses()]
        cluster.add_machine("node-1", provider_id=PROVIDER_ID, addresses=addresses)
        restrict_in_workload_cluster(cluster, plane)
        cluster.authorize("keyed-mac", stockServingRequests="Approve")
        with RunningController(as_service_account(plane, "kubeadm"), configuration):
            yield cluster


@pytest.fixture(scope="module")
def administrator(plane: ControlPlane) -> Iterator[RawClient]:
    with RawClient(plane.connection()) as client:
        yield client


@pytest.fixture
def machine(plane: ControlPlane, administrator: RawClient, tmp_path: Path) -> Iterator[RunningMachine]:
    """A machine that never joined. Its Node and its requests go with it."""
    with ExitStack() as stack:
        try:
            runtime = stack.enter_context(Containerd())
            kubeadm, kubelet = plane.binaries.program("kubeadm"), plane.binaries.program("kubelet")
            folders = {RUNTIME_FOLDER: runtime.folder}
            switched_on = switch_on(tmp_path / "root", HOSTNAME, kubeadm=kubeadm, kubelet=kubelet, folders=folders)
        except MissingPart as missing:
            skip_or_fail(missing)
        with switched_on as machine:
            yield machine
        administrator.delete(NODE).expect(200, 404)
        for request in administrator.get(CERTIFICATE_SIGNING_REQUESTS.collection()).expect(200)["items"]:
            administrator.delete(CERTIFICATE_SIGNING_REQUESTS.object(request["metadata"]["name"])).expect(200, 404)


def join(plane: ControlPlane, cluster: WorldCluster, machine: RunningMachine, serving: str) -> None:
    """First boot of a machine of the class."""
    machine_key = base64.b64encode(derive_machine_key(MASTER_KEY, PROVIDER_ID)).decode("ascii")
    attestation = {
        "provider": "keyed-mac",
        "nodeName": "{{ ds.meta_data.local_hostname }}",
        "settings": {"provider-id": PROVIDER_ID, "machine-key": machine_key},
        "servingCertificates": serving,
    }
    token = plane.bootstrap_token()
    wait_until_discoverable(plane, token)
    data = user_data(plane, cluster.ca_cert_hash, token, of_class(WORKER, attestation))
    if plane.binaries.kubernetes() < SINCE_EXEC_V1:
        for command in ("prepare", "agent"):
            data = data.replace(
                f"kubelet-authenticator {command}\n", f"kubelet-authenticator {command} {EXEC_V1BETA1}\n"
            )
    machine.boot_with_cloud_config(data)
    assert machine.joined(), machine.output()


def ready(administrator: RawClient) -> str:
    """When the Node was Ready last, empty as long as it is not."""
    answer = administrator.get(NODE)
    if answer.status == 404:
        return ""
    conditions = {one["type"]: one for one in answer.expect(200)["status"].get("conditions", ())}
    is_ready = conditions.get("Ready", {}).get("status") == "True"
    return str(conditions["Ready"]["lastHeartbeatTime"]) if is_ready else ""


def wait_ready(administrator: RawClient, machine: RunningMachine, later_than: str = "") -> str:
    """Wait until the Node is Ready, later than it was; returns when."""
    try:
        wait_until(lambda: ready(administrator) > later_than, "the Node is Ready", 60.0)
    except TimeoutError:
        print(machine.log("kubelet.service")[-6000:])
        raise
    return ready(administrator)


def issued(administrator: RawClient) -> dict[str, str]:
    """The signers of the requests, and what was said of each."""
    requests = administrator.get(CERTIFICATE_SIGNING_REQUESTS.collection()).expect(200)["items"]
    return {
        one["spec"]["signerName"]: one["status"]["conditions"][0]["reason"]
        for one in requests
        if one["status"].get("certificate")
    }


def issued_by_stock_signer(administrator: RawClient) -> x509.Certificate:
    """What the kubelet asked for."""
    requests = administrator.get(CERTIFICATE_SIGNING_REQUESTS.collection()).expect(200)["items"]
    [certificate] = [
        one["status"]["certificate"] for one in requests if one["spec"]["signerName"] == STOCK_SERVING_SIGNER
    ]
    return x509.load_pem_x509_certificate(base64.b64decode(certificate))


def serves(plane: ControlPlane, certificate: x509.Certificate) -> bool:
    """Whether the kubelet serves this one by now."""
    try:
        return served_certificate(plane) == certificate
    except OSError:
        return False


def served_certificate(plane: ControlPlane) -> x509.Certificate:
    """What the kubelet serves, verified by the cluster's CA, for the node's name."""
    context = ssl.create_default_context(cadata=plane.ca_certificate_pem.decode("ascii"))
    with (
        socket.create_connection(KUBELET, 5) as connection,
        context.wrap_socket(connection, server_hostname=HOSTNAME) as secure,
    ):
        der = secure.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der)


def test_a_worker_joins_comes_back_and_joins_again(
    plane: ControlPlane, cluster: WorldCluster, administrator: RawClient, machine: RunningMachine
) -> None:
    join(plane, cluster, machine, "SelfSigned")
    since = wait_ready(administrator, machine)
    assert issued(administrator) == {CLIENT_SIGNER: "Attested"}
    user = machine.path("/etc/kubernetes/kubelet.conf").read_text(encoding="utf-8")
    assert "credential" in user
    assert "token" not in user
    assert not machine.path("/etc/kubernetes/bootstrap-kubelet.conf").exists()

    # As after a reboot: there is no bootstrap kubeconfig any more.
    machine.run("systemctl restart kubelet")
    wait_ready(administrator, machine, since)
    assert list(issued(administrator)) == [CLIENT_SIGNER]

    machine.run("kubeadm reset --force")
    assert not list(machine.path("/var/lib/kubelet").iterdir()), machine.output()
    administrator.delete(NODE).expect(200)
    join(plane, cluster, machine, "SelfSigned")
    wait_ready(administrator, machine)
    assert len(administrator.get(CERTIFICATE_SIGNING_REQUESTS.collection()).expect(200)["items"]) == 2


def test_the_kubelet_serves_what_the_agent_obtained(
    plane: ControlPlane, cluster: WorldCluster, administrator: RawClient, machine: RunningMachine
) -> None:
    join(plane, cluster, machine, "Agent")
    wait_ready(administrator, machine)
    assert issued(administrator) == {CLIENT_SIGNER: "Attested", SERVING_SIGNER: "Attested"}
    served = served_certificate(plane)
    assert served.subject.rfc4514_string() == SUBJECT

    # As when the agent has renewed it.
    store = machine.path("/var/lib/kubelet/pki/kubelet-authenticator-serving.pem")
    names = served.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    user = f"system:node:{HOSTNAME}"
    certificate, key = plane.ca.issue_serving(user, [str(name.value) for name in names])
    renewed = store.with_suffix(".new")
    renewed.touch(mode=0o600)
    renewed.write_bytes(certificate + key)
    renewed.rename(store)
    if plane.binaries.kubernetes() < SINCE_RELOAD:
        machine.run("systemctl restart kubelet")
    wait_until(lambda: serves(plane, x509.load_pem_x509_certificate(certificate)), "the kubelet serves the new one", 90)


def test_the_kubelet_asks_for_its_serving_certificate(
    plane: ControlPlane, cluster: WorldCluster, administrator: RawClient, machine: RunningMachine
) -> None:
    join(plane, cluster, machine, "Kubelet")
    wait_ready(administrator, machine)
    # As a cloud's controller does; the kubelet asks once it knows its addresses.
    addresses: list[dict[str, Any]] = [
        {"type": "InternalIP", "address": ADDRESS},
        {"type": "Hostname", "address": HOSTNAME},
        {"type": "InternalDNS", "address": HOSTNAME},
    ]
    administrator.patch(f"{NODE}/status", {"status": {"addresses": addresses}}).expect(200)
    wait_until(lambda: STOCK_SERVING_SIGNER in issued(administrator), "the kubelet has a serving certificate", 60.0)
    assert issued(administrator) == {CLIENT_SIGNER: "Attested", STOCK_SERVING_SIGNER: "Attested"}
    wait_until(lambda: serves(plane, issued_by_stock_signer(administrator)), "the kubelet serves it")


def _addresses() -> list[tuple[str, str]]:
    """Where the default route leads out: what the agent and the kubelet take for the machine's address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return []
        return [("InternalIP", probe.getsockname()[0])]
