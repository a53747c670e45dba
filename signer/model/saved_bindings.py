"""The form in which removed bindings are saved: one ConfigMap for each Cluster, by its namespace and name.

In it the bindings stand by lineage. A lineage is one workload cluster under that name, however often its Cluster was
made anew by ``clusterctl move`` and however often its CA was replaced: each time one of the two marks (UID of the
Cluster, hash of the CA) stays, and the lineage learns the other. A cluster that shares neither mark is another one
under the same name, and gets nothing by itself. A tenant that writes the Secret of the CA can name as many CAs as it
likes: the marks of a lineage are bounded, and so are the lineages of one Cluster and their bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from signer.model.auto_approval import ClusterIdentity, ClusterRoleBinding, binding_body, parse_cluster_role_binding
from signer.model.cluster import ClusterKey
from signer.model.fields import mapping_of, required_text, text_of

MAXIMUM_LINEAGES: Final = 4
"""Workload clusters of one name for which something is saved."""
MAXIMUM_MARKS: Final = 16
"""UIDs, and as many CAs, by which one lineage is known: the first, and the last ones."""
MAXIMUM_SAVED_BINDINGS: Final = 64
MAXIMUM_SAVED_BYTES: Final = 64 * 1024
"""Of one Cluster; its administrators choose what its bindings say, and the management cluster's etcd stores it."""

_CLUSTER_FIELDS: Final = ("clusterNamespace", "clusterName")
"""Every other field of ``data`` is a lineage."""

Bindings: TypeAlias = Mapping[str, ClusterRoleBinding]
"""The bindings that were removed from one lineage, by name."""


class BindingsNotSaved(Exception):
    """What was, or is to be, removed cannot be kept or read: nothing may be removed; the message says why."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """One workload cluster under a name, and what was removed from it."""

    uids: tuple[str, ...] = ()
    """Of the Cluster, oldest first."""
    ca_cert_hashes: tuple[str, ...] = ()
    """Of its CAs, oldest first."""
    bindings: Bindings = field(default_factory=lambda: MappingProxyType({}))

    def is_of(self, owner: ClusterIdentity) -> bool:
        """Whether that cluster shares a mark with it."""
        return owner.uid in self.uids or owner.ca_cert_hash in self.ca_cert_hashes

    def knows(self, owner: ClusterIdentity) -> bool:
        """Whether it has both marks of that cluster."""
        return owner.uid in self.uids and owner.ca_cert_hash in self.ca_cert_hashes

    def continued(self, owner: ClusterIdentity, bindings: Bindings) -> Lineage:
        """The same, now known by that cluster's marks too, and with these bindings instead."""
        return Lineage(_with(self.uids, owner.uid), _with(self.ca_cert_hashes, owner.ca_cert_hash), bindings)


def _with(marks: tuple[str, ...], mark: str) -> tuple[str, ...]:
    """With the mark as the newest one; the first stays, for the lineage is named by it."""
    known = tuple(dict.fromkeys((*marks[:1], *(one for one in marks[1:] if one != mark), mark)))
    return known if len(known) <= MAXIMUM_MARKS else (known[0], *known[1 - MAXIMUM_MARKS :])


@dataclass(frozen=True, slots=True)
class SavedBindings:
    """The bindings that were removed from the clusters of one name."""

    cluster: ClusterKey
    lineages: Mapping[str, Lineage]
    """By field of ``data``; see :func:`lineage_field`."""
    uid: str
    resource_version: str

    def of(self, owner: ClusterIdentity) -> Lineage:
        """That cluster's lineage; without any mark where there is none.

        It may turn out that two are one, as when a CA that was replaced is put back: they count as one then. Of two
        bindings of one name, the one of the lineage counts that has the Cluster's UID.
        """
        found = sorted(
            (one for one in self.lineages.values() if one.is_of(owner)), key=lambda one: owner.uid in one.uids
        )
        if len(found) < 2:
            return found[0] if found else Lineage()
        return Lineage(
            _together(one.uids for one in found),
            _together(one.ca_cert_hashes for one in found),
            {name: binding for one in found for name, binding in one.bindings.items()},
        )

    def with_bindings(self, owner: ClusterIdentity, bindings: Bindings) -> Mapping[str, Lineage]:
        """All lineages, with that cluster's continued and these as its bindings."""
        names = [name for name, one in self.lineages.items() if one.is_of(owner)]
        others = {name: one for name, one in self.lineages.items() if name not in names}
        return {**others, (names or [lineage_field(owner)])[0]: self.of(owner).continued(owner, bindings)}


