"""The harness itself: a real kubelet runs Pods, and what clients of the Kubernetes API do with them works."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import secrets
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import tests.support.containers.node
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.containers.cluster import ContainerCluster, running_kubelet
from tests.support.containers.images import APPLICATION_USER, GREETING, NONROOT_USER, PAGE, WEB_PORT
from tests.support.containers.node import LeftBehind, Node
from tests.support.containers.pods import Pod, distroless_container, pod_manifest, shell_container
from tests.support.containers.runtime import CRUN, CRUN_PROGRAM, RUNC_ROOT
from tests.support.kubectl import find_kubectl
from tests.support.processes import Programs, wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]

MEBIBYTE: Final = 1024 * 1024
_FORWARDING: Final = re.compile(r"^Forwarding from 127\.0\.0\.1:(\d+) ->", re.MULTILINE)


@pytest.fixture(scope="module")
def shell(container_cluster: ContainerCluster) -> Pod:
    """busybox, with a web server."""
    return container_cluster.create(pod_manifest("shell", [shell_container()]))


@pytest.fixture(scope="module")
def distroless(container_cluster: ContainerCluster) -> Pod:
    """One program, confined as far as a Pod can be."""
    return container_cluster.create(pod_manifest("distroless", [distroless_container()]))


def fields(status: str) -> dict[str, str]:
    """``/proc/PID/status``."""
    return {name: value.strip() for name, _, value in (line.partition(":") for line in status.splitlines())}


@contextlib.contextmanager
def forwarded(cluster: ContainerCluster, pod: Pod) -> Iterator[int]:
    """A port of this machine that ``kubectl port-forward`` leads to the Pod's web port."""
    with contextlib.closing(Programs("node-attestation-port-forward-")) as programs:
        kubeconfig = programs.folder / "kubeconfig"
        kubeconfig.touch(mode=0o600)
        kubeconfig.write_text(cluster.plane.kubeconfig())
        forward = ["port-forward", f"pod/{pod.name}", f":{WEB_PORT}", "--address=127.0.0.1"]
        program = programs.start("kubectl", [find_kubectl(), f"--kubeconfig={kubeconfig}", *forward])
        program.wait_ready(lambda: _FORWARDING.search(program.log.read_text()) is not None)
        found = _FORWARDING.search(program.log.read_text())
        assert found is not None
        yield int(found[1])


def test_a_pod_runs(container_cluster: ContainerCluster, shell: Pod) -> None:
    """Its address is one of the node's, and its process is in the node, in a control group of the node."""
    number = container_cluster.node.network.number
    assert shell.address.startswith(f"198.19.{number}.")
    assert container_cluster.process_file(shell.container, "cmdline").startswith("/bin/httpd\0")
    groups = container_cluster.process_file(shell.container, "cgroup")
    assert f"/{container_cluster.node.control_group}/kubepods/besteffort/pod{shell.uid}/" in groups


def test_exec_gives_the_exit_code(container_cluster: ContainerCluster, shell: Pod) -> None:
    done = container_cluster.kubectl("exec", shell.name, "--", "sh", "-c", "id -u; echo fault >&2; exit 3")
    assert (done.returncode, done.stdout) == (3, f"{APPLICATION_USER}\n"), done.stderr
    assert done.stderr.startswith("fault\n")


def test_exec_takes_standard_input(container_cluster: ContainerCluster, shell: Pod) -> None:
    done = container_cluster.kubectl("exec", "--stdin", shell.name, "--", "cat", standard_input="said\n" * 1000)
    assert (done.returncode, done.stdout) == (0, "said\n" * 1000), done.stderr


@pytest.mark.parametrize("program", ["sh", "/bin/sh", "/bin/cat", "/busybox"])
def test_a_distroless_container_has_no_shell(
    container_cluster: ContainerCluster, distroless: Pod, program: str
) -> None:
    done = container_cluster.kubectl("exec", distroless.name, "--", program)
    assert done.returncode != 0
    assert "no such file or directory" in done.stderr or "executable file not found" in done.stderr


