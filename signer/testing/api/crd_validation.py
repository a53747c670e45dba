"""Validation of values against a compiled structural schema, with the messages of the real server.

Messages follow k8s.io/kube-openapi ``pkg/validation`` and apiextensions-apiserver ``pkg/apiserver/validation``.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .crd_formats import format_matches
from .crd_schema import Schema
from .status import FieldError, duplicate, invalid_value, required, too_long, too_many, unsupported

_INTEGER_FORMATS = {"int32": 2**31, "int64": 2**63}
MAXIMUM_ERRORS = 64
"""An Invalid answer lists no more field errors than this."""


def validate(value: Any, schema: Schema, path: str = "") -> list[FieldError]:
    """Every violation, in document order, at most ``MAXIMUM_ERRORS``."""
    errors: list[FieldError] = []
    _validate(value, schema, path, errors)
    return errors[:MAXIMUM_ERRORS]


def _type_name(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def type_matches(value: Any, schema: Schema) -> bool:
    """Whether the JSON type is the declared one; an undeclared type accepts anything."""
    if value is None:
        return schema.nullable or (not schema.type and not schema.int_or_string)
    if schema.int_or_string:
        return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))
    match schema.type:
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            return whole and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case _:
            return True


def _validate(value: Any, schema: Schema, path: str, errors: list[FieldError]) -> None:
    if len(errors) >= MAXIMUM_ERRORS:
        return
    if not type_matches(value, schema):
        wanted = "integer,string" if schema.int_or_string else schema.type
        found = _type_name(value)
        errors.append(invalid_value(path, found, f'{path} in body must be of type {wanted}: "{found}"'))
        return
    if value is None:
        return
    if schema.enum is not None and value not in schema.enum:
        errors.append(unsupported(path, value, schema.enum))
    if isinstance(value, str):
        _string(value, schema, path, errors)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _number(value, schema, path, errors)
    elif isinstance(value, list):
        _array(value, schema, path, errors)
    elif isinstance(value, dict):
        _object(value, schema, path, errors)
    if schema.all_of or schema.any_of or schema.one_of or schema.negated is not None:
        _junctors(value, schema, path, errors)


def _string(value: str, schema: Schema, path: str, errors: list[FieldError]) -> None:
    limits = schema.limits
    if "minLength" in limits and len(value) < limits["minLength"]:
        text = f"{path} in body should be at least {limits['minLength']} chars long"
        errors.append(invalid_value(path, value, text))
    if "maxLength" in limits and len(value) > limits["maxLength"]:
        errors.append(too_long(path, limits["maxLength"]))
    if schema.pattern is not None and schema.pattern.search(value) is None:
        errors.append(invalid_value(path, value, f"{path} in body should match '{schema.pattern_text}'"))
    if schema.format and not format_matches(value, schema.format):
        text = f'{path} in body must be of type {schema.format}: "{value}"'
        errors.append(invalid_value(path, value, text))


def _number(value: int | float, schema: Schema, path: str, errors: list[FieldError]) -> None:
    limits = schema.limits
    bound = _INTEGER_FORMATS.get(schema.format)
    if bound is not None and not -bound <= value < bound:
        errors.append(invalid_value(path, value, f"Checked value must be of type integer with format {schema.format}"))
    if "minimum" in limits:
        minimum, exclusive = limits["minimum"], limits.get("exclusiveMinimum")
        if value < minimum or (exclusive and value == minimum):
            comparison = "greater than" if exclusive else "greater than or equal to"
            errors.append(invalid_value(path, value, f"{path} in body should be {comparison} {minimum}"))
    if "maximum" in limits:
        maximum, exclusive = limits["maximum"], limits.get("exclusiveMaximum")
        if value > maximum or (exclusive and value == maximum):
            comparison = "less than" if exclusive else "less than or equal to"
            errors.append(invalid_value(path, value, f"{path} in body should be {comparison} {maximum}"))
    if limits.get("multipleOf") and value % limits["multipleOf"]:
        errors.append(invalid_value(path, value, f"{path} in body should be a multiple of {limits['multipleOf']}"))


def _array(value: list[Any], schema: Schema, path: str, errors: list[FieldError]) -> None:
    limits = schema.limits
    if "minItems" in limits and len(value) < limits["minItems"]:
        text = f"{path} in body should have at least {limits['minItems']} items"
        errors.append(invalid_value(path, len(value), text))
    if "maxItems" in limits and len(value) > limits["maxItems"]:
        errors.append(too_many(path, len(value), limits["maxItems"]))
        return
    if schema.items is not None:
        for index, item in enumerate(value):
            _validate(item, schema.items, f"{path}[{index}]", errors)
    if schema.list_type in {"map", "set"} or limits.get("uniqueItems"):
        _unique(value, schema, path, errors)


def _unique(value: list[Any], schema: Schema, path: str, errors: list[FieldError]) -> None:
    seen: set[bytes] = set()
    for index, item in enumerate(value):
        identity = item
        if schema.list_type == "map":
            if not isinstance(item, dict):
                continue
            identity = {key: item.get(key) for key in schema.list_map_keys}
        encoded = msgspec.json.encode(identity, order="sorted")
        if encoded in seen:
            errors.append(duplicate(f"{path}[{index}]", identity))
        seen.add(encoded)


def _object(value: dict[str, Any], schema: Schema, path: str, errors: list[FieldError]) -> None:
    limits = schema.limits
    errors += [required(f"{path}.{name}" if path else name) for name in schema.required if name not in value]
    if "minProperties" in limits and len(value) < limits["minProperties"]:
        text = f"{path} in body should have at least {limits['minProperties']} properties"
        errors.append(invalid_value(path, len(value), text))
    if "maxProperties" in limits and len(value) > limits["maxProperties"]:
        errors.append(too_many(path, len(value), limits["maxProperties"]))
    for name, item in value.items():
        child = schema.properties.get(name, schema.additional)
        if child is not None:
            _validate(item, child, f"{path}.{name}" if path else name, errors)


def _junctors(value: Any, schema: Schema, path: str, errors: list[FieldError]) -> None:
    for branch in schema.all_of:
        _validate(value, branch, path, errors)
    if schema.any_of and all(validate(value, branch, path) for branch in schema.any_of):
        errors.append(invalid_value(path, "", f'"{path}" must validate at least one schema (anyOf)'))
    if schema.one_of and sum(not validate(value, branch, path) for branch in schema.one_of) != 1:
        errors.append(invalid_value(path, "", f'"{path}" must validate one and only one schema (oneOf)'))
    if schema.negated is not None and not validate(value, schema.negated, path):
        errors.append(invalid_value(path, "", f'"{path}" must not validate the schema (not)'))
