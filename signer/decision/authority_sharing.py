"""What of one cluster's CAs another Cluster has too."""

from __future__ import annotations

from dataclasses import dataclass

from signer.authority import IssuingSet
from signer.model.authority_sharing import AuthorityHashes, SharedAuthorities, SharingGroups
from signer.model.cluster import ClusterKey
from signer.store.caches import Caches


def hashes_of(authority: IssuingSet) -> AuthorityHashes:
    """The discovery hashes of the CAs, by whether the cluster has their private keys."""
    held = (authority.client, *authority.known_to_nodes)
    keys = frozenset(one.certificate.public_key_hash for one in held)
    chained = frozenset[str]().union(*(one.ca_certificate_hashes for one in held))
    return AuthorityHashes(keys, chained - keys)


@dataclass(frozen=True, slots=True)
class AuthoritySharing:
    """Finds what of one cluster's CAs others have, by the caches alone."""

    key: ClusterKey
    caches: Caches
    groups: SharingGroups

    def require_read(self) -> None:
        """Call this before a decision.

        Raises:
            Deferred: the controller has just started, and has not read the CAs of all Clusters yet.
        """
        self.caches.authorities.require_read(self.key, self.groups)

    def shared(self, authority: IssuingSet) -> SharedAuthorities:
        """What of these CAs another Cluster has too, without the operator's word.

        Raises:
            Deferred: another Cluster publishes one of them, and the controller key is not available.
        """
        return self.caches.authorities.shared(self.key, hashes_of(authority), self.groups)
