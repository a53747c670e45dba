"""The provider ``pod``: its contract on an embedded API, and the objects that it makes."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.principals import LoginOnNode
from node_access.bastions.contract import (
    Broken,
    Deadline,
    InvalidSettings,
    ObjectNotFound,
    OutOfTime,
    ProviderUnavailable,
    Scope,
    SettingsDocuments,
    Surroundings,
    Target,
    host_keys,
)
from node_access.bastions.pod.objects import NO_NODE_PORTS
from node_access.bastions.pod.provider import provider
from node_access.bastions.pod.resources import NETWORK_POLICIES, PODS, SECRETS, SERVICES, PodBastions
from node_access.bastions.suite import BastionSuite, FakeCloud, bring_up, make_bastion, network, take_down
from signer.bastions.kubernetes_calls import KubernetesCalls
from signer.testing.api import EmbeddedAPI
from tests.integration.bastions.test_local import PERSON, certified
from tests.support.bastions.kubernetes import kubernetes_calls
from tests.support.bastions.pod_cloud import NAMESPACE, NETWORK_POLICY_DEFINITION, FaultyKubernetes, PodCloud
from tests.support.binaries import MissingPart, build_cache, skip_or_fail
from tests.support.openssh import find_sshd, write_private_key
from tests.support.processes import Programs, free_port
from tests.support.ssh_server import run_ssh

UNPACKED: Final = build_cache().parent / "openssh-server"
SUITE_AUTHORITY: Final = Ed25519PrivateKey.from_private_bytes(b"a" * 32)
UNPRIVILEGED: Final = """\
set -e
mount -t tmpfs tmpfs /etc/ssh
mkdir -p /etc/node-access
mount --bind {files} /etc/node-access
mount --bind {files}/passwd /etc/passwd
[ ! -d {openssh} ] || mount --bind {openssh} /mnt
exec "$@"
"""
WHOLE: Final = os.environ.get("NODE_ATTESTATION_ACCESS") == "1"


@pytest.fixture(scope="module")
def kubernetes() -> Iterator[KubernetesCalls]:
    with EmbeddedAPI() as api:
        api.create(NETWORK_POLICY_DEFINITION)
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        with kubernetes_calls(api.connection()) as calls:
            yield calls


@pytest.fixture
def cloud(kubernetes: KubernetesCalls) -> Iterator[PodCloud]:
    made = PodCloud(kubernetes)
    yield made
    made.clear()


class TestContract(BastionSuite):
    """The contract; with ``make access``, with every fault in every call."""

    stride = 1 if WHOLE else 4

    @pytest.fixture
    def cloud(self, kubernetes: KubernetesCalls) -> Iterator[FakeCloud]:
        made = PodCloud(kubernetes)
        yield made
        made.clear()


def only(cloud: PodCloud, kind: Any) -> dict[str, Any]:
    (found,) = cloud.plain.list(kind.collection(NAMESPACE), "", Deadline.after(60))
    return found


def test_the_pod_has_no_right_that_it_does_not_need(cloud: PodCloud) -> None:
    bring_up(cloud, make_bastion(cloud))
    spec = only(cloud, PODS)["spec"]
    (container,) = spec["containers"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "hostPath" not in str(spec)


def test_egress_is_the_port_of_the_nodes_alone(cloud: PodCloud) -> None:
    targets = (Target((ip_address("10.0.1.5"),), 22), Target((ip_address("10.0.1.6"), ip_address("fd00::6")), 2200))
    bring_up(cloud, replace(make_bastion(cloud), targets=targets))
    assert only(cloud, NETWORK_POLICIES)["spec"]["egress"] == [
        {"to": [{"ipBlock": {"cidr": "10.0.1.5/32"}}], "ports": [{"protocol": "TCP", "port": 22}]},
        {
            "to": [{"ipBlock": {"cidr": "10.0.1.6/32"}}, {"ipBlock": {"cidr": "fd00::6/128"}}],
            "ports": [{"protocol": "TCP", "port": 2200}],
        },
    ]


def test_a_pod_that_ended_is_made_again(cloud: PodCloud) -> None:
    bastion = make_bastion(cloud)
    bring_up(cloud, bastion)
    before = only(cloud, PODS)["metadata"]
    path = f"{PODS.collection(NAMESPACE)}/{before['name']}/status"
    cloud.plain.patch(path, {"status": {"phase": "Failed"}}, Deadline.after(60))
    bring_up(cloud, bastion)
    assert only(cloud, PODS)["metadata"]["uid"] != before["uid"]


def test_a_service_that_selects_other_pods_is_mended(cloud: PodCloud) -> None:
    bastion = make_bastion(cloud)
    bring_up(cloud, bastion)
    service = only(cloud, SERVICES)
    path = f"{SERVICES.collection(NAMESPACE)}/{service['metadata']['name']}"
    cloud.plain.patch(path, {"spec": {"selector": {"app": "of-somebody-else"}}}, Deadline.after(60))
    bring_up(cloud, bastion)
    assert only(cloud, SERVICES)["spec"]["selector"] == service["spec"]["selector"]


class DroppingKubernetes(FaultyKubernetes):
    """An API server that does not know the choice of node ports."""

    def would_create(self, path: str, body: Mapping[str, Any], deadline: Deadline) -> dict[str, Any]:
        answer = super().would_create(path, body, deadline)
        return {**answer, "spec": {key: value for key, value in answer["spec"].items() if key != NO_NODE_PORTS}}


def test_a_port_on_every_node_is_refused_unless_the_operator_allows_it(
    cloud: PodCloud, kubernetes: KubernetesCalls
) -> None:
    """Its source ranges do not cover node ports. kube-apiserver: tests/e2e/test_bastion_pods.py."""
    bastion = make_bastion(cloud)

    def resources(**settings: Any) -> PodBastions:
        parsed = provider.settings(SettingsDocuments({**cloud.settings, **settings}))
        return PodBastions(parsed, Surroundings(Scope("suite"), now=cloud.now), DroppingKubernetes(kubernetes))

    answers = [resources().ensure(bastion, Deadline.after(60)) for _ in range(5)]
    assert isinstance(answers[-1], Broken)
    assert "nodePorts" in answers[-1].reason
    assert cloud.plain.list(SERVICES.collection(NAMESPACE), "", Deadline.after(60)) == ()
    resources(nodePorts=True).ensure(bastion, Deadline.after(60))
    service = only(cloud, SERVICES)
    assert NO_NODE_PORTS not in service["spec"]
    resources().ensure(bastion, Deadline.after(60))  # the operator takes it back: it has node ports, perhaps
    assert cloud.plain.list(SERVICES.collection(NAMESPACE), "", Deadline.after(60)) == ()


def test_an_object_of_that_name_is_left_alone(cloud: PodCloud) -> None:
    bastion = make_bastion(cloud)
    name = f"bastion-{bastion.reference.uid}"
    foreign = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}
    cloud.plain.create(SECRETS.collection(NAMESPACE), foreign, Deadline.after(60))
    answers = [cloud.open().ensure(bastion, Deadline.after(60)) for _ in range(3)]
    assert isinstance(answers[-1], Broken)
    assert "somebody else" in answers[-1].reason
    take_down(cloud, bastion)
    assert "data" not in only(cloud, SECRETS)


def test_a_host_name_of_the_load_balancer(cloud: PodCloud) -> None:
    bastion = make_bastion(cloud)
    for _ in range(5):
        cloud.open().ensure(bastion, Deadline.after(60))
    path = f"{SERVICES.collection(NAMESPACE)}/{only(cloud, SERVICES)['metadata']['name']}/status"
    status = {"status": {"loadBalancer": {"ingress": [{"hostname": "a1b2.elb.example.com"}]}}}
    cloud.plain.patch(path, status, Deadline.after(60))
    assert bring_up(cloud, bastion).endpoint.hostname == "a1b2.elb.example.com"


def test_ipv6_needs_the_operators_word(cloud: PodCloud) -> None:
    cloud.settings = {**cloud.settings, "ipv6": False}
    bastion = replace(make_bastion(cloud), ingress=(network("2001:db8::7/128"),))
    assert isinstance(cloud.open().ensure(bastion, Deadline.after(60)), Broken)


@pytest.mark.parametrize(
    "operator",
    [
        {"namespace": "Team_A"},
        {"image": "registry.example/sshd --privileged"},
        {"serviceAnnotations": {"access.cluster.x-k8s.io/bastion": "team-a/other"}},
        {"serviceAnnotations": {"a": 1}},
        {"sshd": "sshd"},
        {"ipv6": "yes"},
        {"nodePorts": "no"},
        {"egress": ["10.0.0.1/8"]},
    ],
)
def test_settings_are_strict(operator: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings):
        provider.settings(SettingsDocuments({"namespace": "bastions", "image": "sshd", **operator}))


def test_without_an_api_server() -> None:
    settings = provider.settings(SettingsDocuments({"namespace": "bastions", "image": "sshd"}))
    with pytest.raises(ProviderUnavailable):
        provider.open(settings, Surroundings(Scope("suite")))


def in_the_mount(path: Path) -> str:
    """A path that the user can read: OpenSSH may be unpacked in root's home."""
    return f"/mnt/{path.relative_to(UNPACKED)}" if path.is_relative_to(UNPACKED) else str(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="changes its user")
