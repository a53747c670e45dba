"""How old evidence may be, by our clock: nothing that AWS signs for a node has a nonce of ours in it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from attestors.aws.verdict import denied
from attestors.wire.names import EVIDENCE_EXPIRED


@dataclass(frozen=True, slots=True)
class Freshness:
    """The operator's bounds."""

    maximum_age: timedelta
    """From the moment that it was made; shorter than what AWS allows."""
    clock_skew: timedelta
    """How far a node's clock, or AWS's, may be ahead of ours."""

    def require_fresh(self, what: str, *, made_at: datetime, lifetime: timedelta, now: datetime) -> None:
        """Evidence of now: made before, not long ago, and not expired by its own word, which is ``lifetime``.

        Raises:
            Ended: denied; the node makes new evidence.
        """
        if made_at > now + self.clock_skew:
            ahead = int((made_at - now).total_seconds())
            raise denied(
                "EvidenceFromTheFuture", f"{what} was made {ahead} seconds from now: compare the node's clock with ours"
            )
        # Only now: before, nobody knows that the time is not the last that there is, to which nothing can be added.
        expired_at = made_at + min(self.maximum_age, lifetime)
        if now >= expired_at + self.clock_skew:
            late = int((now - expired_at).total_seconds())
            raise denied(EVIDENCE_EXPIRED, f"{what} expired {late} seconds ago: the node must make a new one")
