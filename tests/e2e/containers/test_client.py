"""``node-access`` into containers: the real client, kubectl, ssh, scp, gateway, kubelet and API server.

The test writes the status of the grants, with the certificate and the gateway, as the controller does.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.signatures import public_key_of
from signer.kube.resources import ACCESS_GRANTS
from tests.support.access_client import is_running
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.containers.client import NO_HEARTBEAT, Alice, Statuses
from tests.support.containers.cluster import ContainerCluster
from tests.support.containers.images import PAGE, WEB_PORT
from tests.support.containers.node_mode import PORT, NodeMode
from tests.support.containers.pods import Pod, files_container, pod_manifest, shell_container
from tests.support.gateway import GatewayOfTest, running_gateway
from tests.support.gateway_grants import CLUSTER
from tests.support.openssh import find_openssh
from tests.support.processes import free_port, wait_until
from tests.unit.signer.authority.ssh.requests import authority_key

pytestmark = [pytest.mark.real, pytest.mark.slow]
USER: Final = "default_client-0_app"
WHERE: Final = f"{USER}.{CLUSTER.name}"


@pytest.fixture(scope="module")
def gateway(container_cluster: ContainerCluster) -> Iterator[GatewayOfTest]:
    with running_gateway(container_cluster) as found:
        yield found


@pytest.fixture(scope="module")
def pod(container_cluster: ContainerCluster) -> Pod:
    return container_cluster.create(pod_manifest("client-0", [files_container()]))


@pytest.fixture(scope="module")
def without_scp(container_cluster: ContainerCluster) -> Pod:
    return container_cluster.create(pod_manifest("client-1", [shell_container()]))


@pytest.fixture(scope="module")
def node(container_cluster: ContainerCluster) -> NodeMode:
    try:
        return NodeMode(container_cluster, authority=authority_key("ed25519", 300))
    except MissingPart as missing:
        skip_or_fail(missing)


@pytest.fixture
def alice(tmp_path: Path, container_cluster: ContainerCluster) -> Alice:
    return Alice(tmp_path / "home", container_cluster)


def grants(gateway: GatewayOfTest) -> list[str]:
    found = gateway.cluster.administrator.get(ACCESS_GRANTS.collection(CLUSTER.namespace)).expect(200)["items"]
    return [one["metadata"]["name"] for one in found]


def test_a_command_and_its_exit_code(gateway: GatewayOfTest, pod: Pod, alice: Alice) -> None:
    with Statuses(gateway):
        done = alice.run("ssh", WHERE, "--", "id -u; echo fault >&2; exit 3")
    assert (done.returncode, done.stdout) == (3, "1000\n"), done.stderr
    assert f"{USER} through the gateway 127.0.0.1 port {gateway.port}" in done.stderr
    assert "fault" in done.stderr
    assert grants(gateway) == [], "its last session has ended"


def test_files_both_ways(gateway: GatewayOfTest, pod: Pod, alice: Alice) -> None:
    (alice.home / "file").write_bytes(bytes(range(256)) * 1000)
    with Statuses(gateway):
        up = alice.run("scp", "--cluster", CLUSTER.name, "file", f"{USER}:/tmp/there")
        down = alice.run("scp", f"{WHERE}:/tmp/there", "back")
    assert (up.returncode, down.returncode) == (0, 0), up.stderr + down.stderr
    assert (alice.home / "back").read_bytes() == (alice.home / "file").read_bytes()


@pytest.mark.parametrize("via", ["gateway", "node"])
def test_the_legacy_protocol_of_scp_needs_scp_in_the_image(
    gateway: GatewayOfTest, node: NodeMode, pod: Pod, without_scp: Pod, alice: Alice, via: str
) -> None:
    """Also an scp before OpenSSH 8.7 asks for it, which cannot be told."""
    bare = f"default_{without_scp.name}_app"
    for user in (USER, bare):
        node.user(user)
    (alice.home / "file").write_bytes(bytes(range(256)) * 1000)
    with Statuses(gateway, node=node):
        up = alice.run("scp", "-O", "--via", via, "file", f"{WHERE}:/tmp/legacy-{via}")
        down = alice.run("scp", "-O", "--via", via, f"{WHERE}:/tmp/legacy-{via}", "back")
        refused = alice.run("scp", "-O", "--via", via, "file", f"{bare}.{CLUSTER.name}:/tmp/legacy")
    assert (up.returncode, down.returncode) == (0, 0), up.stderr + down.stderr
    assert (alice.home / "back").read_bytes() == (alice.home / "file").read_bytes()
    assert refused.returncode != 0
    assert "the image has no scp; use sftp" in refused.stderr


def test_a_port(gateway: GatewayOfTest, pod: Pod, alice: Alice) -> None:
    port = free_port()
    words = alice.command("forward", WHERE, f"{port}:localhost:{WEB_PORT}")
    with (
        Statuses(gateway),
        subprocess.Popen(words, env=alice.environment, cwd=alice.home, stderr=subprocess.PIPE) as process,
    ):
        try:
            wait_until(lambda: page(port) == PAGE, "the page", 60)
        finally:
            process.terminate()


def page(port: int) -> bytes:
    """What the web server of the pod shows; empty if it is not reached."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 10) as there:
        there.sendall(b"GET / HTTP/1.0\r\n\r\n")
        content = b""
        while chunk := there.recv(65536):
            content += chunk
        return content.partition(b"\r\n\r\n")[2]
    return b""


