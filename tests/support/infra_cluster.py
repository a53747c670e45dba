"""InfraClusters and InfraMachines of a kind with the status fields that a test needs."""

from __future__ import annotations

from typing import Final

from signer.controller.status.infrastructure_status import CLIENT_SIGNER_FIELD as SIGNER_FIELD
from signer.kube.client import JsonObject
from signer.kube.resources import CLUSTERS_V1BETA2, CUSTOM_RESOURCE_DEFINITIONS, Resource
from signer.testing.world import WorldCluster

_ANYTHING: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
INFRASTRUCTURE: Final = Resource("infrastructure.cluster.x-k8s.io", "v1beta2", "tests", namespaced=True)


def infrastructure_definition(*fields: str) -> JsonObject:
    """The CustomResourceDefinition of InfraClusters and InfraMachines, with these status fields."""
    status = {"type": "object", "properties": {field: {"type": "string"} for field in ("phase", *fields)}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": _ANYTHING, "status": status}}}
    version = {"name": "v1beta2", "served": True, "storage": True, "subresources": {"status": {}}, "schema": schema}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "tests.infrastructure.cluster.x-k8s.io",
            "labels": {"cluster.x-k8s.io/v1beta2": "v1beta2"},
        },
        "spec": {
            "group": INFRASTRUCTURE.group,
            "scope": "Namespaced",
            "names": {"kind": "Test", "listKind": "TestList", "plural": "tests", "singular": "test"},
            "versions": [version],
        },
    }


def add_infra_cluster(cluster: WorldCluster, *fields: str) -> None:
    """Create the object of the Cluster's infrastructureRef, owned by it, of a kind with these status fields."""
    client = cluster.management.client
    definition = infrastructure_definition(*fields)
    client.create(CUSTOM_RESOURCE_DEFINITIONS.collection(), definition)
    client.wait_for(
        CUSTOM_RESOURCE_DEFINITIONS.collection(),
        definition["metadata"]["name"],
        lambda item: any(one["status"] == "True" for one in (item.get("status") or {}).get("conditions") or []),
    )
    owner = client.get(CLUSTERS_V1BETA2.object(cluster.name, cluster.namespace))
    reference = {"apiVersion": owner["apiVersion"], "kind": "Cluster", "name": cluster.name}
    metadata = {
        "name": cluster.name,
        "namespace": cluster.namespace,
        "ownerReferences": [{**reference, "uid": owner["metadata"]["uid"]}],
    }
    body = {"apiVersion": INFRASTRUCTURE.api_version, "kind": "Test", "metadata": metadata}
    client.create(INFRASTRUCTURE.collection(cluster.namespace), body)


def add_infra_machine(cluster: WorldCluster, machine: JsonObject, **annotations: str) -> JsonObject:
    """Create the object of the Machine's infrastructureRef, owned by it; call :func:`add_infra_cluster` before."""
    owner = {"apiVersion": machine["apiVersion"], "kind": "Machine"}
    owner |= {key: machine["metadata"][key] for key in ("name", "uid")}
    metadata = {
        "name": machine["spec"]["infrastructureRef"]["name"],
        "namespace": cluster.namespace,
        "ownerReferences": [owner],
        "annotations": annotations,
    }
    body = {"apiVersion": INFRASTRUCTURE.api_version, "kind": "Test", "metadata": metadata}
    return cluster.management.client.create(INFRASTRUCTURE.collection(cluster.namespace), body)


__all__ = ["INFRASTRUCTURE", "SIGNER_FIELD", "add_infra_cluster", "add_infra_machine"]
