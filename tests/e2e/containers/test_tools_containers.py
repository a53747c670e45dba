"""Files and a shell where an image has none: ephemeral containers of the gateway, by stock ssh, sftp and scp.

kube-apiserver since 1.25 adds them. The kubelet of the tests, 1.20, runs them with its feature gate.
"""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from signer.gateway.tools_container import NAME_PREFIX, TARGET_ROOT, Missing, tools_state
from signer.model.tools_image import ToolsImage
from tests.support.containers.cluster import ContainerCluster
from tests.support.containers.images import NONROOT_USER, TOOLS
from tests.support.containers.pods import Pod, distroless_container, pod_manifest, shell_container
from tests.support.gateway import GatewayOfTest, GrantOfTest, running_gateway
from tests.support.openssh import find_openssh
from tests.support.processes import wait_until
from tests.support.raw_client import STRATEGIC_PATCH

pytestmark = [pytest.mark.real, pytest.mark.slow]
SINCE: Final = (1, 25)


@pytest.fixture(scope="module")
def gateway(container_cluster: ContainerCluster) -> Iterator[GatewayOfTest]:
    with running_gateway(container_cluster, ToolsImage(TOOLS)) as found:
        yield found


@pytest.fixture(scope="module")
def bare(container_cluster: ContainerCluster) -> Pod:
    """No shell, no server of files; the memory volume is writable."""
    volume = {"name": "data", "emptyDir": {"medium": "Memory"}}
    container = distroless_container(volumeMounts=[{"name": "data", "mountPath": "/data"}])
    return container_cluster.create(pod_manifest("tools-bare", [container], volumes=[volume]))


USER: Final = "default_tools-bare_server"


def grant_for(gateway: GatewayOfTest, **how: Any) -> GrantOfTest:
    return gateway.grant({"namespace": "default", "pod": "tools-bare", "container": "server"}, **how)


@pytest.fixture(scope="module")
def grant(gateway: GatewayOfTest, bare: Pod) -> GrantOfTest:
    if gateway.cluster.plane.binaries.kubernetes() < SINCE:
        pytest.skip("for kube-apiserver 1.25 or newer")
    found = grant_for(gateway)
    wait_until(lambda: found.ssh(USER, "true").returncode == 0, "the kubelet starts the container", 120)
    return found


def ephemeral(gateway: GatewayOfTest, pod: Pod) -> list[dict[str, Any]]:
    found = gateway.cluster.administrator.get(pod.path).expect(200)
    return list(found["spec"].get("ephemeralContainers", ()))


def copy(grant: GrantOfTest, name: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    command = [str(find_openssh(name)), *grant.options(), f"-P{grant.gateway.port}", *words]
    return subprocess.run(command, capture_output=True, timeout=90, check=False)


def test_older_api_servers_are_refused_with_a_text(gateway: GatewayOfTest, bare: Pod) -> None:
    if gateway.cluster.plane.binaries.kubernetes() >= SINCE:
        pytest.skip("for kube-apiserver before 1.25")
    done = grant_for(gateway).ssh(USER, "true")
    assert done.returncode == 255
    assert b"its API server must be Kubernetes 1.25 or newer" in done.stderr


def test_a_command_where_the_image_has_no_shell(grant: GrantOfTest, bare: Pod) -> None:
    done = grant.ssh(USER, "id -u; ls; exit 3")
    assert done.returncode == 3, done.stderr
    words = done.stdout.decode().split()
    assert words[0] == str(NONROOT_USER)
    assert "greeter" in words, "the files are the target's"
    assert f"files of server are below {TARGET_ROOT}".encode() in done.stderr


def test_it_has_no_more_than_the_target(grant: GrantOfTest, bare: Pod) -> None:
    """As the kernel says it of the two: the target's first process, and a process of the tools container."""
    fields = "^(Uid|Gid|CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp):"
    theirs, ours = (
        grant.ssh(USER, f"grep -E '{fields}' /proc/{process}/status").stdout.decode() for process in ("1", "self")
    )
    assert ours == theirs
    assert "NoNewPrivs:\t1" in ours
    assert grant.ssh(USER, "touch /x").returncode != 0, "the root of the tools container is read-only"


def test_one_container_serves_all_connections_of_a_grant(grant: GrantOfTest, bare: Pod) -> None:
    for _ in range(3):
        assert grant.ssh(USER, "true").returncode == 0
    ours = [one for one in ephemeral(grant.gateway, bare) if grant.uid in one["name"]]
    assert [one["targetContainerName"] for one in ours] == ["server"]
    assert ours[0]["name"].startswith(f"{NAME_PREFIX}{grant.uid}-")


def test_files_by_sftp_and_scp(grant: GrantOfTest, tmp_path: Path) -> None:
    data = secrets.token_bytes(1024 * 1024)
    (tmp_path / "data").write_bytes(data)
    up = copy(grant, "scp", str(tmp_path / "data"), f"{USER}@127.0.0.1:{TARGET_ROOT}/data/by-scp")
    assert up.returncode == 0, up.stderr
    down = copy(grant, "scp", f"{USER}@127.0.0.1:{TARGET_ROOT}/data/by-scp", str(tmp_path / "back"))
    assert down.returncode == 0, down.stderr
    assert (tmp_path / "back").read_bytes() == data
    (tmp_path / "batch").write_text(f"get {TARGET_ROOT}/data/by-scp {tmp_path}/by-sftp\nls {TARGET_ROOT}/data\n")
    done = copy(grant, "sftp", "-b", str(tmp_path / "batch"), f"{USER}@127.0.0.1")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "by-sftp").read_bytes() == data
    (tmp_path / "batch").write_text(f"cd {TARGET_ROOT}\npwd\n")
    moved = copy(grant, "sftp", "-b", str(tmp_path / "batch"), f"{USER}@127.0.0.1")
    assert b"Remote working directory: /\n" in moved.stdout, "sftp-server resolves the link: the tools image's root"
    elsewhere = copy(grant, "scp", str(tmp_path / "data"), f"{USER}@127.0.0.1:/data")
    assert elsewhere.returncode != 0, "an absolute path is one of the tools container, which is read-only"