def test_a_machine_with_another_host_key_is_not_the_gateway(gateway: GatewayOfTest, pod: Pod, alice: Alice) -> None:
    class Forged(Statuses):
        def _status(self, grant: dict[str, Any]) -> dict[str, Any]:
            status = super()._status(grant)
            status["knownHosts"] = [f"node-access-gateway-{grant['metadata']['uid']} {grant['spec']['sshPublicKey']}"]
            return status

    with Forged(gateway):
        done = alice.run("ssh", WHERE, "--", "echo in")
    assert (done.returncode, done.stdout) == (255, "")
    assert "Host key verification failed" in done.stderr


def test_without_a_gateway_it_says_what_is_missing(gateway: GatewayOfTest, pod: Pod, alice: Alice) -> None:
    with Statuses(gateway, names_gateway=False):
        done = alice.run("ssh", WHERE, "--", "true")
    assert done.returncode == 255
    assert "the controller names no gateway to containers" in done.stderr
    assert grants(gateway) == []


def test_a_grant_is_made_shown_and_used_by_stock_ssh(gateway: GatewayOfTest, pod: Pod, alice: Alice) -> None:
    with Statuses(gateway):
        made = alice.run("grant create", WHERE)
        assert made.returncode == 0, made.stderr
        (name,) = grants(gateway)
        (config,) = alice.home.glob(".ssh/node-access/grants/*/config")
        stock = [str(find_openssh("ssh")), "-n", "-F", str(config), f"{WHERE}.{CLUSTER.namespace}", "hostname"]
        done = subprocess.run(stock, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stdout) == (0, "client-0\n"), done.stderr
        again = alice.run("ssh", USER, "--", "echo again")
        assert (again.returncode, again.stdout) == (0, "again\n"), again.stderr
        assert grants(gateway) == [name], "it is used again, and kept"
        assert f" {USER[:12]}" in alice.run("grant list").stdout
        assert USER in alice.run("grant show", name).stdout
        assert alice.run("known-hosts", name).stdout.startswith("node-access-gateway-")
        assert alice.run("grant revoke", name).returncode == 0
    assert grants(gateway) == []
    assert not config.exists()


# On its node


def test_without_a_gateway_a_command_runs_on_the_node(
    gateway: GatewayOfTest, node: NodeMode, pod: Pod, alice: Alice
) -> None:
    node.user(USER)
    with Statuses(gateway, names_gateway=False, node=node):
        done = alice.run("ssh", WHERE, "--", "id -u; hostname; echo fault >&2; exit 3")
    assert (done.returncode, done.stdout) == (3, "1000\nclient-0\n"), done.stderr
    assert f"{USER} on node {node.node.name}, port {PORT}" in done.stderr
    assert "fault" in done.stderr
    assert grants(gateway) == []


def test_beside_a_gateway_the_person_chooses(gateway: GatewayOfTest, node: NodeMode, pod: Pod, alice: Alice) -> None:
    node.user(USER)
    with Statuses(gateway, node=node):
        default = alice.run("ssh", WHERE, "--", "echo in")
        chosen = alice.run("ssh", "--via", "node", WHERE, "--", "echo in")
        named = alice.run("ssh", "--node", node.node.name, WHERE, "--", "echo in")
    assert [one.stdout for one in (default, chosen, named)] == ["in\n"] * 3, (
        default.stderr + chosen.stderr + named.stderr
    )
    assert "through the gateway" in default.stderr
    assert "on node" in chosen.stderr
    assert "on node" in named.stderr


