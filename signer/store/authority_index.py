"""Which Clusters have which CAs, in memory, so that Clusters with a CA in common are found without a call.

It knows two kinds of CAs: those that this replica read from Secrets, of the clusters that it serves and, when it
started, of all; and those that the policies of other clusters publish in their status, which every replica watches. A
published one counts more than one that was read at the start. No Cluster enters by listing another's certificate: a key
counts only where the controller has read the private key, and an issuer only where it has signed a CA of that kind.

A tenant may write any status. So a published CA enters the index only with the controller's seal, which is verified
once, when the status arrives: neither does another Cluster's request look at what a tenant wrote, nor is the Cluster
woken by it. Even a sealed status can be taken away and put back: other Clusters' changes wake a Cluster at a bounded
rate. What is not woken looks again by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from attestors.net.rate_limiter import TokenBuckets
from signer.model.authority_sharing import NOT_SHARED, AuthorityHashes, SharedAuthorities, SharingGroups
from signer.model.cluster import ClusterKey
from signer.model.decision import Deferred
from signer.model.reasons import Reason
from signer.model.seal import ControllerKeys
from signer.store.published_authorities import NOTHING_PUBLISHED, PublishedAuthorities, read_published_authorities

_NONE: Final = AuthorityHashes()
WAKES_AT_ONCE: Final = 10
WAKE_AGAIN_SECONDS: Final = 10.0
"""After ``WAKES_AT_ONCE``, changes of other Clusters wake a Cluster once in this time."""
MOST_WOKEN: Final = 64
"""Maximum number of Clusters that one change wakes: thousands may have one root."""


class AuthorityIndex:
    """The CAs of all Clusters."""

    def __init__(
        self,
        keys: Callable[[], ControllerKeys],
        exists: Callable[[ClusterKey], bool],
        served_here: Callable[[ClusterKey], bool],
        wake: Callable[[ClusterKey], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``keys`` raises Deferred while there are none. ``exists`` says whether a Cluster has a policy, and
        ``served_here`` whether this replica serves it. ``wake`` is called for each Cluster that has, or had, a CA in
        common with one that changes. ``monotonic`` is a clock, in seconds.
        """
        self._keys = keys
        self._exists = exists
        self._served_here = served_here
        self._wake = wake
        self._loaded: dict[ClusterKey, AuthorityHashes] = {}
        """Read while this replica served the Cluster."""
        self._at_start: dict[ClusterKey, AuthorityHashes] = {}
        """Read when the controller started, of Clusters that this replica did not serve then."""
        self._published: dict[ClusterKey, PublishedAuthorities] = {}
        """As read; only what is sealed counts."""
        self._sealed: dict[ClusterKey, AuthorityHashes] = {}
        """What the controller published."""
        self._unverified: set[ClusterKey] = set()
        """Clusters whose status arrived while there was no controller key."""
        self._clusters: dict[str, set[ClusterKey]] = {}
        """The Clusters that a hash counts for, from either source."""
        self._wakes: TokenBuckets[ClusterKey] = TokenBuckets(WAKES_AT_ONCE, WAKE_AGAIN_SECONDS, monotonic)
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
        of = self._loaded if self._served_here(cluster) else self._at_start
        before = of.get(cluster, _NONE)
        of[cluster] = hashes
        if hashes != before:
            self._changed(cluster, before.all, hashes.all)
        self.answered(cluster)

    def shows(self, cluster: ClusterKey, manifest: Mapping[str, Any]) -> None:
        """The watch delivered the cluster's policy."""
        before, found = self._published.get(cluster, NOTHING_PUBLISHED), read_published_authorities(manifest)
        if found != before:
            self._published[cluster] = found
            self._verify(cluster)

    def keys_changed(self) -> None:
        """The controller key has changed: what was sealed with another one may count now, or no longer."""
        for cluster in tuple(self._published):
            self._verify(cluster)

    def cluster_gone(self, cluster: ClusterKey) -> None:
        """The Cluster was deleted. Its policy may still be there, and may be that of another Cluster of this name."""
        read, sealed = self._forget_read(cluster), self._sealed.get(cluster, _NONE)
        self._changed(cluster, read | sealed.all, sealed.all)
        self._wake_others(cluster, sealed.all)
        self.answered(cluster)

    def policy_gone(self, cluster: ClusterKey) -> None:
        """The policy was deleted: the Cluster is not served."""
        read, sealed = self._forget_read(cluster), self._sealed.pop(cluster, _NONE)
        self._published.pop(cluster, None)
        self._unverified.discard(cluster)
        self._changed(cluster, read | sealed.all, frozenset())
        self.answered(cluster)

    def _forget_read(self, cluster: ClusterKey) -> frozenset[str]:
        return self._loaded.pop(cluster, _NONE).all | self._at_start.pop(cluster, _NONE).all

    def of_namespace(self, namespace: str) -> tuple[ClusterKey, ...]:
        """The Clusters of the namespace of which anything is known."""
        return tuple(key for key in {*self._loaded, *self._at_start, *self._published} if key.namespace == namespace)

    def shared(self, cluster: ClusterKey, hashes: AuthorityHashes, groups: SharingGroups) -> SharedAuthorities:
        """What of the cluster's CAs another Cluster has too, if the operator does not allow both to share.

        Raises:
            Deferred: a Cluster publishes CAs, and there is no controller key to verify its seal.
        """
        if groups.allow_all:
            return NOT_SHARED
        if self._unverified:
            self._keys()
            for unverified in tuple(self._unverified):
                self._verify(unverified)
        return SharedAuthorities(
            frozenset(one for one in hashes.keys if any(one in of.keys for of in self._others(cluster, one, groups))),
            frozenset(one for one in hashes.issuers if any(one in of.all for of in self._others(cluster, one, groups))),
        )

    def _others(self, cluster: ClusterKey, one: str, groups: SharingGroups) -> Iterator[AuthorityHashes]:
        for other in self._clusters.get(one, ()):
            if other != cluster and not groups.allow(cluster, other) and self._exists(other):
                yield self._known(other)

    def _known(self, cluster: ClusterKey) -> AuthorityHashes:
        """The CAs that count for that Cluster: of a Cluster that this replica serves what it read, of others what their
        policies publish, and what was read at the start while they publish nothing.
        """
        at_start, sealed = self._at_start.get(cluster, _NONE), self._sealed.get(cluster)
        if self._served_here(cluster) and (cluster in self._loaded or cluster in self._at_start):
            return self._loaded.get(cluster, at_start)
        return at_start if sealed is None else sealed

    def _verify(self, cluster: ClusterKey) -> None:
        """Take what the cluster's policy publishes into the index, if the controller has sealed it."""
        before, published = self._sealed.pop(cluster, _NONE), self._published[cluster]
        try:
            if published != NOTHING_PUBLISHED and published.is_sealed(cluster, self._keys()):
                self._sealed[cluster] = published.hashes
            self._unverified.discard(cluster)
        except Deferred:
            self._unverified.add(cluster)
        after = self._sealed.get(cluster, _NONE)
        if after != before:
            self._changed(cluster, before.all, after.all)

    def _changed(self, cluster: ClusterKey, before: frozenset[str], after: frozenset[str]) -> None:
        self._wake_others(cluster, before ^ after)
        sources = (self._loaded, self._at_start, self._sealed)
        still = frozenset().union(*(source.get(cluster, _NONE).all for source in sources))
        for one in after:
            self._clusters.setdefault(one, set()).add(cluster)
        for one in before - still:
            clusters = self._clusters.get(one, set())
            clusters.discard(cluster)
            if not clusters:
                self._clusters.pop(one, None)

    def _wake_others(self, cluster: ClusterKey, hashes: Iterable[str]) -> None:
        concerned = (other for one in hashes for other in self._clusters.get(one, ()) if other != cluster)
        for other in dict.fromkeys(islice(concerned, MOST_WOKEN)):
            if self._wakes.of(other).take_if_there():
                self._wake(other)
