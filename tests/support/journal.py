"""The journal of a record as it stands in the object."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def journal_of(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The entries of an AttestedNode's journal, newest last."""
    return [json.loads(line) for line in spec["journalLines"]]


def builtin_approvals_of(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The built-in serving requests in it that were approved, newest last."""
    return [json.loads(line) for line in spec["stockApprovalLines"]]
