"""Kubeconfigs as Cluster API writes them into a cluster's ``<cluster>-kubeconfig`` Secret."""

from __future__ import annotations

import base64

import yaml

from signer.kube.connection import ClusterConnection


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def kubeconfig_of(connection: ClusterConnection, cluster: str) -> str:
    """User ``<cluster>-admin``, context ``<cluster>-admin@<cluster>``, inline data only."""
    user = f"{cluster}-admin"
    context = f"{user}@{cluster}"
    target = {
        "certificate-authority-data": _base64(connection.certificate_authority),
        "server": connection.server,
    }
    if connection.tls_server_name is not None:
        target["tls-server-name"] = connection.tls_server_name
    credentials: dict[str, str] = {}
    if connection.client_certificate is not None and connection.client_key is not None:
        credentials["client-certificate-data"] = _base64(connection.client_certificate)
        credentials["client-key-data"] = _base64(connection.client_key)
    if connection.bearer_token is not None:
        credentials["token"] = connection.bearer_token
    document = {
        "apiVersion": "v1",
        "clusters": [{"cluster": target, "name": cluster}],
        "contexts": [{"context": {"cluster": cluster, "user": user}, "name": context}],
        "current-context": context,
        "kind": "Config",
        "preferences": {},
        "users": [{"name": user, "user": credentials}],
    }
    return yaml.safe_dump(document, sort_keys=False)
