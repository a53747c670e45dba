"""``node-access``: files for a stock ``ssh``, written from a real controller's state, at a real sshd."""

from __future__ import annotations

import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from attestors.wire.node_access import NodeAccessText, find, parse
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.keys import host_key
from attestors.wire.ssh.principals import HostName, LoginOnNode
from attestors.wire.ssh.signatures import public_key_of
from signer.authority.ssh.key_id import KeyID
from signer.authority.ssh.requests import HostCertificateRequest, Nonce, Serial, UserCertificateRequest
from signer.authority.ssh.secret import host_authority_in, user_authority_in
from signer.cli import main
from signer.configuration import SSHPermission
from signer.kube.backoff import Backoff
from signer.kube.resources import (
    ATTESTED_NODES,
    MACHINES_V1BETA2,
    NODE_ATTESTATION_POLICIES,
    SECRETS,
)
from signer.ssh import reconciler
from signer.testing.world import CONTROLLER_NAMESPACE, WorldCluster
from tests.integration.explaining import READ_ONLY
from tests.integration.fixtures import Harness, node_of, provider_id
from tests.integration.host_certificates import claim_of, published, request_with, wait_for_authorities
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.openssh import private_key, write_private_key
from tests.support.processes import wait_until
from tests.support.ssh_server import HOST, NODE, SSHServer, run_ssh

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_waits")]

ALLOWED: Final = SSHPermission(frozenset({"default"}))
OTHER: Final = "worker-2"
"""The node of the second cluster."""
READER: Final = "administrator"
ROLE: Final = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: node-access}
rules:
  - {apiGroups: [cluster.x-k8s.io], resources: [machines], verbs: [list]}
  - {apiGroups: [cluster.x-k8s.io], resources: [clusters], verbs: [get, list]}
  - {apiGroups: [attestation.cluster.x-k8s.io], resources: [nodeattestationpolicies], verbs: [get]}
  - {apiGroups: [attestation.cluster.x-k8s.io], resources: [attestednodes], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: node-access}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: node-access}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: administrator}]
