"""The permitted age of evidence, by the controller's clock: what AWS signs for a node holds no nonce of ours."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from attestors.verdict import denied, not_until_fixed, not_yet
from attestors.wire.names import EVIDENCE_EXPIRED


@dataclass(frozen=True, slots=True)
class Freshness:
    """The operator's bounds."""

    maximum_age: timedelta
    """Counted from its creation; shorter than AWS allows."""
    clock_skew: timedelta
    """How far the clock of a node or of AWS may be ahead of ours without a delay."""

    def require_fresh(self, what: str, *, made_at: datetime, lifetime: timedelta, now: datetime) -> None:
        """Require evidence that was made in the past and has not expired, by its maker's clock.

        It is unknown whose clock is wrong. Evidence that is slightly ahead waits, at most for as long as it is valid;
        STS accepts it until then even if our clock is the one behind. Evidence that is further ahead would be too old
        by then; or the node's clock is wrong, and the node can make new evidence as soon as it is set.

        Raises:
            Ended: denied, and the node makes new evidence; or the request waits for the evidence's time.
        """
        early = made_at - now - self.clock_skew
        if early > timedelta():
            ahead = f"{what} was made {_seconds(made_at - now)} seconds from now"
            if early > min(self.maximum_age, lifetime):
                raise denied("EvidenceFromTheFuture", f"{ahead}: compare the node's clock with the controller's")
            raise not_yet(
                "EvidenceNotYetValid", f"{ahead}, so it waits: compare the node's clock with the controller's", early
            )
        self.require_not_expired(what, made_at=made_at, lifetime=lifetime, now=now)

    def require_not_expired(self, what: str, *, made_at: datetime, lifetime: timedelta, now: datetime) -> None:
        """Require that the evidence is not too old, and has not expired after its own ``lifetime``.

        Raises:
            Ended: denied; the node makes new evidence.
        """
        # No tolerance before the evidence's own expiry counts as late: this may be the last usable evidence.
        late = now - made_at - min(self.maximum_age, lifetime)
        if late >= self.clock_skew:
            raise denied(EVIDENCE_EXPIRED, f"{what} expired {_seconds(late)} seconds ago: the node must make a new one")

    def require_our_clock(self, what: str, *, made_at: datetime, now: datetime) -> None:
        """Require that our clock is not behind AWS's: only for evidence in which AWS signed the time.

        Raises:
            Ended: the request waits; a controller's slow clock denies no node.
        """
        if made_at - now > self.clock_skew:
            raise not_until_fixed(
                "ClockBehind", f"{what} is {_seconds(made_at - now)} seconds ahead of this controller's clock: set it"
            )


def _seconds(duration: timedelta) -> int:
    return int(duration.total_seconds())
