"""The gateway's program, beside a cluster with real containers, and stock ssh as its client."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from signer.crds import ACCESS_CRD_FILES
from signer.kube.resources import ACCESS_GRANTS, CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, SECRETS
from signer.model.tools_image import NamedToolsImage, NoToolsImage, ToolsImage
from tests.support.access_grants import AUTHORITY
from tests.support.containers.cluster import ContainerCluster
from tests.support.gateway_grants import CLUSTER, GATEWAY_NAMESPACE, connection_secret, container_grant
from tests.support.openssh import find_openssh, ssh_keygen
from tests.support.processes import Program, Programs, free_port

DEFINITIONS: Final = Path(__file__).parents[2] / "deploy" / "crds-access"
CREDENTIAL: Final = "gateway-of-the-test"
"""The user whose certificate the gateway has in the workload cluster."""
TIMEOUT_SECONDS: Final = 120
NO_TOOLS: Final = NoToolsImage()
_NUMBERS: Final = itertools.count(21)
"""Of grants: the gateways of a cluster, one after another, share them."""
_RBAC: Final = "rbac.authorization.k8s.io"
_CORE_RULES: Final = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
    {"apiGroups": [""], "resources": ["pods/exec", "pods/portforward"], "verbs": ["get", "create"]},
    {
        "apiGroups": ["apps"],
        "resources": ["deployments", "statefulsets", "daemonsets", "replicasets"],
        "verbs": ["get", "list"],
    },
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list"]},
]
_IMPERSONATION: Final = [
    {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]},
    {"apiGroups": [""], "resources": ["groups"], "verbs": ["impersonate"], "resourceNames": ["node-access:containers"]},
]


def _tools_rules(tools: NamedToolsImage) -> list[dict[str, Any]]:
    rule = {"apiGroups": [""], "resources": ["pods/ephemeralcontainers"], "verbs": ["patch"]}
    return [rule] if isinstance(tools, ToolsImage) else []


def _bound(name: str, rules: Sequence[Mapping[str, Any]], subject: Mapping[str, str]) -> tuple[dict[str, Any], ...]:
    role = {"metadata": {"name": name}, "rules": list(rules)}
    reference = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name}
    return role, {"metadata": {"name": name}, "roleRef": reference, "subjects": [{"apiGroup": _RBAC, **subject}]}


@dataclass(slots=True)
class GatewayOfTest:
    """A gateway that runs."""

    cluster: ContainerCluster
    program: Program
    port: int
    folder: Path
    start: Callable[[], Program] = field(repr=False)
    """Starts it again, at the same port."""

    def kill(self) -> None:
        """As the kernel does when memory runs out."""
        self.program.process.kill()
        self.program.process.wait()

    def log(self) -> str:
        """The gateway's log."""
        return self.program.log.read_text(errors="replace")

    def grant(
        self, container: Mapping[str, Any], *, lifetime: timedelta = timedelta(minutes=30), **how: Any
    ) -> GrantOfTest:
        """A ready grant with a fresh key. ``how`` goes to ``container_grant``."""
        name = f"grant-{next(_NUMBERS)}"
        key = self.folder / name
        ssh_keygen("-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key).check_returncode()
        line = key.with_suffix(".pub").read_text().strip()
        grant = GrantOfTest(self, name, key, container, lifetime, {"sshPublicKey": line, **how})
        grant.create()
        return grant


@dataclass(slots=True)
class GrantOfTest:
    """A grant, and ssh with its key."""

    gateway: GatewayOfTest
    name: str
    key: Path
    container: Mapping[str, Any]
    lifetime: timedelta
    how: Mapping[str, Any]
    uid: str = ""

    @property
    def path(self) -> str:
        """Of the object."""
        return ACCESS_GRANTS.object(self.name, CLUSTER.namespace)

    def create(self) -> None:
        """Create the object, and write its status as the controller does."""
        client = self.gateway.cluster.administrator
        manifest = container_grant(self.container, name=self.name, **self.how)
        for known in ("uid", "resourceVersion", "creationTimestamp", "generation"):
            del manifest["metadata"][known]
        created = client.post(ACCESS_GRANTS.collection(CLUSTER.namespace), manifest).expect(201)
        self.uid = created["metadata"]["uid"]
        self.certify(self.lifetime)

    def certify(self, lifetime: timedelta) -> None:
        """A certificate for so long from now on."""
        client = self.gateway.cluster.administrator
        manifest = container_grant(
            self.container,
            name=self.name,
            uid=self.uid,
            now=datetime.now(UTC).replace(microsecond=0),
            lifetime=lifetime,
            **self.how,
        )
        client.patch(f"{self.path}/status", {"status": manifest["status"]}).expect(200)

    def delete(self) -> None:
        """Delete the object."""
        self.gateway.cluster.administrator.delete(self.path).expect(200)

    def options(self) -> list[str]:
        """Of ssh, sftp and scp."""
        folder = self.gateway.folder
        settings = {
            "IdentityFile": str(self.key),
            "IdentitiesOnly": "yes",
            "IdentityAgent": "none",
            "UserKnownHostsFile": str(folder / "known_hosts"),
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
            "BatchMode": "yes",
            "ControlPath": "none",
        }
        return ["-F", "/dev/null", *(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))]

    def command(self, user: str, *command: str, options: Sequence[str] = ()) -> list[str]:
        """The words of ssh."""
        where = [f"-p{self.gateway.port}", "-l", user, "127.0.0.1"]
        return [str(find_openssh("ssh")), *self.options(), *options, *where, *command]

    def ssh(
        self, user: str, *command: str, data: bytes | None = None, options: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[bytes]:
        """Run stock ssh to its end. Without ``data`` it has no input (``-n``)."""
        words = self.command(user, *command, options=[*options, *(() if data is not None else ("-n",))])
        return subprocess.run(words, input=data, capture_output=True, timeout=TIMEOUT_SECONDS, check=False)

    def start(self, user: str, *command: str, options: Sequence[str] = (), **how: Any) -> subprocess.Popen[bytes]:
        """Start stock ssh."""
        words = self.command(user, *command, options=options)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(words, **{**pipes, **how})


@contextlib.contextmanager
def running_gateway(cluster: ContainerCluster, tools: NamedToolsImage = NO_TOOLS) -> Iterator[GatewayOfTest]:
    """The gateway; the cluster is its management cluster as well as its workload cluster. People may add
    containers with ``tools``.

    Raises:
        MissingPart: OpenSSH is not installed.
        ProgramFailed: the gateway does not start.
    """
    client = cluster.administrator
    cluster.plane.install_crds(DEFINITIONS / name for name in ACCESS_CRD_FILES)
    for namespace in (GATEWAY_NAMESPACE, CLUSTER.namespace):
        client.post("/api/v1/namespaces", {"metadata": {"name": namespace}}).expect(201, 409)
    group = {"kind": "Group", "name": "node-access:containers"}
    for role, binding in (
        _bound("node-access-containers", [*_CORE_RULES, *_tools_rules(tools)], group),
        _bound("node-access-gateway", _IMPERSONATION, {"kind": "User", "name": CREDENTIAL}),
    ):
        client.post(CLUSTER_ROLES.collection(), role).expect(201, 409)
        client.put(CLUSTER_ROLES.object(role["metadata"]["name"]), role).expect(200)
        client.post(CLUSTER_ROLE_BINDINGS.collection(), binding).expect(201, 409)
    kubeconfig = cluster.plane.kubeconfig(user=CREDENTIAL, groups=())
    secret = connection_secret(CLUSTER, AUTHORITY, kubeconfig=kubeconfig.encode(), tools=tools)
    client.post(SECRETS.collection(GATEWAY_NAMESPACE), secret).expect(201, 409)
    client.put(SECRETS.object(secret["metadata"]["name"], GATEWAY_NAMESPACE), secret).expect(200)
    with contextlib.closing(Programs("node-access-gateway-")) as programs:
        folder, port = programs.folder, free_port()
        ssh_keygen("-q", "-t", "ed25519", "-N", "", "-f", folder / "host_key").check_returncode()
        public = (folder / "host_key.pub").read_text().split()[:2]
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {' '.join(public)}\n")
        (folder / "kubeconfig").touch(mode=0o600)
        (folder / "kubeconfig").write_text(cluster.plane.kubeconfig())
        arguments = ["run", f"--namespace={GATEWAY_NAMESPACE}", f"--listen=127.0.0.1:{port}", "--logging-format=json"]
        files = [f"--host-key={folder / 'host_key'}", f"--kubeconfig={folder / 'kubeconfig'}"]
        addresses = ["--health-addr=", "--diagnostics-address="]
        words = [sys.executable, "-m", "signer.gateway.entry", *arguments, *files, *addresses]

        def start() -> Program:
            program = programs.start("node-access-gateway", words)
            before = program.log.read_text().count('"started"')
            program.wait_ready(lambda: program.log.read_text().count('"started"') > before)
            return program

        yield GatewayOfTest(cluster, start(), port, folder, start)
