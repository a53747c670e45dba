"""Structural schemas of custom resources: compiling them, pruning unknown fields, applying defaults.

Follows k8s.io/apiextensions-apiserver ``pkg/apiserver/schema``. CEL rules (``x-kubernetes-validations``) are ignored.
Validation of values is in ``crd_validation``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import msgspec

_MISSING: Any = object()
_METADATA_FIELDS = ("apiVersion", "kind", "metadata")


class SchemaError(ValueError):
    """The schema is not a structural schema that this server can evaluate; the text starts with the path."""


@dataclass(slots=True)
class Schema:
    """One compiled node. Limits that are absent are None."""

    type: str = ""
    nullable: bool = False
    preserve: bool = False
    int_or_string: bool = False
    embedded: bool = False
    properties: dict[str, Schema] = field(default_factory=dict)
    additional: Schema | None = None
    items: Schema | None = None
    required: tuple[str, ...] = ()
    default: bytes | None = None
    enum: tuple[Any, ...] | None = None
    pattern: re.Pattern[str] | None = None
    pattern_text: str = ""
    format: str = ""
    limits: dict[str, Any] = field(default_factory=dict)
    list_type: str = ""
    list_map_keys: tuple[str, ...] = ()
    all_of: tuple[Schema, ...] = ()
    any_of: tuple[Schema, ...] = ()
    one_of: tuple[Schema, ...] = ()
    negated: Schema | None = None


_LIMITS = (
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
)


_NOT_RE2 = re.compile(r"\(\?(?:[=!>]|<[=!]|P=)|(?<!\\)(?:\\\\)*\\[1-9]")


def compile_pattern(text: str) -> re.Pattern[str]:
    """Go's RE2 syntax as a Python expression: ``$`` and ``\\z`` end the text, classes are ASCII.

    Raises SchemaError for what Python cannot express, so that a pattern is never silently ignored.
    """
    if _NOT_RE2.search(text):
        raise SchemaError(f"pattern {text!r}: RE2 knows neither lookaround nor references to groups")
    translated, index, in_class = "", 0, False
    while index < len(text):
        character = text[index]
        if character == "\\" and index + 1 < len(text):
            event_history = text[index + 1]
            translated += r"\Z" if event_history == "z" else character + event_history
            index += 2
            continue
        if character == "[":
            in_class = True
        elif character == "]":
            in_class = False
        translated += r"\Z" if character == "$" and not in_class else character
        index += 1
    try:
        return re.compile(translated, re.ASCII)
    except re.error as error:
        raise SchemaError(f"pattern {text!r}: {error}") from error


def compile_schema(source: dict[str, Any], path: str = "openAPIV3Schema") -> Schema:
    """Raises SchemaError."""
    if not isinstance(source, dict):
        raise SchemaError(f"{path}: must be an object")
    schema = Schema(
        type=source.get("type", ""),
        nullable=bool(source.get("nullable")),
        preserve=bool(source.get("x-kubernetes-preserve-unknown-fields")),
        int_or_string=bool(source.get("x-kubernetes-int-or-string")),
        embedded=bool(source.get("x-kubernetes-embedded-resource")),
        required=tuple(source.get("required") or ()),
        default=msgspec.json.encode(source["default"]) if "default" in source else None,
        enum=tuple(source["enum"]) if source.get("enum") is not None else None,
        pattern_text=source.get("pattern", ""),
        format=source.get("format", ""),
        limits={name: source[name] for name in _LIMITS if name in source},
        list_type=source.get("x-kubernetes-list-type", ""),
        list_map_keys=tuple(source.get("x-kubernetes-list-map-keys") or ()),
    )
    if schema.pattern_text:
        schema.pattern = compile_pattern(schema.pattern_text)
    for name, child in (source.get("properties") or {}).items():
        schema.properties[name] = compile_schema(child, f"{path}.properties[{name}]")
    additional = source.get("additionalProperties")
    if isinstance(additional, dict):
        schema.additional = compile_schema(additional, f"{path}.additionalProperties")
    elif additional is True:
        schema.additional = Schema(preserve=True)
    if "items" in source:
        schema.items = compile_schema(source["items"], f"{path}.items")
    for keyword, attribute in (("allOf", "all_of"), ("anyOf", "any_of"), ("oneOf", "one_of")):
        branches = source.get(keyword) or ()
        compiled = tuple(compile_schema(branch, f"{path}.{keyword}[{i}]") for i, branch in enumerate(branches))
        setattr(schema, attribute, compiled)
    if "not" in source:
        schema.negated = compile_schema(source["not"], f"{path}.not")
    return schema


def prune(value: Any, schema: Schema, *, root: bool = True) -> list[str]:
    """Drop in place the fields that the schema does not know; the answer names them (``spec.colour``)."""
    dropped: list[str] = []
    _prune(value, schema, "", dropped, embedded=root)
    return dropped


def _prune(value: Any, schema: Schema, path: str, dropped: list[str], *, embedded: bool = False) -> None:
    if isinstance(value, dict):
        for name in list(value):
            if (embedded or schema.embedded) and name in _METADATA_FIELDS:
                continue
            child = schema.properties.get(name, schema.additional)
            if child is not None:
                _prune(value[name], child, f"{path}.{name}" if path else name, dropped)
            elif not schema.preserve:
                del value[name]
                dropped.append(f"{path}.{name}" if path else name)
    elif isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            _prune(item, schema.items, f"{path}[{index}]", dropped)


def apply_defaults(value: Any, schema: Schema) -> None:
    """Drop nulls of fields that are not nullable, then fill in defaults, in place and recursively."""
    if isinstance(value, dict):
        for name, child in schema.properties.items():
            found = value.get(name, _MISSING)
            if found is None and not child.nullable:
                del value[name]
                found = _MISSING
            if found is _MISSING and child.default is not None:
                found = value[name] = msgspec.json.decode(child.default)
            if found is not _MISSING:
                apply_defaults(found, child)
        if schema.additional is not None:
            for name, found in value.items():
                if name not in schema.properties:
                    apply_defaults(found, schema.additional)
    elif isinstance(value, list) and schema.items is not None:
        for item in value:
            apply_defaults(item, schema.items)
