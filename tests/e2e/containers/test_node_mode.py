"""SSH into containers of a real kubelet, through a real sshd: shell, SFTP and ports, as confined as the container.

Test numbers are those of the design's list.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from node_access.containers.protocol import Connect, NoTerminal, Run, Terminal, TransferFiles, encode_request
from node_access.containers.users import FIRST_UID, POOL_SIZE
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.containers.cluster import ContainerCluster, running_kubelet
from tests.support.containers.images import PAGE, WEB_PORT
from tests.support.containers.node_mode import NodeMode, forms
from tests.support.containers.pods import distroless_container, pod_manifest, shell_container
from tests.support.containers.runtime import CRUN, CRUN_PROGRAM, RUNC_ROOT, TASKS
from tests.support.processes import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.real]

CONFINEMENT: Final = (
    *("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"),
    *("NoNewPrivs", "Seccomp", "Seccomp_filters"),
)
DISTROLESS: Final = "default_bare-0_server"
SHELL: Final = "default_web-0_app"
ROOT: Final = "default_root-0_app"
ON_CRUN: Final = "default_crun-0_app"
NAMESPACES: Final = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
EVERYWHERE: Final = (DISTROLESS, SHELL, ROOT, ON_CRUN)


@pytest.fixture(scope="module")
def cluster() -> Iterator[ContainerCluster]:
    """Of these tests alone: node mode changes users and programs of the node."""
    with contextlib.ExitStack() as stack:
        try:
            cluster = stack.enter_context(running_kubelet())
        except MissingPart as missing:
            skip_or_fail(missing)
        handler = {"metadata": {"name": CRUN}, "handler": CRUN}
        runtime_class = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", **handler}
        cluster.administrator.post("/apis/node.k8s.io/v1/runtimeclasses", runtime_class).expect(201)
        cluster.create(pod_manifest("bare-0", [distroless_container()]))
        cluster.create(pod_manifest("web-0", [shell_container()]))
        cluster.create(pod_manifest("root-0", [shell_container(securityContext={})]))
        cluster.create(pod_manifest("crun-0", [shell_container()], runtimeClassName=CRUN))
        yield cluster
        cluster.node.checked("chown", "0:0", "/dev/null")  # this machine's: crun gives it away in kubectl exec


@pytest.fixture(scope="module")
def node(cluster: ContainerCluster) -> NodeMode:
    try:
        return NodeMode(cluster, "--crun", CRUN_PROGRAM)
    except MissingPart as missing:
        skip_or_fail(missing)


def first_process(cluster: ContainerCluster, name: str) -> int:
    """Of the container, as the node sees it."""
    for folder in cluster.node.path(TASKS).iterdir():
        annotations = json.loads((folder / "config.json").read_text())["annotations"]
        parts = [
            annotations.get(f"io.kubernetes.cri.{one}")
            for one in ("sandbox-namespace", "sandbox-name", "container-name")
        ]
        if parts == name.split("_"):
            return int((folder / "init.pid").read_text())
    raise AssertionError(name)


def processes(cluster: ContainerCluster, word: str) -> list[int]:
    """Of the node, in whose command line that word is."""
    done = cluster.node.run("pgrep", "-f", "--", f"^{word}")
    return [int(line) for line in done.stdout.split()]


@contextlib.contextmanager
def client(node: NodeMode, name: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A client that runs, with streams of its own."""
    node.user(name)
    process = subprocess.Popen(
        node.ssh(name, *words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


# 65, 67, 68: commands


@pytest.mark.parametrize("name", EVERYWHERE)
def test_a_command_has_its_streams_and_its_exit_code(node: NodeMode, name: str) -> None:
    done = node.run(name, "cat; echo to-error >&2; exit 7", standard_input=b"given")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"given", b"to-error\n")
    assert node.run(name, "kill -TERM $$").returncode == 128 + 15
    assert node.run(name, "no-such-program").returncode == 127


def test_twenty_megabytes_go_both_ways(node: NodeMode) -> None:
    content = os.urandom(20_000_000)
    done = node.run(DISTROLESS, "tee /dev/stderr | sha256sum", standard_input=content)
    assert done.stdout.split()[0].decode() == hashlib.sha256(content).hexdigest()
    assert done.stderr == content


def test_the_environment_is_the_containers(node: NodeMode) -> None:
    assert node.output(SHELL, "echo $APPLICATION $PATH") == "shell /bin:/usr/bin:/proc/self/fd/3\n"
    assert "SSH_" not in node.output(SHELL, "env")


# 66: terminals


class Screen:
    """A client in a terminal."""

    def __init__(self, command: list[str], rows: int, columns: int) -> None:
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.execvp(command[0], command)  # noqa: S606 - words of the test
        self.resize(rows, columns)
        self.shown = b""

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def type(self, text: bytes) -> None:
        os.write(self._terminal, text)

    def until(self, pattern: bytes) -> None:
        """Read until it is on the screen, after what was read before."""
        deadline = time.monotonic() + 30
        while not re.search(pattern, self.shown):
            ready, _, _ = select.select([self._terminal], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, self.shown
            try:
                self.shown += os.read(self._terminal, 65536)
            except OSError:
                raise AssertionError(self.shown) from None
        self.shown = b""

    def exit_code(self) -> int:
        with contextlib.suppress(OSError):
            while os.read(self._terminal, 65536):
                pass
        os.close(self._terminal)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.mark.parametrize("name", [DISTROLESS, ON_CRUN])
def test_a_terminal_is_the_containers_and_follows_the_clients(
    node: NodeMode, cluster: ContainerCluster, name: str
) -> None:
    node.user(name)
    screen = Screen(node.ssh(name, "-tt", "node"), 30, 100)
    screen.until(rb"\$ ")
    screen.type(b"tty; stty size\n")
    screen.until(rb"/dev/pts/0\r\n30 100\r\n")
    screen.resize(44, 111)
    # The size travels beside the streams.
    screen.type(b"until [ \"$(stty size)\" = '44 111' ]; do :; done; echo re''sized\n")
    screen.until(rb"resized")
    screen.type(b"sleep 5055\n")
    wait_until(lambda: bool(processes(cluster, "sleep 5055")), "it sleeps")
    screen.type(b"\x03")
    screen.until(rb"\$ (\x1b\[6n)?$")
    screen.type(b"exit 6\n")
    assert screen.exit_code() == 6


# 69: files


def test_files_go_both_ways_in_any_image(node: NodeMode, tmp_path: Path) -> None:
    content = os.urandom(2_000_000)
    (tmp_path / "sent").write_bytes(content)
    node.user(SHELL)
    for words in ((str(tmp_path / "sent"), "node:/tmp/data"), ("node:/tmp/data", str(tmp_path / "back"))):
        subprocess.run(node.ssh(SHELL, *words, program="scp"), check=True, capture_output=True, timeout=60)
    assert (tmp_path / "back").read_bytes() == content
    assert node.output(SHELL, "stat -c %u:%s /tmp/data") == f"1000:{len(content)}\n"


def test_sftp_in_a_distroless_image_reads_and_is_refused_what_the_container_is(node: NodeMode, tmp_path: Path) -> None:
    node.user(DISTROLESS)
    batch = tmp_path / "batch"
    batch.write_text(f"get /greeter {tmp_path}/greeter\n-put {batch} /etc/new\n")
    done = subprocess.run(
        node.ssh(DISTROLESS, "-b", str(batch), "node", program="sftp"), capture_output=True, check=False, timeout=60
    )
    assert (tmp_path / "greeter").read_bytes()[:4] == b"\x7fELF"
    assert b"/etc/new" in done.stderr


# 70, 72: as confined as the container


@pytest.mark.parametrize("name", EVERYWHERE)
def test_a_session_is_as_confined_as_the_container(node: NodeMode, cluster: ContainerCluster, name: str) -> None:
    pid = first_process(cluster, name)
    own = cluster.node.path(f"/proc/{pid}/status").read_text()
    assert forms(node.output(name, "cat /proc/self/status"), *CONFINEMENT) == forms(own, *CONFINEMENT)
    links = node.output(name, *(f"readlink /proc/self/ns/{kind};" for kind in NAMESPACES)).split()
    assert links == [os.readlink(cluster.node.path(f"/proc/{pid}/ns/{kind}")) for kind in NAMESPACES]
    groups = node.output(name, "cat /proc/self/cgroup").splitlines()
    for found, of in zip(groups, cluster.node.path(f"/proc/{pid}/cgroup").read_text().splitlines(), strict=True):
        assert re.fullmatch(rf"{re.escape(of)}(/node-access-[0-9a-f]{{16}})?", found)


def test_a_restricted_container_stays_so(node: NodeMode) -> None:
    status = forms(node.output(DISTROLESS, "cat /proc/self/status"), *CONFINEMENT)
    assert (status["CapBnd"], status["NoNewPrivs"], status["Seccomp"]) == ("0" * 16, "1", "2")
    assert status["Uid"].split() == ["65532"] * 4
    assert node.run(DISTROLESS, "echo > /new").returncode != 0


@pytest.mark.parametrize("name", [SHELL, ROOT, ON_CRUN])
def test_a_session_is_what_kubectl_exec_starts(node: NodeMode, cluster: ContainerCluster, name: str) -> None:
    namespace, pod, container = name.split("_")
    done = cluster.kubectl(
        "exec", f"--namespace={namespace}", pod, f"--container={container}", "--", "cat", "/proc/self/status"
    )
    assert done.returncode == 0, done.stderr
    assert forms(node.output(name, "cat /proc/self/status"), *CONFINEMENT) == forms(done.stdout, *CONFINEMENT)


# 71: the tools


@pytest.mark.parametrize("name", [DISTROLESS, ROOT])
def test_the_tools_lead_nowhere_and_cannot_be_changed(node: NodeMode, name: str) -> None:
    tools = node.output(name, "ls /proc/self/fd/3/")
    assert node.output(name, "ls /proc/self/fd/3/..") == tools
    assert node.output(name, "ls /proc/self/fd/3/../../..") == tools
    for attack in (
        "cat /proc/self/fd/3/../../etc/hostname",
        "cat /proc/self/fd/3/../etc/passwd",
        "echo x > /proc/self/fd/3/new",
        "echo x > /proc/self/fd/3/busybox",
        "rm /proc/self/fd/3/ls",
        "chmod 777 /proc/self/fd/3/busybox",
        "mount -o remount,rw /proc/self/fd/3",
    ):
        done = node.run(name, attack)
        assert done.returncode != 0, attack
    assert node.output(name, "ls /proc/self/fd/3/") == tools


def test_the_tools_are_in_no_mount_table(node: NodeMode, cluster: ContainerCluster) -> None:
    pid = first_process(cluster, DISTROLESS)
    own = cluster.node.path(f"/proc/{pid}/mountinfo").read_text()
    assert node.output(DISTROLESS, "cat /proc/self/mountinfo") == own


# 73, 74, 78: who asks


def test_only_users_of_containers_reach_the_agent(node: NodeMode) -> None:
    request = encode_request(Run(Terminal("xterm", 24, 80), "id"))
    for uid in (1000, 65534, FIRST_UID + POOL_SIZE - 1, FIRST_UID + POOL_SIZE):
        assert node.ask_as(uid, request) == b"answer:"
    assert "is no container's" in node.log()


def test_the_uid_says_which_container(node: NodeMode) -> None:
    """A request has no field for it."""
    ends = [os.pipe() for _ in range(3)]
    try:
        descriptors = [ends[0][0], ends[1][1], ends[2][1]]
        answer = node.ask_as(node.user(SHELL), encode_request(Run(NoTerminal(), "cat /etc/hostname")), descriptors)
        assert answer == b"answer:started ended 0"
        assert os.read(ends[1][0], 100) == b"web-0\n"
    finally:
        for one in (one for pair in ends for one in pair):
            os.close(one)


def test_files_of_the_node_are_no_streams(node: NodeMode, tmp_path: Path) -> None:
    """runc would give them to the container's user."""
    file, fifo = tmp_path / "file", tmp_path / "fifo"
    file.touch()
    os.mkfifo(fifo)
    for path in (file, fifo, Path("/dev/null")):
        opened = os.open(path, os.O_RDWR)
        try:
            for request in (Run(NoTerminal(), "id"), TransferFiles()):
                answer = node.ask_as(node.user(SHELL), encode_request(request), [opened] * 3)
                assert b"refused a standard stream is neither" in answer
        finally:
            os.close(opened)
    assert (file.stat().st_uid, fifo.stat().st_uid) == (0, 0)


@pytest.mark.parametrize("name", [SHELL, ON_CRUN])
def test_the_nodes_null_device_stays_the_nodes(node: NodeMode, cluster: ContainerCluster, name: str) -> None:
    """Runtimes give standard streams to the container's user; crun does so with this one in ``kubectl exec``."""
    cluster.node.checked("chown", "0:0", "/dev/null")
    node.user(name)
    screen = Screen(node.ssh(name, "-tt", "node", "exit 3"), 24, 80)
    assert screen.exit_code() == 3
    assert node.run(name, "exit 4").returncode == 4
    assert cluster.node.checked("stat", "-c", "%u", "/dev/null") == "0\n"


@pytest.mark.parametrize(
    "message", [b"", b"node-access-containers/1", b"x" * 100_000, b"node-access-containers/1\0run\0\0id"], ids=len
)
def test_what_is_no_request_is_refused(node: NodeMode, message: bytes) -> None:
    assert b"started" not in node.ask_as(node.user(SHELL), message)
    assert node.output(SHELL, "echo goes on") == "goes on\n"


def test_a_certificate_opens_its_own_container_alone(node: NodeMode) -> None:
    done = node.run(SHELL, "id", principal=DISTROLESS)
    assert (done.returncode, done.stdout) == (255, b"")
    assert b"Permission denied" in done.stderr


@pytest.mark.parametrize("login", ["root", "default_web-0_other", "nobody"])
def test_nobody_else_logs_in(node: NodeMode, login: str) -> None:
    done = subprocess.run(node.ssh(login, "node", "id"), capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (255, b"")


def test_two_sessions_share_no_descriptors(node: NodeMode) -> None:
    with client(node, DISTROLESS, "node", "echo here; sleep 1000") as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"here\n"
        shown = node.output(DISTROLESS, "for one in /proc/self/fd/*; do readlink $one; done; true").split()
        assert [re.sub(r"\d+", "N", one) for one in shown] == ["pipe:[N]"] * 3 + ["/"]


# 75: ports


@pytest.mark.parametrize("words", [("-W", f"localhost:{WEB_PORT}"), ("-W", "169.254.169.254:80")], ids=str)
def test_sshd_forwards_nothing(node: NodeMode, words: tuple[str, ...]) -> None:
    with client(node, SHELL, *words, "node") as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert errors == b"stdio forwarding failed\r\n"


def test_a_port_of_the_pod_is_reached_by_connect(node: NodeMode) -> None:
    request = b"GET /index.html HTTP/1.0\r\n\r\n"
    assert node.run(SHELL, f"connect {WEB_PORT}", standard_input=request).stdout.endswith(PAGE)
    assert node.run(SHELL, "connect 1").stderr.startswith(b"node-access: port 1: Connection refused")
    for port in ("0", "65536", "22 80", "x", "-1"):
        assert b"the port is not a number" in node.run(SHELL, f"connect {port}").stderr


def test_connect_never_enters_the_nodes_network(node: NodeMode, cluster: ContainerCluster) -> None:
    pod = cluster.create(pod_manifest("shared-0", [shell_container()], hostNetwork=True))
    try:
        assert b"hostNetwork" in node.run("default_shared-0_app", "connect 22").stderr
        assert node.output("default_shared-0_app", "id -u") == "1000\n"
    finally:
        cluster.delete(pod)


# 77, 82, and the end


def test_pods_that_see_the_nodes_processes_are_refused(node: NodeMode, cluster: ContainerCluster) -> None:
    pod = cluster.create(pod_manifest("sees-0", [distroless_container()], hostPID=True))
    try:
        done = node.run("default_sees-0_server", "id")
        assert (done.returncode, done.stdout) == (255, b"")
        assert b"hostPID" in done.stderr
    finally:
        cluster.delete(pod)


def test_a_runtime_that_keeps_no_state_here_is_refused(node: NodeMode, cluster: ContainerCluster) -> None:
    """So it is with Kata Containers and gVisor."""
    [state] = cluster.node.path(RUNC_ROOT).glob(f"{identifier(cluster, SHELL)}/state.json")
    hidden = state.with_name("hidden")
    state.rename(hidden)
    try:
        assert b"Kata Containers" in node.run(SHELL, "id").stderr
    finally:
        hidden.rename(state)


def identifier(cluster: ContainerCluster, name: str) -> str:
    """containerd's, of the container."""
    listed = json.loads(cluster.node.run(*_list_command()).stdout)["containers"]
    [found] = [one["container"] for one in listed if one["user"] == name]
    assert isinstance(found, str)
    return found


def _list_command() -> list[str]:
    return [f"{sys.prefix}/bin/python", "-m", "node_access.containers.cli", "list"]


@pytest.mark.parametrize("name", [DISTROLESS, ON_CRUN])
@pytest.mark.parametrize("terminal", [(), ("-tt",)], ids=["streams", "terminal"])
def test_everything_ends_with_the_session(
    node: NodeMode, cluster: ContainerCluster, name: str, terminal: tuple[str, ...]
) -> None:
    mark = f"sleep 4{len(name)}{len(terminal)}"
    command = f"(setsid {mark} > /dev/null 2>&1 < /dev/null &) ; (trap '' HUP; {mark} &) ; echo ready; sleep 1000"
    with client(node, name, *terminal, "node", command) as process:
        assert process.stdout is not None
        assert b"ready" in process.stdout.readline()
        wait_until(lambda: len(processes(cluster, mark)) == 2, "both run")
    wait_until(lambda: not processes(cluster, mark), "nothing is left")
    assert node.output(name, "echo goes on") == "goes on\n"


def test_background_jobs_end_with_the_command(node: NodeMode, cluster: ContainerCluster) -> None:
    assert node.output(DISTROLESS, "setsid sleep 4321 & echo done") == "done\n"
    wait_until(lambda: not processes(cluster, "sleep 4321"), "nothing is left")


def test_an_agent_that_was_killed_ends_its_sessions_at_its_next_start(
    node: NodeMode, cluster: ContainerCluster
) -> None:
    with client(node, DISTROLESS, "node", "setsid sleep 8642 & echo ready; sleep 1000") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        wait_until(lambda: bool(processes(cluster, "sleep 8642")), "it runs")
        # First the agent, which would end the session.
        for pid in processes(cluster, r"\S*python -m node_access.containers.cli run"):
            cluster.node.run("kill", "-KILL", str(pid))
        node.cluster.node.programs.stop(node.agent)
        assert processes(cluster, "sleep 8642")
        node.agent = node.start_agent()
        wait_until(lambda: not processes(cluster, "sleep 8642"), "nothing is left")
    assert node.output(DISTROLESS, "echo goes on") == "goes on\n"


def test_a_container_that_is_gone_has_no_user_and_its_uid_rests(node: NodeMode, cluster: ContainerCluster) -> None:
    first = cluster.create(pod_manifest("first-0", [shell_container()]))
    uid = node.user("default_first-0_app")
    assert FIRST_UID <= uid < FIRST_UID + POOL_SIZE
    assert node.output("default_first-0_app", "hostname") == "first-0\n"
    cluster.delete(first)
    wait_until(lambda: "default_first-0_app" not in node.users(), "the user is gone")
    assert node.ask_as(uid, encode_request(Connect(80))) == b"answer:"
    second = cluster.create(pod_manifest("second-0", [shell_container()]))
    assert node.user("default_second-0_app") != uid
    cluster.delete(second)
    again = cluster.create(pod_manifest("first-0", [shell_container()]))
    assert node.user("default_first-0_app") == uid
    assert node.output("default_first-0_app", "hostname") == "first-0\n"
    cluster.delete(again)


def test_without_the_api_server(node: NodeMode, cluster: ContainerCluster) -> None:
    cluster.plane.stop_apiserver()
    try:
        assert node.output(DISTROLESS, "echo still here") == "still here\n"
    finally:
        cluster.plane.start_apiserver()
