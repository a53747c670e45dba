"""The form in which removed grants are kept: a ConfigMap for each workload cluster.

Its name is the digest of the cluster's name and CA, so that another cluster under the same name has another one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from signer.model.cluster import ClusterKey, mapping_of, text_of
from signer.model.record import required_text
from signer.model.side_door import ClusterIdentity, ClusterRoleBinding, kept_binding, parse_cluster_role_binding

MAXIMUM_KEPT_BINDINGS: Final = 64
MAXIMUM_KEPT_BYTES: Final = 256 * 1024
"""Of one cluster; its administrators choose what its bindings say, and the management cluster's etcd stores it."""


class GrantsNotKept(Exception):
    """What was, or is to be, removed cannot be kept or read: nothing may be removed; the message says why."""


@dataclass(frozen=True, slots=True)
class KeptGrants:
    """The bindings that were removed from one cluster."""

    owner: ClusterIdentity
    bindings: Mapping[str, ClusterRoleBinding]
    uid: str
    resource_version: str


def kept_name(owner: ClusterIdentity) -> str:
    """Name of the ConfigMap for that cluster; no other cluster's has it."""
    parts = (owner.key.namespace, owner.key.name, owner.ca_cert_hash)
    return f"removed-grants-{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]}"


def kept_data(owner: ClusterIdentity, bindings: Mapping[str, ClusterRoleBinding]) -> dict[str, str]:
    """``data`` of the ConfigMap.

    Raises:
        GrantsNotKept: they are too many, or too large.
    """
    if len(bindings) > MAXIMUM_KEPT_BINDINGS:
        raise GrantsNotKept(f"more than {MAXIMUM_KEPT_BINDINGS} bindings would have to be kept")
    text = json.dumps([kept_binding(binding) for _, binding in sorted(bindings.items())], indent=1)
    if len(text) > MAXIMUM_KEPT_BYTES:
        raise GrantsNotKept(f"the bindings to be kept take more than {MAXIMUM_KEPT_BYTES // 1024} KiB")
    return {**_owner_data(owner), "bindings": text}


def _owner_data(owner: ClusterIdentity) -> dict[str, str]:
    return {
        "clusterNamespace": owner.key.namespace,
        "clusterName": owner.key.name,
        "caCertHash": owner.ca_cert_hash,
    }


def parse_owner(manifest: Mapping[str, Any]) -> ClusterIdentity:
    """Which cluster a ConfigMap is for.

    Raises:
        ValueError: it does not say, or its name is that of another.
    """
    data = mapping_of(manifest, "data")
    try:
        namespace, name, ca_cert_hash = (
            required_text(data, key) for key in ("clusterNamespace", "clusterName", "caCertHash")
        )
        object_name = required_text(mapping_of(manifest, "metadata"), "name")
    except (KeyError, TypeError) as error:
        raise ValueError(f"it does not say which cluster it is for: {error}") from error
    owner = ClusterIdentity(ClusterKey(namespace, name), ca_cert_hash)
    if object_name != kept_name(owner):
        raise ValueError("its name is not the digest of its cluster")
    return owner


def parse_kept(manifest: Mapping[str, Any]) -> KeptGrants:
    """Read a ConfigMap.

    Raises:
        ValueError: it is not as it was written.
    """
    owner = parse_owner(manifest)
    metadata, data = mapping_of(manifest, "metadata"), mapping_of(manifest, "data")
    text = text_of(data, "bindings")
    if len(text) > 2 * MAXIMUM_KEPT_BYTES:
        raise ValueError("it is larger than anything that is kept")
    try:
        items = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it was changed by somebody else: {type(error).__name__}") from error
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        raise ValueError("bindings is no list of objects")
    bindings = [parse_cluster_role_binding(item) for item in items]
    uid, resource_version = text_of(metadata, "uid"), text_of(metadata, "resourceVersion")
    if not uid or not resource_version:
        raise ValueError("it has no UID or resourceVersion")
    return KeptGrants(owner, {binding.name: binding for binding in bindings}, uid, resource_version)
