"""Patch formats."""

from __future__ import annotations

from typing import Any

import pytest

from signer.testing.api import patches
from signer.testing.api.status import APIError


def test_merge_leaves_its_arguments_alone() -> None:
    target: dict[str, Any] = {"a": {"b": 1, "c": 2}, "d": [1]}
    assert patches.merge(target, {"a": {"b": None, "e": 3}, "d": [2], "f": {"g": None}}) == {
        "a": {"c": 2, "e": 3},
        "d": [2],
        "f": {},
    }
    assert target == {"a": {"b": 1, "c": 2}, "d": [1]}


def test_strategic_merge_of_lists_with_keys() -> None:
    target = {"conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}], "finalizers": ["x"]}
    patch = {
        "$setElementOrder/conditions": [{"type": "B"}],
        "conditions": [{"type": "A", "$patch": "delete"}, {"type": "B", "status": "False"}, {"type": "C"}],
        "finalizers": ["y", "x"],
    }
    assert patches.strategic_merge(target, patch) == {
        "conditions": [{"type": "B", "status": "False"}, {"type": "C"}],
        "finalizers": ["x", "y"],
    }
    assert patches.strategic_merge(target, {"$deleteFromPrimitiveList/finalizers": ["x"]})["finalizers"] == []
    replaced = patches.strategic_merge(target, {"conditions": [{"$patch": "replace"}, {"type": "Z"}]})
    assert replaced["conditions"] == [{"type": "Z"}]


def test_json_patch() -> None:
    document: dict[str, Any] = {"a": [1, 2], "b": {"c/d": 1}}
    operations = [
        {"op": "test", "path": "/a/0", "value": 1},
        {"op": "add", "path": "/a/-", "value": 3},
        {"op": "remove", "path": "/a/0"},
        {"op": "replace", "path": "/b/c~1d", "value": 2},
        {"op": "copy", "from": "/a/0", "path": "/e"},
        {"op": "move", "from": "/b", "path": "/f"},
    ]
    assert patches.json_patch(document, operations) == {"a": [2, 3], "e": 2, "f": {"c/d": 2}}


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ({"op": "test", "path": "/a", "value": 2}, 422),
        ({"op": "remove", "path": "/x"}, 422),
        ({"op": "add", "path": "/l/5", "value": 1}, 422),
        ({"op": "add", "path": "/l/x", "value": 1}, 422),
        ({"op": "add", "path": "/a/b", "value": 1}, 422),
        ({"op": "nothing", "path": "/a"}, 400),
        ({"op": "add", "path": "a"}, 400),
        ({"op": "replace", "path": "", "value": {}}, 400),
    ],
)
def test_json_patch_that_does_not_apply(operation: dict[str, Any], code: int) -> None:
    with pytest.raises(APIError) as caught:
        patches.json_patch({"a": 1, "l": []}, [operation])
    assert caught.value.code == code


@pytest.mark.parametrize(("kind", "patch"), [(patches.MERGE, []), (patches.JSON, {}), (patches.STRATEGIC, "x")])
def test_patch_of_the_wrong_shape(kind: str, patch: Any) -> None:
    with pytest.raises(APIError):
        patches.apply_patch(kind, {}, patch)
