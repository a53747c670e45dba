"""What makes a schema structural: whether an API server takes a CustomResourceDefinition with it.

Follows k8s.io/apiextensions-apiserver ``pkg/apiserver/schema`` and ``pkg/apis/apiextensions/validation``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from .crd_schema import Schema, SchemaError, apply_defaults, compile_schema, prune
from .crd_validation import validate

_TYPES: Final = frozenset({"array", "boolean", "integer", "number", "object", "string"})
_LIST_TYPES: Final = frozenset({"atomic", "map", "set"})
_JUNCTORS: Final = ("allOf", "anyOf", "oneOf")
_NOT_IN_JUNCTORS: Final = (
    "additionalProperties",
    "default",
    "nullable",
    "type",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
)
_FORBIDDEN: Final = ("$ref", "definitions", "dependencies", "patternProperties")


def structural_schema(source: dict[str, Any]) -> Schema:
    """The schema of a version of a custom resource. Raises SchemaError; the text starts with the path."""
    schema = compile_schema(source)
    _check(source, "openAPIV3Schema")
    if schema.type != "object":
        raise SchemaError(f"openAPIV3Schema.type: {schema.type!r} must be object at the root")
    if source.get("additionalProperties") is not None:
        raise SchemaError("openAPIV3Schema.additionalProperties: must not be used at the root")
    metadata = (source.get("properties") or {}).get("metadata") or {}
    if {"default", "required"} & metadata.keys() or set(metadata.get("properties") or ()) - {"name", "generateName"}:
        text = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        raise SchemaError(f"openAPIV3Schema.properties[metadata]: {text}")
    _check_defaults(schema, "openAPIV3Schema")
    return schema


def _check(source: dict[str, Any], path: str) -> None:
    kind = source.get("type", "")
    free = source.get("x-kubernetes-int-or-string") or source.get("x-kubernetes-preserve-unknown-fields")
    if not kind and not free:
        raise SchemaError(f"{path}.type: must not be empty for specified object fields, array items and properties")
    if kind and kind not in _TYPES:
        raise SchemaError(f"{path}.type: {kind!r} is none of {', '.join(sorted(_TYPES))}")
    for name in _FORBIDDEN:
        if source.get(name):
            raise SchemaError(f"{path}.{name}: is not supported")
    if source.get("uniqueItems"):
        raise SchemaError(f"{path}.uniqueItems: cannot be set to true: x-kubernetes-list-type set says the same")
    if kind == "array" and not isinstance(source.get("items"), dict):
        raise SchemaError(f"{path}.items: must be specified, and one schema")
    additional = source.get("additionalProperties")
    if additional is not None and source.get("properties"):
        raise SchemaError(f"{path}.additionalProperties: additionalProperties and properties are mutual exclusive")
    _check_list(source, path)
    for keyword in _JUNCTORS:
        for index, branch in enumerate(source.get(keyword) or ()):
            _check_branch(branch, f"{path}.{keyword}[{index}]", of_both=bool(source.get("x-kubernetes-int-or-string")))
    if isinstance(source.get("not"), dict):
        _check_branch(source["not"], f"{path}.not", of_both=False)
    for where, child in _children(source, path):
        _check(child, where)


def _children(source: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, child in (source.get("properties") or {}).items():
        yield f"{path}.properties[{name}]", child
    for keyword in ("items", "additionalProperties"):
        if isinstance(source.get(keyword), dict):
            yield f"{path}.{keyword}", source[keyword]


def _check_list(source: dict[str, Any], path: str) -> None:
    kind, keys = source.get("x-kubernetes-list-type"), source.get("x-kubernetes-list-map-keys")
    if kind is not None and kind not in _LIST_TYPES:
        raise SchemaError(f"{path}.x-kubernetes-list-type: {kind!r} is none of {', '.join(sorted(_LIST_TYPES))}")
    if kind != "map":
        return
    if not keys:
        raise SchemaError(f"{path}.x-kubernetes-list-map-keys: must not be empty if x-kubernetes-list-type is map")
    items = source.get("items") or {}
    for key in keys:
        found = (items.get("properties") or {}).get(key)
        if found is None:
            raise SchemaError(f"{path}.x-kubernetes-list-map-keys: {key} is no property of the items")
        if "default" not in found and key not in (items.get("required") or ()):
            text = "is in x-kubernetes-list-map-keys, so it must have a default or be required"
            raise SchemaError(f"{path}.items.properties[{key}].default: {text}")


def _check_branch(source: dict[str, Any], path: str, *, of_both: bool) -> None:
    """Below allOf, anyOf, oneOf and not, values are restricted only; ``of_both``: by their type, if that may be two."""
    for name in _NOT_IN_JUNCTORS:
        if name in source and not (name == "type" and of_both and source["type"] in ("integer", "string")):
            raise SchemaError(f"{path}.{name}: must be empty to be structural")
    for where, child in _children(source, path):
        _check_branch(child, where, of_both=False)
    for keyword in _JUNCTORS:
        for index, branch in enumerate(source.get(keyword) or ()):
            _check_branch(branch, f"{path}.{keyword}[{index}]", of_both=of_both)


def _check_defaults(schema: Schema, path: str) -> None:
    if schema.default is not None:
        value = msgspec.json.decode(schema.default)
        if dropped := prune(value, schema, root=False):
            raise SchemaError(f"{path}.default: has a field that the schema does not know: {dropped[0]}")
        apply_defaults(value, schema)
        if errors := validate(value, schema, "default"):
            raise SchemaError(f"{path}.{errors[0]}")
    for name, child in schema.properties.items():
        _check_defaults(child, f"{path}.properties[{name}]")
    for keyword, child_schema in (("items", schema.items), ("additionalProperties", schema.additional)):
        if child_schema is not None:
            _check_defaults(child_schema, f"{path}.{keyword}")
