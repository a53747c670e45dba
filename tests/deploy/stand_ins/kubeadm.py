"""The part of kubeadm that concerns the kubelet: files that it writes, reads and removes, and the kubelet's start."""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import yaml

from tests.deploy.stand_ins.events import record
from tests.support.yaml_documents import safe_load_all

KUBERNETES: Final = Path("/etc/kubernetes")
KUBELET: Final = Path("/var/lib/kubelet")
CLUSTER_CA: Final = Path("/run/cluster-ca.crt")
"""The result of discovery. The test writes it."""
KUBELET_CONF: Final = KUBERNETES / "kubelet.conf"
BOOTSTRAP_CONF: Final = KUBERNETES / "bootstrap-kubelet.conf"


def main(arguments: list[str]) -> int:
    """``kubeadm init|join --config FILE``."""
    command, option, file = arguments[:3]
    assert option == "--config"
    documents = list(safe_load_all(Path(file).read_text(encoding="utf-8")))
    by_kind = {document["kind"]: document for document in documents if document}
    record(program="kubeadm", command=command, configuration=by_kind)
    for path in (KUBELET_CONF, BOOTSTRAP_CONF):
        if command == "join" and path.exists():
            print(f"[ERROR FileAvailable]: {path} already exists", file=sys.stderr)
            return 1
    if command == "init":
        # kubeadm signs this certificate itself, without a request. The kubelet rotates it later.
        user = {"client-certificate": f"{KUBELET}/pki/kubelet-client-current.pem"}
        KUBELET_CONF.write_text(kubeconfig({**user, "client-key": user["client-certificate"]}), encoding="utf-8")
        start_kubelet(by_kind["InitConfiguration"])
        return 0
    BOOTSTRAP_CONF.touch(mode=0o600)
    token = by_kind["JoinConfiguration"]["discovery"]["bootstrapToken"]["token"]
    BOOTSTRAP_CONF.write_text(kubeconfig({"token": token}), encoding="utf-8")
    start_kubelet(by_kind["JoinConfiguration"])
    if not KUBELET_CONF.exists():
        print("timed out waiting for the kubelet to perform the TLS Bootstrap", file=sys.stderr)
        return 1
    BOOTSTRAP_CONF.unlink()
    return 0


def start_kubelet(configuration: dict[str, Any]) -> None:
    """Stop the kubelet, write its configuration and flags, and start it. A failed start is only a warning."""
    subprocess.run(["systemctl", "stop", "kubelet"], check=True)
    KUBELET.mkdir(parents=True, exist_ok=True)
    kubelet = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "rotateCertificates": True,
    }
    (KUBELET / "config.yaml").write_text(yaml.safe_dump(kubelet), encoding="utf-8")
    registration = configuration.get("nodeRegistration", {})
    flags = {argument["name"]: argument["value"] for argument in registration.get("kubeletExtraArgs", ())}
    if name := registration.get("name"):
        flags["hostname-override"] = name
    words = " ".join(f"--{name}={value}" for name, value in sorted(flags.items()))
    (KUBELET / "kubeadm-flags.env").write_text(f'KUBELET_KUBEADM_ARGS="{words}"\n', encoding="utf-8")
    subprocess.run(["systemctl", "daemon-reload"], check=True)
    subprocess.run(["systemctl", "start", "kubelet"], check=False)


def kubeconfig(user: dict[str, str]) -> str:
    """A kubeconfig in kubeadm's form."""
    authority = base64.b64encode(CLUSTER_CA.read_bytes()).decode("ascii")
    cluster = {"server": "https://control-plane.example:6443", "certificate-authority-data": authority}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "kubernetes", "cluster": cluster}],
            "users": [{"name": "user", "user": user}],
            "contexts": [{"name": "context", "context": {"cluster": "kubernetes", "user": "user"}}],
            "current-context": "context",
        }
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
