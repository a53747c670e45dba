"""Stock ssh into containers through the gateway: real kubelet, containerd and API server (65 to 82 of the brief)."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pty
import secrets
import select
import socket
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from signer.kube.resources import CLUSTER_ROLE_BINDINGS
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.containers.cluster import ContainerCluster
from tests.support.containers.images import PAGE, WEB_PORT
from tests.support.containers.pods import Pod, distroless_container, files_container, pod_manifest, shell_container
from tests.support.gateway import GatewayOfTest, GrantOfTest, running_gateway
from tests.support.openssh import find_openssh, ssh_keygen
from tests.support.processes import free_port, wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]
MEBIBYTE: Final = 1024 * 1024
USER: Final = "default_web-0_app"
TARGET: Final = {"namespace": "default", "pod": "web-0", "container": "app"}


@pytest.fixture(scope="module")
def gateway(container_cluster: ContainerCluster) -> Iterator[GatewayOfTest]:
    with running_gateway(container_cluster) as found:
        yield found


@pytest.fixture(scope="module")
def web(container_cluster: ContainerCluster) -> Pod:
    return container_cluster.create(pod_manifest("web-0", [shell_container()]))


@pytest.fixture(scope="module")
def grant(gateway: GatewayOfTest, web: Pod) -> GrantOfTest:
    """To the container, with everything."""
    return gateway.grant(TARGET, permissions={"portForwarding": True})


def test_a_command_and_its_exit_code(grant: GrantOfTest) -> None:
    """65."""
    done = grant.ssh(USER, "id -u; echo fault >&2; exit 3")
    assert (done.returncode, done.stdout) == (3, b"1000\n"), done.stderr
    assert done.stderr == b"fault\n"
    assert grant.ssh("default_web-0", "true").returncode == 0


def test_a_killed_command_says_so(grant: GrantOfTest) -> None:
    """65: as a shell shows a signal."""
    assert grant.ssh(USER, "kill -9 $$").returncode == 137


class Terminal:
    """Stock ssh on a terminal of its own."""

    def __init__(self, grant: GrantOfTest, user: str, *command: str) -> None:
        self._process_id, self._master = pty.fork()
        if self._process_id == 0:
            words = grant.command(user, *command, options=["-tt"])
            os.execve(words[0], words, {**os.environ, "TERM": "xterm-256color"})  # noqa: S606
        self.seen = b""

    def size(self, rows: int, columns: int) -> None:
        """As a window that is resized."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def write(self, text: bytes) -> None:
        """What a person types."""
        os.write(self._master, text)

    def wait_for(self, expected: bytes) -> bytes:
        """Everything up to ``expected``, which is taken off."""
        deadline = time.monotonic() + 30
        while expected not in self.seen:
            ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{expected!r} did not come: {self.seen!r}"
            try:
                self.seen += os.read(self._master, 65536)
            except OSError:
                raise AssertionError(f"ended before {expected!r}: {self.seen!r}") from None
        before, _, self.seen = self.seen.partition(expected)
        return before

    def exit_code(self) -> int:
        """Of ssh, once it has ended."""
        with contextlib.suppress(OSError):
            while chunk := os.read(self._master, 65536):
                self.seen += chunk
        os.close(self._master)
        return os.waitstatus_to_exitcode(os.waitpid(self._process_id, 0)[1])


def test_a_terminal_its_size_and_control_characters(grant: GrantOfTest) -> None:
    """66: job control, a resize, Ctrl-C, and the exit code."""
    terminal = Terminal(grant, USER)
    terminal.size(30, 100)
    terminal.write(b"stty size; tty; echo T=$TERM\n")
    assert b"/dev/pts/0" in terminal.wait_for(b"T=xterm-256color")
    terminal.size(44, 111)
    terminal.write(b"while ! stty size | grep 44.111; do sleep 0.1; done; echo si''zed\n")
    terminal.wait_for(b"sized")
    # This process has the terminal before it writes. Ctrl-C cannot meet the shell between two commands.
    terminal.write(b"sh -c \"echo be''gun; exec sleep 300\"\n")
    terminal.wait_for(b"begun")
    terminal.write(b"\x03")
    terminal.write(b"echo af''ter $?\n")
    assert b"130" in terminal.wait_for(b"after") + terminal.wait_for(b"\n")
    terminal.write(b"exit 6\n")
    assert terminal.exit_code() == 6


