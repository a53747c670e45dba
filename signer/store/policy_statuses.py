"""A digest of the watched status of each NodeAttestationPolicy, so that its writer notices changes by others."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from signer.model.cluster import ClusterKey
from signer.model.fields import mapping_of, text_of

_MAXIMUM_REASON_CHARACTERS: Final = 64
"""Everybody who may write a status writes it; the controller's own reasons are shorter."""
NOT_SHOWN: Final = ""
"""No readable status was watched yet."""


class PolicyStatuses:
    """A digest for each policy, and the reasons of followed conditions. Decisions do not use the status itself, so it
    is not kept.
    """

    def __init__(self) -> None:
        self._digests: dict[ClusterKey, str] = {}
        self._followed: set[str] = set()
        self._reasons: dict[tuple[ClusterKey, str], str] = {}

    def follow(self, condition: str) -> None:
        """Remember the reason of that condition, too. Call this before the caches run."""
        self._followed.add(condition)

    def reason(self, cluster: ClusterKey, condition: str) -> str:
        """The reason of a followed condition in the status that the watch delivered last; empty if it is not there."""
        return self._reasons.get((cluster, condition), "")

    def shows(self, cluster: ClusterKey, manifest: Mapping[str, Any]) -> None:
        """The watch delivered this policy."""
        self._digests[cluster] = status_digest(manifest)
        for condition in self._followed:
            self._reasons[cluster, condition] = _reason(manifest, condition)

    def forget(self, cluster: ClusterKey) -> None:
        """The policy was deleted."""
        self._digests.pop(cluster, None)
        for condition in self._followed:
            self._reasons.pop((cluster, condition), None)

    def shown(self, cluster: ClusterKey) -> str:
        """The digest of the status that the watch delivered last."""
        return self._digests.get(cluster, NOT_SHOWN)


def _reason(manifest: Mapping[str, Any], condition: str) -> str:
    conditions = mapping_of(manifest, "status").get("conditions")
    for one in conditions if isinstance(conditions, list) else ():
        if isinstance(one, dict) and one.get("type") == condition:
            return text_of(one, "reason")[:_MAXIMUM_REASON_CHARACTERS]
    return ""


def status_digest(manifest: Mapping[str, Any]) -> str:
    """SHA-256 of the object's status as JSON with sorted keys, in hexadecimal."""
    try:
        return hashlib.sha256(msgspec.json.encode(manifest.get("status") or {}, order="sorted")).hexdigest()
    except (TypeError, ValueError, RecursionError):
        return NOT_SHOWN
