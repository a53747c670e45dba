"""A resource's additions to generic storage: preparation, validation and admission of its writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from . import metadata
from .identity import User
from .status import FieldError

ServerVersion = tuple[int, int]
"""The emulated major and minor version."""


@dataclass(frozen=True, slots=True)
class Attributes:
    """Attributes for the authorizer, as k8s.io/apiserver ``authorizer.Attributes``."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    namespace: str = ""
    path: str = ""
    """The URL of a request that is for no resource; empty for resources."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The authorizer's decision and its reason."""

    allowed: bool
    reason: str = ""


class Authorizer(Protocol):
    def authorize(self, user: User, attributes: Attributes) -> Answer: ...

    def role_rules(self, kind: str, name: str, namespace: str) -> list[dict[str, Any]]:
        """The rules of a Role or ClusterRole. Raises APIError 404."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """The circumstances of one request."""

    user: User
    server_version: ServerVersion
    authorizer: Authorizer


class Strategy:
    """A resource without rules of its own. Hooks may change the new object in place, never the old one."""

    name_rule: Callable[[str], str] = staticmethod(metadata.subdomain)
    unconditional_update = True
    """Whether an update without resourceVersion overwrites; else it is Invalid."""
    create_on_update = False
    """Whether PUT of an absent object creates it."""
    generation = False
    """Whether ``metadata.generation`` counts changes outside of metadata and status."""
    fields_supported: frozenset[str] = frozenset({"metadata.name", "metadata.namespace"})

    def fields(self, value: dict[str, Any]) -> Mapping[str, str]:
        found = value["metadata"]
        return {"metadata.name": found["name"], "metadata.namespace": found.get("namespace", "")}

    def prepare_create(self, value: dict[str, Any], context: Context) -> None:
        """Reset what a creation may not set."""

    def validate_create(self, value: dict[str, Any], context: Context) -> list[FieldError]:
        return []

    def admit_create(self, value: dict[str, Any], context: Context) -> None:
        """Validating admission. Raises APIError."""

    def prepare_update(self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context) -> None:
        """Reset what this update may not change."""

    def validate_update(
        self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context
    ) -> list[FieldError]:
        return []

    def admit_update(self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context) -> None:
        """Validating admission. Raises APIError."""

    def admit_delete(self, old: dict[str, Any], context: Context) -> None:
        """Validating admission. Raises APIError."""


def keep(value: dict[str, Any], old: dict[str, Any], *names: str) -> None:
    """Take these top-level fields from the old object."""
    for name in names:
        if name in old:
            value[name] = old[name]
        else:
            value.pop(name, None)
