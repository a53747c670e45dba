"""Converts the fields of older lines of the same version to the present ones, before they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_INPUTS: Final = "decision_inputs"
_POLICY: Final = (_INPUTS, "snapshot", "policy")


def with_present_fields(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """The line with ``node_names`` for the single ``node_name_source`` that a policy had before, and without the
    ``repeat`` of a request that was not approved before. One that was is not replayed: it was signed without a plan.
    """
    return _without_repeat(_changed(content, _POLICY))


def _without_repeat(content: Mapping[str, Any]) -> Mapping[str, Any]:
    inputs = content.get(_INPUTS)
    if not isinstance(inputs, Mapping) or inputs.get("repeat") != {}:
        return content
    return {**content, _INPUTS: {name: value for name, value in inputs.items() if name != "repeat"}}


def _changed(value: Mapping[str, Any], path: tuple[str, ...]) -> Mapping[str, Any]:
    if not path:
        return _policy(value)
    inner = value.get(path[0])
    return {**value, path[0]: _changed(inner, path[1:])} if isinstance(inner, Mapping) else value


def _policy(policy: Mapping[str, Any]) -> Mapping[str, Any]:
    if "node_name_source" not in policy or "node_names" in policy:
        return policy
    others = {name: value for name, value in policy.items() if name != "node_name_source"}
    return {**others, "node_names": {"sources": [policy["node_name_source"]], "domains": []}}
