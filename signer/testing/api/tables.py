"""Server-side printing: the ``meta.k8s.io/v1`` Table that kubectl asks for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from .resource_types import Served
from .watch_log import Stored

Column = tuple[str, str, Callable[[dict[str, Any]], Any]]
"""Name, type and cell of an object."""

_STEP = re.compile(
    r"\.((?:\\.|[^.\[\]\\])+)|\[\?\(@\.([\w.]+)\s*==\s*[\"']([^\"']*)[\"']\)\]|\['([^']+)'\]|\[(\d+|\*)\]"
)


def age(timestamp: Any) -> str:
    """Time since then in kubectl's short form; ``<unknown>`` without one."""
    try:
        seconds = int((datetime.now(UTC) - datetime.fromisoformat(timestamp)).total_seconds())
    except (TypeError, ValueError):
        return "<unknown>"
    if seconds < 0:
        return "<invalid>" if seconds < -1 else "0s"
    if seconds < 120:
        return f"{seconds}s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    return f"{hours}h" if hours < 48 else f"{days}d"


def json_path(value: Any, path: str) -> list[Any]:
    """The values at a printer column's JSONPath; a path that this small reader does not know finds nothing."""
    found, position = [value], 0
    while position < len(path):
        step = _STEP.match(path, position)
        if step is None:
            return []
        position = step.end()
        field, condition, wanted, quoted, index = step.groups()
        found = [entry for item in found for entry in _step(item, field, condition, wanted, quoted, index)]
    return found


def _step(
    item: Any, field: str | None, condition: str | None, wanted: str | None, quoted: str | None, index: str | None
) -> Iterable[Any]:
    name = quoted or (re.sub(r"\\(.)", r"\1", field) if field else None)
    if name is not None:
        return [item[name]] if isinstance(item, dict) and name in item else []
    if not isinstance(item, list):
        return []
    if condition is not None:
        return [entry for entry in item if json_path(entry, "." + condition) == [wanted]]
    if index == "*":
        return item
    return item[int(index or 0) : int(index or 0) + 1]


def _cell(path: str, kind: str) -> Callable[[dict[str, Any]], Any]:
    def cell(value: dict[str, Any]) -> Any:
        found = json_path(value, path)
        if not found:
            return None if kind != "date" else "<unknown>"
        if kind == "date":
            return age(found[0])
        if kind == "string" and not isinstance(found[0], str):
            return msgspec.json.encode(found[0]).decode()
        return found[0]

    return cell


def _created(value: dict[str, Any]) -> str:
    return age(value["metadata"].get("creationTimestamp"))


def _csr_condition(value: dict[str, Any]) -> str:
    status = value.get("status") or {}
    types = [condition.get("type") for condition in status.get("conditions") or []]
    words = [word for word in ("Approved", "Denied", "Failed") if word in types] or ["Pending"]
    return ",".join([*words, *(["Issued"] if status.get("certificate") else [])])


def _csr_duration(value: dict[str, Any]) -> str:
    seconds = value["spec"].get("expirationSeconds")
    if seconds is None:
        return "<none>"
    return (
        f"{seconds // 86400}d"
        if seconds >= 48 * 3600
        else f"{seconds // 3600}h"
        if seconds >= 10800
        else f"{seconds // 60}m"
    )


def _node_ready(value: dict[str, Any]) -> str:
    ready = json_path(value, '.status.conditions[?(@.type=="Ready")].status')
    return {"True": "Ready", "False": "NotReady"}.get(ready[0] if ready else "", "Unknown")


_NAME: Column = ("Name", "string", lambda value: value["metadata"]["name"])
_AGE: Column = ("Age", "string", _created)
_BUILTIN: dict[str, list[Column]] = {
    "certificatesigningrequests": [
        _NAME,
        _AGE,
        ("SignerName", "string", _cell(".spec.signerName", "string")),
        ("Requestor", "string", _cell(".spec.username", "string")),
        ("RequestedDuration", "string", _csr_duration),
        ("Condition", "string", _csr_condition),
    ],
    "secrets": [
        _NAME,
        ("Type", "string", _cell(".type", "string")),
        ("Data", "integer", lambda value: len(value.get("data") or {})),
        _AGE,
    ],
    "configmaps": [_NAME, ("Data", "integer", lambda value: len(value.get("data") or {})), _AGE],
    "namespaces": [_NAME, ("Status", "string", _cell(".status.phase", "string")), _AGE],
    "leases": [_NAME, ("Holder", "string", _cell(".spec.holderIdentity", "string")), _AGE],
    "nodes": [
        _NAME,
        ("Status", "string", _node_ready),
        ("Roles", "string", lambda value: "<none>"),
        _AGE,
        ("Version", "string", _cell(".status.nodeInfo.kubeletVersion", "string")),
    ],
    "events": [
        (
            "Last Seen",
            "string",
            lambda value: age(value.get("lastTimestamp") or value["metadata"]["creationTimestamp"]),
        ),
        ("Type", "string", _cell(".type", "string")),
        ("Reason", "string", _cell(".reason", "string")),
        (
            "Object",
            "string",
            lambda value: "/".join(value.get("involvedObject", {}).get(k, "") for k in ("kind", "name")).lower(),
        ),
        ("Message", "string", _cell(".message", "string")),
        # kubectl describe and wide output want the name, which events do not show.
    ],
    "clusterrolebindings": [
        _NAME,
        ("Role", "string", lambda value: f"{value['roleRef'].get('kind')}/{value['roleRef'].get('name')}"),
        _AGE,
    ],
    "customresourcedefinitions": [
        _NAME,
        ("Created At", "date", lambda value: value["metadata"]["creationTimestamp"]),
    ],
}


def columns(served: Served) -> list[tuple[Column, int]]:
    """The columns with their priorities; kubectl shows those above 0 with ``-o wide``."""
    if not served.type.custom:
        return [(column, 0) for column in _BUILTIN.get(served.type.plural, [_NAME, _AGE])]
    found: list[tuple[Column, int]] = [(_NAME, 0)]
    for column in served.type.columns.get(served.version) or []:
        kind = column.get("type", "string")
        found.append(((column["name"], kind, _cell(column["jsonPath"], kind)), column.get("priority", 0)))
    return found if len(found) > 1 else [(_NAME, 0), (_AGE, 0)]


def table(
    served: Served, objects: Iterable[Stored], metadata: dict[str, Any], *, headers: bool = True
) -> dict[str, Any]:
    """The Table of these objects; a watch leaves the headers out after its first event."""
    chosen = columns(served)
    rows = []
    for stored in objects:
        value = served.converted(stored)
        partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": value["metadata"]}
        rows.append({"cells": [cell(value) for (_, _, cell), _ in chosen], "object": partial})
    definitions = [
        {
            "name": name,
            "type": kind,
            "format": "name" if name == "Name" else "",
            "description": name,
            "priority": priority,
        }
        for (name, kind, _), priority in chosen
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": definitions if headers else None,
        "rows": rows,
    }


def wants_table(accept: str) -> bool:
    return any("as=Table" in part and "v=v1;" in part + ";" and "g=meta.k8s.io" in part for part in accept.split(","))
