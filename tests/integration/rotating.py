"""A Cluster whose CAs a controller may rotate, on embedded APIs. Nothing replaces its control plane."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from signer.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, KUBEADM_CONTROL_PLANES_V1BETA2, Resource
from signer.model.fields import format_time
from signer.rotation.control_plane.readiness import Missing, readiness
from signer.rotation.control_plane.template import control_plane_template
from signer.rotation.control_plane.template_patch import template_patch
from signer.rotation.phases import SigningPairs
from signer.testing.world import WorldCluster
from tests.unit.signer.rotation.control_plane.recorded import recorded

_REPLICAS: Final = 3


def add_control_plane(
    cluster: WorldCluster, *, ready: bool = True, pairs: SigningPairs = SigningPairs.ONE_PAIR
) -> None:
    """A KubeadmControlPlane that is complete; ``ready`` for a rotation, by the patch that preflight shows."""
    client, resource = cluster.management.client, KUBEADM_CONTROL_PLANES_V1BETA2
    manifest = recorded("kubeadm-control-plane-v1beta2")
    name = f"{cluster.name}-control-plane"
    manifest["metadata"] = {"name": name, "namespace": cluster.namespace}
    manifest["spec"]["replicas"] = _REPLICAS
    manifest.pop("status")
    created = client.create(resource.collection(cluster.namespace), manifest)
    path = resource.object(name, cluster.namespace)
    if ready:
        missing = readiness(control_plane_template(created), cluster.name, pairs)
        assert isinstance(missing, Missing)
        client.patch(path, template_patch(created, missing), "application/json-patch+json")
    reference = {"apiGroup": resource.group, "kind": "KubeadmControlPlane", "name": name}
    cluster.patch({"spec": {"controlPlaneRef": reference}})
    settle(cluster, _REPLICAS)


def settle(cluster: WorldCluster, up_to_date: int) -> None:
    """The status of its provider."""
    path = KUBEADM_CONTROL_PLANES_V1BETA2.object(f"{cluster.name}-control-plane", cluster.namespace)
    client = cluster.management.client
    condition = {
        "type": "RollingOut",
        "status": "False",
        "reason": "NotRollingOut",
        "lastTransitionTime": format_time(datetime.now(UTC)),
    }
    status = {
        "replicas": _REPLICAS,
        "readyReplicas": _REPLICAS,
        "upToDateReplicas": up_to_date,
        "observedGeneration": client.get(path)["metadata"]["generation"],
        "conditions": [condition],
    }
    client.patch(f"{path}/status", {"status": status})


def serve(cluster: WorldCluster, resource: Resource, kind: str) -> None:
    """Have the workload API serve a resource that the embedded one lacks. Any object is accepted."""
    definition: dict[str, Any] = {
        "apiVersion": CUSTOM_RESOURCE_DEFINITIONS.api_version,
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{resource.plural}.{resource.group}",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes"},
        },
        "spec": {
            "group": resource.group,
            "scope": "Cluster",
            "names": {"plural": resource.plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [
                {
                    "name": resource.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                }
            ],
        },
    }
    client = cluster.client()
    client.create(CUSTOM_RESOURCE_DEFINITIONS.collection(), definition)
    client.wait_for(CUSTOM_RESOURCE_DEFINITIONS.collection(), definition["metadata"]["name"], _is_established)


def _is_established(definition: dict[str, Any]) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or []
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)
