"""The journal of a record as it stands in the object."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def journal_of(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The certificates that an AttestedNode allows the controller to sign, newest last."""
    return [line for line in _lines(spec) if "serialNumber" in line]


def builtin_approvals_of(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The built-in serving requests in it that were approved, newest last."""
    return [line for line in _lines(spec) if "serialNumber" not in line]


def _lines(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in spec["certificates"]]