def test_copying_keeps_every_byte(container_cluster: ContainerCluster, shell: Pod, tmp_path: Path) -> None:
    sent, received = tmp_path / "sent", tmp_path / "received"
    sent.write_bytes(secrets.token_bytes(MEBIBYTE))
    there = f"{shell.name}:/tmp/copied"
    for arguments in ((str(sent), there), (there, str(received))):
        done = container_cluster.kubectl("cp", *arguments)
        assert done.returncode == 0, done.stderr
    digest = container_cluster.kubectl("exec", shell.name, "--", "sha256sum", "/tmp/copied").stdout
    assert digest.split() == [hashlib.sha256(sent.read_bytes()).hexdigest(), "/tmp/copied"]
    assert received.read_bytes() == sent.read_bytes()


def test_a_forwarded_port_reaches_the_web_server(container_cluster: ContainerCluster, shell: Pod) -> None:
    """Which listens on the Pod's loopback interface alone."""
    with (
        forwarded(container_cluster, shell) as port,
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer,
    ):
        assert answer.read() == PAGE
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((shell.address, WEB_PORT), 10)


def test_a_forwarded_port_reaches_a_distroless_container(container_cluster: ContainerCluster, distroless: Pod) -> None:
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(forwarded(container_cluster, distroless))
        connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), 10))
        answer = stack.enter_context(connection.makefile("rb"))
        connection.sendall(b"echoed\n")
        assert (answer.readline(), answer.readline()) == (GREETING, b"echoed\n")


def test_a_distroless_container_is_confined(container_cluster: ContainerCluster, distroless: Pod) -> None:
    status = fields(container_cluster.process_file(distroless.container, "status"))
    users = "\t".join([str(NONROOT_USER)] * 4)
    assert {name: status[name] for name in ("Uid", "Gid", "Seccomp", "NoNewPrivs")} == {
        "Uid": users,
        "Gid": users,
        "Seccomp": "2",
        "NoNewPrivs": "1",
    }
    capabilities = {name: int(status[name], 16) for name in status if name.startswith("Cap")}
    assert capabilities == dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), 0)
    mounts = [line.split() for line in container_cluster.process_file(distroless.container, "mountinfo").splitlines()]
    [root] = [mount for mount in mounts if mount[4] == "/"]
    assert "ro" in root[5].split(",")


def test_a_shell_container_is_confined_less(container_cluster: ContainerCluster, shell: Pod) -> None:
    """The difference shows that the values above come from the Pod's security context."""
    status = fields(container_cluster.process_file(shell.container, "status"))
    assert (status["Seccomp"], status["NoNewPrivs"]) == ("0", "0")
    assert int(status["CapBnd"], 16) != 0


def test_runc_of_the_node_knows_the_container(container_cluster: ContainerCluster, shell: Pod) -> None:
    """The node-side program will run commands so."""
    command = ("runc", "--root", RUNC_ROOT, "exec", shell.container.identifier, "/bin/sh", "-c", "id -u; exit 7")
    done = container_cluster.node.run(*command)
    assert (done.returncode, done.stdout) == (7, f"{APPLICATION_USER}\n".encode()), done.stderr


def test_crun_runs_a_pod(container_cluster: ContainerCluster) -> None:
    runtime_class = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": CRUN}}
    classes = "/apis/node.k8s.io/v1/runtimeclasses"
    container_cluster.administrator.post(classes, {**runtime_class, "handler": CRUN}).expect(201)
    manifest = pod_manifest("crun", [shell_container()], runtimeClassName=CRUN)
    pod = container_cluster.create(manifest)
    done = container_cluster.kubectl("exec", pod.name, "--", "sh", "-c", "exit 4")
    assert done.returncode == 4, done.stderr
    state = container_cluster.node.checked(CRUN_PROGRAM, "--root", RUNC_ROOT, "state", pod.container.identifier)
    assert json.loads(state)["pid"] == pod.container.process_id


def test_pods_reach_each_other(container_cluster: ContainerCluster, shell: Pod) -> None:
    command = ["/bin/httpd", "-f", "-p", "8081", "-h", "/www"]
    other = container_cluster.create(pod_manifest("other", [shell_container(command=command)]))
    done = container_cluster.kubectl("exec", shell.name, "--", "wget", "-qO-", f"http://{other.address}:8081/")
    assert (done.returncode, done.stdout) == (0, PAGE.decode()), done.stderr