def test_files_where_the_image_has_a_shell_alone(gateway: GatewayOfTest, grant: GrantOfTest, tmp_path: Path) -> None:
    gateway.cluster.create(pod_manifest("tools-shell", [shell_container()]))
    shell = gateway.grant({"namespace": "default", "pod": "tools-shell", "container": "app"})
    (tmp_path / "data").write_bytes(b"content")
    up = copy(shell, "scp", str(tmp_path / "data"), f"default_tools-shell_app@127.0.0.1:{TARGET_ROOT}/tmp/by-scp")
    assert up.returncode == 0, up.stderr
    assert shell.ssh("default_tools-shell_app", "cat /tmp/by-scp").stdout == b"content"


def test_with_the_grant_everything_of_it_ends(gateway: GatewayOfTest, grant: GrantOfTest, bare: Pod) -> None:
    """The container itself, too: its place in the pod's spec stays."""
    ended = grant_for(gateway)
    with ended.start(USER, "sleep 4712 & echo started; cat") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        ended.delete()
        process.communicate(timeout=30)
    wait_until(lambda: "terminated" in state_of(gateway, bare, ended.uid), "the tools container has ended")
    assert "sleep 4712" not in grant.ssh(USER, "ps").stdout.decode()


def state_of(gateway: GatewayOfTest, pod: Pod, uid: str) -> dict[str, Any]:
    status = gateway.cluster.administrator.get(pod.path).expect(200)["status"]
    return next(one["state"] for one in status["ephemeralContainerStatuses"] if uid in one["name"])


def test_a_container_of_that_name_by_somebody_else_is_refused(
    gateway: GatewayOfTest, grant: GrantOfTest, bare: Pod
) -> None:
    """With one more capability, made before the gateway makes its own. Nobody is put into it."""
    other = grant_for(gateway)
    image = ToolsImage(TOOLS)
    pod = gateway.cluster.administrator.get(bare.path).expect(200)
    missing = tools_state(pod, "server", other.uid, image)
    assert isinstance(missing, Missing)
    context = {**missing.container["securityContext"], "capabilities": {"add": ["NET_RAW"], "drop": ["ALL"]}}
    forged = {**missing.container, "securityContext": context}
    add = {"spec": {"ephemeralContainers": [forged]}}
    gateway.cluster.administrator.patch(f"{bare.path}/ephemeralcontainers", add, STRATEGIC_PATCH).expect(200)
    done = other.ssh(USER, "true")
    assert done.returncode == 255
    assert b"is not as the gateway makes it" in done.stderr


def test_files_of_root(gateway: GatewayOfTest, grant: GrantOfTest, tmp_path: Path) -> None:
    """With the runtime's default capabilities: with fewer of them, the kernel shows no files of the target."""
    root = shell_container(securityContext={"runAsUser": 0, "runAsGroup": 0})
    gateway.cluster.create(pod_manifest("tools-root", [root]))
    administrator = gateway.grant({"namespace": "default", "pod": "tools-root", "container": "app"})
    (tmp_path / "data").write_bytes(b"content")
    up = copy(administrator, "scp", str(tmp_path / "data"), f"default_tools-root_app@127.0.0.1:{TARGET_ROOT}/by-scp")
    assert up.returncode == 0, up.stderr
    assert administrator.ssh("default_tools-root_app", "cat /by-scp").stdout == b"content"
