"""A real kubelet in a node, with its own serving certificate and client credentials."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.binaries import ControlPlaneBinaries, MissingPart, build_cache, kubernetes_version
from tests.support.certificates import CertificateAuthority
from tests.support.containers.node import Node
from tests.support.containers.runtime import SOCKET
from tests.support.processes import Program

PORT: Final = 10250
_FILES: Final = "/run/kubelet"
_DISK_SIGNALS: Final = ("nodefs.available", "nodefs.inodesFree", "imagefs.available")
_SINCE_ONE_RUNTIME: Final = (1, 24)
"""Since then, a kubelet has no choice of container runtimes."""
_SINCE_EPHEMERAL_CONTAINERS: Final = (1, 23)
"""Since then, a kubelet runs them without a feature gate."""


def find_kubelet(binaries: ControlPlaneBinaries) -> Path:
    """The kubelet beside kube-apiserver, else the one that was built here, which may be older than the API server.

    Raises:
        MissingPart: there is neither.
    """
    built = build_cache() / "kubelet"
    try:
        return binaries.program("kubelet")
    except MissingPart:
        if os.access(built, os.X_OK):
            return built
        raise


class Kubelet:
    """A kubelet on a node. Its configuration follows kubeadm's where this machine allows it.

    ``kubeconfig`` is its credential's content; the cluster's CA signs its serving certificate.
    """

    def __init__(self, node: Node, binary: Path, kubeconfig: str, authority: CertificateAuthority) -> None:
        self._node = node
        files = node.path(_FILES)
        files.mkdir(mode=0o700)
        certificate, key = authority.issue_serving(f"system:node:{node.name}", [node.name, node.network.address])
        for name, content in (
            ("ca.crt", authority.certificate_pem),
            ("serving.crt", certificate),
            ("serving.key", key),
            ("kubeconfig", kubeconfig.encode()),
            ("configuration.yaml", yaml.safe_dump({**_configuration(node), **_gates(binary)}).encode()),
        ):
            path = files / name
            path.touch(mode=0o600)
            path.write_bytes(content)
        flags = {
            "config": f"{_FILES}/configuration.yaml",
            "kubeconfig": f"{_FILES}/kubeconfig",
            "hostname-override": node.name,
            "node-ip": node.network.address,
            "container-runtime-endpoint": f"unix://{SOCKET}",
        }
        if kubernetes_version(binary) < _SINCE_ONE_RUNTIME:
            flags["container-runtime"] = "remote"
        self._command: list[str | Path] = [binary, *(f"--{name}={value}" for name, value in flags.items())]
        self.program = self._start()

    def restart(self) -> None:
        """Stop and start it; containers keep running."""
        self._node.programs.stop(self.program)
        self.program = self._start()

    def _start(self) -> Program:
        # Otherwise it asks the cloud's metadata service for a credential of an image registry, which takes seconds.
        return self._node.start("kubelet", self._command, {"HOME": _FILES, "AWS_EC2_METADATA_DISABLED": "true"})


def _gates(binary: Path) -> dict[str, Any]:
    is_alpha = kubernetes_version(binary) < _SINCE_EPHEMERAL_CONTAINERS
    return {"featureGates": {"EphemeralContainers": True}} if is_alpha else {}


def _configuration(node: Node) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "x509": {"clientCAFile": f"{_FILES}/ca.crt"},
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
        },
        "authorization": {"mode": "Webhook"},
        "address": node.network.address,
        "port": PORT,
        "tlsCertFile": f"{_FILES}/serving.crt",
        "tlsPrivateKeyFile": f"{_FILES}/serving.key",
        "volumePluginDir": f"{_FILES}/volume-plugins",
        # The node's processes are no systemd units, and only the groups of Pods are below its own.
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.control_group}",
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        # The images come from no registry, so none may be collected, and no Pod evicted on a full machine.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "1Mi", **dict.fromkeys(_DISK_SIGNALS, "0%")},
        # Ready within a second of being so.
        "nodeStatusUpdateFrequency": "1s",
        "nodeStatusReportFrequency": "1s",
    }
