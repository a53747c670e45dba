"""Pods for a node with real containers: how they are written, and what is known of one that runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.support.containers.images import APPLICATION_USER, DISTROLESS, NONROOT_USER, SHELL

_NO_SERVER: Final = "192.0.2.1"

RESTRICTED: Final[Mapping[str, Any]] = {
    "runAsNonRoot": True,
    "runAsUser": NONROOT_USER,
    "runAsGroup": NONROOT_USER,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""A container's security context: Pod Security's profile ``restricted``, with a read-only root file system."""


@dataclass(frozen=True, slots=True)
class Container:
    """A container that runs."""

    name: str
    identifier: str
    """containerd's, 64 hexadecimal digits."""
    process_id: int
    """Of its first process, as the node sees it."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A Pod that is Ready."""

    name: str
    namespace: str
    uid: str
    address: str
    containers: Mapping[str, Container]
    manifest: Mapping[str, Any] = field(repr=False)
    """As the API server had it when the Pod became Ready."""

    @property
    def path(self) -> str:
        """Path of the object at the API server."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    @property
    def container(self) -> Container:
        """Its only container. Raises ``ValueError`` if it has several."""
        [only] = self.containers.values()
        return only


def shell_container(name: str = "app", **more: Any) -> dict[str, Any]:
    """busybox with a shell, as user 1000; its first process is a web server."""
    user = {"runAsUser": APPLICATION_USER, "runAsGroup": APPLICATION_USER}
    return {"name": name, "image": SHELL, "imagePullPolicy": "Never", "securityContext": user, **more}


def distroless_container(name: str = "server", **more: Any) -> dict[str, Any]:
    """One program without a shell, as confined as can be."""
    return {"name": name, "image": DISTROLESS, "imagePullPolicy": "Never", "securityContext": {**RESTRICTED}, **more}


def pod_manifest(
    name: str, containers: Sequence[Mapping[str, Any]], *, namespace: str = "default", **spec: Any
) -> dict[str, Any]:
    """A Pod that needs neither a scheduler, a ServiceAccount nor DNS. ``spec`` is added to it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "containers": [dict(container) for container in containers],
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "dnsPolicy": "None",
            "dnsConfig": {"nameservers": [_NO_SERVER]},
            "terminationGracePeriodSeconds": 1,
            **spec,
        },
    }


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether its condition Ready is True."""
    conditions = pod.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def container_identifiers(pod: Mapping[str, Any]) -> dict[str, str]:
    """containerd's identifiers by container name."""
    statuses = pod["status"]["containerStatuses"]
    return {status["name"]: str(status["containerID"]).removeprefix("containerd://") for status in statuses}
