"""Resource types: what the API serves, under which names and versions, and with which rules."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import msgspec

from . import metadata
from .crd_schema import Schema, apply_defaults, prune
from .crd_validation import MAXIMUM_ERRORS, validate
from .status import FieldError, Target, bad_request, invalid, invalid_value
from .store import Collections
from .strategy import Strategy
from .watch_log import Stored

_epochs = itertools.count(1)
_encode = msgspec.json.Encoder().encode

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(slots=True, eq=False)
class ResourceType:
    """One resource in all its versions."""

    group: str
    plural: str
    kind: str
    versions: tuple[str, ...] = ("v1",)
    namespaced: bool = True
    strategy: Strategy = field(default_factory=Strategy)
    subresources: frozenset[str] = frozenset()
    singular: str = ""
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    schemas: dict[str, Schema] = field(default_factory=dict)
    """By version; a version without a schema keeps every field."""
    columns: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """CRD printer columns by version."""
    storage_version: str = ""
    custom: bool = False
    epoch: int = field(default_factory=lambda: next(_epochs))
    """Differs between generations of the same CRD, so that objects are converted anew."""

    def __post_init__(self) -> None:
        self.storage_version = self.storage_version or self.versions[0]
        self.singular = self.singular or self.kind.lower()
        self.list_kind = self.list_kind or self.kind + "List"

    @property
    def identity(self) -> Collections:
        return self.group, self.plural

    @property
    def core_metadata(self) -> bool:
        """Whether ``pkg/apis/core/validation`` looks at its metadata, which asks more of finalizers."""
        return not self.custom and self.group in {"", "rbac.authorization.k8s.io", "certificates.k8s.io"}

    @property
    def storage(self) -> Served:
        """The version that objects are kept in; it need not be served."""
        return Served(self, self.storage_version)

    def target(self, name: str = "") -> Target:
        return Target(self.group, self.plural, self.kind, name)


@dataclass(frozen=True, slots=True)
class Served:
    """One resource in one of its versions: what a URL names."""

    type: ResourceType
    version: str

    @property
    def api_version(self) -> str:
        return f"{self.type.group}/{self.version}" if self.type.group else self.version

    @property
    def view(self) -> tuple[str, int]:
        return self.version, self.type.epoch

    def decode(self, value: dict[str, Any]) -> list[str]:
        """Check and normalise a body in place; the answer names dropped fields. Raises APIError 400.

        Built-in objects are decoded into a type (a wrong JSON type is a bad request, kind and apiVersion may be
        missing); custom ones are pruned and get defaults.
        """
        self._check_kind(value)
        dropped = metadata.decode(value)
        schema = self.type.schemas.get(self.version)
        if schema is None:
            return dropped
        dropped += prune(value, schema)
        apply_defaults(value, schema)
        if not self.type.custom and (errors := validate(value, schema)):
            text = f'{self.type.kind} in version "{self.version}" cannot be handled as a {self.type.kind}: {errors[0]}'
            raise bad_request(text)
        return dropped

    def _check_kind(self, value: dict[str, Any]) -> None:
        kind, api_version = value.get("kind"), value.get("apiVersion")
        if self.type.custom and not kind:
            raise bad_request("Object 'Kind' is missing in the request body")
        if self.type.custom and not api_version:
            raise bad_request("Object 'apiVersion' is missing in the request body")
        if self.type.custom and kind != self.type.kind and api_version == self.api_version:
            name = value["metadata"].get("name", "") if isinstance(value.get("metadata"), dict) else ""
            raise invalid(self.type.target(str(name)), [invalid_value("kind", kind, f"must be {self.type.kind}")])
        if kind and kind != self.type.kind:
            text = f"{kind} in version {self.version!r} cannot be handled as a {self.type.kind}"
            raise bad_request(text)
        if api_version and api_version != self.api_version:
            text = (
                f"the API version in the data ({api_version}) does not match "
                f"the expected API version ({self.api_version})"
            )
            raise bad_request(text)
        value["kind"], value["apiVersion"] = self.type.kind, self.api_version

    def validate(self, value: dict[str, Any]) -> list[FieldError]:
        """Violations of a custom resource's schema."""
        schema = self.type.schemas.get(self.version)
        if not self.type.custom or schema is None:
            return []
        return validate(value, schema)[:MAXIMUM_ERRORS]

    def converted(self, stored: Stored) -> dict[str, Any]:
        """A copy of the object in this version: for reading or as the base of a change (conversion strategy None)."""
        value: dict[str, Any] = msgspec.json.decode(self.encode(stored))
        return value

    def encode(self, stored: Stored) -> bytes:
        """The object in this version as JSON, encoded once."""
        view = self.view
        encoded = stored.views.get(view)
        if encoded is None:
            encoded = stored.views[view] = self._encode(stored)
        return encoded

    def remember(self, stored: Stored) -> None:
        """Encode an object that was just pruned and filled in for this very version."""
        stored.views[self.view] = _encode(stored.value)

    def _encode(self, stored: Stored) -> bytes:
        value = stored.value
        schema = self.type.schemas.get(self.version)
        encoded = _encode(value)
        if not self.type.custom or schema is None:
            return encoded
        copy: dict[str, Any] = msgspec.json.decode(encoded)
        copy["apiVersion"] = self.api_version
        prune(copy, schema)
        apply_defaults(copy, schema)
        return _encode(copy)

    def list_item(self, stored: Stored) -> bytes:
        """The object inside of a list: built-in kinds leave kind and apiVersion out there, custom ones do not."""
        encoded = self.encode(stored)
        return encoded if self.type.custom else b"{" + encoded[self.item_offset() :]

    def item_offset(self) -> int:
        """Length of the head that ``ordered`` puts in front of every encoded built-in object."""
        return len(_encode({"kind": self.type.kind, "apiVersion": self.api_version}))


