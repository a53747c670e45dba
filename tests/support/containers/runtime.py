"""A real containerd in a node: it runs Pods with runc, and with crun where a Pod asks for it."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
from pathlib import Path
from typing import Final

from tests.support.binaries import MissingPart
from tests.support.containers.images import PAUSE, archive, standard_images
from tests.support.containers.node import Node
from tests.support.processes import Program

SOCKET: Final = "/run/containerd/containerd.sock"
TASKS: Final = "/run/containerd/io.containerd.runtime.v2.task/k8s.io"
"""A folder for each container, with its OCI bundle and ``init.pid``."""
RUNC_ROOT: Final = "/run/containerd/runc/k8s.io"
"""``runc --root`` of the containers."""
CRUN: Final = "crun"
"""Name of the runtime handler, for a RuntimeClass."""
CRUN_PROGRAM: Final = "/run/crun"
"""Runs crun in the node; its containers are below the same root folder as runc's."""

_INSTALL: Final = "run tests/provision/provision.sh containers"
_PLUGINS: Final = Path("/usr/lib/cni")
_NEEDED_PLUGINS: Final = ("loopback", "ptp", "host-local")
_NEEDED_PROGRAMS: Final = ("containerd", "containerd-shim-runc-v2", "ctr", "runc", "ip", "nsenter", "unshare")
_NETWORKS: Final = "/run/networks"
_CRUN_WRAPPER: Final = """#!/bin/sh
# Where control groups are of both versions, crun of Debian 12 refuses to start, so it sees version 1 alone.
exec unshare --mount sh -c 'umount --lazy /sys/fs/cgroup/unified 2> /dev/null; exec crun "$@"' crun "$@"
"""
_IMAGES: Final = "/run/images.tar"
_UNUSED_SNAPSHOTTERS: Final = ("aufs", "btrfs", "devmapper", "zfs")


class Runtime:
    """containerd on a node, with the images of :func:`standard_images`.

    Raises:
        MissingPart: a program or a network plugin is not installed.
    """

    def __init__(self, node: Node) -> None:
        _check_installed()
        self._node = node
        images = archive(standard_images())
        networks = node.path(_NETWORKS)
        networks.mkdir()
        (networks / "10-pods.conflist").write_text(json.dumps(_network(node.network.pods)), encoding="utf-8")
        node.path("/run/containerd.toml").write_text(_configuration(), encoding="utf-8")
        wrapper = node.path(CRUN_PROGRAM)
        wrapper.write_text(_CRUN_WRAPPER, encoding="utf-8")
        wrapper.chmod(0o755)
        node.path(_IMAGES).write_bytes(images)
        self.program: Program = node.start("containerd", ["containerd", "--config", "/run/containerd.toml"])
        self.program.wait_ready(self._answers)
        node.checked("ctr", "--namespace=k8s.io", "images", "import", _IMAGES)
        node.path(_IMAGES).unlink()

    def process_id(self, container: str) -> int:
        """Process ID of a container's first process, as the node sees it."""
        return int(self._node.path(f"{TASKS}/{container}/init.pid").read_text("ascii"))

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(self._node.path(SOCKET)))
            return True
        return False


def _check_installed() -> None:
    missing = [name for name in _NEEDED_PROGRAMS if shutil.which(name) is None]
    missing += [f"{name} (CNI)" for name in _NEEDED_PLUGINS if not (_PLUGINS / name).exists()]
    if missing:
        raise MissingPart(f"not installed: {', '.join(missing)}: {_INSTALL}")


def _network(pods: str) -> dict[str, object]:
    """Each Pod has a cable to the node, and an address of the node's own network for Pods."""
    addresses = {"type": "host-local", "subnet": pods, "routes": [{"dst": "0.0.0.0/0"}]}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "ptp", "ipMasq": False, "ipam": addresses}]}


def _configuration() -> str:
    """``restrict_oom_score_adj``, because the machine may lack CAP_SYS_RESOURCE: runc then fails to start anything."""
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    disabled = json.dumps([f"io.containerd.snapshotter.v1.{name}" for name in _UNUSED_SNAPSHOTTERS])
    return f"""version = 2
disabled_plugins = {disabled}
[{cri}]
sandbox_image = "{PAUSE}"
stream_server_address = "127.0.0.1"
disable_apparmor = true
restrict_oom_score_adj = true
[{cri}.cni]
bin_dir = "{_PLUGINS}"
conf_dir = "{_NETWORKS}"
[{cri}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[{cri}.containerd.runtimes.{CRUN}]
runtime_type = "io.containerd.runc.v2"
[{cri}.containerd.runtimes.{CRUN}.options]
BinaryName = "{CRUN_PROGRAM}"
"""
