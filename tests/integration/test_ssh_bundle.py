"""The trust bundle end to end: a running controller publishes, the agent's process writes, a real sshd refuses."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from attestors.wire.ssh.certificate import SignedCertificate
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.krl import parse_revocation_list
from attestors.wire.ssh.principals import PlainPrincipal
from attestors.wire.ssh.signatures import public_key_of
from authenticator.flow.sshd_files import REVOKED_KEYS_FILE, USER_AUTHORITIES_FILE
from signer.authority.ssh.authorities import UserAuthority
from signer.authority.ssh.key_id import KeyID
from signer.authority.ssh.requests import Nonce, Serial, UserCertificateRequest
from signer.authority.ssh.secret import user_authority_in
from signer.configuration import SSHPermission
from signer.kube.errors import Forbidden
from signer.kube.resources import CONFIG_MAPS, NODE_ATTESTATION_POLICIES, SECRETS
from signer.testing.api.kubeconfig import kubeconfig_of
from signer.testing.fixtures import embedded_api
from signer.testing.world import WorldCluster
from tests.integration.fixtures import Harness, node_of, provider_id
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.node_program import NodeProgram
from tests.support.openssh import private_key, public_keys, write_private_key
from tests.support.processes import wait_until
from tests.support.ssh_server import NODE, SSHServer, run_ssh

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_waits")]

ALLOWED: Final = SSHPermission(frozenset({"default"}))
KEY: Final = private_key("ed25519", 72)
ROOT: Final = Path(__file__).parents[2]
CONTROLLER: Final = "node-attestation-controller"
CONFIG_MAP: Final = CONFIG_MAPS.object("node-access-trust", "kube-system")


def ssh_status(cluster: WorldCluster) -> dict[str, Any]:
    path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    status: dict[str, Any] = cluster.management.client.get(path).get("status") or {}
    found: dict[str, Any] = status.get("ssh") or {}
    return found


def condition(cluster: WorldCluster) -> dict[str, Any]:
    """Condition ``SSHTrustPublished``; empty without it."""
    path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    status: dict[str, Any] = cluster.management.client.get(path).get("status") or {}
    return next((one for one in status.get("conditions") or () if one["type"] == "SSHTrustPublished"), {})


def choose(cluster: WorldCluster, ssh: dict[str, Any]) -> int:
    """Change the policy; returns the version of the bundle that is published after that."""
    before = ssh_status(cluster).get("bundleVersion", 0)
    path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    cluster.management.client.patch(path, {"spec": {"ssh": ssh}})
    wait_until(lambda: ssh_status(cluster).get("bundleVersion", 0) > before, "a new bundle is published")
    return int(ssh_status(cluster)["bundleVersion"])


def user_authority(cluster: WorldCluster) -> UserAuthority:
    path = SECRETS.object(f"{cluster.name}-ssh-user", cluster.namespace)
    return user_authority_in(cluster.management.client.get(path))


def certificate(authority: UserAuthority, name: str, serial: int) -> SignedCertificate:
    return authority.sign(
        UserCertificateRequest(
            public_key=public_key_of(KEY),
            key_id=KeyID.of("grant", name),
            principals=(PlainPrincipal("root"),),
            serial=Serial(serial),
            nonce=Nonce(bytes(32)),
            now=int(time.time()),
            lifetime=timedelta(minutes=5),
        )
    )


class AgentOnNode:
    """A node whose agent runs when the test says so: it looks at the bundle when it starts."""

    def __init__(self, folder: Path, cluster: WorldCluster) -> None:
        cluster.add_machine("worker-1", provider_id=provider_id("worker-1"))
        self.program = NodeProgram(folder / "node", node_of(cluster, "worker-1"))
        self.files = folder / "node-access"
        host_key = write_private_key(folder / "ssh_host_ed25519_key", private_key("ed25519", 70))
        self.program.configure(ssh={"hostKeys": [str(host_key)], "folder": str(self.files)})
        self.program.supply_bootstrap(cluster)

    def version(self) -> int:
        """Of the revocation list that sshd reads."""
        try:
            return parse_revocation_list((self.files / REVOKED_KEYS_FILE).read_bytes()).version
        except FileNotFoundError:
            return 0

    def run_until(self, version: int) -> str:
        """Run the agent until sshd's list has that version; returns what it said."""
        process = self.program.start("agent")
        try:
            wait_until(lambda: self.version() == version, f"the list has version {version}")
            wait_until(lambda: f"trust bundle {version}" in self.program.run("status").output, "status says so")
        finally:
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=60)
        return said


@pytest.fixture
def server() -> Iterator[SSHServer]:
    try:
        started = SSHServer(user_authority=public_keys()["nistp256"])
    except MissingPart as missing:
        skip_or_fail(missing)
    with started:
        yield started


def log_in(server: SSHServer, folder: Path, signed: SignedCertificate) -> str:
    """What the command printed; else why ssh or sshd refused."""
    key, offered = folder / "id", folder / "id-cert.pub"
    if not key.exists():
        write_private_key(key, KEY)
    offered.write_text(f"{signed.line}\n")
    server.forget_log()
    offer = ("-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none", "-i", key, "-o", f"CertificateFile={offered}")
    done = run_ssh(*server.options(), *offer, "-l", "root", NODE, "echo", "in")
    return done.stdout or server.log()