def test_nodes_have_no_second_way(gateway: GatewayOfTest, alice: Alice) -> None:
    for option in (("--via", "node"), ("--node", "worker-1")):
        done = alice.run("ssh", *option, f"worker-1.{CLUSTER.name}", "--", "true")
        assert done.returncode == 255
        assert "--via and --node are for containers" in done.stderr
    assert grants(gateway) == []


def test_a_node_with_another_name_is_not_the_one(
    gateway: GatewayOfTest, node: NodeMode, pod: Pod, alice: Alice
) -> None:
    """The workload cluster says where the Pod runs. The machine that answers has to have that name."""
    node.user(USER)
    with Statuses(gateway, names_gateway=False, node=node, runs_on="worker-9"):
        done = alice.run("ssh", WHERE, "--", "echo in")
    assert (done.returncode, done.stdout) == (255, "")
    assert "Host key verification failed" in done.stderr


def test_files_both_ways_on_the_node(gateway: GatewayOfTest, node: NodeMode, pod: Pod, alice: Alice) -> None:
    node.user(USER)
    (alice.home / "file").write_bytes(bytes(range(256)) * 1000)
    with Statuses(gateway, node=node):
        up = alice.run("scp", "--via", "node", "file", f"{WHERE}:/tmp/over-the-node")
        down = alice.run("scp", "--via", "node", f"{WHERE}:/tmp/over-the-node", "back")
    assert (up.returncode, down.returncode) == (0, 0), up.stderr + down.stderr
    assert (alice.home / "back").read_bytes() == (alice.home / "file").read_bytes()


def test_a_port_of_the_pod_on_the_node_and_its_end_with_the_grant(
    gateway: GatewayOfTest, node: NodeMode, pod: Pod, alice: Alice
) -> None:
    node.user(USER)
    port = free_port()
    words = alice.command("forward", "--via", "node", "--keep", WHERE, f"{port}:localhost:{WEB_PORT}")
    with (
        Statuses(gateway, node=node),
        subprocess.Popen(words, env=alice.environment, cwd=alice.home, stderr=subprocess.PIPE, text=True) as process,
    ):
        try:
            wait_until(lambda: page(port) == PAGE, "the page", 60)
            assert [page(port) for _ in range(3)] == [PAGE] * 3
            with socket.create_connection(("127.0.0.1", port), 10) as waiting:
                waiting.settimeout(30)
                (name,) = grants(gateway)
                assert alice.run("grant revoke", name).returncode == 0
                assert waiting.recv(1) == b"", "open connections end"
            _, told = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 255
    assert "the grant has ended: it was revoked on this machine" in told
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 10)


def test_on_its_node_forwarding_leads_to_the_pod_alone(
    gateway: GatewayOfTest, node: NodeMode, pod: Pod, alice: Alice
) -> None:
    with Statuses(gateway, node=node):
        done = alice.run("forward", "--via", "node", WHERE, f"{free_port()}:169.254.169.254:80")
    assert done.returncode == 255
    assert "leads to the Pod's localhost alone" in done.stderr
    assert grants(gateway) == []


def test_stock_ssh_reaches_the_container_on_its_node(
    gateway: GatewayOfTest, node: NodeMode, pod: Pod, alice: Alice
) -> None:
    node.user(USER)
    with Statuses(gateway, node=node):
        made = alice.run("grant create", WHERE)
        assert made.returncode == 0, made.stderr
        (name,) = grants(gateway)
        (config,) = alice.home.glob(".ssh/node-access/grants/*/config")
        host = f"{USER}.{node.node.name}.{CLUSTER.name}"
        stock = [str(find_openssh("ssh")), "-n", "-F", str(config), host, "hostname"]
        done = subprocess.run(stock, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stdout) == (0, "client-0\n"), done.stderr
        assert alice.run("grant revoke", name).returncode == 0


# doctor


@contextlib.contextmanager
def granted(gateway: GatewayOfTest, alice: Alice) -> Iterator[Path]:
    """The folder of a grant, which ends with the block."""
    assert alice.run("grant create", WHERE).returncode == 0
    (name,) = grants(gateway)
    try:
        (folder,) = alice.home.glob(".ssh/node-access/grants/*/config")
        yield folder.parent
    finally:
        assert alice.run("grant revoke", name).returncode == 0


