"""The processing of a provider's components by clusterctl before it applies them.

Source: Cluster API, cmd/clusterctl/client/repository/components.go and yamlprocessor/simple_processor.go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tests.support.yaml_documents import safe_load_all

_VARIABLE: Final = re.compile(
    r"\$\{\s*(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*(?:(?P<operator>:?=|:-)(?P<default>[^}]*))?\}"
)
_WITHOUT_NAMESPACE: Final = frozenset({"Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"})


class MissingVariable(ValueError):
    """A variable has neither a value nor a default."""


def variables_of(text: str) -> set[str]:
    """The names of the variables."""
    return {match["name"] for match in _VARIABLE.finditer(text)}


def process(text: str, variables: Mapping[str, str], target_namespace: str = "") -> list[dict[str, Any]]:
    """The objects with their variables replaced, and with all namespaced objects in the target namespace.

    Raises:
        MissingVariable: a variable has neither value nor default.
        ValueError: there is not exactly one Namespace.
    """

    def value(match: re.Match[str]) -> str:
        if match["name"] in variables:
            return variables[match["name"]]
        if match["operator"] is None:
            raise MissingVariable(match["name"])
        return str(match["default"])

    objects = [one for one in safe_load_all(_VARIABLE.sub(value, text)) if one is not None]
    namespaces = [one for one in objects if one["kind"] == "Namespace"]
    if len(namespaces) != 1:
        raise ValueError(f"{len(namespaces)} Namespaces in the components")
    target = target_namespace or namespaces[0]["metadata"]["name"]
    namespaces[0]["metadata"]["name"] = target
    for one in objects:
        if one["kind"] not in _WITHOUT_NAMESPACE:
            one["metadata"]["namespace"] = target
        for subject in one.get("subjects", ()):
            if subject.get("namespace"):
                subject["namespace"] = target
    return objects
