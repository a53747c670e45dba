"""Objects as Cluster API and its providers create them, and their CustomResourceDefinitions."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from signer.kube.client import JsonObject
from signer.kube.resources import CLUSTERS_V1BETA2, KUBEADM_CONFIGS_V1BETA2, MACHINE_POOLS_V1BETA2, MACHINES_V1BETA2
from signer.model.cluster import CLUSTER_NAME_LABEL, ClusterKey


def cluster_manifest(namespace: str, name: str) -> JsonObject:
    """A Cluster."""
    return {
        "apiVersion": CLUSTERS_V1BETA2.api_version,
        "kind": "Cluster",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "controlPlaneEndpoint": {"host": "control-plane.example", "port": 6443},
            "clusterNetwork": {"services": {"cidrBlocks": ["10.96.0.0/12"]}},
            "infrastructureRef": _infrastructure(name),
        },
    }


def secret_manifest(cluster: ClusterKey, purpose: str, data: Mapping[str, bytes]) -> JsonObject:
    """Secret ``<cluster>-<purpose>``."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(cluster, f"{cluster.name}-{purpose}"),
        "type": "cluster.x-k8s.io/secret",
        "data": {key: base64.b64encode(value).decode("ascii") for key, value in data.items()},
    }


def machine_manifest(cluster: ClusterKey, name: str, provider_id: str, owner: JsonObject | None) -> JsonObject:
    """A Machine, without a provider ID if that is empty. ``owner`` is a MachinePool as read from the API."""
    spec: dict[str, Any] = {
        "clusterName": cluster.name,
        "bootstrap": {"dataSecretName": f"{name}-bootstrap"},
        "infrastructureRef": _infrastructure(f"{name}-infra"),
    }
    if provider_id:
        spec["providerID"] = provider_id
    owners = [] if owner is None else [{**_controller_reference(owner), "blockOwnerDeletion": True}]
    return {
        "apiVersion": MACHINES_V1BETA2.api_version,
        "kind": "Machine",
        "metadata": {**_metadata(cluster, name), "ownerReferences": owners},
        "spec": spec,
    }


def machine_pool_manifest(cluster: ClusterKey, name: str, provider_ids: Sequence[str]) -> JsonObject:
    """A MachinePool whose instances have no Machines."""
    template = {
        "spec": {
            "clusterName": cluster.name,
            "bootstrap": {"dataSecretName": f"{name}-bootstrap"},
            "infrastructureRef": _infrastructure(name),
        }
    }
    spec: dict[str, Any] = {"clusterName": cluster.name, "replicas": len(provider_ids), "template": template}
    if provider_ids:
        spec["providerIDList"] = list(provider_ids)
    return {
        "apiVersion": MACHINE_POOLS_V1BETA2.api_version,
        "kind": "MachinePool",
        "metadata": _metadata(cluster, name),
        "spec": spec,
    }


def kubeadm_config_manifest(cluster: ClusterKey, name: str, token: str, owner: JsonObject) -> JsonObject:
    """A KubeadmConfig with a bootstrap token, as the kubeadm provider writes it.

    ``owner`` is the controlling Machine or MachinePool as read from the API.
    """
    return {
        "apiVersion": KUBEADM_CONFIGS_V1BETA2.api_version,
        "kind": "KubeadmConfig",
        "metadata": {**_metadata(cluster, name), "ownerReferences": [_controller_reference(owner)]},
        "spec": {
            "joinConfiguration": {
                "discovery": {"bootstrapToken": {"apiServerEndpoint": "control-plane.example:6443", "token": token}}
            }
        },
    }


def _metadata(cluster: ClusterKey, name: str) -> dict[str, Any]:
    return {"name": name, "namespace": cluster.namespace, "labels": {CLUSTER_NAME_LABEL: cluster.name}}


def _controller_reference(owner: JsonObject) -> dict[str, Any]:
    """An owner reference with ``controller: true``."""
    metadata = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }


def _infrastructure(name: str) -> dict[str, str]:
    """A placeholder reference, which Cluster API's schema requires."""
    return {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Test", "name": name}


def capi_crds(folder: Path | None = None) -> list[str]:
    """Cluster API's CRDs from ``folder``, that of KubeadmControlPlanes only if it is there; without ``folder``, the
    reduced ones of this package.

    Raises:
        FileNotFoundError: ``folder`` lacks them.
    """
    if folder is None:
        here = files("signer.testing").joinpath("crds")
        return [entry.read_text(encoding="utf-8") for entry in here.iterdir() if entry.name.endswith(".yaml")]
    names = ("cluster.x-k8s.io_*.yaml", "bootstrap.cluster.x-k8s.io_kubeadmconfigs.yaml")
    found = [sorted(Path(folder).glob(name)) for name in names]
    if missing := [name for name, paths in zip(names, found, strict=True) if not paths]:
        raise FileNotFoundError(
            f"{folder} has no {missing[0]}: Cluster API's CustomResourceDefinitions, one in each file"
        )
    found.append(sorted(Path(folder).glob("controlplane.cluster.x-k8s.io_kubeadmcontrolplanes.yaml")))
    return [path.read_text(encoding="utf-8") for paths in found for path in paths]
