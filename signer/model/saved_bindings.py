"""The form in which removed grants are kept: one ConfigMap for each Cluster, by its namespace and name.

In it is one generation for each CA under which something was removed, so that another cluster under the same name, or
the same one after its CA was replaced, gets nothing by itself. Whoever writes the Secret of the CA can name as many CAs
as they like; the generations of one Cluster, and their bytes, are few.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from signer.model.auto_approval import ClusterIdentity, ClusterRoleBinding, binding_body, parse_cluster_role_binding
from signer.model.cluster import ClusterKey
from signer.model.fields import mapping_of, required_text, text_of

MAXIMUM_GENERATIONS: Final = 4
"""CAs of one Cluster for which something is kept."""
MAXIMUM_SAVED_BINDINGS: Final = 64
MAXIMUM_SAVED_BYTES: Final = 64 * 1024
"""Of one Cluster; its administrators choose what its bindings say, and the management cluster's etcd stores it."""

_CLUSTER_FIELDS: Final = ("clusterNamespace", "clusterName")
"""Every other field of ``data`` is a generation."""

Generation: TypeAlias = Mapping[str, ClusterRoleBinding]
"""The bindings that were removed under one CA, by name."""


class BindingsNotSaved(Exception):
    """What was, or is to be, removed cannot be kept or read: nothing may be removed; the message says why."""


@dataclass(frozen=True, slots=True)
class SavedBindings:
    """The bindings that were removed from one Cluster."""

    cluster: ClusterKey
    generations: Mapping[str, Generation]
    """By :func:`generation_field`."""
    uid: str
    resource_version: str

    def of(self, owner: ClusterIdentity) -> Generation:
        """What was removed under exactly that CA; empty where nothing was."""
        return self.generations.get(generation_field(owner), MappingProxyType({}))

    def with_generation(self, owner: ClusterIdentity, bindings: Generation) -> Mapping[str, Generation]:
        """All generations, with that one replaced."""
        return {**self.generations, generation_field(owner): bindings}


@dataclass(frozen=True, slots=True)
class OtherGenerations:
    """What was removed under other CAs of a Cluster of this name; a person has to say whether it was this one."""

    namespace: str
    config_map: str
    fields: tuple[str, ...]
    """Of the ConfigMap's ``data``; never empty."""

    def __str__(self) -> str:
        first, *more = self.fields
        others = f" (and the same for {' and '.join(more)})" if more else ""
        return (
            f"ConfigMap {self.namespace}/{self.config_map} keeps bindings that were removed when the cluster of this "
            f"name had another CA. If it is this cluster, give them back: kubectl get configmap {self.config_map} "
            f"--namespace {self.namespace} --output 'jsonpath={{.data.{first}}}' | kubectl create --filename - "
            f"--kubeconfig KUBECONFIG-OF-THE-CLUSTER{others}; then, or if it is not, delete the ConfigMap"
        )


def saved_name(cluster: ClusterKey) -> str:
    """Name of the ConfigMap for that Cluster; no other Cluster's has it."""
    parts = (cluster.namespace, cluster.name)
    return f"removed-grants-{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]}"


def generation_field(owner: ClusterIdentity) -> str:
    """Field of ``data`` for that CA: a name that ConfigMaps allow."""
    return owner.ca_cert_hash.replace(":", "-")


def saved_data(cluster: ClusterKey, generations: Mapping[str, Generation]) -> dict[str, str]:
    """``data`` of the ConfigMap. Each generation is a List that ``kubectl create`` takes; empty ones are left out.

    Raises:
        BindingsNotSaved: they are too many, or too large.
    """
    filled = {name: bindings for name, bindings in generations.items() if bindings}
    if len(filled) > MAXIMUM_GENERATIONS:
        raise BindingsNotSaved(
            f"grants that were removed under more than {MAXIMUM_GENERATIONS} CAs of one cluster would have to be kept: "
            f"restore by hand what ConfigMap {saved_name(cluster)} holds, or delete it"
        )
    if sum(map(len, filled.values())) > MAXIMUM_SAVED_BINDINGS:
        raise BindingsNotSaved(f"more than {MAXIMUM_SAVED_BINDINGS} bindings would have to be kept")
    texts = {name: _generation_text(bindings) for name, bindings in filled.items()}
    if sum(map(len, texts.values())) > MAXIMUM_SAVED_BYTES:
        raise BindingsNotSaved(f"the bindings to be kept take more than {MAXIMUM_SAVED_BYTES // 1024} KiB")
    return {"clusterNamespace": cluster.namespace, "clusterName": cluster.name, **texts}


def parse_owner(manifest: Mapping[str, Any]) -> ClusterKey:
    """Which Cluster a ConfigMap is for.

    Raises:
        ValueError: it does not say, or its name is that of another.
    """
    data = mapping_of(manifest, "data")
    try:
        cluster = ClusterKey(*(required_text(data, field) for field in _CLUSTER_FIELDS))
        object_name = required_text(mapping_of(manifest, "metadata"), "name")
    except (KeyError, TypeError) as error:
        raise ValueError(f"it does not say which cluster it is for: {error}") from error
    if object_name != saved_name(cluster):
        raise ValueError("its name is not the digest of its cluster")
    return cluster


def parse_saved(manifest: Mapping[str, Any]) -> SavedBindings:
    """Read a ConfigMap.

    Raises:
        ValueError: it is not as it was written.
    """
    cluster = parse_owner(manifest)
    metadata, data = mapping_of(manifest, "metadata"), mapping_of(manifest, "data")
    texts = {field: text_of(data, field) for field in data if field not in _CLUSTER_FIELDS}
    if len(texts) > MAXIMUM_GENERATIONS or sum(map(len, texts.values())) > 2 * MAXIMUM_SAVED_BYTES:
        raise ValueError("it is larger than anything that is kept")
    generations = {field: _parse_generation(text) for field, text in texts.items()}
    uid, resource_version = text_of(metadata, "uid"), text_of(metadata, "resourceVersion")
    if not uid or not resource_version:
        raise ValueError("it has no UID or resourceVersion")
    return SavedBindings(cluster, generations, uid, resource_version)


def _generation_text(bindings: Generation) -> str:
    """What was removed stands beside the objects: an object to be created may name no version."""
    ordered = [binding for _, binding in sorted(bindings.items())]
    removed = {one.name: {"uid": one.uid, "resourceVersion": one.resource_version} for one in ordered}
    return json.dumps(
        {"apiVersion": "v1", "kind": "List", "items": [binding_body(one) for one in ordered], "removed": removed},
        indent=1,
    )


def _parse_generation(text: str) -> Generation:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it was changed by somebody else: {type(error).__name__}") from error
    if not isinstance(content, Mapping):
        raise ValueError("a generation is no object")
    items, removed = content.get("items"), mapping_of(content, "removed")
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        raise ValueError("items is no list of objects")
    bindings: dict[str, ClusterRoleBinding] = {}
    for item in items:
        metadata = mapping_of(item, "metadata")
        version = mapping_of(removed, text_of(metadata, "name"))
        versioned = {**metadata, "uid": version.get("uid"), "resourceVersion": version.get("resourceVersion")}
        binding = parse_cluster_role_binding({**item, "metadata": versioned})
        bindings[binding.name] = binding
    return bindings
