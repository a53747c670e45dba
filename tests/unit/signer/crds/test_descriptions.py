"""Every field has a description for ``kubectl explain``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from signer.crds import access_definitions, custom_resource_definitions
from tests.support.yaml_documents import safe_load

DEFINITIONS = [safe_load(text) for text in (*custom_resource_definitions(), *access_definitions())]


def undescribed(schema: dict[str, Any], path: str) -> Iterator[str]:
    for name, value in schema.get("properties", {}).items():
        if not value.get("description"):
            yield f"{path}.{name}"
        yield from undescribed(value, f"{path}.{name}")
        yield from undescribed(value.get("items", {}), f"{path}.{name}[]")


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition["spec"]["names"]["kind"])
def test_each_field_is_described(definition: dict[str, Any]) -> None:
    (version,) = definition["spec"]["versions"]
    properties = version["schema"]["openAPIV3Schema"]["properties"]
    ours = {name: value for name, value in properties.items() if name in ("spec", "status")}
    assert list(undescribed({"properties": ours}, definition["spec"]["names"]["kind"])) == []
