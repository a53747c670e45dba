"""Conditions of CertificateSigningRequests (Kubernetes ``pkg/apis/certificates/validation``)."""

from __future__ import annotations

from typing import Any

from . import metadata
from .status import FieldError, duplicate, forbidden_field, invalid_value, required, unsupported

APPROVAL_TYPES = ("Approved", "Denied")
FINAL_TYPES = (*APPROVAL_TYPES, "Failed")
_PATH = "status.conditions"


def fill_timestamps(status: dict[str, Any], before: dict[str, Any]) -> None:
    """Set missing update and transition times; a transition keeps its time while the condition's status stays.

    The conditions become new objects, so that the caller's old ones stay as they are.
    """
    conditions = status.get("conditions")
    if not isinstance(conditions, list):
        return
    old = {item["type"]: item for item in before.get("conditions") or []}
    filled = []
    for item in conditions:
        if not isinstance(item, dict):
            filled.append(item)
            continue
        condition = dict(item)
        if not condition.get("lastUpdateTime"):
            condition["lastUpdateTime"] = metadata.now()
        if not condition.get("lastTransitionTime"):
            previous = old.get(condition.get("type", ""))
            same = previous is not None and previous.get("status") == condition.get("status")
            kept = previous.get("lastTransitionTime") if previous is not None and same else None
            condition["lastTransitionTime"] = kept or metadata.now()
        filled.append(condition)
    status["conditions"] = filled


def validate_conditions(status: dict[str, Any], before: dict[str, Any], *, approval: bool) -> list[FieldError]:
    """Violations by the new conditions, compared with the old. ``approval``: the write came through /approval."""
    conditions = status.get("conditions") or []
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        errors += _validate_one(condition, f"{_PATH}[{index}]", seen)
    old = before.get("conditions") or []
    for wanted in FINAL_TYPES:
        had = [item for item in old if item["type"] == wanted]
        has = [item for item in conditions if item.get("type") == wanted]
        if len(has) < len(had):
            errors.append(forbidden_field(_PATH, f'updates may not remove a condition of type "{wanted}"'))
        elif len(has) > len(had) and wanted in APPROVAL_TYPES and not approval:
            errors.append(forbidden_field(_PATH, f'updates may not add a condition of type "{wanted}"'))
    return errors


def _validate_one(condition: dict[str, Any], path: str, seen: set[str]) -> list[FieldError]:
    errors = []
    kind = condition.get("type", "")
    if not kind:
        errors.append(required(f"{path}.type"))
    allowed = ("True",) if kind in FINAL_TYPES else ("True", "False", "Unknown")
    status = condition.get("status", "")
    if not status:
        errors.append(required(f"{path}.status"))
    elif status not in allowed:
        errors.append(unsupported(f"{path}.status", status, allowed))
    other = {"Approved": "Denied", "Denied": "Approved"}.get(kind)
    if other in seen:
        text = "Approved and Denied conditions are mutually exclusive"
        errors.append(invalid_value(f"{path}.type", kind, text))
    if kind in seen:
        errors.append(duplicate(f"{path}.type", kind))
    seen.add(kind)
    return errors
