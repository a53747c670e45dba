"""CustomResourceDefinitions of providers, without a schema."""

from __future__ import annotations

from typing import Any, Final

from signer.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, Resource
from signer.testing.world import ManagementCluster

_KEPT: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def define(management: ManagementCluster, resource: Resource, kind: str) -> None:
    """Create the definition, and wait until it is established."""
    name = f"{resource.plural}.{resource.group}"
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": _KEPT, "status": _KEPT}}}
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name, "labels": {"cluster.x-k8s.io/v1beta2": resource.version}},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": resource.plural,
                "singular": kind.lower(),
            },
            "versions": [{"name": resource.version, "served": True, "storage": True, "schema": schema}],
        },
    }
    management.client.create(CUSTOM_RESOURCE_DEFINITIONS.collection(), body)
    management.client.wait_for(CUSTOM_RESOURCE_DEFINITIONS.collection(), name, _is_established)


def _is_established(definition: dict[str, Any]) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or []
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)