def test_an_unprivileged_sshd_takes_the_files_of_the_secret(cloud: PodCloud) -> None:
    """As the container does: user 65532, without capabilities, with these files and no other."""
    try:
        sshd = find_sshd()
    except MissingPart as missing:
        skip_or_fail(missing)
    bastion = make_bastion(cloud)
    bring_up(cloud, bastion)
    data = only(cloud, SECRETS)["data"]
    with Programs("node-access-pod-") as programs:
        programs.folder.chmod(0o755)
        files = programs.folder / "files"
        files.mkdir()
        for name, content in data.items():
            (files / name).write_bytes(base64.b64decode(content))
            (files / name).chmod(0o440)
            os.chown(files / name, 0, 65532)  # as fsGroup has it
        start = programs.folder / "start"
        start.write_text(UNPRIVILEGED.format(files=files, openssh=UNPACKED))
        port = free_port()
        libraries = [one for name in ("lib", "usr/lib") for one in (UNPACKED / name).glob("*-linux-gnu*")]
        program = programs.start(
            "sshd",
            [
                *("unshare", "--mount", "sh", start, "setpriv", "--reuid=65532", "--regid=65532", "--clear-groups"),
                *(
                    "--bounding-set=-all",
                    "--no-new-privs",
                    in_the_mount(sshd),
                    "-D",
                    "-e",
                    "-f",
                    "/etc/node-access/sshd_config",
                ),
                *("-o", f"ListenAddress=127.0.0.1:{port}"),
            ],
            {"LD_LIBRARY_PATH": ":".join(map(in_the_mount, libraries))},
        )
        program.wait_ready(lambda: "Server listening" in program.log.read_text(errors="replace"))
        scanned = subprocess.run(
            ["ssh-keyscan", "-p", str(port), "-t", "ed25519", "127.0.0.1"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert key_line(host_keys(bastion)[0]) in scanned.stdout, program.log_tail()
        address, target = next(iter(bastion.destinations))
        certificate, identity = programs.folder / "id-cert.pub", write_private_key(programs.folder / "id", PERSON)
        principal = LoginOnNode("bastion", bastion.principal.partition("@")[2])
        certificate.write_text(certified(principal, authority=SUITE_AUTHORITY))
        options: list[str | Path] = [
            "-F",
            "none",
            "-p",
            str(port),
            "-i",
            identity,
            "-o",
            f"CertificateFile={certificate}",
        ]
        options += ["-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none", "-o", "UserKnownHostsFile=/dev/null"]
        options += ["-o", "StrictHostKeyChecking=no", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20"]
        refused = run_ssh(*options, "-W", f"{address}:{target + 1}", "bastion@127.0.0.1")
        assert "administratively prohibited" in refused.stderr, refused.stderr + program.log_tail()
        assert run_ssh(*options, "bastion@127.0.0.1", "echo ran").stdout == ""
        assert "Accepted publickey" in program.log.read_text()


def test_a_call_past_its_deadline_is_not_made(kubernetes: KubernetesCalls) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "late"}}
    with pytest.raises(OutOfTime):
        kubernetes.create(SECRETS.collection(NAMESPACE), body, Deadline(0.0, lambda: 1.0))
    with pytest.raises(ObjectNotFound):
        kubernetes.get(f"{SECRETS.collection(NAMESPACE)}/late", Deadline.after(60))
