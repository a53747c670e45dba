"""The world in which the scene plays."""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from rich.console import Console

from signer.access.creator import PROPAGATION
from signer.configuration import (
    AccessPermission,
    Configuration,
    ContainersSwitchedOn,
    OperatorAttestor,
    SSHPermission,
)
from signer.kube.resources import ACCESS_GRANTS, NODE_ATTESTATION_POLICIES
from signer.testing.api import EmbeddedAPI
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, RunningController, WorldCluster
from tests.demo.access.surroundings import CONTROLLERS, NAMESPACE, prepare, webhook
from tests.demo.printing import print_indented
from tests.deploy.embedded import ROOT
from tests.support.access_client import ALICE, Person
from tests.support.containers.cluster import ContainerCluster, running_kubelet
from tests.support.containers.pods import files_container, is_ready, pod_manifest, shell_container
from tests.support.openssh import ssh_keygen
from tests.support.processes import Program, Programs, free_port, wait_until
from tests.support.yaml_documents import safe_load_all

CLUSTER: Final = "production"
GATEWAY: Final = "gateway"
GATEWAY_NAMESPACE: Final = "node-access-gateway"
SHOP: Final = "shop"
"""The namespace of the workload cluster in which the Deployment is."""
APP: Final = "app"
VAULT: Final = "vault"
SECONDS: Final = 60
_GATEWAY_USER: Final = f"system:serviceaccount:{GATEWAY_NAMESPACE}:node-access-gateway"
_GATEWAY_ROLES: Final = ROOT / "deploy/kustomize/gateway/gateway.yaml"
_RBAC: Final = "rbac.authorization.k8s.io"
_RBAC_KINDS: Final = ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
_DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/{}/deployments"
_PODS: Final = "/api/v1/namespaces/{}/pods"
_SUBRESOURCES: Final = ["pods/exec", "pods/portforward"]
_CONTROLLERS: Final = ("deployment", "replicaset")
"""Of kube-controller-manager. The Pods need no scheduler: their template names the node."""


@dataclass(frozen=True)
class Stage:
    """The Deployment runs, the gateway knows the Cluster, and there is no grant."""

    management: WorldCluster
    workload: ContainerCluster
    gateway: Program
    person: Person
    pod: str
    """The name of the Deployment's only Pod."""
    audit_log: Path
    """kube-apiserver's, of the workload cluster."""

    def grants(self) -> list[dict[str, Any]]:
        """All AccessGrants."""
        return self.management.management.client.items(ACCESS_GRANTS.collection(NAMESPACE))

    def audited(self) -> list[dict[str, Any]]:
        """The events of the audit log: everything about exec and port forwarding."""
        return [json.loads(line) for line in self.audit_log.read_text(encoding="utf-8").splitlines()]

    def processes(self, container: str) -> str:
        """What runs in a container, by an administrator's own exec."""
        return self.workload.kubectl("exec", "-n", SHOP, self.pod, "-c", container, "--", "ps").stdout


class Progress:
    """Says what is there, with the seconds that it took."""

    def __init__(self, console: Console) -> None:
        self._console, self._began = console, time.monotonic()

    def say(self, text: str) -> None:
        """One line."""
        print_indented(self._console, f"[green]✔[/green] {text} ({time.monotonic() - self._began:.0f} s)")


@contextlib.contextmanager
def opened(console: Console) -> Iterator[Stage]:
    """A workload cluster with a node that runs containers, a Cluster whose policy allows grants, and the gateway."""
    progress = Progress(console)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="node-attestation-demo-")))
        folder.chmod(0o755)  # ssh reads its files as the person
        audit_log = folder / "audit.log"
        with console.status("Starting kube-apiserver, containerd and a kubelet …"):
            flags = _audit_flags(folder / "audit-policy.yaml", audit_log)
            workload = stack.enter_context(running_kubelet(apiserver_flags=flags))
            workload.plane.start_controllers(controllers=_CONTROLLERS)
        progress.say("kube-apiserver, containerd and a kubelet: the node is ready")
        with console.status("Starting a controller and the Pods of Deployment web …"):
            _deploy(workload)
            api = stack.enter_context(EmbeddedAPI())
            management = stack.enter_context(ManagementCluster(api))
            _prepare(api)
            stack.enter_context(webhook(api))
            proven = time.time() + PROPAGATION.total_seconds() + 1
            cluster = management.add_cluster(CLUSTER, workload.plane, namespace=NAMESPACE)
            cluster.authorize("keyed-mac", ssh={"access": {}})
            stack.enter_context(RunningController(api.connection(CONTROLLERS.grants), _configuration()))
            wait_until(lambda: _is_connected(cluster), "the gateway's way into the workload cluster", SECONDS)
            pod = _ready_pod(workload)
        progress.say("the controller with --containers: ContainerAccessReady is True")
        with console.status("Starting the gateway …"):
            programs = stack.enter_context(contextlib.closing(Programs("node-access-gateway-demo-")))
            person = Person(folder / ALICE, api, ALICE)
            gateway = _gateway(programs, api, person)
            wait_until(lambda: time.time() > proven, "admission counts")
        progress.say("node-access-gateway, which may read grants and its own Secrets")
        console.print()
        yield Stage(cluster, workload, gateway, person, pod, audit_log)


