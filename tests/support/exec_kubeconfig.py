"""Kubeconfigs whose user is a client-go credential plugin, as on an attested node."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

EXEC_API_VERSION = "client.authentication.k8s.io/v1beta1"
"""The newest version that client-go 1.20 knows; 1.37 still accepts it."""


def exec_kubeconfig(
    server: str,
    ca_pem: bytes,
    command: str | Path,
    args: Sequence[str | Path],
    env: Mapping[str, str],
    api_version: str = EXEC_API_VERSION,
    provide_cluster_info: bool = True,
) -> str:
    """A kubeconfig for ``server`` with the plugin ``command args`` in the environment of its caller and ``env``."""
    plugin: dict[str, object] = {
        "apiVersion": api_version,
        "command": str(command),
        "args": [str(argument) for argument in args],
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "provideClusterInfo": provide_cluster_info,
        # Required by v1; client-go before 1.22 ignores it.
        "interactiveMode": "Never",
    }
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(ca_pem).decode()}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "workload", "cluster": cluster}],
        "users": [{"name": "kubelet", "user": {"exec": plugin}}],
        "contexts": [{"name": "kubelet@workload", "context": {"cluster": "workload", "user": "kubelet"}}],
        "current-context": "kubelet@workload",
    }
    return yaml.safe_dump(document, sort_keys=False)
