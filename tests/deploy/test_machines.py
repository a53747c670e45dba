"""Machines boot with the bootstrap data of the templates: the kubelet gets an exec kubeconfig, or stays unchanged."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
import yaml

from tests.deploy.bootstrap_data import Role, cloud_config, container_linux_config
from tests.deploy.conftest import NewMachine
from tests.deploy.embedded import image_files
from tests.deploy.machine import HOSTNAME, KUBELET, PROGRAM, Landed, Machine, UnusableUserData, render_jinja
from tests.deploy.manifests import CLOUD_CONFIG, CONTROL_PLANE, IGNITION, WORKER, of_class, worker
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.yaml_documents import safe_load

pytestmark = pytest.mark.slow

AGENT = "kubelet-authenticator.service"
BOOTSTRAP = "/etc/kubernetes/bootstrap-kubelet.conf"
KUBECONFIG = "/etc/kubernetes/kubelet.conf"
STORE = "/var/lib/kubelet/pki"
ATTESTATION = {"provider": "keyed-mac", "nodeName": "{{ ds.meta_data.local_hostname }}"}


def boot(machine: Machine, spec: dict[str, Any], role: Role = "join") -> dict[str, Landed]:
    """The first boot of a machine with this KubeadmConfig."""
    try:
        if spec.get("format") == "ignition":
            return machine.boot_with_ignition(container_linux_config(spec, role))
        return machine.boot_with_cloud_config(cloud_config(spec, role))
    except MissingPart as missing:
        skip_or_fail(missing)


def assert_landed(machine: Machine, files: dict[str, Landed]) -> None:
    """Check content, mode and owner of all files that still exist."""
    for name, file in files.items():
        path = machine.path(name)
        if name == "/etc/kubeadm.yml":
            continue  # kubeadm.sh moves it
        assert path.read_bytes() == file.content, name
        assert path.stat().st_mode & 0o7777 == file.mode, name
        if os.geteuid() == 0:
            assert (path.stat().st_uid, path.stat().st_gid) == (0, 0), name
        assert file.owner == "root:root"


def kubelet_command(machine: Machine) -> list[str]:
    [command] = machine.command_lines("kubelet.service")
    assert command[0] == KUBELET
    return command


def assert_exec_kubeconfig(machine: Machine, program: str) -> None:
    """kubelet.conf has API server and CA of the bootstrap kubeconfig, and the program as its only credential."""
    path = machine.path(KUBECONFIG)
    document = safe_load(path.read_text(encoding="utf-8"))
    [cluster], [user] = document["clusters"], document["users"]
    assert cluster["cluster"]["server"] == "https://control-plane.example:6443"
    authority = machine.path(cluster["cluster"]["certificate-authority"])
    assert authority.read_text(encoding="ascii").startswith("-----BEGIN CERTIFICATE-----")
    assert authority.stat().st_mode & 0o777 == 0o644
    assert set(user["user"]) == {"exec"}
    stanza = user["user"]["exec"]
    assert stanza["apiVersion"] == "client.authentication.k8s.io/v1"
    assert stanza["args"][0] == "credential"
    assert (stanza["interactiveMode"], stanza["provideClusterInfo"]) == ("Never", True)
    assert stanza["command"] == program
    assert path.stat().st_mode & 0o077 == 0
    store = machine.path(f"{STORE}/kubelet-authenticator-bootstrap.json")
    assert store.stat().st_mode & 0o7777 == 0o600


@pytest.mark.parametrize("name", [CLOUD_CONFIG, IGNITION])
def test_a_worker_joins(name: str, machine_from_image: NewMachine) -> None:
    programs = "/opt/bin" if name == IGNITION else "/usr/local/bin"
    machine, spec = machine_from_image(programs=programs), worker(name)
    assert_landed(machine, boot(machine, spec))
    assert machine.joined(), machine.output()
    assert_exec_kubeconfig(machine, f"{programs}/{PROGRAM}")
    assert not machine.path(BOOTSTRAP).exists()

    command = kubelet_command(machine)
    assert "--rotate-certificates=false" in command
    assert "--kubeconfig=/etc/kubernetes/kubelet.conf" in command
    assert not [word for word in command if "bootstrap" in word]

    prepared = next(event for event in machine.events() if "prepared" in event)
    assert prepared["prepared"] == [f"{programs}/{PROGRAM}", "prepare"]
    assert machine.command_lines(AGENT) == [[f"{programs}/{PROGRAM}", "agent"]]


def test_cloud_init_names_the_node_everywhere(machine_from_image: NewMachine) -> None:
    machine = machine_from_image()
    boot(machine, worker(CLOUD_CONFIG))
    configuration = json.loads(machine.path("/etc/kubernetes/kubelet-authenticator.json").read_text())
    assert configuration["nodeName"] == HOSTNAME
    assert f"--hostname-override={HOSTNAME}" in kubelet_command(machine)


def test_systemd_reads_the_units_before_kubeadm_runs(machine_from_image: NewMachine) -> None:
    machine = machine_from_image()
    boot(machine, worker(CLOUD_CONFIG))
    assert [(event["program"], event["command"]) for event in machine.events()[:2]] == [
        ("systemctl", "daemon-reload"),
        ("kubeadm", "join"),
    ]


@pytest.mark.parametrize("kind", [WORKER, CONTROL_PLANE])
@pytest.mark.parametrize("serving", ["SelfSigned", "Kubelet", "Agent"])
def test_machines_of_the_class_join(kind: str, serving: str, machine_from_image: NewMachine) -> None:
    machine = machine_from_image()
    spec = of_class(kind, {**ATTESTATION, "servingCertificates": serving})
    assert_landed(machine, boot(machine, spec))
    assert machine.joined(), machine.output()
    assert_exec_kubeconfig(machine, f"/usr/local/bin/{PROGRAM}")
    command = kubelet_command(machine)
    assert "--rotate-certificates=false" in command
    assert ("--rotate-server-certificates=true" in command) is (serving == "Kubelet")
    by_agent = serving == "Agent" and kind == WORKER
    named = f"={STORE}/kubelet-authenticator-serving.pem"
    for flag in ("--tls-cert-file", "--tls-private-key-file"):
        assert (flag + named in command) is by_agent
    started = [event["unit"] for event in machine.events() if event.get("result") == "started"]
    assert started == ([AGENT, "kubelet.service"] if by_agent else ["kubelet.service", AGENT])


@pytest.mark.parametrize("serving", ["SelfSigned", "Kubelet", "Agent"])
@pytest.mark.parametrize("form", ["cloud-config", "ignition"])
def test_a_machine_of_kubeadm_init_is_left_alone(form: str, serving: str, machine_from_image: NewMachine) -> None:
    machine = machine_from_image()
    spec = of_class(CONTROL_PLANE, {"provider": "keyed-mac", "servingCertificates": serving})
    spec["format"] = form
    if form == "ignition":
        del spec["initConfiguration"]["nodeRegistration"]["name"]
    assert_landed(machine, boot(machine, spec, "init"))
    assert machine.joined(), machine.output()
    user = safe_load(machine.path(KUBECONFIG).read_text(encoding="utf-8"))["users"][0]["user"]
    assert set(user) == {"client-certificate", "client-key"}
    assert not [word for word in kubelet_command(machine) if "rotate" in word or "tls" in word or "bootstrap" in word]
    assert machine.command_lines(AGENT) == []
    assert not machine.path(STORE).exists()
    [configuration] = [event["configuration"] for event in machine.events() if event["program"] == "kubeadm"]
    assert "rotate-certificates" not in json.dumps(configuration)


def test_a_cluster_without_attestation_bootstraps_as_ever(machine_from_image: NewMachine) -> None:
    machine = machine_from_image()
    boot(machine, of_class(WORKER, None))
    assert any(word.startswith("--bootstrap-kubeconfig=") for word in kubelet_command(machine))
    assert [event for event in machine.events() if "prepared" in event] == []


def test_after_a_reboot_the_kubelet_starts_as_before(machine_from_image: NewMachine) -> None:
    """bootstrap-kubelet.conf is gone, kubelet.conf is unchanged, and the agent runs."""
    machine = machine_from_image()
    boot(machine, worker(CLOUD_CONFIG))
    before = machine.path(KUBECONFIG).read_bytes()
    machine.run("systemctl start kubelet\n")
    assert machine.path(KUBECONFIG).read_bytes() == before
    first, second = machine.command_lines("kubelet.service")
    assert first == second
    assert len(machine.command_lines(AGENT)) == 2


def test_before_it_joins_the_kubelet_is_started_in_vain(machine_from_image: NewMachine) -> None:
    """The package enables the kubelet. systemd starts it every 10 seconds until kubeadm writes its configuration."""
    machine = machine_from_image()
    for path, text in image_files().items():
        machine.path(path).write_text(text, encoding="utf-8")
    try:
        machine.run("systemctl start kubelet\n")
    except MissingPart as missing:
        skip_or_fail(missing)
    assert [event["code"] for event in machine.events() if "prepared" in event] == [0], machine.output()
    assert not machine.path(KUBECONFIG).exists()
    assert machine.command_lines(AGENT) == []
    boot(machine, worker(CLOUD_CONFIG))
    assert machine.joined(), machine.output()


def test_an_image_with_a_ready_made_kubeconfig_does_not_join(machine_from_image: NewMachine) -> None:
    machine = machine_from_image()
    machine.path(KUBECONFIG).write_text("{}\n", encoding="utf-8")
    boot(machine, worker(CLOUD_CONFIG))
    assert not machine.joined()
    assert "already exists" in machine.output()


def test_the_kubelet_does_not_wait_for_an_agent_that_is_asking(machine_from_image: NewMachine) -> None:
    """Both start at the same time. On a joining control plane, the agent calls an API server that this kubelet runs."""
    machine = machine_from_image()
    boot(machine, worker(CLOUD_CONFIG))
    bootstrap = safe_load(machine.path(KUBECONFIG).read_text(encoding="utf-8"))
    bootstrap["users"][0]["user"] = {"token": "abcdef.0123456789abcdef"}
    machine.path(BOOTSTRAP).write_text(yaml.safe_dump(bootstrap), encoding="utf-8")
    machine.run(
        "kubelet-authenticator prepare || echo failed\n"  # by the agent
        f"exec 9>{STORE}/kubelet-authenticator-client.lock; flock 9\n"  # held during the agent's request
        "kubelet-authenticator prepare --timeout 1 9>&- || echo waited\n"
    )
    assert "failed" not in machine.output()
    assert "waited" not in machine.output()


def test_a_machine_of_kubeadm_init_needs_no_configuration(machine_from_image: NewMachine) -> None:
    """The kubelet starts on an image with the units, but without a configuration."""
    machine = machine_from_image()
    for path, text in image_files().items():
        if path.endswith((".service", ".conf")):
            machine.path(path).write_text(text, encoding="utf-8")
    boot(machine, of_class(CONTROL_PLANE, None), "init")
    assert machine.command_lines("kubelet.service"), machine.output()


@pytest.mark.parametrize("text", ["{{ ds.meta_data.instance_id }}", "{% if x %}", "{# x #}"])
def test_what_cloud_init_would_render_is_noticed(text: str) -> None:
    with pytest.raises(UnusableUserData):
        render_jinja(text)


def test_jinja_is_refused_for_ignition(machine_from_image: NewMachine) -> None:
    spec = {**worker(CLOUD_CONFIG), "format": "ignition"}
    with pytest.raises(UnusableUserData):
        machine_from_image().boot_with_ignition(container_linux_config(spec, "join"))