def _together(marks: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    every = tuple(dict.fromkeys(mark for one in marks for mark in one))
    return every if len(every) <= MAXIMUM_MARKS else (every[0], *every[1 - MAXIMUM_MARKS :])


@dataclass(frozen=True, slots=True)
class OtherLineages:
    """What was removed from other clusters of this name; a person has to say whether it was this one."""

    namespace: str
    config_map: str
    fields: tuple[str, ...]
    """Of the ConfigMap's ``data``; never empty."""

    def __str__(self) -> str:
        first, *more = self.fields
        others = f" (and the same for {' and '.join(more)})" if more else ""
        return (
            f"ConfigMap {self.namespace}/{self.config_map} keeps bindings that were removed from a cluster of this "
            "name that had another UID and another CA. If it is this cluster, restore them: kubectl get configmap "
            f"{self.config_map} --namespace {self.namespace} --output 'jsonpath={{.data.{first}}}' | kubectl create "
            f"--filename - --kubeconfig KUBECONFIG-OF-THE-CLUSTER{others}; then, or if it is not, delete the ConfigMap"
        )


def saved_name(cluster: ClusterKey) -> str:
    """Name of the ConfigMap for that Cluster; no other Cluster's has it."""
    parts = (cluster.namespace, cluster.name)
    return f"removed-grants-{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]}"


def lineage_field(owner: ClusterIdentity) -> str:
    """Field of ``data`` for a lineage that begins with that cluster: a name that ConfigMaps allow."""
    parts = (owner.uid, owner.ca_cert_hash)
    return f"lineage-{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]}"


def saved_data(cluster: ClusterKey, lineages: Mapping[str, Lineage]) -> dict[str, str]:
    """``data`` of the ConfigMap. Each lineage is a List that ``kubectl create`` takes; empty ones are left out.

    Raises:
        BindingsNotSaved: they are too many, or too large.
    """
    filled = {name: one for name, one in lineages.items() if one.bindings}
    if len(filled) > MAXIMUM_LINEAGES:
        raise BindingsNotSaved(
            f"bindings that were removed from more than {MAXIMUM_LINEAGES} clusters of one name would have to be kept: "
            f"restore by hand what ConfigMap {saved_name(cluster)} holds, or delete it"
        )
    if sum(len(one.bindings) for one in filled.values()) > MAXIMUM_SAVED_BINDINGS:
        raise BindingsNotSaved(f"more than {MAXIMUM_SAVED_BINDINGS} bindings would have to be kept")
    texts = {name: _lineage_text(one) for name, one in filled.items()}
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
        cluster = ClusterKey(*(required_text(data, name) for name in _CLUSTER_FIELDS))
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
    texts = {name: text_of(data, name) for name in data if name not in _CLUSTER_FIELDS}
    if len(texts) > MAXIMUM_LINEAGES or sum(map(len, texts.values())) > 2 * MAXIMUM_SAVED_BYTES:
        raise ValueError("it is larger than anything that is kept")
    lineages = {name: _parse_lineage(text) for name, text in texts.items()}
    uid, resource_version = text_of(metadata, "uid"), text_of(metadata, "resourceVersion")
    if not uid or not resource_version:
        raise ValueError("it has no UID or resourceVersion")
    return SavedBindings(cluster, lineages, uid, resource_version)


def _lineage_text(lineage: Lineage) -> str:
    """What was removed stands beside the objects: an object to be created may name no version."""
    ordered = [binding for _, binding in sorted(lineage.bindings.items())]
    removed = {one.name: {"uid": one.uid, "resourceVersion": one.resource_version} for one in ordered}
    marks = {"clusterUIDs": list(lineage.uids), "caCertHashes": list(lineage.ca_cert_hashes)}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "List",
            "items": [binding_body(one) for one in ordered],
            "removed": removed,
            "lineage": marks,
        },
        indent=1,
    )


def _parse_lineage(text: str) -> Lineage:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it was changed by somebody else: {type(error).__name__}") from error
    if not isinstance(content, Mapping):
        raise ValueError("a lineage is no object")
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
    marks = mapping_of(content, "lineage")
    return Lineage(_marks(marks, "clusterUIDs"), _marks(marks, "caCertHashes"), bindings)


def _marks(lineage: Mapping[str, Any], key: str) -> tuple[str, ...]:
    marks = lineage.get(key)
    if not isinstance(marks, list) or not 0 < len(marks) <= MAXIMUM_MARKS:
        raise ValueError(f"it does not say whose the bindings were: {key} is no list of 1 to {MAXIMUM_MARKS}")
    if not all(isinstance(mark, str) and mark for mark in marks):
        raise ValueError(f"{key} holds something else than texts")
    return tuple(marks)
