"""The subset of Cluster API's topology controller that applies the inline patches of this project's ClusterClass."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from tests.support.yaml_documents import safe_load

_TRIMMED: Final = re.compile(r"\s*\{\{-")
_ACTION: Final = re.compile(r"\{\{ *(?P<action>.*?) *\}\}", re.DOTALL)


class Inapplicable(ValueError):
    """The patch cannot be applied, or a template uses an unsupported feature."""


def apply_class(
    cluster_class: Mapping[str, Any], template: Mapping[str, Any], variables: Mapping[str, Any]
) -> dict[str, Any]:
    """The template that a cluster with these variables gets. Defaults of the class's variables are filled in.

    Raises:
        Inapplicable: the path of a patch does not exist.
    """
    values = _with_defaults(cluster_class, variables)
    result = copy.deepcopy(dict(template))
    for patch in cluster_class["spec"]["patches"]:
        if render(patch.get("enabledIf", "true"), values) != "true":
            continue
        for definition in patch["definitions"]:
            selector = definition["selector"]
            if (selector["apiVersion"], selector["kind"]) != (template["apiVersion"], template["kind"]):
                continue
            for one in definition["jsonPatches"]:
                _add(result, one["op"], one["path"], _value(one, values))
    return result


def render(template: str, values: Mapping[str, Any]) -> str:
    """Render the used subset of Go's text/template: ``if``, ``eq``, ``toJson`` and values.

    Raises:
        Inapplicable: the template uses another feature.
    """
    text = _TRIMMED.sub("{{", template)
    written: list[str] = []
    conditions: list[bool] = []
    position = 0
    for match in _ACTION.finditer(text):
        if all(conditions):
            written.append(text[position : match.start()])
        position = match.end()
        action = match["action"]
        if action == "end":
            conditions.pop()
        elif action.startswith("if "):
            conditions.append(all(conditions) and _holds(action.removeprefix("if "), values))
        elif all(conditions):
            path, _, function = action.partition(" | ")
            if function != "toJson":
                raise Inapplicable(f"unsupported action: {action}")
            written.append(json.dumps(_lookup(path, values), separators=(",", ":"), sort_keys=True))
    if conditions:
        raise Inapplicable("an if has no end")
    return "".join([*written, text[position:]])


def _holds(condition: str, values: Mapping[str, Any]) -> bool:
    if match := re.fullmatch(r'eq (\S+) "(\w+)"', condition):
        return bool(_lookup(match[1], values) == match[2])
    return bool(_lookup(condition, values))


def _lookup(path: str, values: Mapping[str, Any]) -> Any:
    found: Any = values
    if not re.fullmatch(r"(\.\w+)+", path):
        raise Inapplicable(f"unsupported path: {path}")
    for name in path[1:].split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _with_defaults(cluster_class: Mapping[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
    values = copy.deepcopy(dict(variables))
    for variable in cluster_class["spec"]["variables"]:
        given = values.get(variable["name"])
        if isinstance(given, dict):
            properties = variable["schema"]["openAPIV3Schema"]["properties"]
            defaults = {name: field["default"] for name, field in properties.items() if "default" in field}
            values[variable["name"]] = {**defaults, **given}
    return values


def _value(patch: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
    if "value" in patch:
        return copy.deepcopy(patch["value"])
    return safe_load(render(patch["valueFrom"]["template"], values))


def _add(document: dict[str, Any], operation: str, path: str, value: Any) -> None:
    """RFC 6902's ``add`` at the end of a list, the only operation that keeps the template's content."""
    *folders, last = path.removeprefix("/").split("/")
    place: Any = document
    for name in folders:
        if not isinstance(place, dict) or name not in place:
            raise Inapplicable(f"{path}: there is no {name}")
        place = place[name]
    if operation != "add" or last != "-" or not isinstance(place, list):
        raise Inapplicable(f"{operation} {path} does not append to a list")
    place.append(value)
