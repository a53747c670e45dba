"""By what the status of each NodeAttestationPolicy is known that the watch shows: who writes it sees what others do."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from signer.model.cluster import ClusterKey

NOT_SHOWN: Final = ""
"""Nothing was shown yet, or nothing that can be read."""


class PolicyStatuses:
    """A digest for each policy; the status itself is of no use to decisions, and not kept."""

    def __init__(self) -> None:
        self._digests: dict[ClusterKey, str] = {}

    def shows(self, cluster: ClusterKey, manifest: Mapping[str, Any]) -> None:
        """The watch has shown this policy."""
        self._digests[cluster] = status_digest(manifest)

    def forget(self, cluster: ClusterKey) -> None:
        """The policy is gone."""
        self._digests.pop(cluster, None)

    def shown(self, cluster: ClusterKey) -> str:
        """The digest of what was shown last."""
        return self._digests.get(cluster, NOT_SHOWN)


def status_digest(manifest: Mapping[str, Any]) -> str:
    """SHA-256 of the object's status in JSON with sorted keys, hexadecimal."""
    try:
        return hashlib.sha256(msgspec.json.encode(manifest.get("status") or {}, order="sorted")).hexdigest()
    except (TypeError, ValueError, RecursionError):
        return NOT_SHOWN
