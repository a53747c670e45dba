"""The resources of admission policies for an embedded API, which stores such objects and applies none."""

from __future__ import annotations

from typing import Any, Final

from signer.testing.api import EmbeddedAPI

_KINDS: Final = {
    "validatingadmissionpolicies": "ValidatingAdmissionPolicy",
    "validatingadmissionpolicybindings": "ValidatingAdmissionPolicyBinding",
}


def serve_admission_policies(api: EmbeddedAPI) -> None:
    """Serve both resources."""
    for plural, kind in _KINDS.items():
        api.install_crd(definition(plural, kind))


def definition(plural: str, kind: str) -> dict[str, Any]:
    """A CustomResourceDefinition in place of the built-in resource."""
    group = "admissionregistration.k8s.io"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/1"},
        },
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}},
            ],
        },
    }
