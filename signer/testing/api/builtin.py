"""The built-in resources: their names, their schemas as far as this server checks them, and their own rules."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from . import metadata
from .crd_definitions import CustomResourceDefinitions
from .crd_schema import Schema, compile_schema
from .csr_rules import CertificateSigningRequests
from .escalation import admit_binding, admit_role
from .node_restriction import Leases, Nodes
from .resource_types import ResourceType
from .status import FieldError, forbidden_field, invalid_value, required
from .strategy import Context, Strategy, keep

_STRING: dict[str, Any] = {"type": "string"}
_INTEGER: dict[str, Any] = {"type": "integer", "format": "int64"}
_BOOLEAN: dict[str, Any] = {"type": "boolean"}
_TIME: dict[str, Any] = {"type": "string", "format": "date-time"}
_BYTES: dict[str, Any] = {"type": "string", "format": "byte"}
_ANYTHING: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _map(values: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values}


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def _schema(**properties: dict[str, Any]) -> Schema:
    return compile_schema({"type": "object", "properties": properties})


_STRINGS = _list(_STRING)
_REFERENCE = _object(
    kind=_STRING,
    namespace=_STRING,
    name=_STRING,
    uid=_STRING,
    apiVersion=_STRING,
    resourceVersion=_STRING,
    fieldPath=_STRING,
    apiGroup=_STRING,
)
_RULES = _list(
    _object(verbs=_STRINGS, apiGroups=_STRINGS, resources=_STRINGS, resourceNames=_STRINGS, nonResourceURLs=_STRINGS)
)
_CONDITION = _object(
    type=_STRING,
    status=_STRING,
    reason=_STRING,
    message=_STRING,
    lastUpdateTime=_TIME,
    lastTransitionTime=_TIME,
)
_CSR = _schema(
    spec=_object(
        request=_BYTES,
        signerName=_STRING,
        expirationSeconds={"type": "integer", "format": "int32"},
        usages=_STRINGS,
        username=_STRING,
        uid=_STRING,
        groups=_STRINGS,
        extra=_map(_STRINGS),
    ),
    status=_object(conditions=_list(_CONDITION), certificate=_BYTES),
)
_EVENT = _schema(
    involvedObject=_REFERENCE,
    reason=_STRING,
    message=_STRING,
    source=_object(component=_STRING, host=_STRING),
    firstTimestamp=_TIME,
    lastTimestamp=_TIME,
    count=_INTEGER,
    type=_STRING,
    eventTime=_TIME,
    series=_object(count=_INTEGER, lastObservedTime=_TIME),
    action=_STRING,
    related=_REFERENCE,
    reportingComponent=_STRING,
    reportingInstance=_STRING,
)
_LEASE = _schema(
    spec=_object(
        holderIdentity=_STRING,
        leaseDurationSeconds=_INTEGER,
        acquireTime=_TIME,
        renewTime=_TIME,
        leaseTransitions=_INTEGER,
        strategy=_STRING,
        preferredHolder=_STRING,
    )
)
_SUBJECTS = _list(_REFERENCE)
_RBAC_ROLE = _schema(rules=_RULES)
_CLUSTER_ROLE = _schema(rules=_RULES, aggregationRule=_ANYTHING)
_BINDING = _schema(subjects=_SUBJECTS, roleRef=_REFERENCE)
_CONFIG_MAP = _schema(data=_map(_STRING), binaryData=_map(_BYTES), immutable=_BOOLEAN)
_SECRET = _schema(data=_map({**_BYTES, "nullable": True}), stringData=_map(_STRING), type=_STRING, immutable=_BOOLEAN)
_SERVICE_ACCOUNT = _schema(
    secrets=_list(_REFERENCE), imagePullSecrets=_list(_object(name=_STRING)), automountServiceAccountToken=_BOOLEAN
)
_NAMESPACE = _schema(spec=_object(finalizers=_STRINGS), status=_ANYTHING)


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
            schemas={"v1": _NAMESPACE},
            verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
        ),
        ResourceType("", "secrets", "Secret", strategy=Secrets(), schemas={"v1": _SECRET}),
        ResourceType(
            "", "configmaps", "ConfigMap", short_names=("cm",), strategy=ConfigMaps(), schemas={"v1": _CONFIG_MAP}
        ),
        ResourceType("", "events", "Event", short_names=("ev",), strategy=Events(), schemas={"v1": _EVENT}),
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
        ResourceType("", "serviceaccounts", "ServiceAccount", short_names=("sa",), schemas={"v1": _SERVICE_ACCOUNT}),
    ]


def _group_types() -> list[ResourceType]:
    return [
        ResourceType("coordination.k8s.io", "leases", "Lease", strategy=Leases(), schemas={"v1": _LEASE}),
        ResourceType(
            "certificates.k8s.io",
            "certificatesigningrequests",
            "CertificateSigningRequest",
            namespaced=False,
            strategy=CertificateSigningRequests(),
            subresources=frozenset({"status", "approval"}),
            short_names=("csr",),
            schemas={"v1": _CSR},
        ),
        ResourceType(RBAC, "roles", "Role", strategy=Roles(), schemas={"v1": _RBAC_ROLE}),
        ResourceType(RBAC, "rolebindings", "RoleBinding", strategy=Bindings(), schemas={"v1": _BINDING}),
        ResourceType(
            RBAC, "clusterroles", "ClusterRole", namespaced=False, strategy=Roles(), schemas={"v1": _CLUSTER_ROLE}
        ),
        ResourceType(
            RBAC,
            "clusterrolebindings",
            "ClusterRoleBinding",
            namespaced=False,
            strategy=Bindings(),
            schemas={"v1": _BINDING},
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
