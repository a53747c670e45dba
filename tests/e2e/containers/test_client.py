"""``node-access`` into containers: the real client, kubectl, ssh, scp, gateway, kubelet and API server.

The test writes the status of the grants, with the certificate and the gateway, as the controller does.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from signer.kube.resources import ACCESS_GRANTS
from tests.support.containers.cluster import ContainerCluster
from tests.support.containers.images import PAGE, WEB_PORT
from tests.support.containers.pods import Pod, files_container, pod_manifest
from tests.support.gateway import GatewayOfTest, running_gateway
from tests.support.gateway_grants import CLUSTER, container_grant
from tests.support.kubectl import find_kubectl
from tests.support.openssh import find_openssh
from tests.support.processes import free_port, wait_until
from tests.support.raw_client import RawClient

pytestmark = [pytest.mark.real, pytest.mark.slow]
ROOT: Final = Path(__file__).parents[3]
USER: Final = "default_client-0_app"
WHERE: Final = f"{USER}.{CLUSTER.name}"
CREATOR: Final = "alice"
ASKING: Final = ("ssh", "scp", "forward", "grant create")
ASKED: Final = ("--user", CREATOR, "--no-keepalive")


@pytest.fixture(scope="module")
def gateway(container_cluster: ContainerCluster) -> Iterator[GatewayOfTest]:
    with running_gateway(container_cluster) as found:
        yield found


@pytest.fixture(scope="module")
def pod(container_cluster: ContainerCluster) -> Pod:
    return container_cluster.create(pod_manifest("client-0", [files_container()]))


class Statuses:
    """Writes the status of new grants until the block ends."""

    def __init__(self, gateway: GatewayOfTest, *, names_gateway: bool = True) -> None:
        self._gateway = gateway
        self._names_gateway = names_gateway
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Statuses:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with RawClient(self._gateway.cluster.administrator.connection) as client:  # one thread at a time uses a client
            while not self._stop.wait(0.1):
                for one in client.get(ACCESS_GRANTS.collection(CLUSTER.namespace)).expect(200)["items"]:
                    if not one.get("status"):
                        path = ACCESS_GRANTS.object(one["metadata"]["name"], CLUSTER.namespace)
                        client.patch(f"{path}/status", {"status": self._status(one)})

    def _status(self, grant: dict[str, Any]) -> dict[str, Any]:
        spec, metadata = grant["spec"], grant["metadata"]
        now = datetime.now(UTC).replace(microsecond=0)
        given = {name: spec[name] for name in ("sshPublicKey", "permissions") if name in spec}
        made = container_grant(
            spec["target"]["container"], name=metadata["name"], uid=metadata["uid"], now=now, creator=CREATOR, **given
        )
        status: dict[str, Any] = made["status"]
        ends = (now + timedelta(minutes=30)).strftime("%Y-%m-%dT%H:%M:%SZ")
        status.update(observedGeneration=metadata["generation"], expirationTimestamp=ends)
        if self._names_gateway:
            key = " ".join((self._gateway.folder / "host_key.pub").read_text().split()[:2])
            status["gateway"] = {"host": "127.0.0.1", "port": self._gateway.port}
            status["knownHosts"] = [f"node-access-gateway-{metadata['uid']} {key}"]
        return status


class Alice:
    """A person with a home and a kubeconfig, and without an ssh-agent."""

    def __init__(self, home: Path, cluster: ContainerCluster) -> None:
        programs = home / "programs"
        programs.mkdir(parents=True)
        (programs / "kubectl").symlink_to(find_kubectl())
        (home / "kubeconfig").touch(mode=0o600)
        (home / "kubeconfig").write_text(cluster.plane.kubeconfig(user=CREATOR, groups=("system:masters",)))
        self.home = home
        self.environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(home),
            "KUBECONFIG": str(home / "kubeconfig"),
            "PYTHONPATH": str(ROOT),
        }

    def command(self, name: str, *words: str) -> list[str]:
        """The command line."""
        program = [sys.executable, "-P", "-m", "node_access.client", *name.split()]
        return [*program, "--namespace", CLUSTER.namespace, *(ASKED if name in ASKING else ()), *words]

    def run(self, name: str, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        return subprocess.run(
            self.command(name, *words),
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
            env=self.environment,
            cwd=self.home,
        )


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
