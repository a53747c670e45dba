"""Kubeconfigs as Cluster API writes them into a cluster's ``<cluster>-kubeconfig`` Secret."""

from __future__ import annotations

import base64

import yaml

from signer.kube.connection import ClusterConnection


def kubeconfig_of(connection: ClusterConnection, cluster: str) -> str:
    """A kubeconfig with the names that Cluster API gives and inline data only."""
    user = f"{cluster}-admin"
    cluster_entry = {
        "server": connection.server,
        "certificate-authority-data": _base64(connection.certificate_authority),
    }
    if connection.tls_server_name is not None:
        cluster_entry["tls-server-name"] = connection.tls_server_name
    credentials: dict[str, str] = {}
    if connection.client_certificate is not None and connection.client_key is not None:
        credentials["client-certificate-data"] = _base64(connection.client_certificate)
        credentials["client-key-data"] = _base64(connection.client_key)
    if connection.bearer_token is not None:
        credentials["token"] = connection.bearer_token
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": cluster_entry}],
        "contexts": [{"name": f"{user}@{cluster}", "context": {"cluster": cluster, "user": user}}],
        "current-context": f"{user}@{cluster}",
        "users": [{"name": user, "user": credentials}],
        "preferences": {},
    }
    return yaml.safe_dump(document, sort_keys=False)


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
