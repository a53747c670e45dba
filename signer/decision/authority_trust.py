"""Whether the workload API server accepts what the cluster's CA signs. A canary proves it before any certificate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from signer.authority import IssuingSet


@dataclass(frozen=True, slots=True)
class TrustProof:
    """The API server of the current connection has accepted a client certificate of these CAs, for this Cluster."""

    authority: IssuingSet
    """Exactly this object: others are looked up by their certificates."""
    cluster_uid: str


@dataclass(frozen=True, slots=True)
class NoTrustProof:
    """Nothing is proven, or it must be looked up."""


NO_TRUST_PROOF: Final = NoTrustProof()


class AuthorityTrust(Protocol):
    """Knows what the canary of one cluster has found."""

    @property
    def proof(self) -> TrustProof | NoTrustProof:
        """The current proof, for a comparison that costs nothing."""
        ...

    async def require_trusted(self, authority: IssuingSet) -> None:
        """The API server has accepted a client certificate of that CA.

        Raises:
            Deferred: it has not, or has refused one.
        """
        ...
