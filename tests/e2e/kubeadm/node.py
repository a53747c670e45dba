"""A machine's way into the cluster, and what is seen of its Node."""

from __future__ import annotations

import base64
import contextlib
import secrets
import socket
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from keyed_mac.keys import derive_machine_key

from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.testing.world import WorldCluster
from tests.deploy.machine import HOSTNAME
from tests.deploy.running_machine import PROGRAMS, RunningMachine, switch_on
from tests.e2e.kubeadm.cluster import RUNTIME_FOLDER, Joined, user_data, wait_until_discoverable
from tests.support.binaries import ControlPlaneBinaries
from tests.support.containerd import Containerd
from tests.support.control_plane import ControlPlane
from tests.support.processes import wait_until
from tests.support.raw_client import RawClient

MASTER_KEY: Final = secrets.token_bytes(32)
MASTER_KEY_TEXT: Final = base64.b64encode(MASTER_KEY).decode("ascii")
PROVIDER_ID: Final = "test:///node-1"
ADDRESS: Final = "192.0.2.77"
"""Of the documentation's networks, for a cloud to have given: certificates are for no loopback addresses."""
KUBELET: Final = ("127.0.0.1", 10250)
CLIENT_SIGNER: Final = "cluster.x-k8s.io/kube-apiserver-client-kubelet-keyed-mac"
SERVING_SIGNER: Final = "cluster.x-k8s.io/kubelet-serving-keyed-mac"
BUILTIN_SERVING_SIGNER: Final = "kubernetes.io/kubelet-serving"
NODE: Final = f"/api/v1/nodes/{HOSTNAME}"
SINCE_EXEC_V1: Final = (1, 22)
"""Older kubelets need one more flag (deploy/node/README.md)."""
EXEC_V1BETA1: Final = "--exec-api-version client.authentication.k8s.io/v1beta1"


def attestation(serving: str) -> dict[str, Any]:
    """The value of the class's variable for this machine."""
    machine_key = base64.b64encode(derive_machine_key(MASTER_KEY, PROVIDER_ID)).decode("ascii")
    return {
        "provider": "keyed-mac",
        "nodeName": "{{ ds.meta_data.local_hostname }}",
        "settings": {"provider-id": PROVIDER_ID, "machine-key": machine_key},
        "servingCertificates": serving,
    }


@contextlib.contextmanager
def new_machine(binaries: ControlPlaneBinaries, root: Path, program_folder: str = PROGRAMS) -> Iterator[RunningMachine]:
    """A machine that never joined, switched on. ``root`` does not exist yet.

    Raises:
        MissingPart: a program is missing, or the host allows no namespaces.
    """
    with contextlib.ExitStack() as stack:
        runtime = stack.enter_context(Containerd())
        programs = {name: binaries.program(name) for name in ("kubeadm", "kubelet", "kube-apiserver")}
        folders = {RUNTIME_FOLDER: runtime.folder}
        switched_on = switch_on(root, HOSTNAME, binaries=programs, folders=folders, program_folder=program_folder)
        yield stack.enter_context(switched_on)


def join(plane: Joined, cluster: WorldCluster, machine: RunningMachine, spec: Mapping[str, Any]) -> None:
    """First boot of a machine with this KubeadmConfig's spec."""
    token = plane.bootstrap_token()
    wait_until_discoverable(plane, token)
    boot(machine, spec, rendered(plane, cluster.ca_cert_hash, token, spec))
    assert machine.joined(), machine.output() + machine.log("kubelet.service")


def rendered(plane: Joined, ca_cert_hash: str, token: str, spec: Mapping[str, Any]) -> str:
    """The machine's user data, which may be older than the machine."""
    data = user_data(plane, ca_cert_hash, token, spec)
    if plane.binaries.kubernetes() < SINCE_EXEC_V1:
        for command in ("prepare", "agent"):
            data = data.replace(
                f"kubelet-authenticator {command}\n", f"kubelet-authenticator {command} {EXEC_V1BETA1}\n"
            )
    return data


def boot(machine: RunningMachine, spec: Mapping[str, Any], data: str) -> None:
    """First boot with that user data, whether the machine joins or not."""
    boots = machine.boot_with_ignition if spec.get("format") == "ignition" else machine.boot_with_cloud_config
    boots(data)


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
        print(machine.log("kubelet.service"))
        raise
    return ready(administrator)


def succeeds(machine: RunningMachine, script: str) -> bool:
    """Whether the last command of this script succeeds; its output goes to the test's report."""
    machine.run(f"{script}\necho exit code $?")
    print(machine.output())
    return machine.output().endswith("exit code 0\n")


def restart_kubelet(administrator: RawClient, machine: RunningMachine) -> None:
    """Restart it; returns when the new process has reported that the Node is Ready."""
    assert succeeds(machine, "systemctl restart kubelet")
    wait_ready(administrator, machine, ready(administrator))


def agent(machine: RunningMachine) -> set[str]:
    """What systemd says of the agent: what state it is in, and how often it was started again."""
    machine.run("systemctl show --property=ActiveState,NRestarts kubelet-authenticator")
    return set(machine.output().split())


def wait_for_agent(machine: RunningMachine) -> None:
    """Wait until it says that it is ready, at its first start."""
    wait_until(lambda: agent(machine) == {"ActiveState=active", "NRestarts=0"}, "the agent is ready")


def issued(administrator: RawClient) -> dict[str, str]:
    """The signers of the requests, and what was said of each."""
    requests = administrator.get(CERTIFICATE_SIGNING_REQUESTS.collection()).expect(200)["items"]
    return {
        one["spec"]["signerName"]: one["status"]["conditions"][0]["reason"]
        for one in requests
        if one["status"].get("certificate")
    }


def issued_by_builtin_signer(administrator: RawClient) -> x509.Certificate:
    """What the kubelet asked for."""
    requests = administrator.get(CERTIFICATE_SIGNING_REQUESTS.collection()).expect(200)["items"]
    [certificate] = [
        one["status"]["certificate"] for one in requests if one["spec"]["signerName"] == BUILTIN_SERVING_SIGNER
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


def add_addresses(administrator: RawClient) -> None:
    """Write them into the Node's status, as a cloud's controller does: the kubelet asks once it knows them."""
    addresses: list[dict[str, Any]] = [
        {"type": "InternalIP", "address": ADDRESS},
        {"type": "Hostname", "address": HOSTNAME},
        {"type": "InternalDNS", "address": HOSTNAME},
    ]
    administrator.patch(f"{NODE}/status", {"status": {"addresses": addresses}}).expect(200)


def machine_address() -> list[str]:
    """Where the default route leads out: what the agent and the kubelet take for the machine's address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return []
        return [probe.getsockname()[0]]
