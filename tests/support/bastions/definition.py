"""A definition of Bastions without a schema, for tests of what the controller checks itself."""

from __future__ import annotations

from typing import Any, Final

BASTION_DEFINITION: Final[dict[str, Any]] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "bastions.access.cluster.x-k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
    },
    "spec": {
        "group": "access.cluster.x-k8s.io",
        "names": {"kind": "Bastion", "plural": "bastions", "singular": "bastion", "listKind": "BastionList"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