def test_without_a_terminal_in_the_grant_there_is_none(gateway: GatewayOfTest, web: Pod) -> None:
    without = gateway.grant(TARGET, permissions={"pty": False})
    done = without.ssh(USER, "true", options=["-tt"])
    assert b"PTY allocation request failed" in done.stderr


def test_a_forced_command_runs_instead(gateway: GatewayOfTest, web: Pod) -> None:
    forced = gateway.grant(TARGET, permissions={"command": "echo forced; echo $SSH_ORIGINAL_COMMAND"})
    assert forced.ssh(USER, "cat /etc/passwd").stdout == b"forced\ncat /etc/passwd\n"
    assert forced.ssh(USER, "sftp", options=["-s"]).stdout.startswith(b"forced\n")


def test_twenty_megabytes_both_ways(grant: GrantOfTest) -> None:
    """68. API servers may speak version 4, so the command counts bytes instead of waiting for the end."""
    data = secrets.token_bytes(20 * MEBIBYTE)
    digest = hashlib.sha256(data).hexdigest()
    up = grant.ssh(USER, f"head -c {len(data)} | sha256sum", data=data)
    assert up.stdout.split()[0].decode() == digest, up.stderr
    stored = grant.ssh(USER, f"head -c {len(data)} > /tmp/data", data=data)
    assert stored.returncode == 0, stored.stderr
    down = grant.ssh(USER, "cat /tmp/data; rm /tmp/data")
    assert hashlib.sha256(down.stdout).hexdigest() == digest, down.stderr


def test_the_end_of_input_reaches_the_command(grant: GrantOfTest) -> None:
    """67, version 5: commands that read to the end, and files of any size."""
    require(grant, ends_input=True)
    assert grant.ssh(USER, "cat", data=b"hello").stdout == b"hello"
    data = secrets.token_bytes(20 * MEBIBYTE)
    stored = grant.ssh(USER, "cat > /tmp/data", data=data)
    assert (stored.returncode, stored.stderr) == (0, b"")
    down = grant.ssh(USER, "cat /tmp/data; rm /tmp/data")
    assert hashlib.sha256(down.stdout).hexdigest() == hashlib.sha256(data).hexdigest(), down.stderr
    ended = grant.ssh(USER, "sh -s", data=b"echo from input; exit 5")
    assert (ended.returncode, ended.stdout, ended.stderr) == (5, b"from input\n", b"")


def test_an_empty_input_ends_at_once(grant: GrantOfTest) -> None:
    """67, version 5: ssh -n, whose input has ended before the command starts."""
    require(grant, ends_input=True)
    done = grant.ssh(USER, "cat; echo $?")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"0\n", b"")


def require(grant: GrantOfTest, *, ends_input: bool) -> None:
    """Skip the test for the other versions of the API server."""
    if grant.gateway.cluster.can_end_input is not ends_input:
        pytest.skip(f"for kube-apiserver {'1.30 or newer' if ends_input else 'before 1.30'}")


def test_the_end_of_input_that_cannot_be_passed_on_is_said(grant: GrantOfTest) -> None:
    """67, version 4."""
    require(grant, ends_input=False)
    with grant.start(USER, "cat") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"hello")
        process.stdin.close()
        assert process.stderr.readline().startswith(b"node-access-gateway: the end of input cannot be passed on")
        assert os.read(process.stdout.fileno(), 16) == b"hello"
        process.terminate()


@pytest.fixture(scope="module")
def files(gateway: GatewayOfTest, container_cluster: ContainerCluster) -> GrantOfTest:
    """To a container whose image has servers for files."""
    container_cluster.create(pod_manifest("files", [files_container()]))
    return gateway.grant({"namespace": "default", "pod": "files", "container": "app"})


FILES: Final = "default_files_app@127.0.0.1"


