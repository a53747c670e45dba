"""What others put into an object's metadata, kept so that the whole object can be written again.

A PUT costs an API server half of what a PATCH does (measured on 1.20: 1.2 beside 2.5 ms of its CPU for an
AttestedNode), but it must carry everything that is to stay: labels, annotations, owners that ``clusterctl move``
rewrites, finalizers. The resourceVersion in it makes sure that nothing has come since.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec

MAXIMUM_BYTES: Final = 2048
"""Tenants may fill annotations; of an object with more it is read again before it is written."""
_SERVERS: Final = frozenset(
    {"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"}
)
"""Fields that say which object it is, or that the API server alone fills in (``metav1.ObjectMeta``)."""


@dataclass(frozen=True, slots=True)
class PreservedMetadata:
    """All of an object's metadata but what the API server fills in, as JSON."""

    packed: bytes

    def fields(self) -> dict[str, Any]:
        """The fields again."""
        unpacked: dict[str, Any] = msgspec.json.decode(self.packed)
        return unpacked


@dataclass(frozen=True, slots=True)
class NotKept:
    """There is none, or more than is kept."""


KeptMetadata: TypeAlias = PreservedMetadata | NotKept


def preserved_metadata(metadata: Mapping[str, Any]) -> KeptMetadata:
    """Keep what others put into ``metadata``, an object's that came from the API server."""
    packed = msgspec.json.encode(preserved_fields(metadata))
    return _shared(packed) if len(packed) <= MAXIMUM_BYTES else NotKept()


def preserved_fields(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """All of ``metadata`` but what the API server fills in."""
    return {key: value for key, value in metadata.items() if key not in _SERVERS}


@lru_cache(maxsize=4096)
def _shared(packed: bytes) -> PreservedMetadata:
    """The same for all records of a Cluster: they have one label and one owner in common."""
    return PreservedMetadata(packed)
