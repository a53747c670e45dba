"""Pruning, defaults and validation of custom resources."""

from __future__ import annotations

from typing import Any

import pytest

from signer.testing.api.crd_schema import SchemaError, apply_defaults, compile_pattern, compile_schema, prune
from signer.testing.api.crd_validation import validate

_SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["mode"],
    "properties": {
        "mode": {"type": "string", "enum": ["Observe", "Enforce"]},
        "name": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 4},
        "count": {"type": "integer", "minimum": 1, "maximum": 3, "format": "int32"},
        "items": {
            "type": "array",
            "minItems": 1,
            "maxItems": 2,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["key"],
            "items": {
                "type": "object",
                "properties": {"key": {"type": "string"}, "size": {"default": 5, "type": "integer"}},
            },
        },
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "port": {"x-kubernetes-int-or-string": True},
        "time": {"type": "string", "format": "date-time"},
        "seconds": {"type": "integer", "default": 600},
        "nullable": {"type": "string", "nullable": True, "default": "x"},
        "one": {
            "type": "object",
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
            "properties": {"a": {}, "b": {}},
        },
    },
}
_SCHEMA = compile_schema({"type": "object", "properties": {"spec": _SPEC}})


def _errors(**spec: Any) -> list[tuple[str, str]]:
    value = {"spec": {"mode": "Observe", **spec}}
    return [(error.field, error.reason) for error in validate(value, _SCHEMA)]


def test_pruning_names_what_it_drops() -> None:
    value = {
        "apiVersion": "a/v1",
        "kind": "K",
        "metadata": {"name": "n"},
        "other": 1,
        "spec": {"mode": "Observe", "x": 1, "free": {"y": 1}, "labels": {"z": "1"}, "items": [{"key": "a", "w": 1}]},
    }
    assert prune(value, _SCHEMA) == ["other", "spec.x", "spec.items[0].w"]
    assert value["spec"] == {"mode": "Observe", "free": {"y": 1}, "labels": {"z": "1"}, "items": [{"key": "a"}]}
    assert value["metadata"] == {"name": "n"}


def test_defaults_fill_in_and_nulls_go() -> None:
    value: dict[str, Any] = {"spec": {"mode": None, "seconds": None, "nullable": None, "items": [{"key": "a"}]}}
    apply_defaults(value, _SCHEMA)
    assert value["spec"] == {"seconds": 600, "nullable": None, "items": [{"key": "a", "size": 5}]}


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"mode": "x"}, "FieldValueNotSupported"),
        ({"mode": 1}, "FieldValueInvalid"),
        ({"name": "a1"}, "FieldValueInvalid"),
        ({"name": "a"}, "FieldValueInvalid"),
        ({"name": "ab\n"}, "FieldValueInvalid"),
        ({"name": "abcde"}, "FieldValueTooLong"),
        ({"count": 0}, "FieldValueInvalid"),
        ({"count": 4}, "FieldValueInvalid"),
        ({"count": True}, "FieldValueInvalid"),
        ({"items": []}, "FieldValueInvalid"),
        ({"items": [{"key": "a"}, {"key": "b"}, {"key": "c"}]}, "FieldValueTooMany"),
        ({"port": 1.5}, "FieldValueInvalid"),
        ({"time": "2020-01-01"}, "FieldValueInvalid"),
        ({"one": {}}, "FieldValueInvalid"),
        ({"one": {"a": 1, "b": 2}}, "FieldValueInvalid"),
    ],
)
def test_violation(spec: dict[str, Any], reason: str) -> None:
    name = next(iter(spec))
    assert _errors(**spec) == [(f"spec.{name}", reason)]


def test_duplicate_map_keys_and_missing_fields() -> None:
    assert _errors(items=[{"key": "a"}, {"key": "a"}]) == [("spec.items[1]", "FieldValueDuplicate")]
    assert _errors(labels={"a": 1}) == [("spec.labels.a", "FieldValueInvalid")]
    assert [error.field for error in validate({"spec": {}}, _SCHEMA)] == ["spec.mode"]


@pytest.mark.parametrize("spec", [{"port": 1}, {"port": "80%"}, {"time": "2020-01-01T00:00:00Z"}, {"one": {"a": 1}}])
def test_valid(spec: dict[str, Any]) -> None:
    assert _errors(**spec) == []


def test_messages_are_those_of_kubernetes() -> None:
    assert [str(error) for error in validate({"spec": {"mode": "x"}}, _SCHEMA)] == [
        'spec.mode: Unsupported value: "x": supported values: "Observe", "Enforce"'
    ]


def test_pattern_that_python_cannot_express_is_refused() -> None:
    assert compile_pattern(r"^[a$]\d\z").search("$7")
    with pytest.raises(SchemaError):
        compile_pattern("(?P<")