def tool(grant: GrantOfTest, name: str, *words: str, port: str = "-P") -> subprocess.CompletedProcess[bytes]:
    """sftp or scp."""
    command = [str(find_openssh(name)), *grant.options(), f"{port}{grant.gateway.port}", *words]
    return subprocess.run(command, capture_output=True, timeout=60, check=False)


def test_sftp_scp_and_rsync(files: GrantOfTest, tmp_path: Path) -> None:
    """69, with stock clients."""
    data = secrets.token_bytes(2 * MEBIBYTE)
    (tmp_path / "data").write_bytes(data)
    (tmp_path / "batch").write_text(f"put {tmp_path}/data /tmp/by-sftp\nget /tmp/by-sftp {tmp_path}/by-sftp\nls /tmp\n")
    done = tool(files, "sftp", "-b", str(tmp_path / "batch"), FILES)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "by-sftp").read_bytes() == data
    up = tool(files, "scp", str(tmp_path / "data"), f"{FILES}:/tmp/by-scp")
    assert up.returncode == 0, up.stderr
    assert tool(files, "scp", f"{FILES}:/tmp/by-scp", str(tmp_path / "by-scp")).returncode == 0
    assert (tmp_path / "by-scp").read_bytes() == data
    shell = " ".join([str(find_openssh("ssh")), *files.options(), f"-p{files.gateway.port}"])
    rsync = ["rsync", "-e", shell, str(tmp_path / "data"), f"{FILES}:/tmp/by-rsync"]
    assert subprocess.run(rsync, capture_output=True, timeout=60, check=False).returncode == 0
    sums = files.ssh("default_files", "sha256sum /tmp/by-*").stdout.decode().split()
    assert set(sums[::2]) == {hashlib.sha256(data).hexdigest()}
    assert len(sums) == 6


def test_a_file_system_over_sftp(files: GrantOfTest, tmp_path: Path) -> None:
    """69: sshfs, which keeps many requests in flight."""
    if not Path("/dev/fuse").exists():
        skip_or_fail(MissingPart("/dev/fuse: this machine mounts no file systems of programs"))
    data, mounted = secrets.token_bytes(MEBIBYTE), tmp_path / "mounted"
    mounted.mkdir()
    ssh = " ".join([str(find_openssh("ssh")), *files.options()])
    where = [f"{FILES}:/tmp", str(mounted), "-o", f"ssh_command={ssh}", "-p", str(files.gateway.port)]
    subprocess.run(["sshfs", *where], check=True, timeout=60)
    try:
        (mounted / "by-sshfs").write_bytes(data)
        assert (mounted / "by-sshfs").read_bytes() == data
    finally:
        subprocess.run(["fusermount", "-u", str(mounted)], check=True, timeout=60)
    assert files.ssh("default_files", "sha256sum < /tmp/by-sshfs; rm /tmp/by-sshfs").stdout.split()[0].decode() == (
        hashlib.sha256(data).hexdigest()
    )


def test_an_image_without_a_server_of_sftp_says_so(grant: GrantOfTest) -> None:
    done = tool(grant, "sftp", f"{USER}@127.0.0.1")
    assert done.returncode == 255
    assert b"the image has no SFTP server" in done.stderr


def test_an_image_without_a_shell_says_so(gateway: GatewayOfTest, container_cluster: ContainerCluster) -> None:
    container_cluster.create(pod_manifest("bare", [distroless_container()]))
    bare = gateway.grant({"namespace": "default", "pod": "bare", "container": "server"})
    for command in ((), ("uname",)):
        done = bare.ssh("default_bare", *command)
        assert done.returncode == 255
        assert b"the image has no shell" in done.stderr


# Who comes in, and as whom