"""
KEY: Final = private_key("ed25519", 72)
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "WAITING", Backoff(base_seconds=0.1, maximum_seconds=0.2, jitter=0.0))


@pytest.fixture
def run(harness: Harness, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """``node-access`` as a user who may read what it needs, and no Secret."""
    harness.api.apply_yaml(ROLE)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(harness.api.kubeconfig("management", READER, ()))

    def node_access(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["node-access", *arguments, "--kubeconfig", str(kubeconfig)])
        written = capsys.readouterr()
        return code, written.out, written.err

    return node_access


def with_ssh(harness: Harness, name: str, node: str, waits: str) -> WorldCluster:
    """A cluster with SSH, a node that has attested, and a Machine whose node has not."""
    cluster = harness.cluster(name, policy={"ssh": {}})
    wait_for_authorities(cluster)
    cluster.add_machine(node, provider_id=provider_id(node))
    asking = node_of(cluster, node)
    host_keys = private_key("ed25519", 70 if node == NODE else 71)
    cluster.submit_with_token(request_with(asking, f"join-{node}", claim_of(asking, host_keys)))
    assert cluster.wait_until_decided(f"join-{node}").reason == "Attested"
    cluster.add_machine(waits, provider_id=provider_id(waits))
    path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    wait_until(lambda: "ssh" in (cluster.management.client.get(path).get("status") or {}), "the policy shows them")
    return cluster


def secret(cluster: WorldCluster, suffix: str) -> dict[str, Any]:
    return dict(cluster.management.client.get(SECRETS.object(f"{cluster.name}-{suffix}", cluster.namespace)))


@pytest.fixture
def clusters(harness: Harness) -> tuple[WorldCluster, WorldCluster]:
    harness.run(ssh=ALLOWED)
    return with_ssh(harness, "production", NODE, "waits"), with_ssh(harness, "staging", OTHER, "waits-too")


@pytest.fixture
def server(clusters: tuple[WorldCluster, WorldCluster], tmp_path: Path) -> Iterator[SSHServer]:
    """sshd of ``worker-1`` of the first cluster, with the host certificate that the controller issued; and a user's
    certificate for it.
    """
    production, _ = clusters
    user = user_authority_in(secret(production, "ssh-user"))
    try:
        started = SSHServer(user_authority=user.public_key)
    except MissingPart as missing:
        skip_or_fail(missing)
    with started:
        now = int(time.time())
        found = find(published(production, f"join-{NODE}"))
        assert isinstance(found, NodeAccessText)
        access = parse(found.content)
        started.host_certificate.write_text(f"{access.host_certificates[0].line}\n")
        started.restart()
        write_private_key(tmp_path / "id", KEY)
        signed = user.sign(
            UserCertificateRequest(
                public_key=public_key_of(KEY),
                key_id=KeyID.of("test"),
                principals=(LoginOnNode("root", NODE),),
                serial=Serial(9),
                nonce=Nonce(bytes(32)),
                now=now,
                lifetime=timedelta(hours=1),
            )
        )
        (tmp_path / "id-cert.pub").write_text(f"{signed.line}\n")
        yield started


def at(cluster: WorldCluster, name: str, address: str) -> None:
    """The Machine has that address alone."""
    machine = cluster.management.client.get(MACHINES_V1BETA2.object(name, cluster.namespace))
    cluster.set_machine_status(machine, {"addresses": [{"type": "InternalIP", "address": address}]})


def log_in(config: str, host: str) -> subprocess.CompletedProcess[str]:
    options = ("-o", "BatchMode=yes", "-o", "IdentityAgent=none", "-o", "ConnectTimeout=20")
    return run_ssh("-F", config, *options, host, "echo", "in")


def test_a_stock_ssh_logs_in_without_a_prompt(
    clusters: tuple[WorldCluster, WorldCluster], server: SSHServer, run: Run, tmp_path: Path
) -> None:
    at(clusters[0], NODE, HOST)
    at(clusters[1], OTHER, HOST)  # stolen, or reused
    choices = ("--folder", str(tmp_path / "na"), "--port", str(server.port), "--identity", str(tmp_path / "id"))
    code, out, err = run("config", "production", *choices)
    assert (code, out) == (0, f"{tmp_path}/na/default.production/config\n"), err
    assert "not in the file: waits: it has not attested" in err
    done = log_in(out.strip(), "worker-1.production")
    assert (done.returncode, done.stdout) == (0, "in\n"), done.stderr + server.log()
    code, out, err = run("config", "default/staging", *choices)
    assert code == 0, err
    done = log_in(out.strip(), "worker-2.staging")
    assert done.returncode == 255
    assert "Host key verification failed" in done.stderr

    # All of them by one Include line, as it is printed.
    include = tmp_path / "ssh_config"
    include.write_text(err.rpartition("~/.ssh/config: ")[2])
    assert log_in(str(include), "worker-1.production").returncode == 0
    assert log_in(str(include), "worker-2.staging").returncode == 255

    folder = tmp_path / "na" / "default.production"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert sorted(one.name for one in folder.iterdir()) == ["config", "known_hosts"]

    # A tenant's Cluster and node may have the same names.
    assert "warning" not in err
    other = tmp_path / "na" / "another.production"
    other.mkdir()
    (other / "config").write_text("\nHost worker-1.production worker-1.production.another\n    Port 22\n")
    code, _, err = run("config", "production", *choices)
    assert f"warning: worker-1.production: also in {other}/config; ssh takes the host of another.production" in err


def test_a_plain_host_key_is_refused(
    clusters: tuple[WorldCluster, WorldCluster], server: SSHServer, run: Run, tmp_path: Path
) -> None:
    """A machine that has the address and no certificate."""
    at(clusters[0], NODE, HOST)
    server.host_certificate.unlink()
    server.restart()
    choices = ("--folder", str(tmp_path / "na"), "--port", str(server.port), "--identity", str(tmp_path / "id"))
    _, out, _ = run("config", "production", *choices)
    done = log_in(out.strip(), "worker-1.production")
    assert done.returncode == 255
    assert "Host key verification failed" in done.stderr


def expired(server: SSHServer, cluster: WorldCluster) -> None:
    """The outage was longer than the host certificate's life."""
    signed = host_authority_in(secret(cluster, "ssh-host")).sign(
        HostCertificateRequest(
            public_key=host_key(public_key_of(server.host_key)),
            key_id=KeyID.of("host", NODE),
            principals=(HostName(f"{NODE}.production.default"),),
            serial=Serial(8),
            nonce=Nonce(bytes(32)),
            now=int(time.time()) - 100_000,
            lifetime=timedelta(hours=1),
        )
    )
    server.host_certificate.write_text(f"{signed.line}\n")
    server.restart()


