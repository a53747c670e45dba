"""Whether the workload API server accepts what the cluster's CA signs. A canary proves it before any certificate."""

from __future__ import annotations

from typing import Protocol

from signer.authority import IssuingSet


class AuthorityTrust(Protocol):
    """Knows what the canary of one cluster has found."""

    async def require_trusted(self, authority: IssuingSet) -> None:
        """The API server has accepted a client certificate of that CA. A lookup, once it has.

        Raises:
            Deferred: it has not, or has refused one.
        """
        ...
