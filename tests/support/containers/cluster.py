"""A control plane with one node whose kubelet runs Pods: exec, copying and port-forwarding work."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.binaries import ControlPlaneBinaries, find_control_plane
from tests.support.certificates import CertificateAuthority
from tests.support.containers.kubelet import Kubelet, find_kubelet
from tests.support.containers.node import Node
from tests.support.containers.pods import Container, Pod, container_identifiers, is_ready
from tests.support.containers.runtime import Runtime
from tests.support.control_plane import ControlPlane
from tests.support.kubectl import run_kubectl
from tests.support.processes import ProgramFailed, wait_until
from tests.support.raw_client import RawClient, WatchEvent

_READY_SECONDS: Final = 180.0
_SINCE_END_OF_INPUT: Final = (1, 30)
"""Since then, an API server speaks ``v5.channel.k8s.io``."""
_LOG_CHARACTERS: Final = 4000


class NotReady(Exception):
    """A Pod or Node did not become what was waited for; the message has its status and the kubelet's log."""


@dataclass(frozen=True, slots=True)
class ContainerCluster:
    """A running cluster; :func:`running_kubelet` makes and ends it."""

    plane: ControlPlane
    node: Node
    runtime: Runtime
    kubelet: Kubelet
    administrator: RawClient

    @property
    def can_end_input(self) -> bool:
        """Whether ``pods/exec`` by WebSocket passes on that input has ended."""
        return self.plane.binaries.kubernetes() >= _SINCE_END_OF_INPUT

    def create(self, manifest: Mapping[str, Any]) -> Pod:
        """Create a Pod on the node, and wait until it is Ready. Raises ``NotReady``."""
        spec = {"nodeName": self.node.name, **manifest["spec"]}
        namespace = manifest["metadata"]["namespace"]
        collection = f"/api/v1/namespaces/{namespace}/pods"
        created = self.administrator.post(collection, {**manifest, "spec": spec}).expect(201)
        return self._pod(self._until_ready(collection, created))

    def delete(self, pod: Pod) -> None:
        """Delete a Pod by force, and wait until the kubelet has ended its containers. Raises ``TimeoutError``.

        Without force, a kubelet of Kubernetes 1.20 keeps the object for ten seconds more.
        """
        self.administrator.delete(pod.path, {"gracePeriodSeconds": 0}).expect(200)
        processes = [self.node.path(f"/proc/{one.process_id}") for one in pod.containers.values()]
        wait_until(lambda: not any(map(Path.exists, processes)), f"the containers of {pod.name} have ended")

    def kubectl(
        self, *arguments: str, standard_input: str = "", kubeconfig: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as an administrator, or by another kubeconfig's content. Raises ``MissingPart``."""
        return run_kubectl(kubeconfig or self.plane.kubeconfig(), arguments, standard_input=standard_input)

    def process_file(self, container: Container, name: str) -> str:
        """A file of ``/proc`` of a container's first process, such as ``status``."""
        return self.node.path(f"/proc/{container.process_id}/{name}").read_text(encoding="utf-8", errors="replace")

    def log(self, program: str = "kubelet") -> str:
        """The log of the kubelet or of ``containerd``."""
        return (self.node.folder / f"{program}.log").read_text(encoding="utf-8", errors="replace")

    def wait_node_ready(self) -> None:
        """Wait until the Node is Ready. Raises ``NotReady``."""
        nodes = "/api/v1/nodes"
        answer = self.administrator.get(nodes, fieldSelector=f"metadata.name={self.node.name}").expect(200)
        present = answer["items"]
        if not (present and is_ready(present[0])):
            self._until_ready(nodes, {"metadata": {"name": self.node.name, **answer["metadata"]}})

    def check_running(self) -> None:
        """Raises ``ProgramFailed`` if a program has ended by itself."""
        self.plane.check_running()
        self.node.programs.check_running()

    def _until_ready(self, collection: str, known: Mapping[str, Any]) -> Mapping[str, Any]:
        for event in self._events(collection, known):
            if event.type == "DELETED":
                raise NotReady(f"{event.name} was deleted\n{self._told()}")
            if is_ready(event.object):
                return event.object
        raise AssertionError("unreachable: the events end by an exception")

    def _events(self, collection: str, known: Mapping[str, Any]) -> Iterator[WatchEvent]:
        """What happens to an object after what is ``known`` of it. Raises ``NotReady`` after three minutes."""
        name, version = known["metadata"]["name"], known["metadata"]["resourceVersion"]
        deadline = time.monotonic() + _READY_SECONDS
        last: Mapping[str, Any] = known
        selected = {"fieldSelector": f"metadata.name={name}", "resourceVersion": version}
        with self.administrator.watch(collection, **selected) as watch:
            while (left := deadline - time.monotonic()) > 0:
                with contextlib.suppress(TimeoutError):
                    # A second at most, to see soon that a program has ended.
                    event = watch.next(min(left, 1.0))
                    last = event.object
                    yield event
                self._check_running(name)
        raise NotReady(f"{name}: not within {_READY_SECONDS} s: {last.get('status')}\n{self._told()}")

    def _check_running(self, name: str) -> None:
        try:
            self.check_running()
        except ProgramFailed as failure:
            raise NotReady(f"{name}: {failure}") from None

    def _pod(self, found: Mapping[str, Any]) -> Pod:
        metadata = found["metadata"]
        containers = {
            name: Container(name, identifier, self.runtime.process_id(identifier))
            for name, identifier in container_identifiers(found).items()
        }
        address = found["status"]["podIP"]
        return Pod(metadata["name"], metadata["namespace"], metadata["uid"], address, containers, found)

    def _told(self) -> str:
        return f"containerd: {self.log('containerd')[-_LOG_CHARACTERS:]}\nkubelet: {self.log()[-_LOG_CHARACTERS:]}"


@contextlib.contextmanager
def running_kubelet(
    *, binaries: ControlPlaneBinaries | None = None, apiserver_flags: Sequence[str] = ()
) -> Iterator[ContainerCluster]:
    """A cluster whose only Node is Ready. In the end nothing of it is left; ``LeftBehind`` says what else.

    Raises:
        MissingPart: a program is not installed, or this machine allows no node.
        ProgramFailed: a program does not start.
        NotReady: the Node does not become Ready.
    """
    binaries = binaries or find_control_plane()
    kubelet_binary = find_kubelet(binaries)
    authority = CertificateAuthority.like_cluster_api()
    with contextlib.ExitStack() as stack:
        node = stack.enter_context(Node())
        runtime = Runtime(node)
        flags = [*_kubelet_flags(node, authority), *apiserver_flags]
        address = node.network.host_address
        plane = stack.enter_context(
            ControlPlane(ca=authority, binaries=binaries, apiserver_flags=flags, address=address)
        )
        kubeconfig = plane.kubeconfig(user=f"system:node:{node.name}", groups=("system:nodes",))
        kubelet = Kubelet(node, kubelet_binary, kubeconfig, authority)
        administrator = stack.enter_context(RawClient(plane.connection()))
        cluster = ContainerCluster(plane, node, runtime, kubelet, administrator)
        cluster.wait_node_ready()
        try:
            yield cluster
        except BaseException:
            print(cluster._told(), file=sys.stderr)
            raise


def _kubelet_flags(node: Node, authority: CertificateAuthority) -> list[str]:
    """How kube-apiserver reaches the kubelet, as with kubeadm; and no ServiceAccounts, which need a controller."""
    folder = node.folder / "apiserver"
    folder.mkdir(mode=0o700)
    certificate, key = authority.issue_client("kube-apiserver-kubelet-client", ["system:masters"])
    for name, content in (("client.crt", certificate), ("client.key", key), ("ca.crt", authority.certificate_pem)):
        (folder / name).touch(mode=0o600)
        (folder / name).write_bytes(content)
    return [
        f"--kubelet-client-certificate={folder / 'client.crt'}",
        f"--kubelet-client-key={folder / 'client.key'}",
        f"--kubelet-certificate-authority={folder / 'ca.crt'}",
        "--kubelet-preferred-address-types=InternalIP",
        "--disable-admission-plugins=ServiceAccount",
    ]