def test_doctor_says_whether_gateway_and_node_answer(
    gateway: GatewayOfTest, node: NodeMode, pod: Pod, alice: Alice
) -> None:
    """Only where there is a grant for a container."""

    def told() -> str:
        """Without white space: long lines are broken anywhere."""
        shown = alice.run("doctor").stdout
        return "".join(shown[shown.find("containers") :].split()) if "containers" in shown else ""

    def expect_said(text: str) -> None:
        said = told()
        assert "".join(text.split()) in said, (said, node.log("sshd")[-2000:])

    assert told() == ""
    with Statuses(gateway), granted(gateway, alice) as folder:
        expect_said(f"ok {WHERE}: the gateway 127.0.0.1 port {gateway.port} answers, and its host key is known")
        expect_said("copies files by SFTP")
        known = (folder / "known_hosts").read_text()
        other = key_line(public_key_of(node.key)).split()[1]
        (folder / "known_hosts").write_text(known.replace(known.split()[2], other))
        expect_said(f"FAILED {WHERE}: what answers at 127.0.0.1 port {gateway.port} has a host key that is not")
    with Statuses(gateway, names_gateway=False, node=node), granted(gateway, alice):
        expect_said(f"the node {node.node.network.address} port {PORT} answers, and its host key is known")
    assert told() == ""


# The heartbeat


@contextlib.contextmanager
def kept_alive(alice: Alice, via: str) -> Iterator[subprocess.Popen[str]]:
    """A session with a heartbeat, which echoes what it is given."""
    words = [one for one in alice.command("ssh", "--via", via, WHERE, "--", "echo begun; cat") if one != NO_HEARTBEAT]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, env=alice.environment, cwd=alice.home, text=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            assert process.stdout.readline() == "begun\n", process.communicate()
            yield process
        finally:
            process.kill()


def heartbeat_of(alice: Alice) -> tuple[Path, int]:
    """The folder of the one grant that has a heartbeat, and its process."""
    (folder,) = alice.home.glob(".ssh/node-access/grants/*")
    file = folder / "agent.pid"
    wait_until(lambda: file.exists() and bool(file.read_text()), "the heartbeat")
    return folder, int(file.read_text())


def echoes(process: subprocess.Popen[str], word: str) -> bool:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{word}\n")
    process.stdin.flush()
    return process.stdout.readline() == f"{word}\n"


def test_the_heartbeat_prolongs_a_session_through_the_gateway_and_ends_with_the_grant(
    gateway: GatewayOfTest, pod: Pod, alice: Alice
) -> None:
    """As that of a grant for nodes. The gateway itself ends sessions whose certificate is over."""
    with (
        Statuses(gateway, lifetime=timedelta(seconds=12), time_to_live=timedelta(seconds=8)) as statuses,
        kept_alive(alice, "gateway") as session,
    ):
        folder, heartbeat = heartbeat_of(alice)
        first = statuses.ends[0]
        wait_until(lambda: datetime.now(UTC) > first, "the end of the first certificate", 60)
        assert echoes(session, "still")
        assert len(statuses.ends) > 1
        (name,) = grants(gateway)
        gateway.cluster.administrator.delete(ACCESS_GRANTS.object(name, CLUSTER.namespace)).expect(200)
        _, told = session.communicate(timeout=60)
        assert session.returncode == 255
        assert "node-access-gateway: the access grant has ended" in told
        wait_until(lambda: not is_running(heartbeat), "the end of the heartbeat", 60)
    assert (folder / "ended").read_text() != ""
    assert not (folder / "config").exists()


def test_the_heartbeat_logs_in_on_the_node_of_a_session_and_ends_with_it(
    gateway: GatewayOfTest, node: NodeMode, pod: Pod, alice: Alice
) -> None:
    """With each new certificate: ``node-access-sessions`` prolongs by it. The gateway is there, and is not used."""
    node.user(USER)
    with (
        Statuses(gateway, node=node, time_to_live=timedelta(seconds=8)) as statuses,
        kept_alive(alice, "node") as session,
    ):
        folder, heartbeat = heartbeat_of(alice)

        def has_logged_in(serial: int) -> bool:
            log = node.log("sshd")
            return len(statuses.ends) >= serial and f"(serial {serial})" in log[log.rfind("(serial 1)") :]

        for serial in (1, 2, 3):
            wait_until(lambda serial=serial: has_logged_in(serial), f"a login with certificate {serial}", 60)  # type: ignore[misc]
        assert echoes(session, "still")
        session.communicate(timeout=60)
        assert session.returncode == 0
        wait_until(lambda: not is_running(heartbeat), "the end of the heartbeat", 60)
    assert grants(gateway) == [], "its last session has ended"
    assert (folder / "ended").read_text() != ""
    assert not (folder / "config").exists()
