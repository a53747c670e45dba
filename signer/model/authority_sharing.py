"""Clusters that have a certificate authority in common, and those that may by the operator's word.

Evidence names a cluster by the hash of a CA's public key. Where two Clusters have that CA, evidence for one counts in
the other, and whoever owns the other can reserve the identities of the first one's nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from signer.model.cluster import ClusterKey


@dataclass(frozen=True, slots=True)
class AuthorityHashes:
    """The discovery hashes of one cluster's CAs."""

    keys: frozenset[str] = frozenset()
    """Of the CAs whose private key is in a Secret of the cluster."""
    issuers: frozenset[str] = frozenset()
    """Of the other CAs that those chain to, as the cluster's Secrets list them."""

    @property
    def all(self) -> frozenset[str]:
        """Both."""
        return self.keys | self.issuers


@dataclass(frozen=True, slots=True)
class SharedAuthorities:
    """What of one cluster's CAs another Cluster has too, without the operator's word."""

    keys: frozenset[str] = frozenset()
    """Hashes of the CAs whose private key another Cluster has too."""
    issuers: frozenset[str] = frozenset()
    """Hashes of the issuers that another Cluster's CAs chain to, or whose private key another Cluster has."""


NOT_SHARED: Final = SharedAuthorities()


@dataclass(frozen=True, slots=True)
class SharingGroup:
    """Clusters of one owner, which may have CAs in common."""

    namespaces: frozenset[str] = frozenset()
    """All Clusters of these namespaces."""
    clusters: frozenset[ClusterKey] = frozenset()
    everywhere: bool = False
    """Every Cluster."""

    def has(self, cluster: ClusterKey) -> bool:
        """Whether the Cluster is one of the group."""
        return self.everywhere or cluster.namespace in self.namespaces or cluster in self.clusters


@dataclass(frozen=True, slots=True)
class SharingGroups:
    """The operator's word on which Clusters may have CAs in common."""

    groups: tuple[SharingGroup, ...] = ()

    @property
    def allow_all(self) -> bool:
        """Whether any two may."""
        return any(group.everywhere for group in self.groups)

    def allow(self, one: ClusterKey, other: ClusterKey) -> bool:
        """Whether one group has both."""
        return any(group.has(one) and group.has(other) for group in self.groups)


NO_SHARING: Final = SharingGroups()
EVERYTHING_SHARED: Final = SharingGroups((SharingGroup(everywhere=True),))
"""Of a management cluster whose Clusters all have one owner."""


__all__ = [
    "EVERYTHING_SHARED",
    "NOT_SHARED",
    "NO_SHARING",
    "AuthorityHashes",
    "SharedAuthorities",
    "SharingGroup",
    "SharingGroups",
]
