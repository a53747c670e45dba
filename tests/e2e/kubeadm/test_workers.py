"""A worker joins with the real kubeadm and the real kubelet, by the templates of deploy/node."""

from __future__ import annotations

import json
from typing import Final

import pytest
from cryptography import x509

from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.testing.world import WorldCluster
from tests.deploy.machine import HOSTNAME
from tests.deploy.manifests import IGNITION, WORKER, of_class, worker
from tests.deploy.running_machine import RunningMachine
from tests.e2e.kubeadm.node import (
    BUILTIN_SERVING_SIGNER,
    CLIENT_SIGNER,
    NODE,
    SERVING_SIGNER,
    add_addresses,
    attestation,
    issued,
    issued_by_builtin_signer,
    join,
    restart_kubelet,
    served_certificate,
    serves,
    succeeds,
    wait_for_agent,
    wait_ready,
)
from tests.support.control_plane import ControlPlane
from tests.support.processes import wait_until
from tests.support.raw_client import RawClient
from tests.support.yaml_documents import safe_load

pytestmark = [pytest.mark.real, pytest.mark.slow]

KIND: Final = WORKER
SUBJECT = f"CN=system:node:{HOSTNAME},O=system:nodes"
SINCE_RELOAD = (1, 31)
"""Older kubelets read ``tlsCertFile`` once."""
SINCE_INSTANCE: Final = (1, 34)
"""By default, kubeadm keeps the container runtime's address in a file of its own, and no longer among the flags."""
FLAGS: Final = "/var/lib/kubelet/kubeadm-flags.env"
INSTANCE: Final = "/var/lib/kubelet/instance-config.yaml"
UPGRADE: Final = "kubeadm upgrade node --ignore-preflight-errors=SystemVerification"
"""The machine is a folder, with few control groups of its own."""


def test_a_worker_joins_comes_back_and_joins_again(
    plane: ControlPlane, cluster: WorldCluster, administrator: RawClient, machine: RunningMachine
) -> None:
    join(plane, cluster, machine, of_class(KIND, attestation("SelfSigned")))
    since = wait_ready(administrator, machine)
    assert issued(administrator) == {CLIENT_SIGNER: "Attested"}
    user = machine.path("/etc/kubernetes/kubelet.conf").read_text(encoding="utf-8")
    assert "credential" in user
    assert "token" not in user
    assert not machine.path("/etc/kubernetes/bootstrap-kubelet.conf").exists()

    # There is no bootstrap kubeconfig any more.
    machine.reboot()
    wait_ready(administrator, machine, since)
    assert list(issued(administrator)) == [CLIENT_SIGNER]
    wait_for_agent(machine)

    machine.run("kubeadm reset --force")
    assert not list(machine.path("/var/lib/kubelet").iterdir()), machine.output()
    administrator.delete(NODE).expect(200)
    join(plane, cluster, machine, of_class(KIND, attestation("SelfSigned")))
    wait_ready(administrator, machine)
    assert len(administrator.get(CERTIFICATE_SIGNING_REQUESTS.collection()).expect(200)["items"]) == 2


def test_kubeadm_upgrades_the_node(
    plane: ControlPlane, cluster: WorldCluster, administrator: RawClient, machine: RunningMachine
) -> None:
    """The kubelet's configuration, which lets it rotate, is replaced. The flag that stops it is kept."""
    join(plane, cluster, machine, of_class(KIND, attestation("SelfSigned")))
    wait_ready(administrator, machine)
    kept = ("/etc/kubernetes/kubelet.conf", "/etc/systemd/system/kubelet.service.d/20-kubelet-authenticator.conf")
    before = {name: machine.path(name).read_bytes() for name in kept}
    configuration = machine.path("/var/lib/kubelet/config.yaml")
    configuration.write_text("# as kubeadm join left it\n", encoding="utf-8")
    flags = machine.path(FLAGS)
    has_instance_file = plane.binaries.kubernetes() >= SINCE_INSTANCE
    if has_instance_file:
        endpoint = safe_load(machine.path(INSTANCE).read_text(encoding="utf-8"))["containerRuntimeEndpoint"]
        machine.path(INSTANCE).unlink()
        name, _, value = flags.read_text(encoding="utf-8").partition('="')
        flags.write_text(f'{name}="--container-runtime-endpoint={endpoint} {value}', encoding="utf-8")

    assert succeeds(machine, UPGRADE)
    assert safe_load(configuration.read_text(encoding="utf-8"))["rotateCertificates"] is True
    assert "--rotate-certificates=false" in flags.read_text(encoding="utf-8")
    assert machine.path(INSTANCE).exists() is has_instance_file
    if has_instance_file:
        assert "--container-runtime-endpoint" not in flags.read_text(encoding="utf-8")
    assert {name: machine.path(name).read_bytes() for name in kept} == before

    restart_kubelet(administrator, machine)
    assert list(issued(administrator)) == [CLIENT_SIGNER]
    assert {name: machine.path(name).read_bytes() for name in kept} == before


@pytest.mark.parametrize("program_folder", ["/opt/bin"])
def test_a_worker_joins_by_ignition(
    plane: ControlPlane, cluster: WorldCluster, administrator: RawClient, machine: RunningMachine
) -> None:
    """Nothing is rendered: the node's name is the host's, for kubeadm, the kubelet and the program."""
    spec = worker(IGNITION)
    [configuration] = [file for file in spec["files"] if file["path"].endswith("/kubelet-authenticator.json")]
    told = {**json.loads(configuration["content"]), "settings": attestation("SelfSigned")["settings"]}
    configuration["content"] = json.dumps(told)
    join(plane, cluster, machine, spec)
    wait_ready(administrator, machine)
    assert issued(administrator) == {CLIENT_SIGNER: "Attested"}
    wait_for_agent(machine)


def test_the_kubelet_serves_what_the_agent_obtained(
    plane: ControlPlane, cluster: WorldCluster, administrator: RawClient, machine: RunningMachine
) -> None:
    join(plane, cluster, machine, of_class(KIND, attestation("Agent")))
    wait_ready(administrator, machine)
    assert issued(administrator) == {CLIENT_SIGNER: "Attested", SERVING_SIGNER: "Attested"}
    wait_for_agent(machine)
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
    join(plane, cluster, machine, of_class(KIND, attestation("Kubelet")))
    wait_ready(administrator, machine)
    add_addresses(administrator)
    wait_until(lambda: BUILTIN_SERVING_SIGNER in issued(administrator), "the kubelet has a serving certificate", 60.0)
    assert issued(administrator) == {CLIENT_SIGNER: "Attested", BUILTIN_SERVING_SIGNER: "Attested"}
    wait_until(lambda: serves(plane, issued_by_builtin_signer(administrator)), "the kubelet serves it")
