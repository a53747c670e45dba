"""The built-in resources: their names, and their own rules."""

from __future__ import annotations

import base64
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
from .escalation import admit_binding, admit_role
from .node_restriction import Leases, Nodes
from .resource_types import ResourceType
from .status import FieldError, forbidden_field, invalid_value, required
from .strategy import Context, Strategy, keep


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


class Secrets(Strategy):
    """``stringData`` is written into ``data``; the type never changes."""

    fields_supported = frozenset({"metadata.name", "metadata.namespace", "type"})

    def fields(self, value: dict[str, Any]) -> Mapping[str, str]:
        return {**super().fields(value), "type": value.get("type", "")}

    def prepare_create(self, value: dict[str, Any], context: Context) -> None:
        import_string_data(value)
        value.setdefault("type", "Opaque")

    def prepare_update(self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context) -> None:
        import_string_data(value)
        if not value.get("type"):
            value["type"] = old["type"]

    def validate_update(
        self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context
    ) -> list[FieldError]:
        errors = []
        if value["type"] != old["type"]:
            errors.append(invalid_value("type", value["type"], "field is immutable"))
        return errors + _immutable(value, old)


def import_string_data(value: dict[str, Any]) -> None:
    texts = value.pop("stringData", None)
    if texts:
        data = dict(value.get("data") or {})
        data.update({name: base64.b64encode(text.encode()).decode() for name, text in texts.items()})
        value["data"] = data


def _immutable(value: dict[str, Any], old: dict[str, Any]) -> list[FieldError]:
    if not old.get("immutable"):
        return []
    text = "field is immutable when `immutable` is set"
    names = ("data", "binaryData", "immutable")
    return [forbidden_field(name, text) for name in names if value.get(name) != old.get(name)]


class ConfigMaps(Strategy):
    def validate_update(
        self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context
    ) -> list[FieldError]:
        return _immutable(value, old)


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


class Bindings(Strategy):
    """RoleBindings and ClusterRoleBindings: the role is fixed, kinds are checked."""

    name_rule = staticmethod(metadata.path_segment)
    create_on_update = True

    def prepare_create(self, value: dict[str, Any], context: Context) -> None:
        reference = value.get("roleRef") or {}
        value["roleRef"] = {**reference, "apiGroup": reference.get("apiGroup") or "rbac.authorization.k8s.io"}
        subjects = []
        for subject in value.get("subjects") or []:
            kind = subject.get("kind", "")
            group = "" if kind == "ServiceAccount" else "rbac.authorization.k8s.io"
            subjects.append({**subject, "apiGroup": subject.get("apiGroup") or group})
            if not subjects[-1]["apiGroup"]:
                del subjects[-1]["apiGroup"]
        if subjects:
            value["subjects"] = subjects

    def prepare_update(self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context) -> None:
        self.prepare_create(value, context)

    def validate_create(self, value: dict[str, Any], context: Context) -> list[FieldError]:
        errors = []
        reference = value["roleRef"]
        if reference.get("kind") not in {"Role", "ClusterRole"}:
            errors.append(invalid_value("roleRef.kind", reference.get("kind", ""), "must be Role or ClusterRole"))
        if not reference.get("name"):
            errors.append(required("roleRef.name"))
        for index, subject in enumerate(value.get("subjects") or []):
            if subject.get("kind") not in {"User", "Group", "ServiceAccount"}:
                errors.append(invalid_value(f"subjects[{index}].kind", subject.get("kind", ""), "unknown kind"))
            if not subject.get("name"):
                errors.append(required(f"subjects[{index}].name"))
        return errors

    def validate_update(
        self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context
    ) -> list[FieldError]:
        errors = self.validate_create(value, context)
        if value["roleRef"] != old["roleRef"]:
            errors.append(invalid_value("roleRef", value["roleRef"], "cannot change roleRef"))
        return errors

    def admit_create(self, value: dict[str, Any], context: Context) -> None:
        admit_binding(value, context)

    def admit_update(self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context) -> None:
        if value.get("subjects") != old.get("subjects"):
            admit_binding(value, context)


class Roles(Strategy):
    name_rule = staticmethod(metadata.path_segment)
    create_on_update = True

    def validate_create(self, value: dict[str, Any], context: Context) -> list[FieldError]:
        return [
            required(f"rules[{index}].verbs", "verbs must contain at least one value")
            for index, rule in enumerate(value.get("rules") or [])
            if not rule.get("verbs")
        ]

    def validate_update(
        self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context
    ) -> list[FieldError]:
        return self.validate_create(value, context)

    def admit_create(self, value: dict[str, Any], context: Context) -> None:
        admit_role(value, context)

    def admit_update(self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context) -> None:
        if value.get("rules") != old.get("rules"):
            admit_role(value, context)


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
