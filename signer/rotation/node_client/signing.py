"""Which node-client authorities sign now. Kept in memory: after a restart, the API servers prove it again."""

from __future__ import annotations

from collections.abc import Callable

from signer.model.authority_suffixes import (
    NODE_CLIENT_CA,
    ExpectedSecret,
    FormerAuthorities,
    NoRecord,
    Published,
    RotatingAuthorities,
    RotationOfAuthorities,
    SeparateNodeClients,
)
from signer.model.cluster import ClusterKey
from signer.rotation.authorities import AuthorityReference
from signer.rotation.facts import Absent


class NodeClientSigning:
    """The authorities of all Clusters that every API server of theirs accepts."""

    def __init__(self, rotation: Callable[[ClusterKey], RotationOfAuthorities]) -> None:
        """``rotation`` says what the rotation of a Cluster's CAs says, and raises Deferred if that is not known."""
        self._rotation = rotation
        self._signs: dict[ClusterKey, AuthorityReference] = {}

    def of(self, key: ClusterKey) -> AuthorityReference | Absent:
        """The Cluster's authority, if it signs."""
        return self._signs.get(key, Absent())

    def sign(self, key: ClusterKey, authority: AuthorityReference) -> None:
        """Have it sign from now on. Only after every API server has accepted it."""
        self._signs[key] = authority

    def stop(self, key: ClusterKey) -> None:
        """Have the cluster's CA sign."""
        self._signs.pop(key, None)

    def authorities(self, key: ClusterKey) -> RotationOfAuthorities:
        """Implements :class:`~signer.decision.authority_source.KnowsRotation`. A rotation that is under way decides.

        Raises:
            Deferred: the controller key is not available.
        """
        said = self._rotation(key)
        authority = self._signs.get(key)
        if authority is None or isinstance(said, RotatingAuthorities):
            return said
        secret = ExpectedSecret(NODE_CLIENT_CA, authority.digest, authority.public_key_hash)
        if isinstance(said, NoRecord):
            return SeparateNodeClients(secret, published=Published.READ)
        return SeparateNodeClients(secret, said.retired if isinstance(said, FormerAuthorities) else frozenset())
