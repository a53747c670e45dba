"""A cluster that kubeadm has set up as far as machines that join need it: its configuration, discovery and grants."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import yaml
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from signer.kube.connection import ClusterConnection
from signer.kube.resources import CLUSTER_ROLE_BINDINGS
from tests.deploy.bootstrap_data import KUBEADM_API, cloud_config, container_linux_config
from tests.support.binaries import ControlPlaneBinaries
from tests.support.certificates import CertificateAuthority, public_key_pem
from tests.support.containerd import SOCKET
from tests.support.kubeadm import cluster_role_binding
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
    *("ImagePull", "ExternalEtcdVersion"),
    *(f"FileExisting-{name}" for name in ("crictl", "conntrack", "ethtool", "ip", "iptables", "socat", "tc")),
    "FileContent--proc-sys-net-bridge-bridge-nf-call-iptables",
    "FileContent--proc-sys-net-ipv4-ip_forward",
)
_V1BETA4: Final = (1, 31)
_V1BETA3: Final = (1, 22)
_WAITS_FOR_CONTROL_PLANE: Final = (1, 33)
"""For kube-controller-manager and kube-scheduler of the machine, too, which do not run here."""
_FAIL_CGROUP_V1: Final = (1, 31)


class Joined(Protocol):
    """The control plane that machines join, as :class:`~tests.support.control_plane.ControlPlane` is one."""

    @property
    def binaries(self) -> ControlPlaneBinaries:
        """Its programs, which also run on machines."""
        ...

    @property
    def server(self) -> str:
        """URL of the endpoint that kubeadm is told."""
        ...

    @property
    def etcd_url(self) -> str:
        """External etcd of its machines."""
        ...

    @property
    def ca_certificate_pem(self) -> bytes:
        """Secret ``<cluster>-ca``: what a machine of the control plane gets as ``ca.crt``."""
        ...

    @property
    def ca_key_pem(self) -> bytes:
        """Its key."""
        ...

    @property
    def service_account_key_pem(self) -> bytes:
        """The key that signs service-account tokens."""
        ...

    def versions(self) -> Mapping[str, str]:
        """The version output of each program, by name."""
        ...

    def connection(self) -> ClusterConnection:
        """An administrator's."""
        ...

    def kubeconfig(self) -> str:
        """An administrator's, which kubeadm reads."""
        ...

    def bootstrap_token(self) -> str:
        """A new one, which the API servers accept."""
        ...


def set_up(plane: Joined, kubeadm: Path, folder: Path, cluster_configuration: Mapping[str, Any] | None = None) -> None:
    """Run kubeadm's phases that write into the cluster. ``cluster_configuration`` adds to its ClusterConfiguration."""
    endpoint = plane.server.removeprefix("https://")
    address = {"advertiseAddress": _ADVERTISED, "bindPort": int(endpoint.rpartition(":")[2])}
    registration = {"name": CONTROL_PLANE, "criSocket": _socket(plane)}
    # The phase writes down on this Node where its container runtime is, before 1.34.
    with RawClient(plane.connection()) as client:
        metadata = {"name": CONTROL_PLANE, "labels": {"kubernetes.io/hostname": CONTROL_PLANE}}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
        client.post("/api/v1/nodes", node).expect(201, 409)
        # "kubeadm init" makes it since 1.29: these administrators label control planes that join.
        grant = cluster_role_binding("kubeadm:cluster-admins", "cluster-admin", "kubeadm:cluster-admins")
        client.post(CLUSTER_ROLE_BINDINGS.collection(), grant).expect(201, 409)
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
            "kubernetesVersion": _version(plane),
            "controlPlaneEndpoint": endpoint,
            "etcd": {"external": {"endpoints": [plane.etcd_url]}},
            **(cluster_configuration or {}),
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


def user_data(plane: Joined, ca_cert_hash: str, token: str, spec: Mapping[str, Any]) -> str:
    """What Cluster API would hand to a machine that joins: a KubeadmConfig's spec with where and what it joins."""
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
    render = container_linux_config if spec.get("format") == "ignition" else cloud_config
    return render({**spec, "joinConfiguration": joining}, "join", kubeadm_api(plane))


