"""``metadata`` of the objects of access."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from signer.model.access.reader import Reader
from signer.model.fields import items_of, mapping_of, text_of

API_GROUP: Final = "access.cluster.x-k8s.io"
API_VERSION: Final = f"{API_GROUP}/v1alpha1"
MAXIMUM_NAME: Final = 63
"""Bastions have their grant's name, and clouds limit names and tags."""


@dataclass(frozen=True, slots=True)
class NotDeleted:
    """The object is not in deletion."""


@dataclass(frozen=True, slots=True)
class DeletedAt:
    """The object is in deletion: it goes when its finalizers are gone."""

    moment: datetime


@dataclass(frozen=True, slots=True)
class ObjectMetadata:
    """What the API server says about an object. It sets all of it but the finalizers."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    created: datetime
    deletion: NotDeleted | DeletedAt
    finalizers: tuple[str, ...]

    @property
    def is_deleted(self) -> bool:
        """Whether the object is in deletion."""
        return isinstance(self.deletion, DeletedAt)


@dataclass(frozen=True, slots=True)
class GrantReference:
    """One AccessGrant in the same namespace, and not another one that has its name later."""

    name: str
    uid: str


def read_metadata(whole: Reader) -> ObjectMetadata:
    """The metadata of an object that an API server gave."""
    metadata = whole.object("metadata")
    generation = metadata.fields.get("generation")
    return ObjectMetadata(
        namespace=metadata.label("namespace"),
        name=metadata.subdomain("name", MAXIMUM_NAME),
        uid=metadata.uid("uid"),
        resource_version=text_of(metadata.fields, "resourceVersion"),
        generation=generation if type(generation) is int else 0,
        created=metadata.time("creationTimestamp"),
        deletion=DeletedAt(metadata.time("deletionTimestamp")) if metadata.has("deletionTimestamp") else NotDeleted(),
        finalizers=tuple(one for one in items_of(metadata.fields, "finalizers") if isinstance(one, str)),
    )


def annotations_of(whole: Reader) -> Mapping[str, Any]:
    """The annotations; empty if there are none."""
    return mapping_of(mapping_of(whole.fields, "metadata"), "annotations")


def read_grant_reference(spec: Reader) -> GrantReference:
    """``spec.grantRef``."""
    reference = spec.object("grantRef").knows("name", "uid")
    return GrantReference(reference.subdomain("name", MAXIMUM_NAME), reference.uid("uid"))