def ordered(value: dict[str, Any]) -> dict[str, Any]:
    """The same object with kind and apiVersion first, so that lists can cut them off, then metadata."""
    head = {"kind": value["kind"], "apiVersion": value["apiVersion"], "metadata": value["metadata"]}
    return head | {name: item for name, item in value.items() if name not in head}


class Catalogue:
    """All resource types, found by group, version and plural."""

    def __init__(self) -> None:
        self._served: dict[tuple[str, str, str], Served] = {}
        self._types: dict[Collections, ResourceType] = {}

    def add(self, resource: ResourceType) -> None:
        self.remove(resource.identity)
        self._types[resource.identity] = resource
        for version in resource.versions:
            self._served[resource.group, version, resource.plural] = Served(resource, version)

    def remove(self, identity: Collections) -> None:
        resource = self._types.pop(identity, None)
        if resource is not None:
            for version in resource.versions:
                del self._served[resource.group, version, resource.plural]

    def served(self, group: str, version: str, plural: str) -> Served | None:
        return self._served.get((group, version, plural))

    def type(self, identity: Collections) -> ResourceType:
        return self._types[identity]

    def types(self) -> list[ResourceType]:
        return list(self._types.values())

    def find(self, name: str) -> ResourceType:
        """By plural, ``plural.group`` or kind. Raises LookupError."""
        for resource in self._types.values():
            if name in (resource.plural, resource.target().qualified_plural, resource.kind):
                return resource
        raise LookupError(f"no resource {name!r} is served")

    def by_kind(self, api_version: str, kind: str) -> Served:
        """Raises LookupError."""
        group, slash, version = api_version.partition("/")
        if not slash:
            group, version = "", api_version
        for resource in self._types.values():
            if resource.group == group and resource.kind == kind and version in resource.versions:
                return self._served[group, version, resource.plural]
        raise LookupError(f"no matches for kind {kind!r} in version {api_version!r}")