def _audit_flags(policy: Path, log: Path) -> list[str]:
    rules = [
        {"level": "Metadata", "resources": [{"group": "", "resources": _SUBRESOURCES}]},
        {"level": "None"},
    ]
    manifest = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": rules}
    policy.write_text(yaml.safe_dump(manifest), encoding="utf-8")
    return [f"--audit-policy-file={policy}", f"--audit-log-path={log}"]


def _configuration() -> Configuration:
    settings = {"masterKey": base64.b64encode(secrets.token_bytes(32)).decode("ascii")}
    return Configuration(
        namespace=CONTROLLER_NAMESPACE,
        attestors={"keyed-mac": OperatorAttestor(settings=settings)},
        ssh=SSHPermission(frozenset({NAMESPACE})),
        access=AccessPermission(frozenset({NAMESPACE}), containers=ContainersSwitchedOn()),
    )


def _deploy(workload: ContainerCluster) -> None:
    """A Deployment with two containers."""
    client = workload.administrator
    client.post("/api/v1/namespaces", {"metadata": {"name": SHOP}}).expect(201)
    sidecar = shell_container(VAULT, command=["sleep", "3600"])
    pod = pod_manifest("web", [files_container(APP), sidecar], namespace=SHOP, nodeName=workload.node.name)
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": pod["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    client.post(_DEPLOYMENTS.format(SHOP), {"metadata": {"name": "web"}, "spec": spec}).expect(201)


def _ready_pod(workload: ContainerCluster) -> str:
    def ready() -> list[str]:
        workload.check_running()
        found = workload.administrator.get(_PODS.format(SHOP)).expect(200)["items"]
        return [one["metadata"]["name"] for one in found if is_ready(one)]

    wait_until(lambda: bool(ready()), "the Pod of Deployment web is ready", SECONDS)
    return ready()[0]


def _prepare(api: EmbeddedAPI) -> None:
    """The kinds, Alice's right to containers, and the gateway's namespace with its roles."""
    prepare(api)
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": GATEWAY_NAMESPACE}})
    for document in safe_load_all(_GATEWAY_ROLES.read_text(encoding="utf-8")):
        if document and document["kind"] in _RBAC_KINDS:
            api.apply(document)
    metadata = {"name": "containers", "namespace": NAMESPACE}
    names = ["container"]
    rule = {"apiGroups": [ACCESS_GRANTS.group], "resources": ["logins"], "resourceNames": names, "verbs": ["use"]}
    api.apply({"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]})
    api.apply(
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": "containers"},
            "subjects": [{"kind": "User", "apiGroup": _RBAC, "name": ALICE}],
        }
    )


def _is_connected(cluster: WorldCluster) -> bool:
    path = NODE_ATTESTATION_POLICIES.object(CLUSTER, NAMESPACE)
    status: Mapping[str, Any] = cluster.management.client.get(path).get("status") or {}
    conditions = status.get("conditions") or ()
    return any(one["type"] == "ContainerAccessReady" and one["status"] == "True" for one in conditions)


def _gateway(programs: Programs, api: EmbeddedAPI, person: Person) -> Program:
    """The gateway, and the files of ssh by which Alice knows it."""
    port, key, kubeconfig = free_port(), programs.folder / "ssh-privatekey", programs.folder / "kubeconfig"
    ssh_keygen("-q", "-t", "ed25519", "-N", "", "-f", key).check_returncode()
    kubeconfig.touch(mode=0o600)
    kubeconfig.write_text(api.kubeconfig("management", _GATEWAY_USER, ("system:authenticated",)), encoding="utf-8")
    words = ["run", f"--namespace={GATEWAY_NAMESPACE}", f"--listen=127.0.0.1:{port}", f"--host-key={key}"]
    more = [f"--kubeconfig={kubeconfig}", "--health-addr=", "--diagnostics-address=", "--logging-format=json"]
    command = [sys.executable, "-m", "signer.gateway.entry", *words, *more]
    gateway = programs.start("node-access-gateway", command)
    gateway.wait_ready(lambda: '"started"' in gateway.log.read_text(encoding="utf-8"))
    own = person.home / "key"
    ssh_keygen("-q", "-t", "ed25519", "-N", "", "-C", "", "-f", own).check_returncode()
    public = key.with_name("ssh-privatekey.pub").read_text(encoding="utf-8").split()[:2]
    known_hosts = person.home / "known_hosts"
    known_hosts.write_text(f"[127.0.0.1]:{port} {' '.join(public)}\n", encoding="utf-8")
    lines = [
        f"Host {GATEWAY}",
        "  HostName 127.0.0.1",
        f"  Port {port}",
        f"  IdentityFile {own}",
        "  IdentitiesOnly yes",
        f"  UserKnownHostsFile {known_hosts}",
        "  GlobalKnownHostsFile none",
        "  StrictHostKeyChecking yes",
        "  BatchMode yes",
    ]
    (person.home / "config").write_text("\n".join([*lines, ""]), encoding="utf-8")
    return gateway