def test_the_workload_cluster_sees_the_person(gateway: GatewayOfTest, web: Pod) -> None:
    """Its own rights count: without the role of the group, the person gets nothing."""
    cluster = gateway.cluster.administrator
    binding = CLUSTER_ROLE_BINDINGS.object("node-access-containers")
    former = cluster.get(binding).expect(200)
    cluster.delete(binding).expect(200)
    refused = gateway.grant(TARGET, creator="oidc:bob@example.com")
    try:
        wait_until(lambda: refused.ssh(USER, "true").returncode == 255, "the right is gone")
        done = refused.ssh(USER, "true")
    finally:
        cluster.post(CLUSTER_ROLE_BINDINGS.collection(), {**former, "metadata": {"name": "node-access-containers"}})
    assert b"you may not see pod default/web-0" in done.stderr
    assert b"node-access:oidc:bob@example.com" in done.stderr
    wait_until(lambda: refused.ssh(USER, "true").returncode == 0, "the right is back")


def test_other_containers_stay_shut(gateway: GatewayOfTest, grant: GrantOfTest) -> None:
    """74: the message comes after the login, so to the key's holder alone."""
    for user in (
        "kube-system_web-0_app",
        "default_web-1_app",
        "default_deploy.web",
        "root",
        "default_web-0_" + "x" * 300,
    ):
        done = grant.ssh(user, "true")
        assert done.returncode == 255
        assert b"Received disconnect" in done.stderr, done.stderr


def test_an_unknown_key_learns_nothing(gateway: GatewayOfTest, grant: GrantOfTest, web: Pod) -> None:
    other = gateway.grant(TARGET)
    other.delete()
    wait_until(lambda: b"Permission denied" in other.ssh(USER, "true").stderr, "the grant is gone")
    assert b"Received disconnect" not in other.ssh(USER, "true").stderr