def test_a_pod_is_replaced_by_another_of_its_name(container_cluster: ContainerCluster) -> None:
    containers = [shell_container("one"), shell_container("two", command=["sleep", "1000"])]
    first = container_cluster.create(pod_manifest("replaced", containers))
    assert set(first.containers) == {"one", "two"}
    container_cluster.delete(first)
    second = container_cluster.create(pod_manifest("replaced", containers))
    assert second.uid != first.uid
    assert {one.identifier for one in second.containers.values()}.isdisjoint(
        one.identifier for one in first.containers.values()
    )
    done = container_cluster.kubectl("exec", "replaced", "--container=two", "--", "ps")
    assert "sleep 1000" in done.stdout


def traces(node: Node) -> list[str]:
    """What this machine has of the node, looked for without the harness. Other nodes may come and go."""
    network = node.network
    marks = (node.name, node.folder.name, network.link, network.address, network.pods)
    mark = re.compile("|".join(rf"\b{re.escape(one)}\b" for one in marks))
    commands = ("ps -eo pid,cgroup:200,args", "cat /proc/self/mountinfo", "ip -oneline address", "ip route")
    told = [subprocess.run(one.split(), capture_output=True, text=True, check=True).stdout for one in commands]
    found = [line for text in told for line in text.splitlines() if mark.search(line)]
    folders = [node.folder] if node.folder.exists() else []
    return [*found, *map(str, [*folders, *control_groups(node)])]


def control_groups(node: Node) -> list[Path]:
    """Those of the node, in each hierarchy."""
    return [*Path("/sys/fs/cgroup").glob(f"*{node.name}"), *Path("/sys/fs/cgroup").glob(f"*/*{node.name}")]


def forwards_packets() -> str:
    """A setting of this machine that network plugins change, each in its own network namespace."""
    return Path("/proc/sys/net/ipv4/ip_forward").read_text()


def fail_with_a_running_pod(nodes: list[Node]) -> None:
    """As a test does, after starting a program in a container that would outlive its session."""
    leaves = ["sh", "-c", "setsid nohup sleep 9999 > /dev/null 2>&1 &"]
    with running_kubelet() as cluster:
        nodes.append(cluster.node)
        pod = cluster.create(pod_manifest("left", [shell_container()]))
        assert cluster.kubectl("exec", pod.name, "--", *leaves).returncode == 0
        assert len(traces(cluster.node)) > len(control_groups(cluster.node)) > 0
        raise RuntimeError("the test failed")


def test_nothing_is_left_after_a_test_that_fails() -> None:
    before, nodes = forwards_packets(), list[Node]()
    try:
        with pytest.raises(RuntimeError, match="the test failed"):
            fail_with_a_running_pod(nodes)
    except MissingPart as missing:
        skip_or_fail(missing)
    [node] = nodes
    assert traces(node) == []
    assert forwards_packets() == before


def test_what_is_left_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in the node's control group, but in none of its namespaces."""
    monkeypatch.setattr(tests.support.containers.node, "_END_SECONDS", 0.1)
    try:
        node = Node()
    except MissingPart as missing:
        skip_or_fail(missing)
    [group, *_] = control_groups(node)
    straggler = subprocess.Popen(["sleep", "60"])
    try:
        (group / "cgroup.procs").write_text(str(straggler.pid))
        with pytest.raises(LeftBehind, match=f"process {straggler.pid}: sleep 60"):
            node.close()
    finally:
        straggler.kill()
        straggler.wait()
        node.close()
    assert traces(node) == []


def test_what_another_program_starts_meanwhile_is_not_of_the_node() -> None:
    """The kernel gives the number of a namespace that has ended to the next one."""
    try:
        node = Node()
    except MissingPart as missing:
        skip_or_fail(missing)
    others = []
    with contextlib.ExitStack() as stack:
        end = node.programs.close

        def end_and_start_others() -> None:
            end()
            for _ in range(20):
                other = subprocess.Popen(["unshare", "--mount", "sleep", "60"])
                stack.callback(other.wait)
                stack.callback(other.kill)
                others.append(other)
            wait_until(lambda: all(has_own_namespaces(other.pid) for other in others), "they run")

        node.programs.close = end_and_start_others  # type: ignore[method-assign]
        node.close()
        assert [other.poll() for other in others] == [None] * 20
    assert traces(node) == []


def has_own_namespaces(pid: int) -> bool:
    """Whether ``unshare`` has become the program that it starts."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep\0")
