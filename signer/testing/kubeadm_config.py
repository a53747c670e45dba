"""KubeadmConfigs as Cluster API's kubeadm bootstrap provider leaves them once it has made the token."""

from __future__ import annotations

from signer.kube.client import JsonObject
from signer.kube.resources import KUBEADM_CONFIGS_V1BETA2
from signer.model.cluster import CLUSTER_NAME_LABEL


def kubeadm_config(cluster: str, namespace: str, name: str, token: str, owner: JsonObject) -> JsonObject:
    """The manifest of a KubeadmConfig that ``owner``, a Machine or MachinePool as the API returned it, controls."""
    metadata = owner["metadata"]
    return {
        "apiVersion": KUBEADM_CONFIGS_V1BETA2.api_version,
        "kind": "KubeadmConfig",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {CLUSTER_NAME_LABEL: cluster},
            "ownerReferences": [
                {
                    "apiVersion": owner["apiVersion"],
                    "kind": owner["kind"],
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                    "controller": True,
                }
            ],
        },
        "spec": {
            "joinConfiguration": {
                "discovery": {"bootstrapToken": {"apiServerEndpoint": "control-plane.example:6443", "token": token}}
            }
        },
    }
