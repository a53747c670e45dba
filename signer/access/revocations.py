"""The list of ended grants' key ids as a ConfigMap of the management cluster: sealed, bounded, owned by its Cluster.
Pure.

An entry is needed until the last certificate with its key id has ended, which takes an hour at most, and a little
longer for nodes whose clock is behind. Nothing drops an entry before that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from signer.kube.client import JsonObject
from signer.kube.resources import CONFIG_MAPS
from signer.model.cluster import CLUSTER_NAME_LABEL, ClusterKey, ClusterView
from signer.model.fields import format_time, items_of, mapping_of, parse_time, text_of
from signer.model.seal import Authentic, ControllerKeys, KeyUse, Seals, joined
from signer.rules.access_certificates import KEY_ID_PREFIX

MAXIMUM_ENTRIES: Final = 4096
"""Of ended grants, and of those that live and have certificates: each of them may end in the next moment."""
MAXIMUM_BYTES: Final = 400 * 1024
"""Of their key ids together. 700 KiB are published, with the policy's, and a ConfigMap may have 1 MiB."""
KEPT_AFTER_END: Final = timedelta(minutes=10)
"""A node whose clock is behind accepts a certificate for so much longer."""
REVOCATIONS: Final = "revocations"
SEAL: Final = "seal"
_MAXIMUM_TEXT: Final = 1024 * 1024
_KEY_ID: Final = re.compile(rf"{KEY_ID_PREFIX}[!-~]{{1,1018}}", re.ASCII)

Entries: TypeAlias = Mapping[str, datetime]
"""By key id: when the last certificate with it ends."""


@dataclass(frozen=True, slots=True)
class NoList:
    """There is no object."""


@dataclass(frozen=True, slots=True)
class ForeignList:
    """There is one that is not as the controller wrote it."""

    why: str


@dataclass(frozen=True, slots=True)
class AuthenticList:
    """The controller wrote it, now or earlier."""

    entries: Entries
    is_current: bool
    """Whether the current controller key sealed it."""


ReadList: TypeAlias = AuthenticList | ForeignList | NoList


def list_name(cluster: ClusterKey) -> str:
    """The ConfigMap's name."""
    return f"{cluster.name}-ssh-access-revocations"


def list_path(cluster: ClusterKey) -> str:
    """The ConfigMap's path."""
    return CONFIG_MAPS.object(list_name(cluster), cluster.namespace)


def require_key_id(key_id: str) -> None:
    """Raises ValueError unless it is a grant's key id."""
    if _KEY_ID.fullmatch(key_id) is None:
        raise ValueError("no key id of a grant")


def is_needed(until: datetime, now: datetime) -> bool:
    """Whether a node may still accept a certificate that ends then."""
    return now < until + KEPT_AFTER_END


def needed(entries: Entries, now: datetime) -> dict[str, datetime]:
    """Those that are needed."""
    return {key_id: until for key_id, until in entries.items() if is_needed(until, now)}


def united(one: Entries, other: Entries) -> dict[str, datetime]:
    """All of both, each for as long as either says."""
    return {key_id: max(found[key_id] for found in (one, other) if key_id in found) for key_id in {**one, **other}}


def manifest_of(
    entries: Entries, cluster: ClusterView, owner_version: str, keys: ControllerKeys, found: JsonObject
) -> JsonObject:
    """The object with these entries, sealed. ``found`` is what it replaces, empty for none."""
    metadata = {name: value for name, value in mapping_of(found, "metadata").items() if name != "managedFields"}
    labels = {**mapping_of(metadata, "labels"), CLUSTER_NAME_LABEL: cluster.key.name}
    owner = {"apiVersion": owner_version, "kind": "Cluster", "name": cluster.key.name, "uid": cluster.uid}
    return {
        "apiVersion": CONFIG_MAPS.api_version,
        "kind": "ConfigMap",
        "metadata": {
            **metadata,
            "name": list_name(cluster.key),
            "namespace": cluster.key.namespace,
            "labels": labels,
            "ownerReferences": [owner],
        },
        "data": {
            REVOCATIONS: _text(entries),
            SEAL: Seals(keys, KeyUse.ACCESS_REVOCATIONS).seal(_sealed(cluster.key, entries)),
        },
    }


def read_list(manifest: JsonObject, cluster: ClusterKey, keys: ControllerKeys) -> ReadList:
    """Read the object; ``manifest`` is empty if there is none."""
    if not manifest:
        return NoList()
    data = mapping_of(manifest, "data")
    try:
        entries = _entries(text_of(data, REVOCATIONS))
    except (ValueError, RecursionError) as error:
        return ForeignList(f"it cannot be read: {type(error).__name__}")
    verified = Seals(keys, KeyUse.ACCESS_REVOCATIONS).verify(text_of(data, SEAL), lambda: _sealed(cluster, entries))
    if isinstance(verified, Authentic):
        return AuthenticList(entries, verified == Authentic())
    return ForeignList(verified.fault.value)


def _text(entries: Entries) -> str:
    listed = [{"keyID": key_id, "until": format_time(entries[key_id])} for key_id in sorted(entries)]
    return json.dumps(listed, separators=(",", ":"))


def _entries(text: str) -> Entries:
    if len(text) > _MAXIMUM_TEXT:
        raise ValueError("too long")
    listed = items_of({REVOCATIONS: json.loads(text)}, REVOCATIONS)
    entries = dict(map(_entry, listed))
    if len(entries) != len(listed):
        raise ValueError("a key id is there twice")
    return entries


def _entry(item: Any) -> tuple[str, datetime]:
    if not isinstance(item, Mapping) or item.keys() != {"keyID", "until"}:
        raise ValueError("another form of entry")
    return text_of(item, "keyID"), parse_time(text_of(item, "until"))


def _sealed(cluster: ClusterKey, entries: Entries) -> str:
    parts = (text for key_id in sorted(entries) for text in (key_id, format_time(entries[key_id])))
    return joined("access revocations", cluster.namespace, cluster.name, *parts)