def test_the_kit_outlives_host_certificates(
    harness: Harness, clusters: tuple[WorldCluster, WorldCluster], server: SSHServer, run: Run, tmp_path: Path
) -> None:
    production, _ = clusters
    at(production, NODE, HOST)
    expired(server, production)
    choices = ("--port", str(server.port), "--identity", str(tmp_path / "id"))
    kit = ("config", "production", *choices, "--folder", str(tmp_path / "kit"), "--plain-keys")
    code, _, err = run(*kit)
    assert code == 1, "who may not read the controller key cannot prove records"
    assert "secrets" in err
    harness.api.apply_yaml(READ_ONLY.replace("reader", READER))
    _, everyday, _ = run("config", "production", *choices, "--folder", str(tmp_path / "everyday"))
    _, in_the_kit, _ = run(*kit)
    for config, code in ((everyday, 255), (in_the_kit, 0)):
        assert log_in(config.strip(), "worker-1.production").returncode == code
    code, out, _ = run("known-hosts", "production", "--plain-keys")
    line = key_line(host_key(public_key_of(server.host_key)))
    assert (code, out.splitlines()[1:]) == (0, [f"{NODE}.production.default {line}"])

    # A record that the controller did not seal.
    [item] = [
        one
        for one in production.management.client.items(ATTESTED_NODES.collection("default"))
        if one["spec"]["nodeName"] == NODE
    ]
    other = host_key(public_key_of(private_key("ed25519", 99)))
    [shown] = item["spec"]["ssh"]["hostKeys"]
    keys_of_another = [{**shown, "publicKey": key_line(other), "fingerprint": other.fingerprint}]
    production.management.client.patch(
        ATTESTED_NODES.object(item["metadata"]["name"], "default"), {"spec": {"ssh": {"hostKeys": keys_of_another}}}
    )
    code, out, err = run("known-hosts", "production", "--plain-keys", "--controller-namespace", CONTROLLER_NAMESPACE)
    assert (code, len(out.splitlines())) == (0, 1)
    assert f"{NODE}: its record does not count" in err


def test_known_hosts_alone(clusters: tuple[WorldCluster, WorldCluster], run: Run) -> None:
    code, out, err = run("known-hosts", "production")
    authority = host_authority_in(secret(clusters[0], "ssh-host")).public_key
    assert (code, out) == (0, f"@cert-authority *.production.default {key_line(authority)}\n")
    assert authority.fingerprint in err


def test_a_cluster_without_ssh(harness: Harness, run: Run, tmp_path: Path) -> None:
    harness.cluster("plain")
    harness.cluster("asks", policy={"ssh": {}})
    harness.run()
    harness.wait_for_condition(harness.cluster("third"), "Ready", "True")
    assert "does not turn SSH on" in run("known-hosts", "plain")[2]
    wait_until(lambda: "NotAllowed" in run("known-hosts", "asks")[2], "the controller has said why")
    code, _, err = run("config", "asks", "--folder", str(tmp_path / "na"))
    assert (code, (tmp_path / "na").exists()) == (1, False)
    assert "this controller runs without --ssh" in err
    assert "Cluster default/production does not exist" in run("config", "production")[2]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--port", "0"),
        ("--login", "a b"),
        ("--jump-host", "a\n    ProxyCommand x"),
        ("--folder", "/tmp/%h"),
        ("--identity", 'a"b'),
    ],
)
def test_wrong_use(run: Run, arguments: tuple[str, str]) -> None:
    assert run("config", "production", *arguments)[0] == 2
