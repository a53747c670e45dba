"""CustomResourceDefinitions: their own storage rules, and the resource types that they define."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import metadata
from .crd_schema import SchemaError, compile_schema
from .crd_structure import structural_schema
from .resource_types import ResourceType
from .status import FieldError, forbidden_field, invalid_value, required, unsupported
from .strategy import Context, Strategy, keep

_SCOPES = ("Cluster", "Namespaced")
_KINDS = frozenset({"kind", "listKind"})
_COLUMN_TYPES = ("integer", "number", "string", "boolean", "date")


def _complete(spec: dict[str, Any]) -> None:
    names = spec.setdefault("names", {})
    kind = names.get("kind", "")
    if kind:
        names.setdefault("singular", kind.lower())
        names.setdefault("listKind", kind + "List")
    spec.setdefault("conversion", {"strategy": "None"})


def _established(value: dict[str, Any], previous: dict[str, Any] | None) -> dict[str, Any]:
    """The status that the apiextensions controllers give a definition without naming conflicts."""
    spec = value["spec"]
    stored = list((previous or {}).get("storedVersions") or [])
    for version in spec.get("versions") or []:
        if version.get("storage") and version["name"] not in stored:
            stored.append(version["name"])
    conditions = (previous or {}).get("conditions")
    if not conditions:
        accepted = {"reason": "NoConflicts", "message": "no conflicts found"}
        ready = {"reason": "InitialNamesAccepted", "message": "the initial names have been accepted"}
        common = {"status": "True", "lastTransitionTime": metadata.now()}
        conditions = [{"type": "NamesAccepted", **common, **accepted}, {"type": "Established", **common, **ready}]
    return {"conditions": conditions, "acceptedNames": spec["names"], "storedVersions": stored}


class CustomResourceDefinitions(Strategy):
    """``apiextensions.k8s.io/v1``. A definition is established at once (the real server takes some milliseconds)."""

    unconditional_update = False
    generation = True

    def prepare_create(self, value: dict[str, Any], context: Context) -> None:
        spec = value.setdefault("spec", {})
        _complete(spec)
        value["status"] = _established(value, None)

    def prepare_update(self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context) -> None:
        if subresource == "status":
            keep(value, old, "spec")
            return
        _complete(value.setdefault("spec", {}))
        value["status"] = _established(value, old.get("status"))

    def fields(self, value: dict[str, Any]) -> Mapping[str, str]:
        return {"metadata.name": value["metadata"]["name"], "metadata.namespace": ""}

    def validate_create(self, value: dict[str, Any], context: Context) -> list[FieldError]:
        spec = value["spec"]
        names = spec.get("names") or {}
        errors = []
        wanted = f"{names.get('plural', '')}.{spec.get('group', '')}"
        if value["metadata"].get("name") != wanted:
            text = 'must be spec.names.plural+"."+spec.group'
            errors.append(invalid_value("metadata.name", value["metadata"].get("name", ""), text))
        if "." not in spec.get("group", ""):
            errors.append(
                invalid_value("spec.group", spec.get("group", ""), "should be a domain with at least one dot")
            )
        if spec.get("scope") not in _SCOPES:
            errors.append(unsupported("spec.scope", spec.get("scope", ""), _SCOPES))
        errors += [required(f"spec.names.{name}") for name in ("plural", "kind") if not names.get(name)]
        errors += [
            invalid_value(f"spec.names.{name}", found, reason)
            for name in ("plural", "singular", "kind", "listKind")
            if (found := names.get(name))
            and (reason := metadata.label_1035(found.lower() if name in _KINDS else found))
        ]
        return errors + _validate_versions(spec)

    def validate_update(
        self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context
    ) -> list[FieldError]:
        errors = self.validate_create(value, context)
        for name in ("group", "scope"):
            if value["spec"].get(name) != old["spec"].get(name):
                errors.append(invalid_value(f"spec.{name}", value["spec"].get(name, ""), "field is immutable"))
        served = {version.get("name") for version in value["spec"].get("versions") or []}
        for stored in (value.get("status") or {}).get("storedVersions") or []:
            if stored not in served:
                text = f'must appear in spec.versions: missing "{stored}"'
                errors.append(invalid_value("status.storedVersions", stored, text))
        return errors


def _validate_versions(spec: dict[str, Any]) -> list[FieldError]:
    errors: list[FieldError] = []
    versions = spec.get("versions") or []
    if sum(bool(version.get("storage")) for version in versions) != 1:
        text = "must have exactly one version marked as storage version"
        errors.append(invalid_value("spec.versions", [version.get("name") for version in versions], text))
    if (spec.get("conversion") or {}).get("strategy") != "None":
        errors.append(forbidden_field("spec.conversion", "the embedded API has no conversion webhooks"))
    for index, version in enumerate(versions):
        path, name = f"spec.versions[{index}]", version.get("name", "")
        if reason := metadata.label_1035(name):
            errors.append(invalid_value(f"{path}.name", name, reason))
        if any(other.get("name", "") == name for other in versions[:index]):
            errors.append(invalid_value("spec.versions", name, "must contain unique version names"))
        for number, column in enumerate(version.get("additionalPrinterColumns") or []):
            where = f"{path}.additionalPrinterColumns[{number}]"
            if column.get("type") not in _COLUMN_TYPES:
                errors.append(unsupported(f"{where}.type", column.get("type", ""), _COLUMN_TYPES))
            errors += [required(f"{where}.{field}") for field in ("name", "jsonPath") if not column.get(field)]
        source = (version.get("schema") or {}).get("openAPIV3Schema")
        if source is None:
            errors.append(required(f"{path}.schema.openAPIV3Schema", "schemas are required"))
            continue
        try:
            structural_schema(source)
        except SchemaError as error:
            errors.append(invalid_value(f"{path}.schema", version.get("name", ""), str(error)))
    return errors


def custom_type(definition: dict[str, Any]) -> ResourceType:
    """The resource type of a valid, stored definition."""
    spec = definition["spec"]
    names = spec["names"]
    served = [version for version in spec["versions"] if version.get("served", True)]
    storage = next(version for version in spec["versions"] if version.get("storage"))
    subresources = frozenset(name for version in served for name in version.get("subresources") or {})
    strategy = CustomResources(status="status" in subresources)
    return ResourceType(
        spec["group"],
        names["plural"],
        names["kind"],
        tuple(version["name"] for version in served),
        namespaced=spec["scope"] == "Namespaced",
        strategy=strategy,
        subresources=subresources & {"status"},
        singular=names["singular"],
        list_kind=names["listKind"],
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        schemas={version["name"]: compile_schema(version["schema"]["openAPIV3Schema"]) for version in served},
        columns={version["name"]: version.get("additionalPrinterColumns") or [] for version in served},
        storage_version=storage["name"],
        custom=True,
    )


class CustomResources(Strategy):
    """Objects of a custom resource: status is written only through /status, where that subresource exists."""

    unconditional_update = False
    generation = True

    def __init__(self, *, status: bool) -> None:
        self._status = status

    def prepare_create(self, value: dict[str, Any], context: Context) -> None:
        if self._status:
            value.pop("status", None)

    def prepare_update(self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context) -> None:
        if subresource == "status":
            version = value["metadata"].get("resourceVersion")
            keep(value, old, *(set(value) | set(old)) - {"status", "metadata", "apiVersion", "kind"})
            value["metadata"] = dict(old["metadata"])
            if version:
                value["metadata"]["resourceVersion"] = version
        elif self._status:
            keep(value, old, "status")
