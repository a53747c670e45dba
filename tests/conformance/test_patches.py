"""Patches that are refused, and what server-side apply asks for. What patches change stands with each resource."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api import fields, refused
from tests.support.raw_client import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Answer, RawClient


@pytest.fixture
def config_maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


@pytest.fixture
def path(admin: RawClient, config_maps: str, name: str) -> str:
    """Of an object that is there."""
    admin.post(config_maps, _config_map(name)).expect(201)
    return f"{config_maps}/{name}"


def _config_map(name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **more}, "data": {"a": "1"}}


@pytest.mark.parametrize("patch", [{"data": {"a": 1}}, {"data": "text"}, {"kind": "Secret"}, {"apiVersion": "v2"}])
def test_patch_that_makes_something_else_of_it_is_invalid(admin: RawClient, path: str, patch: dict[str, Any]) -> None:
    """A body like that would be a bad request."""
    assert fields(refused(admin.patch(path, patch, MERGE_PATCH), 422, "Invalid")) == {"patch"}


def test_json_patch_that_makes_something_else_of_it_is_invalid(admin: RawClient, path: str) -> None:
    operations = [{"op": "replace", "path": "/data/a", "value": 1}]
    assert fields(refused(admin.patch(path, operations, JSON_PATCH), 422, "Invalid")) == {"patch"}


@pytest.mark.parametrize("content_type", [MERGE_PATCH, STRATEGIC_PATCH])
@pytest.mark.parametrize("metadata", [{"name": "other"}, {"name": None}, {"namespace": "default"}])
def test_patch_does_not_rename(admin: RawClient, path: str, metadata: dict[str, Any], content_type: str) -> None:
    refused(admin.patch(path, {"metadata": metadata}, content_type), 400, "BadRequest")


def _apply(admin: RawClient, path: str, body: dict[str, Any], **query: str) -> Answer:
    return admin.patch(path, body, APPLY_PATCH, **query)


def test_apply_needs_a_manager(admin: RawClient, config_maps: str, path: str, name: str) -> None:
    for where, called in ((path, name), (f"{config_maps}/{name}-new", f"{name}-new")):
        assert fields(refused(_apply(admin, where, _config_map(called)), 422, "Invalid")) == {"fieldManager"}


@pytest.mark.parametrize(
    "change",
    [
        {"apiVersion": "v2"},
        {"apiVersion": ""},
        {"metadata": {"name": "other"}},
        {"metadata": {"managedFields": [{"manager": "conformance", "operation": "Apply"}]}},
    ],
)
def test_apply_needs_to_say_what(admin: RawClient, path: str, name: str, change: dict[str, Any]) -> None:
    refused(_apply(admin, path, {**_config_map(name), **change}, fieldManager="conformance"), 400, "BadRequest")


def test_apply_needs_a_name_for_a_new_object_alone(admin: RawClient, config_maps: str, path: str, name: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"b": "2"}}
    applied = _apply(admin, path, body, fieldManager="conformance").expect(200)
    assert applied["data"] == {"a": "1", "b": "2"}
    refused(_apply(admin, f"{config_maps}/{name}-new", body, fieldManager="conformance"), 400, "BadRequest")
