"""A digest of the watched status of each NodeAttestationPolicy, so that its writer notices changes by others."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from signer.model.cluster import ClusterKey

NOT_SHOWN: Final = ""
"""No readable status was watched yet."""


class PolicyStatuses:
    """A digest for each policy. Decisions do not use the status itself, so it is not kept."""

    def __init__(self) -> None:
        self._digests: dict[ClusterKey, str] = {}

    def shows(self, cluster: ClusterKey, manifest: Mapping[str, Any]) -> None:
        """The watch delivered this policy."""
        self._digests[cluster] = status_digest(manifest)

    def forget(self, cluster: ClusterKey) -> None:
        """The policy was deleted."""
        self._digests.pop(cluster, None)

    def shown(self, cluster: ClusterKey) -> str:
        """The digest of the status that the watch delivered last."""
        return self._digests.get(cluster, NOT_SHOWN)


def status_digest(manifest: Mapping[str, Any]) -> str:
    """SHA-256 of the object's status as JSON with sorted keys, in hexadecimal."""
    try:
        return hashlib.sha256(msgspec.json.encode(manifest.get("status") or {}, order="sorted")).hexdigest()
    except (TypeError, ValueError, RecursionError):
        return NOT_SHOWN
