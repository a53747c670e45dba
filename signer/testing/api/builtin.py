"""The built-in resources: their names, and their own rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import metadata
from .builtin_schemas import (
    BINDING,
    CLUSTER_ROLE,
    CONFIG_MAP,
    CSR,
    EVENT,
    LEASE,
    NAMESPACE,
    RBAC_ROLE,
    SECRET,
    SERVICE_ACCOUNT,
)
from .crd_definitions import CustomResourceDefinitions
from .csr_rules import CertificateSigningRequests
from .key_value_objects import ConfigMaps, Secrets
from .node_restriction import Leases, Nodes
from .resource_types import ResourceType
from .role_objects import Bindings, Roles
from .status import FieldError, invalid_value
from .strategy import Context, Strategy, keep
from .webhook_objects import WebhookConfigurations


class Namespaces(Strategy):
    """A namespace lives until its ``kubernetes`` finalizer is taken off, after its contents are gone."""

    name_rule = staticmethod(metadata.label)
    fields_supported = frozenset({"metadata.name", "status.phase"})

    def fields(self, value: dict[str, Any]) -> Mapping[str, str]:
        phase = (value.get("status") or {}).get("phase", "")
        return {"metadata.name": value["metadata"]["name"], "status.phase": phase}

    def prepare_create(self, value: dict[str, Any], context: Context) -> None:
        value["spec"] = {"finalizers": ["kubernetes"]}
        value["status"] = {"phase": "Active"}
        if context.server_version >= (1, 21):
            labels = value["metadata"].setdefault("labels", {})
            labels["kubernetes.io/metadata.name"] = value["metadata"].get("name", "")

    def prepare_update(self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context) -> None:
        keep(value, old, *({"": ("spec", "status"), "status": ("spec",), "finalize": ("status",)}[subresource]))


class Events(Strategy):
    create_on_update = True
    _REFERENCE_FIELDS = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    fields_supported = frozenset(
        {"metadata.name", "metadata.namespace", "reason", "type", "source", "reportingComponent"}
        | {f"involvedObject.{name}" for name in _REFERENCE_FIELDS}
    )

    def fields(self, value: dict[str, Any]) -> Mapping[str, str]:
        found = dict(super().fields(value))
        reference = value.get("involvedObject") or {}
        found.update({f"involvedObject.{name}": reference.get(name, "") for name in self._REFERENCE_FIELDS})
        found.update({name: value.get(name) or "" for name in ("reason", "type", "reportingComponent")})
        found["source"] = (value.get("source") or {}).get("component", "")
        return found

    def validate_create(self, value: dict[str, Any], context: Context) -> list[FieldError]:
        namespace = value["metadata"].get("namespace", "")
        wanted = (value.get("involvedObject") or {}).get("namespace") or "default"
        if namespace != wanted:
            text = "does not match event.namespace"
            return [invalid_value("involvedObject.namespace", wanted, text)]
        return []


class Pods(Strategy):
    fields_supported = frozenset({"metadata.name", "metadata.namespace", "spec.nodeName", "status.phase"})

    def fields(self, value: dict[str, Any]) -> Mapping[str, str]:
        node = (value.get("spec") or {}).get("nodeName", "")
        phase = (value.get("status") or {}).get("phase", "")
        return {**super().fields(value), "spec.nodeName": node, "status.phase": phase}

    def prepare_create(self, value: dict[str, Any], context: Context) -> None:
        value["status"] = {"phase": "Pending"}

    def prepare_update(self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context) -> None:
        keep(value, old, "spec" if subresource == "status" else "status")


class Services(Strategy):
    name_rule = staticmethod(metadata.label_1035)


_STATUS = frozenset({"status"})
RBAC = "rbac.authorization.k8s.io"


def builtin_types() -> list[ResourceType]:
    """Every built-in resource that is stored (reviews are answered without storage)."""
    return [*_core_types(), *_group_types()]


def _core_types() -> list[ResourceType]:
    return [
        ResourceType(
            "",
            "namespaces",
            "Namespace",
            namespaced=False,
            strategy=Namespaces(),
            subresources=frozenset({"status", "finalize"}),
            short_names=("ns",),
            schemas={"v1": NAMESPACE},
            verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
        ),
        ResourceType("", "secrets", "Secret", strategy=Secrets(), schemas={"v1": SECRET}),
        ResourceType(
            "", "configmaps", "ConfigMap", short_names=("cm",), strategy=ConfigMaps(), schemas={"v1": CONFIG_MAP}
        ),
        ResourceType("", "events", "Event", short_names=("ev",), strategy=Events(), schemas={"v1": EVENT}),
        ResourceType(
            "", "nodes", "Node", namespaced=False, strategy=Nodes(), subresources=_STATUS, short_names=("no",)
        ),
        ResourceType(
            "", "pods", "Pod", strategy=Pods(), subresources=_STATUS, short_names=("po",), categories=("all",)
        ),
        ResourceType(
            "",
            "services",
            "Service",
            strategy=Services(),
            subresources=_STATUS,
            short_names=("svc",),
            categories=("all",),
        ),
        ResourceType("", "serviceaccounts", "ServiceAccount", short_names=("sa",), schemas={"v1": SERVICE_ACCOUNT}),
    ]


def _group_types() -> list[ResourceType]:
    return [
        ResourceType("coordination.k8s.io", "leases", "Lease", strategy=Leases(), schemas={"v1": LEASE}),
        ResourceType(
            "certificates.k8s.io",
            "certificatesigningrequests",
            "CertificateSigningRequest",
            namespaced=False,
            strategy=CertificateSigningRequests(),
            subresources=frozenset({"status", "approval"}),
            short_names=("csr",),
            schemas={"v1": CSR},
        ),
        ResourceType(RBAC, "roles", "Role", strategy=Roles(), schemas={"v1": RBAC_ROLE}),
        ResourceType(RBAC, "rolebindings", "RoleBinding", strategy=Bindings(), schemas={"v1": BINDING}),
        ResourceType(
            RBAC, "clusterroles", "ClusterRole", namespaced=False, strategy=Roles(), schemas={"v1": CLUSTER_ROLE}
        ),
        ResourceType(
            RBAC,
            "clusterrolebindings",
            "ClusterRoleBinding",
            namespaced=False,
            strategy=Bindings(),
            schemas={"v1": BINDING},
        ),
        *(
            ResourceType(
                "admissionregistration.k8s.io",
                f"{kind.lower()}s",
                kind,
                namespaced=False,
                strategy=WebhookConfigurations(mutating=kind.startswith("Mutating")),
                categories=("api-extensions",),
            )
            for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        ),
        ResourceType(
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            "CustomResourceDefinition",
            namespaced=False,
            strategy=CustomResourceDefinitions(),
            subresources=_STATUS,
            short_names=("crd", "crds"),
            categories=("api-extensions",),
        ),
    ]
