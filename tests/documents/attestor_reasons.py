"""The reasons of the attestors that come with the project, read from their source.

An attestor's reason is the first argument of the call that makes its outcome: :data:`CALLS`.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping
from typing import Final

from attestors.wire.names import CHALLENGE_EXPIRED, CHALLENGE_OF_ANOTHER_CLUSTER, EVIDENCE_EXPIRED
from tests.documents.markdown import ROOT

FOLDERS: Final = {"aws": ("aws", "clouds"), "gcp": ("gcp", "clouds"), "tpm": ("tpm",)}
"""Where the reasons of each attestor are made; cloud attestors share the ground of ``clouds``."""
CONVERTED: Final = {"aws": {"CloudObjectMissing"}}
"""Reasons of the shared ground that never reach a request: AWS says ``RoleMissing`` instead."""
DENIED: Final = "denied"
WAITS: Final = "waits"
SHARED: Final[Mapping[str, str]] = {
    "CHALLENGE_EXPIRED": CHALLENGE_EXPIRED,
    "CHALLENGE_OF_ANOTHER_CLUSTER": CHALLENGE_OF_ANOTHER_CLUSTER,
    "EVIDENCE_EXPIRED": EVIDENCE_EXPIRED,
}
CALLS: Final[Mapping[str, str]] = {
    "denied": DENIED,
    "Denied": DENIED,
    "not_yet": WAITS,
    "not_until_fixed": WAITS,
    "NotProvableYet": WAITS,
}


@functools.cache
def reasons_of(attestor: str) -> dict[str, set[str]]:
    """Every reason of that attestor, with what becomes of a request."""
    found: dict[str, set[str]] = {}
    for folder in FOLDERS[attestor]:
        for file in sorted((ROOT / "attestors" / folder).rglob("*.py")):
            for reason, result in _reasons_in(ast.parse(file.read_text(encoding="utf-8"))):
                found.setdefault(reason, set()).add(result)
    return found


def _reasons_in(module: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS and node.args:
            first = node.args[0]
            chosen = [first.body, first.orelse] if isinstance(first, ast.IfExp) else [first]
            for argument in chosen:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value, CALLS[node.func.id]
                elif isinstance(argument, ast.Name) and argument.id in SHARED:
                    yield SHARED[argument.id], CALLS[node.func.id]
        elif isinstance(node, ast.ClassDef):
            yield from _of_fault(node)


def _of_fault(fault: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """``reason = "CloudUnavailable"`` in the body of a cloud's fault, which makes a request wait."""
    for statement in fault.body:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Constant):
            continue
        names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
        if names == ["reason"] and isinstance(statement.value.value, str):
            yield statement.value.value, WAITS
