"""Discovery documents: which groups, versions and resources there are, and a minimal OpenAPI v3 for kubectl."""

from __future__ import annotations

from typing import Any

from .resource_types import Catalogue, ResourceType
from .reviews import KINDS

_REVIEW_GROUPS = sorted({group for group, _ in KINDS})
_PATCH_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation", "force", "pretty")


def _group_versions(catalogue: Catalogue) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for resource in catalogue.types():
        versions = found.setdefault(resource.group, [])
        for version in (resource.storage_version, *resource.versions):
            if version in resource.versions and version not in versions:
                versions.append(version)
    for group in _REVIEW_GROUPS:
        found.setdefault(group, ["v1"])
    return found


def _group(name: str, versions: list[str]) -> dict[str, Any]:
    named = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": named, "preferredVersion": named[0]}


def _resources(catalogue: Catalogue, group: str, version: str) -> list[dict[str, Any]]:
    found = []
    for resource in catalogue.types():
        if resource.group != group or version not in resource.versions:
            continue
        entry: dict[str, Any] = {
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": list(resource.verbs),
        }
        if resource.short_names:
            entry["shortNames"] = list(resource.short_names)
        if resource.categories:
            entry["categories"] = list(resource.categories)
        found.append(entry)
        for subresource in sorted(resource.subresources):
            verbs = ["update"] if subresource == "finalize" else ["get", "patch", "update"]
            common = {"singularName": "", "namespaced": resource.namespaced, "kind": resource.kind}
            found.append({"name": f"{resource.plural}/{subresource}", **common, "verbs": verbs})
    for (review_group, plural), (kind, namespaced) in KINDS.items():
        if review_group == group and version == "v1":
            singular = kind.lower()
            found.append(
                {"name": plural, "singularName": singular, "namespaced": namespaced, "kind": kind, "verbs": ["create"]}
            )
    return found


def document(catalogue: Catalogue, path: str, address: str) -> dict[str, Any] | None:
    """The document at ``/api``, ``/apis`` or below, or None where there is none."""
    parts = [part for part in path.split("/") if part]
    groups = _group_versions(catalogue)
    match parts:
        case ["api"]:
            addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
            return {"kind": "APIVersions", "versions": groups[""], "serverAddressByClientCIDRs": addresses}
        case ["apis"]:
            listed = [_group(name, versions) for name, versions in groups.items() if name]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
        case ["apis", name] if name in groups and name:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, groups[name])}
        case ["api", version] if version in groups[""]:
            return _resource_list(catalogue, "", version)
        case ["apis", name, version] if name and version in groups.get(name, []):
            return _resource_list(catalogue, name, version)
        case ["openapi", "v3"]:
            paths = [f"apis/{name}/{v}" if name else f"api/{v}" for name, vs in groups.items() for v in vs]
            return {"paths": {entry: {"serverRelativeURL": f"/openapi/v3/{entry}"} for entry in paths}}
        case ["openapi", "v3", "api", version] if version in groups[""]:
            return _openapi(catalogue, "", version)
        case ["openapi", "v3", "apis", name, version] if version in groups.get(name, []):
            return _openapi(catalogue, name, version)
        case _:
            return None


def _resource_list(catalogue: Catalogue, group: str, version: str) -> dict[str, Any]:
    group_version = f"{group}/{version}" if group else version
    resources = _resources(catalogue, group, version)
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}


def _openapi(catalogue: Catalogue, group: str, version: str) -> dict[str, Any]:
    """Paths without schemas: they tell kubectl that the server itself validates fields."""
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    for resource in catalogue.types():
        if resource.group == group and version in resource.versions:
            kind = {"group": group, "version": version, "kind": resource.kind}
            parameters = [
                {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
                for name in _PATCH_PARAMETERS
            ]
            operation = {
                "parameters": parameters,
                "responses": {"200": {"description": "OK"}},
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": kind,
            }
            paths[_object_path(resource, version)] = {"patch": operation}
            schemas[f"{group or 'core'}.{version}.{resource.kind}"] = {
                "type": "object",
                "x-kubernetes-group-version-kind": [kind],
                "x-kubernetes-preserve-unknown-fields": True,
            }
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "embedded"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _object_path(resource: ResourceType, version: str) -> str:
    prefix = f"/apis/{resource.group}/{version}" if resource.group else f"/api/{version}"
    scope = "/namespaces/{namespace}" if resource.namespaced else ""
    return f"{prefix}{scope}/{resource.plural}/{{name}}"


def version_info(server_version: tuple[int, int]) -> dict[str, str]:
    """The answer of ``/version``."""
    major, minor = server_version
    return {
        "major": str(major),
        "minor": str(minor),
        "gitVersion": f"v{major}.{minor}.0",
        "gitCommit": "embedded",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "python",
        "platform": "linux/amd64",
    }
