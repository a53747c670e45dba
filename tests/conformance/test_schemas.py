"""Which CustomResourceDefinitions there may be, and which texts their formats admit."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api import refused
from tests.support.processes import wait_until
from tests.support.raw_client import Answer, RawClient

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_GROUP = "schemas.example.com"
_TEXT = {"type": "string"}
_KEYED = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
_ITEMS = {"type": "object", "properties": {"name": _TEXT}, "required": ["name"]}


def _version(name: str, schema: dict[str, Any], *, storage: bool = True, **more: Any) -> dict[str, Any]:
    return {"name": name, "served": True, "storage": storage, "schema": {"openAPIV3Schema": schema}, **more}


def _definition(plural: str, *versions: dict[str, Any], **names: str) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{_GROUP}"},
        "spec": {
            "group": _GROUP,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": plural.capitalize(), **names},
            "versions": list(versions),
        },
    }


def _with(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def _try(admin: RawClient, *versions: dict[str, Any], **names: str) -> Answer:
    return admin.post(_CRDS, _definition("tries", *versions, **names), dryRun="All")


@pytest.mark.parametrize(
    "schema",
    [
        _with(spec={}),
        _with(spec={"type": "text"}),
        _with(spec={"type": "array"}),
        _with(spec={"type": "array", "items": {}}),
        _with(spec={"type": "object", "properties": {"a": _TEXT}, "additionalProperties": _TEXT}),
        _with(spec={"type": "object", "additionalProperties": {}}),
        _with(spec={"$ref": "#/definitions/spec"}),
        _with(spec={"type": "array", "uniqueItems": True, "items": _TEXT}),
        _with(spec={"type": "array", "items": _TEXT, "x-kubernetes-list-type": "bag"}),
        _with(spec={"type": "array", "items": _ITEMS, "x-kubernetes-list-type": "map"}),
        _with(spec={"type": "array", "items": {**_ITEMS, "required": []}, **_KEYED}),
        _with(spec={"type": "array", "items": _with(other=_TEXT), **_KEYED}),
        _with(spec={**_TEXT, "anyOf": [{"type": "string"}]}),
        _with(spec={**_TEXT, "not": {"type": "string"}}),
        _with(
            spec={"type": "object", "oneOf": [{"properties": {"a": {"type": "string"}}}], "properties": {"a": _TEXT}}
        ),
        _with(spec={"type": "integer", "default": "one"}),
        _with(spec={"type": "object", "default": {"unknown": 1}}),
        _with(spec={**_TEXT, "pattern": "(?=a)"}),
        _with(spec={**_TEXT, "pattern": "(a)\\1"}),
        _with(spec={**_TEXT, "pattern": "["}),
        _with(metadata={"type": "object", "properties": {"labels": {"type": "object"}}}),
        {"type": "object", "additionalProperties": False},
        {"type": "object", "additionalProperties": _TEXT},
        {"type": "string"},
    ],
)
def test_schema_that_is_not_structural_is_refused(admin: RawClient, schema: dict[str, Any]) -> None:
    refused(_try(admin, _version("v1", schema)), 422, "Invalid")


@pytest.mark.parametrize(
    "schema",
    [
        _with(spec={"x-kubernetes-preserve-unknown-fields": True}),
        _with(spec={"x-kubernetes-int-or-string": True}),
        _with(spec={"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
        _with(spec={"type": "object", "additionalProperties": {"type": "array", "items": _TEXT}}),
        _with(spec={"type": "object", "additionalProperties": False}),
        _with(spec={"type": "array", "items": _ITEMS, **_KEYED}),
        _with(spec={"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
        _with(spec={"type": "object", "default": {}, "properties": {"a": {**_TEXT, "default": "b"}}}),
        _with(spec={**_TEXT, "pattern": "^(?:a|b)(?P<name>c)$"}),
        _with(metadata={"type": "object", "properties": {"name": {**_TEXT, "maxLength": 10}}}),
    ],
)
def test_schema_that_is_structural(admin: RawClient, schema: dict[str, Any]) -> None:
    _try(admin, _version("v1", schema)).expect(201)


@pytest.mark.parametrize("name", ["V1", "v_1", "1", ""])
def test_version_is_a_label(admin: RawClient, name: str) -> None:
    refused(_try(admin, _version(name, _with())), 422, "Invalid")


def test_each_version_has_a_name_of_its_own(admin: RawClient) -> None:
    refused(_try(admin, _version("v1", _with()), _version("v1", _with(), storage=False)), 422, "Invalid")


@pytest.mark.parametrize("names", [{"kind": "two words"}, {"singular": "Try"}, {"listKind": "Try/List"}])
def test_names_are_labels(admin: RawClient, names: dict[str, str]) -> None:
    refused(_try(admin, _version("v1", _with()), **names), 422, "Invalid")


@pytest.mark.parametrize("column", [{"name": "A", "type": "text", "jsonPath": ".a"}, {"name": "A", "type": "string"}])
def test_columns_have_a_type_and_a_path(admin: RawClient, column: dict[str, str]) -> None:
    refused(_try(admin, _version("v1", _with(), additionalPrinterColumns=[column])), 422, "Invalid")


_FORMATS = {
    "ipv4": (["1.2.3.4"], ["1.2.3", "::1", "1.2.3.256"]),
    "ipv6": (["::1", "fe80::1"], ["1.2.3.4", "12345::"]),
    "cidr": (["1.2.3.0/24", "1.2.3.4/32", "fd00::/8"], ["1.2.3.0", "1.2.3.0/33", "1.2.3.0/255.255.255.0"]),
    "mac": (["01:23:45:67:89:ab", "01-23-45-67-89-ab"], ["01:23:45:67:89", "01:23-45:67:89:ab"]),
    "date": (["2020-12-31"], ["2020-13-01", "20201231", "2020-12-31T00:00:00Z"]),
    "date-time": (["2020-12-31T00:00:00Z"], ["2020-12-31"]),
    "hostname": (["a", "node-1.example.com"], ["a_b", "-a"]),
    "uri": (["https://example.com/a?b", "/a"], ["::", "example.com"]),
    "email": (["a@example.com"], ["a", "@"]),
    "uuid": (["01234567-89ab-cdef-0123-456789abcdef"], ["01234567"]),
}


@pytest.fixture(scope="module")
def texts(admin: RawClient, namespace: str) -> str:
    """Path of a custom resource with a field of each format."""
    schema = _with(**{name: {**_TEXT, "format": name} for name in _FORMATS}, other={**_TEXT, "format": "of-ours"})
    admin.post(_CRDS, _definition("texts", _version("v1", schema))).expect(201)
    wait_until(lambda: admin.get(f"/apis/{_GROUP}/v1/texts").status == 200, "the resource is served")
    return f"/apis/{_GROUP}/v1/namespaces/{namespace}/texts"


def _text(name: str, wanted: str, value: str) -> dict[str, Any]:
    return {"apiVersion": f"{_GROUP}/v1", "kind": "Texts", "metadata": {"name": name}, wanted: value}


@pytest.mark.parametrize(("wanted", "value"), [(name, text) for name, (good, _) in _FORMATS.items() for text in good])
def test_text_of_a_format(admin: RawClient, texts: str, name: str, wanted: str, value: str) -> None:
    admin.post(texts, _text(name, wanted, value)).expect(201)


@pytest.mark.parametrize(("wanted", "value"), [(name, text) for name, (_, bad) in _FORMATS.items() for text in bad])
def test_text_of_another_format(admin: RawClient, texts: str, name: str, wanted: str, value: str) -> None:
    status = refused(admin.post(texts, _text(name, wanted, value)), 422, "Invalid")
    assert f"must be of type {wanted}" in status["message"]


def test_format_that_nobody_knows_restricts_nothing(admin: RawClient, texts: str, name: str) -> None:
    admin.post(texts, _text(name, "other", "anything")).expect(201)