def test_a_revoked_certificate_is_refused_at_the_next_login(
    harness: Harness, server: SSHServer, tmp_path: Path
) -> None:
    cluster = harness.cluster(policy={"ssh": {}})
    controller = harness.run(ssh=ALLOWED)
    wait_until(lambda: "bundleVersion" in ssh_status(cluster), "the first bundle is published")
    node = AgentOnNode(tmp_path, cluster)
    said = node.run_until(ssh_status(cluster)["bundleVersion"])
    assert "0 revocations" in said
    users = server.folder / "user-authorities"
    for name, theirs in ((REVOKED_KEYS_FILE, server.revoked), (USER_AUTHORITIES_FILE, users)):
        theirs.unlink()
        theirs.symlink_to(node.files / name)

    authority = user_authority(cluster)
    alice, bob, carol = (certificate(authority, name, serial) for serial, name in enumerate(("a", "b", "c"), 101))
    for one in (alice, bob, carol):
        assert log_in(server, tmp_path, one) == "in\n"

    version = choose(cluster, {"revoked": {"keyIDs": [alice.certificate.key_id], "serials": ["102"]}})
    assert log_in(server, tmp_path, alice) == "in\n", "the node does not know yet"
    node.run_until(version)
    for one in (alice, bob):
        assert "revoked" in log_in(server, tmp_path, one)
    assert log_in(server, tmp_path, carol) == "in\n"
    trust_version = ssh_status(cluster)["trustVersion"]

    # Somebody removes the list: sshd lets nobody in, and the agent restores it.
    (node.files / REVOKED_KEYS_FILE).unlink()
    assert log_in(server, tmp_path, carol) != "in\n"
    said = node.run_until(version)
    assert f"{REVOKED_KEYS_FILE} in {node.files} was missing or changed" in said
    assert log_in(server, tmp_path, carol) == "in\n"
    assert "revoked" in log_in(server, tmp_path, alice)
    shown = node.program.run("status")
    assert f"trust bundle {version} is in force, with 2 revocations" in shown.output
    assert "was restored at" in shown.output

    # A break-glass key comes, and the user's public key is revoked.
    emergency = key_line(public_keys()["nistp384"])
    version = choose(
        cluster,
        {"breakGlass": {"publicKeys": [{"key": emergency}]}, "revoked": {"publicKeys": [key_line(public_key_of(KEY))]}},
    )
    assert ssh_status(cluster)["trustVersion"] > trust_version
    node.run_until(version)
    assert emergency in (node.files / USER_AUTHORITIES_FILE).read_text().splitlines()
    assert "revoked" in log_in(server, tmp_path, carol)
    metric, labels = "node_attestation_ssh_trust_published", {"cluster": f"default/{cluster.name}"}
    assert controller.options.metrics.registry.get_sample_value(metric, labels) == 1


def test_an_earlier_bundle_that_the_owner_puts_back(harness: Harness, tmp_path: Path) -> None:
    """The node keeps what it has, and says so."""
    cluster = harness.cluster(policy={"ssh": {}})
    controller = harness.run(ssh=ALLOWED)
    wait_until(lambda: "bundleVersion" in ssh_status(cluster), "the first bundle is published")
    earlier = cluster.client().get(CONFIG_MAP)["data"]
    version = choose(cluster, {"revoked": {"serials": ["7"]}})
    node = AgentOnNode(tmp_path, cluster)
    node.run_until(version)
    controller.stop()
    cluster.client().patch(CONFIG_MAP, {"data": earlier})
    process = node.program.start("agent")
    try:
        wait_until(lambda: "Replayed" in node.program.run("status").output, "it is refused")
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert node.version() == version


def test_turned_off_the_bundle_stays(harness: Harness) -> None:
    cluster = harness.cluster(policy={"ssh": {}})
    harness.run(ssh=ALLOWED)
    wait_until(lambda: "bundleVersion" in ssh_status(cluster), "the first bundle is published")
    before = cluster.client().get(CONFIG_MAP)
    path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    cluster.management.client.patch(path, {"spec": {"ssh": None}})
    wait_until(lambda: ssh_status(cluster) == {}, "SSH is off")
    assert cluster.client().get(CONFIG_MAP) == before


def test_a_cluster_without_ssh_has_no_bundle(harness: Harness) -> None:
    cluster = harness.cluster()
    harness.run(ssh=ALLOWED)
    harness.wait_for_condition(cluster, "Ready", "True")
    assert not [one for one in embedded_api(cluster).objects("configmaps") if "node-access" in one["metadata"]["name"]]


@pytest.mark.parametrize("granted", [True, False], ids=["with the grants", "without them"])
def test_it_needs_exactly_the_grants(harness: Harness, granted: bool) -> None:
    """A kubeconfig that is no administrator's, with the files of ``deploy/rbac`` alone."""
    cluster = harness.cluster(policy={"ssh": {}})
    api = embedded_api(cluster)
    for file in ("workload.yaml", *(("workload-ssh.yaml",) if granted else ())):
        api.apply_yaml((ROOT / "deploy/rbac" / file).read_text(encoding="utf-8"))
    cluster.put_secret("kubeconfig", {"value": kubeconfig_of(api.connection(CONTROLLER, ()), cluster.name).encode()})
    harness.run(ssh=ALLOWED)
    wait_until(lambda: "trustVersion" in ssh_status(cluster), "the authorities are there")
    if not granted:
        wait_until(lambda: condition(cluster).get("reason") == "Forbidden", "the condition says so")
        assert "deploy/rbac/workload-ssh.yaml" in condition(cluster)["message"]
        return
    wait_until(lambda: condition(cluster).get("reason") == "Published", "it is published")
    node = cluster.client(api.connection("system:node:worker-1", ("system:nodes",)))
    with node:
        assert node.get(CONFIG_MAP)["data"]
        for path in (CONFIG_MAPS.object("kube-proxy", "kube-system"), CONFIG_MAPS.collection("kube-system")):
            with pytest.raises(Forbidden):
                node.get(path)
        with pytest.raises(Forbidden):
            node.patch(CONFIG_MAP, {"data": {"statement": ""}})