def init_user_data(plane: Joined, etcd_url: str, spec: Mapping[str, Any], address: str, port: int) -> str:
    """What Cluster API would hand to the first machine of a cluster of its own."""
    cluster = {
        "kubernetesVersion": _version(plane),
        "controlPlaneEndpoint": f"{address}:{port}",
        "etcd": {"external": {"endpoints": [etcd_url]}},
    }
    init = json.loads(json.dumps(spec["initConfiguration"]))
    init["localAPIEndpoint"] = {"advertiseAddress": address, "bindPort": port}
    registration = init["nodeRegistration"]
    registration.update({"criSocket": _socket(plane), "ignorePreflightErrors": list(_IGNORED)})
    # Cluster API has no other way to configure the kubelet of this machine, either.
    told = {"enforce-node-allocatable": "", **{_flag(name): value for name, value in _kubelet_settings(plane).items()}}
    registration["kubeletExtraArgs"] += [{"name": name, "value": str(value).lower()} for name, value in told.items()]
    if plane.binaries.kubernetes() >= _V1BETA3:
        registration["imagePullPolicy"] = "Never"
    if plane.binaries.kubernetes() >= _WAITS_FOR_CONTROL_PLANE:
        init["skipPhases"] = ["wait-control-plane"]
    return cloud_config(
        {**spec, "initConfiguration": init, "clusterConfiguration": cluster}, "init", kubeadm_api(plane)
    )


def with_control_plane(plane: Joined, spec: Mapping[str, Any], address: str, port: int) -> dict[str, Any]:
    """What Cluster API adds for a control plane that joins: the cluster's keys, and where its API server will be."""
    front_proxy = CertificateAuthority.like_cluster_api()
    service_account_key = load_pem_private_key(plane.service_account_key_pem, None)
    assert isinstance(service_account_key, RSAPrivateKey)
    contents = {
        "ca.crt": plane.ca_certificate_pem,
        "ca.key": plane.ca_key_pem,
        "front-proxy-ca.crt": front_proxy.certificate_pem,
        "front-proxy-ca.key": front_proxy.key_pem,
        "sa.pub": public_key_pem(service_account_key),
        "sa.key": plane.service_account_key_pem,
    }
    keys = [
        {
            "path": f"/etc/kubernetes/pki/{name}",
            "owner": "root:root",
            "permissions": "0640" if name.endswith((".crt", ".pub")) else "0600",
            "content": content.decode("ascii"),
        }
        for name, content in contents.items()
    ]
    joining = json.loads(json.dumps(spec["joinConfiguration"]))
    joining["controlPlane"] = {"localAPIEndpoint": {"advertiseAddress": address, "bindPort": port}}
    if plane.binaries.kubernetes() >= _V1BETA3:
        joining["nodeRegistration"]["imagePullPolicy"] = "Never"
    if plane.binaries.kubernetes() >= _WAITS_FOR_CONTROL_PLANE:
        joining["skipPhases"] = ["wait-control-plane"]
    return {**spec, "files": [*spec["files"], *keys], "joinConfiguration": joining}


def wait_until_discoverable(plane: Joined, token: str) -> None:
    """kube-controller-manager signs for each token by itself, a moment later."""
    path, signature = "/api/v1/namespaces/kube-public/configmaps/cluster-info", f"jws-kubeconfig-{token.split('.')[0]}"
    with RawClient(plane.connection()) as client:
        wait_until(lambda: signature in client.get(path).expect(200)["data"], "the token discovers the cluster")


def kubeadm_api(plane: Joined) -> str:
    """What kubeadm of the cluster's version reads, and Cluster API writes."""
    version = plane.binaries.kubernetes()
    if version >= _V1BETA4:
        return KUBEADM_API
    return f"kubeadm.k8s.io/{'v1beta3' if version >= _V1BETA3 else 'v1beta2'}"


def _socket(plane: Joined) -> str:
    scheme = "unix://" if plane.binaries.kubernetes() >= _V1BETA3 else ""
    return f"{scheme}{RUNTIME_FOLDER}/{SOCKET}"


def _kubelet(plane: Joined) -> dict[str, Any]:
    api = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    return {**api, **_kubelet_settings(plane)}


def _kubelet_settings(plane: Joined) -> dict[str, Any]:
    """Without control groups, swap and packet filter: what the machine has of them is the host's, and no pods run."""
    settings: dict[str, Any] = {
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        # So that a Ready that is a minute old is not taken for a new one.
        "nodeStatusUpdateFrequency": "2s",
    }
    if plane.binaries.kubernetes() >= _FAIL_CGROUP_V1:
        settings["failCgroupV1"] = False
    return settings


def _flag(setting: str) -> str:
    """The kubelet's flag for a setting of its configuration."""
    hyphened = re.sub("([a-z])([A-Z])", r"\1-\2", setting.replace("IPTables", "Iptables")).lower()
    return {"fail-cgroup-v1": "fail-cgroupv1"}.get(hyphened, hyphened)


def _version(plane: Joined) -> str:
    return plane.versions()["kube-apiserver"].rpartition(" ")[2]
