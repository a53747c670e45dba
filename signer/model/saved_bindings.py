"""The format of saved bindings: one ConfigMap for each Cluster, by its namespace and name.

The ConfigMap groups the bindings by lineage. A lineage is one workload cluster under that name. It continues when
``clusterctl move`` recreates the Cluster and when the CA is replaced: one of the two marks (UID of the Cluster, hash of
the CA) stays each time, and the lineage adds the other. A cluster that shares neither mark is another cluster with the
same name, and its bindings are not restored automatically. A tenant that can write the CA Secret can name any number of
CAs. So the marks of a lineage, the lineages of a Cluster and their bytes are limited.

Each lineage has a seal. One that is not as the controller wrote it stays in the ConfigMap, and the controller restores
nothing of it: otherwise a writer of ConfigMaps could let it grant automatic approval to anybody.
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
from signer.model.seal import joined

MAXIMUM_LINEAGES: Final = 4
"""Maximum number of workload clusters of one name with saved bindings."""
MAXIMUM_MARKS: Final = 16
"""Maximum number of UIDs, and of CAs, of one lineage: the first one and the latest ones are kept."""
MAXIMUM_SAVED_BINDINGS: Final = 64
MAXIMUM_SAVED_BYTES: Final = 64 * 1024
"""Limit for one Cluster. Its administrators choose the content, and the management cluster's etcd stores it."""

_CLUSTER_FIELDS: Final = ("clusterNamespace", "clusterName")
"""Every other field of ``data`` is a lineage."""

Bindings: TypeAlias = Mapping[str, ClusterRoleBinding]
"""The bindings that were removed from one lineage, by name."""


class BindingsNotSaved(Exception):
    """Bindings cannot be saved or read, so none may be removed. The message says why."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """One workload cluster under a name, and the bindings that were removed from it."""

    uids: tuple[str, ...] = ()
    """UIDs of the Cluster, oldest first."""
    ca_cert_hashes: tuple[str, ...] = ()
    """Hashes of its CAs, oldest first."""
    bindings: Bindings = field(default_factory=lambda: MappingProxyType({}))
    seal: str = field(default="", compare=False)
    """As read. Writing makes a new one."""

    def is_of(self, owner: ClusterIdentity) -> bool:
        """Whether the cluster shares a mark with the lineage."""
        return owner.uid in self.uids or owner.ca_cert_hash in self.ca_cert_hashes

    def knows(self, owner: ClusterIdentity) -> bool:
        """Whether the lineage has both marks of the cluster."""
        return owner.uid in self.uids and owner.ca_cert_hash in self.ca_cert_hashes

    def continued(self, owner: ClusterIdentity, bindings: Bindings) -> Lineage:
        """The lineage with that cluster's marks added, and with these bindings in place of its own."""
        return Lineage(_with(self.uids, owner.uid), _with(self.ca_cert_hashes, owner.ca_cert_hash), bindings)


def _with(marks: tuple[str, ...], mark: str) -> tuple[str, ...]:
    """The marks with ``mark`` as the newest. The first mark stays, because the lineage's name depends on it."""
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
    changed: Mapping[str, Lineage] = field(default_factory=lambda: MappingProxyType({}))
    """Those that the controller did not write so, by field."""
    has_current_seals: bool = True
    """No lineage has a seal of the previous controller key."""

    def of(self, owner: ClusterIdentity) -> Lineage:
        """The cluster's lineage; one without marks if there is none.

        Two lineages may turn out to be the same, for example when a replaced CA is put back. They are merged then. Of
        two bindings with the same name, the merged lineage has the one of the lineage with the Cluster's UID.
        """
        found = sorted(
            (one for one in self.lineages.values() if one.is_of(owner)), key=lambda one: owner.uid in one.uids
        )
        if len(found) < 2:
            return found[0] if found else Lineage()
        return Lineage(
            _merged(one.uids for one in found),
            _merged(one.ca_cert_hashes for one in found),
            {name: binding for one in found for name, binding in one.bindings.items()},
        )

    def with_bindings(self, owner: ClusterIdentity, bindings: Bindings) -> Mapping[str, Lineage]:
        """All lineages, with that cluster's lineage continued and these as its bindings."""
        names = [name for name, one in self.lineages.items() if one.is_of(owner)]
        others = {name: one for name, one in self.lineages.items() if name not in names}
        return {**others, (names or [self._new_field(owner)])[0]: self.of(owner).continued(owner, bindings)}

    def _new_field(self, owner: ClusterIdentity) -> str:
        """Another than that of a changed lineage, whose content stays for a person to see."""
        field_name = lineage_field(owner)
        free = (f"{field_name}-{number}" for number in range(1, MAXIMUM_LINEAGES + 1))
        return field_name if field_name not in self.changed else next(one for one in free if one not in self.changed)


