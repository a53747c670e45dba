"""Parses a request's URL into verb and resource (k8s.io/apiserver ``pkg/endpoints/request``)."""

from __future__ import annotations

from dataclasses import dataclass

from .strategy import Attributes

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


@dataclass(frozen=True, slots=True)
class Route:
    """A parsed URL. ``resource`` is empty for URLs that name no resource (discovery, health)."""

    verb: str
    path: str
    group: str = ""
    version: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    def attributes(self, *, selected_name: str = "") -> Attributes:
        """The attributes for the authorizer."""
        if not self.resource:
            return Attributes(self.verb, path=self.path)
        name = self.name or selected_name
        return Attributes(self.verb, self.group, self.resource, self.subresource, name, self.namespace)


def parse(method: str, path: str, *, watch: bool) -> Route:
    """Parse a URL; an unknown one has no resource. Never fails."""
    parts = [part for part in path.split("/") if part]
    plain = Route(method.lower(), path)
    if len(parts) >= 3 and parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    elif len(parts) >= 4 and parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return plain
    namespace = ""
    if rest[0] == "namespaces":
        if len(rest) >= 3 and rest[2] not in {"status", "finalize"}:
            namespace, rest = rest[1], rest[2:]
        elif len(rest) >= 2:
            # For RBAC, a Namespace object is in its own namespace.
            namespace = rest[1]
    if len(rest) > 3:
        return plain
    resource = rest[0]
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    return Route(_verb(method, name, watch=watch), path, group, version, resource, namespace, name, subresource)


def _verb(method: str, name: str, *, watch: bool) -> str:
    if method in {"GET", "HEAD"}:
        # With a name it is a get, even with "watch": a single object is watched in its collection by a field selector.
        if name:
            return "get"
        return "watch" if watch else "list"
    if method == "DELETE":
        return "delete" if name else "deletecollection"
    return _VERBS.get(method, method.lower())
