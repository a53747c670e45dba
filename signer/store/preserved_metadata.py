"""The metadata that other clients set on an object, kept so that the controller can replace the whole object.

A PUT costs an API server half as much CPU as a PATCH (measured on 1.20 for an AttestedNode: 1.2 and 2.5 ms), but must
contain everything that is to stay: labels, annotations, owners that ``clusterctl move`` rewrites, finalizers. The
resourceVersion in the PUT makes it fail if the object has changed since.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec

MAXIMUM_BYTES: Final = 2048
"""Tenants may fill annotations; an object with more metadata is read again before it is written."""
_SERVER_FIELDS: Final = frozenset(
    {"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"}
)
"""Fields that identify the object, or that only the API server sets (``metav1.ObjectMeta``)."""


@dataclass(frozen=True, slots=True)
class PreservedMetadata:
    """An object's metadata without the fields that the API server sets, as JSON."""

    packed: bytes

    def fields(self) -> dict[str, Any]:
        """The decoded fields."""
        unpacked: dict[str, Any] = msgspec.json.decode(self.packed)
        return unpacked


@dataclass(frozen=True, slots=True)
class NotKept:
    """No metadata is kept: there was none, or more than ``MAXIMUM_BYTES``."""


KeptMetadata: TypeAlias = PreservedMetadata | NotKept


def preserved_metadata(metadata: Mapping[str, Any]) -> KeptMetadata:
    """Keep what other clients set in ``metadata``, which came from the API server."""
    packed = msgspec.json.encode(preserved_fields(metadata))
    return _interned(packed) if len(packed) <= MAXIMUM_BYTES else NotKept()


def preserved_fields(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """``metadata`` without the fields that the API server sets."""
    return {key: value for key, value in metadata.items() if key not in _SERVER_FIELDS}


@lru_cache(maxsize=4096)
def _interned(packed: bytes) -> PreservedMetadata:
    """One object for equal metadata: all records of a Cluster have the same label and owner."""
    return PreservedMetadata(packed)
