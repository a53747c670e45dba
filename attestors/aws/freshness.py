"""How old evidence may be, by our clock: nothing that AWS signs for a node has a nonce of ours in it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from attestors.verdict import denied, not_until_fixed, not_yet
from attestors.wire.names import EVIDENCE_EXPIRED


@dataclass(frozen=True, slots=True)
class Freshness:
    """The operator's bounds."""

    maximum_age: timedelta
    """From the moment that it was made; shorter than what AWS allows."""
    clock_skew: timedelta
    """How far a node's clock, or AWS's, may be ahead of ours without anybody having to wait."""

    def require_fresh(self, what: str, *, made_at: datetime, lifetime: timedelta, now: datetime) -> None:
        """Evidence of now, by the clock of whoever made it: made before, and not expired.

        Nobody knows whose clock is wrong, and what is a little ahead becomes right by itself: it waits, for no longer
        than it is good for. So long STS takes it, even if ours is the clock that is behind. What is further ahead would
        be too old by then; or the node's clock is wrong, and once it is set, new evidence is there sooner.

        Raises:
            Ended: denied, and the node makes new evidence; or its time is still to come.
        """
        early = made_at - now - self.clock_skew
        if early > timedelta():
            ahead = f"{what} was made {_seconds(made_at - now)} seconds from now"
            if early > min(self.maximum_age, lifetime):
                raise denied("EvidenceFromTheFuture", f"{ahead}: compare the node's clock with ours")
            raise not_yet("EvidenceNotYetValid", f"{ahead}, and waits: compare the node's clock with ours", early)
        self.require_not_expired(what, made_at=made_at, lifetime=lifetime, now=now)

    def require_not_expired(self, what: str, *, made_at: datetime, lifetime: timedelta, now: datetime) -> None:
        """Not made long ago, and not expired by its own word, which is ``lifetime``.

        Raises:
            Ended: denied; the node makes new evidence.
        """
        # Nothing is added to the time that the evidence names: it may be the last that there is.
        late = now - made_at - min(self.maximum_age, lifetime)
        if late >= self.clock_skew:
            raise denied(EVIDENCE_EXPIRED, f"{what} expired {_seconds(late)} seconds ago: the node must make a new one")

    def require_our_clock(self, what: str, *, made_at: datetime, now: datetime) -> None:
        """Our clock is not behind AWS's: only for evidence in which AWS has signed the time.

        Raises:
            Ended: the request waits; nobody is denied because a controller's clock is slow.
        """
        if made_at - now > self.clock_skew:
            raise not_until_fixed(
                "ClockBehind", f"{what} is {_seconds(made_at - now)} seconds ahead of this controller's clock: set it"
            )


def _seconds(duration: timedelta) -> int:
    return int(duration.total_seconds())
