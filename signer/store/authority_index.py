"""Which Clusters have which CAs, in memory, so that Clusters with a CA in common are found without a call.

It knows two kinds of CAs: those that this replica read from Secrets, of the clusters that it serves and, when it
started, of all; and those that the policies of other clusters publish in their status, which every replica watches. A
published one counts only with the controller's seal, and then more than what was read at the start. No Cluster enters
by listing another's certificate: a key counts only where the controller has read the private key, and an issuer only
where it has signed a CA of that kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from signer.model.authority_sharing import NOT_SHARED, AuthorityHashes, SharedAuthorities, SharingGroups
from signer.model.cluster import ClusterKey
from signer.model.decision import Deferred
from signer.model.reasons import Reason
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
        self._unread: set[ClusterKey] = set()
        self._held: set[ClusterKey] = set()
        """Clusters that had a request wait for those that are not read."""

    @property
    def unread(self) -> frozenset[ClusterKey]:
        """The Clusters whose CAs are to be read before others are decided."""
        return frozenset(self._unread)

    def reading(self, clusters: Iterable[ClusterKey]) -> None:
        """The controller has started, and reads the CAs of these Clusters. Until each has an answer, requests wait."""
        self._unread.update(clusters)

    def answered(self, cluster: ClusterKey) -> None:
        """The read of the cluster's CAs has ended: they are known, or there are none that sign."""
        self._unread.discard(cluster)
        if not self._unread:
            self.reading_ended()

    def reading_ended(self) -> None:
        """No request waits any longer for CAs that are not read."""
        self._unread.clear()
        held, self._held = self._held, set()
        for cluster in held:
            self._wake(cluster)

    def require_read(self, cluster: ClusterKey, groups: SharingGroups) -> None:
        """Call this before a decision for the cluster: a Cluster whose CAs are not read may have the same ones.

        A Cluster that appears later is not waited for: it could have been shared with before it was there.

        Raises:
            Deferred: a Cluster that the operator does not allow to share with this one is not read yet. The cluster is
                woken when all are read.
        """
        if not self._unread or groups.allow_all:
            return
        if any(other != cluster and not groups.allow(cluster, other) for other in self._unread):
            self._held.add(cluster)
            raise Deferred(
                Reason.CERTIFICATE_AUTHORITY_UNAVAILABLE,
                "the controller has just started, and has not read the CA of each Cluster yet: another one may have "
                "this Cluster's. The request is decided when they are read, or none is answered for a minute",
            )

    def loaded(self, cluster: ClusterKey, hashes: AuthorityHashes) -> None:
        """This replica has read the CAs of a cluster: one that it serves, or any when it started."""
        before = self._loaded.get(cluster, _NONE)
        self._loaded[cluster] = hashes
        if hashes != before:
            self._changed(cluster, before.all, hashes.all)
        self.answered(cluster)

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
        self.answered(cluster)

    def policy_gone(self, cluster: ClusterKey) -> None:
        """The policy was deleted: the Cluster is not served."""
        loaded, published = self._loaded.pop(cluster, _NONE), self._published.pop(cluster, NOTHING_PUBLISHED)
        self._changed(cluster, loaded.all | published.hashes.all, frozenset())
        self.answered(cluster)

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
        loaded = self._loaded.get(cluster, _NONE)
        if cluster in self._loaded and self._served_here(cluster):
            return loaded
        published = self._published.get(cluster, NOTHING_PUBLISHED)
        return published.hashes if published.is_sealed(cluster, self._keys()) else loaded

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