def _merged(marks: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    every = tuple(dict.fromkeys(mark for one in marks for mark in one))
    return every if len(every) <= MAXIMUM_MARKS else (every[0], *every[1 - MAXIMUM_MARKS :])


@dataclass(frozen=True, slots=True)
class OtherLineages:
    """Bindings that only an administrator can restore: removed from other clusters of this name, or not as they were
    saved.
    """

    namespace: str
    config_map: str
    fields: tuple[str, ...]
    """Fields of the ConfigMap's ``data``, of other clusters."""
    changed: tuple[str, ...] = ()
    """Fields that the controller did not write so. One of both is not empty."""

    def __str__(self) -> str:
        return "; ".join(filter(None, (self._of_others(), self._of_changed())))

    def _of_others(self) -> str:
        if not self.fields:
            return ""
        first, *more = self.fields
        others = f" (and the same for {' and '.join(more)})" if more else ""
        return (
            f"ConfigMap {self.namespace}/{self.config_map} has bindings that were removed from a cluster of this "
            "name with another UID and another CA. If it is this cluster, restore them: kubectl get configmap "
            f"{self.config_map} --namespace {self.namespace} --output 'jsonpath={{.data.{first}}}' | kubectl create "
            f"--filename - --kubeconfig KUBECONFIG-OF-THE-CLUSTER{others}; then, or if it is not, delete the ConfigMap"
        )

    def _of_changed(self) -> str:
        if not self.changed:
            return ""
        return (
            f"ConfigMap {self.namespace}/{self.config_map} is not as this controller wrote it, in "
            f"{' and '.join(self.changed)}: somebody changed it, or it was written with another controller key. Read "
            "its bindings before you restore any of them by kubectl create; then delete the ConfigMap"
        )


def saved_name(cluster: ClusterKey) -> str:
    """Name of that Cluster's ConfigMap, unique to it."""
    parts = (cluster.namespace, cluster.name)
    return f"removed-grants-{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]}"


def set_aside_name(cluster: ClusterKey) -> str:
    """Name of the ConfigMap that has what the Cluster's held and the controller could neither use nor leave there."""
    return f"{saved_name(cluster)}-set-aside"


def lineage_field(owner: ClusterIdentity) -> str:
    """Field of ``data`` for a lineage that begins with that cluster."""
    parts = (owner.uid, owner.ca_cert_hash)
    return f"lineage-{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]}"


def saved_data(cluster: ClusterKey, lineages: Mapping[str, Lineage]) -> dict[str, str]:
    """``data`` of the ConfigMap. Each lineage is a List for ``kubectl create``; empty ones are omitted.

    Raises:
        BindingsNotSaved: there are too many bindings or lineages, or they are too large.
    """
    filled = {name: one for name, one in lineages.items() if one.bindings}
    if len(filled) > MAXIMUM_LINEAGES:
        raise BindingsNotSaved(
            f"bindings of more than {MAXIMUM_LINEAGES} clusters of one name would have to be saved: restore the "
            f"bindings in ConfigMap {saved_name(cluster)} by hand, or delete it"
        )
    if sum(len(one.bindings) for one in filled.values()) > MAXIMUM_SAVED_BINDINGS:
        raise BindingsNotSaved(f"more than {MAXIMUM_SAVED_BINDINGS} bindings would have to be saved")
    texts = {name: _lineage_text(one) for name, one in filled.items()}
    if sum(map(len, texts.values())) > MAXIMUM_SAVED_BYTES:
        raise BindingsNotSaved(f"the bindings to be saved take more than {MAXIMUM_SAVED_BYTES // 1024} KiB")
    return {"clusterNamespace": cluster.namespace, "clusterName": cluster.name, **texts}


def parse_owner(manifest: Mapping[str, Any]) -> ClusterKey:
    """The Cluster of a ConfigMap with saved bindings.

    Raises:
        ValueError: the fields are missing, or the object's name does not match them.
    """
    data = mapping_of(manifest, "data")
    try:
        cluster = ClusterKey(*(required_text(data, name) for name in _CLUSTER_FIELDS))
        object_name = required_text(mapping_of(manifest, "metadata"), "name")
    except (KeyError, TypeError) as error:
        raise ValueError(f"it does not name its cluster: {error}") from error
    if object_name != saved_name(cluster):
        raise ValueError("its name is not the digest of its cluster")
    return cluster


def parse_saved(manifest: Mapping[str, Any]) -> SavedBindings:
    """Read a ConfigMap with saved bindings.

    Raises:
        ValueError: it is malformed, so the controller did not write it so.
    """
    cluster = parse_owner(manifest)
    if manifest.get("immutable") or manifest.get("binaryData"):
        raise ValueError("it is immutable, or has binaryData")
    metadata, data = mapping_of(manifest, "metadata"), mapping_of(manifest, "data")
    texts = {name: text_of(data, name) for name in data if name not in _CLUSTER_FIELDS}
    if len(texts) > MAXIMUM_LINEAGES or sum(map(len, texts.values())) > 2 * MAXIMUM_SAVED_BYTES:
        raise ValueError("it is larger than the limit for saved bindings")
    lineages = {name: _parse_lineage(text) for name, text in texts.items()}
    uid, resource_version = text_of(metadata, "uid"), text_of(metadata, "resourceVersion")
    if not uid or not resource_version:
        raise ValueError("it has no UID or resourceVersion")
    return SavedBindings(cluster, lineages, uid, resource_version)


def sealed_lineage(cluster: ClusterKey, field_name: str, lineage: Lineage) -> str:
    """What a seal covers: the place of the lineage and all of its content, from the parsed values."""
    return joined(cluster.namespace, cluster.name, field_name, json.dumps(_content(lineage), sort_keys=True))


def _lineage_text(lineage: Lineage) -> str:
    return json.dumps({**_content(lineage), "seal": lineage.seal}, indent=1)


def _content(lineage: Lineage) -> dict[str, Any]:
    """UIDs and resourceVersions are separate from the objects: ``kubectl create`` refuses an object with them."""
    ordered = [binding for _, binding in sorted(lineage.bindings.items())]
    removed = {one.name: {"uid": one.uid, "resourceVersion": one.resource_version} for one in ordered}
    marks = {"clusterUIDs": list(lineage.uids), "caCertHashes": list(lineage.ca_cert_hashes)}
    return {
        "apiVersion": "v1",
        "kind": "List",
        "items": [binding_body(one) for one in ordered],
        "removed": removed,
        "lineage": marks,
    }


def _parse_lineage(text: str) -> Lineage:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"another client changed it: {type(error).__name__}") from error
    if not isinstance(content, Mapping):
        raise ValueError("a lineage is not an object")
    items, removed = content.get("items"), mapping_of(content, "removed")
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        raise ValueError("items is not a list of objects")
    bindings: dict[str, ClusterRoleBinding] = {}
    for item in items:
        metadata = mapping_of(item, "metadata")
        version = mapping_of(removed, text_of(metadata, "name"))
        versioned = {**metadata, "uid": version.get("uid"), "resourceVersion": version.get("resourceVersion")}
        binding = parse_cluster_role_binding({**item, "metadata": versioned})
        bindings[binding.name] = binding
    marks = mapping_of(content, "lineage")
    return Lineage(_marks(marks, "clusterUIDs"), _marks(marks, "caCertHashes"), bindings, text_of(content, "seal"))


def _marks(lineage: Mapping[str, Any], key: str) -> tuple[str, ...]:
    marks = lineage.get(key)
    if not isinstance(marks, list) or not 0 < len(marks) <= MAXIMUM_MARKS:
        raise ValueError(f"it does not identify the cluster: {key} is not a list of 1 to {MAXIMUM_MARKS}")
    if not all(isinstance(mark, str) and mark for mark in marks):
        raise ValueError(f"{key} is not a list of strings")
    return tuple(marks)
