"""The resource of an object that a Cluster or Machine refers to, from its CustomResourceDefinition.

A reference names a kind and, in v1beta2, no version; a path needs the resource's plural and a served version.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from signer.kube.client import JsonObject
from signer.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, Resource
from signer.model.cluster import InfrastructureReference
from signer.model.fields import items_of, mapping_of, text_of

INFRASTRUCTURE_GROUP: Final = "infrastructure.cluster.x-k8s.io"
"""The only API group that is read or written: tenants write the references, and may name any kind."""
DEFINITION_SECONDS: Final = 600.0
"""A definition is read again after this time."""
MAXIMUM_REMEMBERED: Final = 16384
_CONTRACT_LABELS: Final = ("cluster.x-k8s.io/v1beta2", "cluster.x-k8s.io/v1beta1")
_STABILITY: Final = ("", "beta", "alpha")
_VERSION: Final = re.compile(r"v(?P<major>[1-9][0-9]{0,3})(?:(?P<stability>alpha|beta)(?P<minor>[1-9][0-9]{0,3}))?")
_CLUSTER_API_GROUP_PREFIX: Final = "cluster.x-k8s.io/"

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class ServedVersion:
    """One version that the API server serves."""

    resource: Resource
    definition: Mapping[str, Any]
    """The version's entry in ``spec.versions``."""


@dataclass(frozen=True, slots=True)
class OtherDefinition:
    """The definition is of another kind, or its objects are not namespaced."""

    cause: str


ServedVersions: TypeAlias = tuple[ServedVersion, ...] | OtherDefinition


def definition_path(reference: InfrastructureReference) -> str:
    """Path of the CustomResourceDefinition of the referenced kind."""
    return CUSTOM_RESOURCE_DEFINITIONS.object(f"{_plural(reference.kind)}.{reference.api_group}")


def served_versions(definition: JsonObject, reference: InfrastructureReference) -> ServedVersions:
    """The served versions: the reference's own, then those that the contract labels name, newest first, then the
    others.
    """
    spec = mapping_of(definition, "spec")
    names = mapping_of(spec, "names")
    if names.get("kind") != reference.kind or spec.get("scope") != "Namespaced":
        return OtherDefinition(f"the definition of {reference.kind} is of another kind, or not namespaced")
    versions = {str(version.get("name")): version for version in objects_of(spec, "versions")}
    plural = str(names.get("plural"))
    return tuple(
        ServedVersion(Resource(reference.api_group, name, plural, namespaced=True), versions[name])
        for name in _preferred_versions(definition, reference, versions)
        if versions[name].get("served") is True
    )


def owners_of(manifest: JsonObject, kind: str, name: str) -> list[Mapping[str, Any]]:
    """The owner references to Cluster API's object of that kind and name, of any UID."""
    return [
        owner
        for owner in objects_of(mapping_of(manifest, "metadata"), "ownerReferences")
        if (owner.get("kind"), owner.get("name")) == (kind, name)
        and text_of(owner, "apiVersion").startswith(_CLUSTER_API_GROUP_PREFIX)
    ]


def remember(memory: OrderedDict[Key, Value], key: Key, value: Value) -> None:
    """Add the entry as the newest one; beyond ``MAXIMUM_REMEMBERED`` entries, the oldest is dropped."""
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > MAXIMUM_REMEMBERED:
        memory.popitem(last=False)


def _plural(kind: str) -> str:
    """The plural of a kind, by the rule that Cluster API's contract has for the names of definitions.

    Cluster API pluralizes the kind in lower case (``util/contract/crd_naming.go``); these are the regular forms.
    """
    name = kind.lower()
    if name.endswith(("s", "x", "z", "ch", "sh")):
        return f"{name}es"
    if name.endswith("y") and name[-2:-1] not in tuple("aeiou"):
        return f"{name[:-1]}ies"
    return f"{name}s"


def _preferred_versions(
    definition: JsonObject, reference: InfrastructureReference, versions: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    labels = mapping_of(mapping_of(definition, "metadata"), "labels")
    preferred = [reference.version]
    for label in _CONTRACT_LABELS:
        preferred += sorted(str(labels.get(label, "")).split("_"), key=_age)
    preferred += sorted(versions, key=lambda name: versions[name].get("storage") is not True)
    return [name for name in dict.fromkeys(preferred) if name in versions]


def _age(version: str) -> tuple[int, int, int]:
    """Sort key for versions, newest first, in Kubernetes' order: v2, v1, v1beta2, v1beta1, v1alpha1, others.

    The order in a contract's label means nothing; Cluster API takes the newest (``util/contract/version.go``).
    """
    found = _VERSION.fullmatch(version)
    if found is None:
        return (len(_STABILITY), 0, 0)
    stability = _STABILITY.index(found["stability"] or "")
    return (stability, -int(found["major"]), -int(found["minor"] or 0))


def objects_of(parent: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The objects in the list at ``key``; empty where there is none."""
    return [item for item in items_of(parent, key) if isinstance(item, Mapping)]
