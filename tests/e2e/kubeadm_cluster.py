"""A cluster that kubeadm has set up as far as machines that join need it: its configuration, discovery and grants."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tests.deploy.bootstrap_data import KUBEADM_API, cloud_config
from tests.support.containerd import SOCKET
from tests.support.control_plane import ControlPlane
from tests.support.processes import wait_until
from tests.support.raw_client import RawClient

RUNTIME_FOLDER: Final = "/run/containerd"
CONTROLLERS: Final = ("bootstrapsigner", "csrapproving", "csrsigning")
"""Of kube-controller-manager: the first signs what kubeadm discovers the cluster by."""
CONTROL_PLANE: Final = "control-plane"
# Of the documentation's networks: nobody connects to it.
_ADVERTISED: Final = "192.0.2.10"
# The machine is a folder: it has few programs, and a kernel that is older or newer than its version wants.
_IGNORED: Final = (
    *("SystemVerification", "CRI", "Swap", "Hostname", "NumCPU", "Mem"),
    *(f"FileExisting-{name}" for name in ("crictl", "conntrack", "ethtool", "ip", "iptables", "socat", "tc")),
    "FileContent--proc-sys-net-bridge-bridge-nf-call-iptables",
    "FileContent--proc-sys-net-ipv4-ip_forward",
)
_V1BETA4: Final = (1, 31)
_V1BETA3: Final = (1, 22)
_FAIL_CGROUP_V1: Final = (1, 31)


def set_up(plane: ControlPlane, kubeadm: Path, folder: Path) -> None:
    """Run kubeadm's phases that write into the cluster."""
    endpoint = plane.server.removeprefix("https://")
    address = {"advertiseAddress": _ADVERTISED, "bindPort": int(endpoint.rpartition(":")[2])}
    registration = {"name": CONTROL_PLANE, "criSocket": _socket(plane)}
    # The phase writes down on this Node where its container runtime is, before 1.34.
    with RawClient(plane.connection()) as client:
        metadata = {"name": CONTROL_PLANE, "labels": {"kubernetes.io/hostname": CONTROL_PLANE}}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
        client.post("/api/v1/nodes", node).expect(201, 409)
    documents = [
        {
            "apiVersion": kubeadm_api(plane),
            "kind": "InitConfiguration",
            "localAPIEndpoint": address,
            "nodeRegistration": registration,
        },
        {
            "apiVersion": kubeadm_api(plane),
            "kind": "ClusterConfiguration",
            "kubernetesVersion": plane.versions()["kube-apiserver"].rpartition(" ")[2],
            "controlPlaneEndpoint": endpoint,
        },
        _kubelet(plane),
    ]
    configuration, administrator = folder / "kubeadm.yaml", folder / "admin.conf"
    configuration.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
    administrator.touch(mode=0o600)
    administrator.write_text(plane.kubeconfig(), encoding="utf-8")
    for phase in (["upload-config", "all"], ["bootstrap-token", "--skip-token-print"]):
        flags = [f"--config={configuration}", f"--kubeconfig={administrator}"]
        done = subprocess.run(
            [str(kubeadm), "init", "phase", *phase, *flags], capture_output=True, text=True, check=False, timeout=120
        )
        print(done.stdout, done.stderr, sep="", file=sys.stderr)
        assert done.returncode == 0, done.stderr


def user_data(plane: ControlPlane, ca_cert_hash: str, token: str, spec: Mapping[str, Any]) -> str:
    """What Cluster API would hand to a worker that joins: a KubeadmConfig's spec with where and what it joins."""
    joining = json.loads(json.dumps(spec["joinConfiguration"]))
    joining["discovery"] = {
        "bootstrapToken": {
            "token": token,
            "apiServerEndpoint": plane.server.removeprefix("https://"),
            "caCertHashes": [ca_cert_hash],
        }
    }
    registration = joining.setdefault("nodeRegistration", {})
    registration.update({"criSocket": _socket(plane), "ignorePreflightErrors": list(_IGNORED)})
    # Nothing, which a configuration file cannot say.
    registration.setdefault("kubeletExtraArgs", []).append({"name": "enforce-node-allocatable", "value": ""})
    return cloud_config({**spec, "joinConfiguration": joining}, "join", kubeadm_api(plane))


def wait_until_discoverable(plane: ControlPlane, token: str) -> None:
    """kube-controller-manager signs for each token by itself, a moment later."""
    path, signature = "/api/v1/namespaces/kube-public/configmaps/cluster-info", f"jws-kubeconfig-{token.split('.')[0]}"
    with RawClient(plane.connection()) as client:
        wait_until(lambda: signature in client.get(path).expect(200)["data"], "the token discovers the cluster")


def kubeadm_api(plane: ControlPlane) -> str:
    """What kubeadm of the cluster's version reads, and Cluster API writes."""
    version = plane.binaries.kubernetes()
    if version >= _V1BETA4:
        return KUBEADM_API
    return f"kubeadm.k8s.io/{'v1beta3' if version >= _V1BETA3 else 'v1beta2'}"


def _socket(plane: ControlPlane) -> str:
    scheme = "unix://" if plane.binaries.kubernetes() >= _V1BETA3 else ""
    return f"{scheme}{RUNTIME_FOLDER}/{SOCKET}"


def _kubelet(plane: ControlPlane) -> dict[str, Any]:
    """Without control groups, swap and packet filter: what the machine has of them is the host's, and no pods run."""
    configuration: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        # So that a Ready that is a minute old is not taken for a new one.
        "nodeStatusUpdateFrequency": "2s",
        "nodeStatusReportFrequency": "2s",
    }
    if plane.binaries.kubernetes() >= _FAIL_CGROUP_V1:
        configuration["failCgroupV1"] = False
    return configuration
