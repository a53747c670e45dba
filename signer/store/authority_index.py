"""Which Clusters have which CAs, in memory, so that Clusters with a CA in common are found without a call.

It knows two kinds of CAs: those of the clusters that this replica serves, as it read them from their Secrets, and those
that the policies of other clusters publish in their status, which every replica watches. A published one counts only
with the controller's seal. No Cluster enters by listing another's certificate: a key counts only where the
controller has read the private key, and an issuer only where it has signed a CA of that kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from signer.model.authority_sharing import NOT_SHARED, AuthorityHashes, SharedAuthorities, SharingGroups
from signer.model.cluster import ClusterKey
from signer.model.seal import ControllerKeys
from signer.store.published_authorities import NOTHING_PUBLISHED, PublishedAuthorities, read_published_authorities

_NONE: Final = AuthorityHashes()


class AuthorityIndex:
    """The CAs of all Clusters."""

    def __init__(
        self,
        keys: Callable[[], ControllerKeys],
        exists: Callable[[ClusterKey], bool],
        served_here: Callable[[ClusterKey], bool],
        wake: Callable[[ClusterKey], None],
    ) -> None:
        """``exists`` says whether a Cluster has a policy, and ``served_here`` whether this replica serves it. ``wake``
        is called for each Cluster that has, or had, a CA in common with one that changes.
        """
        self._keys = keys
        self._exists = exists
        self._served_here = served_here
        self._wake = wake
        self._loaded: dict[ClusterKey, AuthorityHashes] = {}
        self._published: dict[ClusterKey, PublishedAuthorities] = {}
        self._clusters: dict[str, set[ClusterKey]] = {}
        """The Clusters that a hash is known of, from either source."""

    def loaded(self, cluster: ClusterKey, hashes: AuthorityHashes) -> None:
        """This replica has read the CAs of a cluster that it serves."""
        before = self._loaded.get(cluster, _NONE)
        self._loaded[cluster] = hashes
        if hashes != before:
            self._changed(cluster, before.all, hashes.all)

    def shows(self, cluster: ClusterKey, manifest: Mapping[str, Any]) -> None:
        """The watch delivered the cluster's policy."""
        before, found = self._published.get(cluster, NOTHING_PUBLISHED), read_published_authorities(manifest)
        if found != before:
            self._published[cluster] = found
            self._changed(cluster, before.hashes.all, found.hashes.all)

    def cluster_gone(self, cluster: ClusterKey) -> None:
        """The Cluster was deleted. Its policy may still be there, and may be that of another Cluster of this name."""
        loaded, published = self._loaded.pop(cluster, _NONE), self._published.get(cluster, NOTHING_PUBLISHED)
        self._changed(cluster, loaded.all | published.hashes.all, published.hashes.all)
        self._wake_others(cluster, published.hashes.all)

    def policy_gone(self, cluster: ClusterKey) -> None:
        """The policy was deleted: the Cluster is not served."""
        loaded, published = self._loaded.pop(cluster, _NONE), self._published.pop(cluster, NOTHING_PUBLISHED)
        self._changed(cluster, loaded.all | published.hashes.all, frozenset())

    def of_namespace(self, namespace: str) -> tuple[ClusterKey, ...]:
        """The Clusters of the namespace of which anything is known."""
        return tuple(key for key in {*self._loaded, *self._published} if key.namespace == namespace)

    def shared(self, cluster: ClusterKey, hashes: AuthorityHashes, groups: SharingGroups) -> SharedAuthorities:
        """What of the cluster's CAs another Cluster has too, if the operator does not allow both to share.

        Raises:
            Deferred: another Cluster publishes one of them, and there is no controller key to verify its seal.
        """
        if groups.allow_all:
            return NOT_SHARED
        return SharedAuthorities(
            frozenset(one for one in hashes.keys if any(one in of.keys for of in self._others(cluster, one, groups))),
            frozenset(one for one in hashes.issuers if any(one in of.all for of in self._others(cluster, one, groups))),
        )

    def _others(self, cluster: ClusterKey, one: str, groups: SharingGroups) -> Iterator[AuthorityHashes]:
        for other in self._clusters.get(one, ()):
            if other != cluster and not groups.allow(cluster, other) and self._exists(other):
                yield self._known(other)

    def _known(self, cluster: ClusterKey) -> AuthorityHashes:
        """The CAs that count for that Cluster."""
        if cluster in self._loaded and self._served_here(cluster):
            return self._loaded[cluster]
        published = self._published.get(cluster, NOTHING_PUBLISHED)
        return published.hashes if published.is_sealed(cluster, self._keys()) else _NONE

    def _changed(self, cluster: ClusterKey, before: frozenset[str], after: frozenset[str]) -> None:
        self._wake_others(cluster, before ^ after)
        still = self._loaded.get(cluster, _NONE).all | self._published.get(cluster, NOTHING_PUBLISHED).hashes.all
        for one in after:
            self._clusters.setdefault(one, set()).add(cluster)
        for one in before - still:
            clusters = self._clusters.get(one, set())
            clusters.discard(cluster)
            if not clusters:
                self._clusters.pop(one, None)

    def _wake_others(self, cluster: ClusterKey, hashes: Iterable[str]) -> None:
        others = set[ClusterKey]().union(*(self._clusters.get(one, ()) for one in hashes))
        for other in others - {cluster}:
            self._wake(other)
