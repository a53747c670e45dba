"""What a file of roles grants, and what requests needed: API group, verb and resource."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeAlias

from signer.testing.api import EmbeddedAPI, LoggedRequest
from tests.support.yaml_documents import safe_load_all

INFRASTRUCTURE_GROUP: Final = "infrastructure.cluster.x-k8s.io"
_METHODS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_UNNAMED_VERBS: Final = ({"approve", "sign"}, {"approve"}, {"bind"})
"""Verbs that stand in no request."""

Grant: TypeAlias = tuple[str, str, str]
"""API group, verb and resource, with its subresource."""


def granted(file: Path) -> set[Grant]:
    """What the roles in a file allow, as far as it stands in requests."""
    rules = [
        rule
        for document in safe_load_all(file.read_text(encoding="utf-8"))
        for rule in document.get("rules", ())
        if set(rule["verbs"]) not in _UNNAMED_VERBS
    ]
    return {
        (group, verb, resource)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def used(requests: Iterable[LoggedRequest]) -> set[Grant]:
    """What those requests needed; discovery aside, which everybody may."""
    return {grant for request in requests for grant in grants_of(request)}


def grants_of(request: LoggedRequest) -> set[Grant]:
    """What one request needed."""
    parts = request.path.strip("/").split("/")
    group, rest = (parts[1], parts[3:]) if parts[0] == "apis" else ("", parts[2:])
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    if not rest:
        return set()
    resource, name, subresource = (*rest, "", "")[:3]
    if group == INFRASTRUCTURE_GROUP:
        resource = "*"  # each provider has its own
    if request.method == "GET":
        verb = "get" if name else "watch" if "watch=true" in request.query else "list"
    else:
        verb = _METHODS[request.method]
    return {(group, verb, f"{resource}/{subresource}" if subresource else resource)}


def requests_of(api: EmbeddedAPI, user: str) -> list[LoggedRequest]:
    """What that user asked that API server."""
    return [request for request in api.requests.matching() if request.user == user]