def test_certificates_are_no_way_in(gateway: GatewayOfTest, grant: GrantOfTest, tmp_path: Path) -> None:
    """81: without principals it would count for any user at a careless server."""
    ssh_keygen("-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "ca").check_returncode()
    ssh_keygen("-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key").check_returncode()
    ssh_keygen("-q", "-s", tmp_path / "ca", "-I", "x", tmp_path / "key.pub").check_returncode()
    stranger = replace(grant, key=tmp_path / "key")
    done = stranger.ssh(USER, "true", options=["-o", f"CertificateFile={tmp_path}/key-cert.pub"])
    assert done.returncode == 255
    assert b"Permission denied (publickey)" in done.stderr


def test_a_login_from_elsewhere_is_refused(gateway: GatewayOfTest, web: Pod) -> None:
    elsewhere = gateway.grant(TARGET, ingress=[{"ipBlock": {"cidr": "198.51.100.0/24"}}])
    assert b"spec.ingress of access grant" in elsewhere.ssh(USER, "true").stderr


def test_escapes_in_names_reach_no_terminal(grant: GrantOfTest) -> None:
    """79."""
    done = grant.ssh("default_web\x1b[31m_app", "true")
    assert b"\x1b" not in done.stderr
    assert b"\x1b" not in grant.gateway.log().encode()


# The end


def test_a_deleted_grant_ends_a_transfer(gateway: GatewayOfTest, web: Pod) -> None:
    """80: with a message that stock ssh prints; and its processes in the container end."""
    ended = gateway.grant(TARGET)
    with ended.start(USER, "setsid sleep 4711 >/dev/null 2>&1 & cat /dev/zero") as process:
        assert process.stdout is not None
        wait_until(lambda: " sleep 4711\n" in processes(gateway), "it has left its session")
        assert len(process.stdout.read(MEBIBYTE)) == MEBIBYTE
        ended.delete()
        while process.stdout.read(MEBIBYTE):
            pass
        assert_ended(process, b"the access grant has ended")
    wait_until(lambda: "sleep 4711" not in processes(gateway), "nothing goes on in the container")


def assert_ended(process: subprocess.Popen[bytes], message: bytes) -> None:
    """By the gateway, which said why."""
    assert process.stderr is not None
    assert process.wait(timeout=60) == 255
    assert message in process.stderr.read()


def processes(gateway: GatewayOfTest) -> str:
    return gateway.cluster.kubectl("exec", "web-0", "--", "ps").stdout


def test_an_expired_certificate_ends_a_session_and_a_renewed_one_does_not(gateway: GatewayOfTest, web: Pod) -> None:
    grant = gateway.grant(TARGET, lifetime=timedelta(seconds=8))
    with grant.start(USER, "echo begun; sleep 300") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        begun = time.monotonic()
        grant.certify(timedelta(seconds=14))
        assert_ended(process, b"the access grant has expired")
    assert time.monotonic() - begun > 8, "the first certificate had ended"


def test_a_client_that_goes_away_leaves_nothing(gateway: GatewayOfTest, grant: GrantOfTest) -> None:
    with grant.start(USER, "echo begun; sleep 4712") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.kill()
    wait_until(lambda: "sleep 4712" not in processes(gateway), "nothing goes on in the container")


def test_a_replaced_pod_has_the_same_address(gateway: GatewayOfTest, container_cluster: ContainerCluster) -> None:
    """76."""
    manifest = pod_manifest("again", [shell_container()])
    first = container_cluster.create(manifest)
    grant = gateway.grant({"namespace": "default", "pod": "again", "container": "app"})
    process = grant.start("default_again", "echo begun; sleep 300")
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    container_cluster.delete(first)
    assert process.wait(timeout=30) in (137, 255)
    process.communicate()
    second = container_cluster.create(manifest)
    assert second.uid != first.uid
    assert grant.ssh("default_again", "echo here").stdout == b"here\n"


# Ports


@contextlib.contextmanager
def forwarded(grant: GrantOfTest, destination: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    port = free_port()
    options = ["-N", "-o", "ExitOnForwardFailure=yes", "-L", f"127.0.0.1:{port}:{destination}"]
    process = grant.start(USER, options=options)
    try:
        wait_until(lambda: process.poll() is not None or accepts(port), "ssh listens")
        yield process, port
    finally:
        process.terminate()
        process.communicate(timeout=10)


def accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def fetch(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
        return answer


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_port_of_the_pod(grant: GrantOfTest, host: str) -> None:
    with forwarded(grant, f"{host}:{WEB_PORT}") as (_, port):
        for _ in range(2):
            assert fetch(port).endswith(PAGE)


@pytest.mark.parametrize(
    "destination", ["169.254.169.254:80", "10.0.0.1:443", "kubernetes.default:443", "[fe80::1]:80"]
)
def test_no_other_host(grant: GrantOfTest, destination: str) -> None:
    """75: neither the metadata service, nor another pod, nor the node."""
    done = grant.ssh(USER, options=["-W", destination])
    assert done.returncode == 255
    assert b"the gateway forwards to the pod itself alone" in done.stderr


def test_a_closed_port_and_a_grant_without_forwarding(gateway: GatewayOfTest, grant: GrantOfTest, web: Pod) -> None:
    with forwarded(grant, "localhost:1") as (_, port):
        assert fetch_nothing(port)
    without = gateway.grant(TARGET)
    done = without.ssh(USER, options=["-W", f"localhost:{WEB_PORT}"])
    assert b"does not permit port forwarding" in done.stderr


def fetch_nothing(port: int) -> bool:
    try:
        return fetch(port) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("options", [["-R", "0:localhost:1"], ["-w", "0:0"]])
def test_remote_forwards_and_tunnels_are_refused(grant: GrantOfTest, options: list[str]) -> None:
    done = grant.ssh(USER, "true", options=["-o", "ExitOnForwardFailure=yes", *options])
    assert done.returncode == 255


def test_a_pod_on_its_nodes_network_gets_no_forwarding(
    gateway: GatewayOfTest, container_cluster: ContainerCluster
) -> None:
    """75: its ports are the node's, the kubelet's among them."""
    sleeper = shell_container(command=["sleep", "3600"])
    container_cluster.create(pod_manifest("host", [sleeper], hostNetwork=True))
    target = {"namespace": "default", "pod": "host", "container": "app"}
    grant = gateway.grant(target, permissions={"portForwarding": True})
    done = grant.ssh("default_host", options=["-W", "localhost:10250"])
    assert b"uses its node's network" in done.stderr
    assert grant.ssh("default_host", "echo in").stdout == b"in\n"
