"""Leader election by a Lease, from one replica's view: client-go's ``LeaderElector`` without its I/O.

Clocks of different machines are never compared. A standby takes over when *it* has seen the Lease unchanged for the
Lease's duration. A leader stops when *it* has not renewed the Lease within the renew deadline, which is shorter. As
long as clocks run at about the same speed, two replicas never lead at once; no decision depends on that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

from signer.model.decision import printable
from signer.model.lease import ElectionTimes, Holding, Lease, renewed, taken

Instant: TypeAlias = float
"""Seconds of this replica's monotonic clock."""


@dataclass(frozen=True, slots=True)
class Unseen:
    """No Lease was read yet, or there is none."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The Lease as it was last read."""

    lease: Lease
    since: Instant
    """When it was first read with this holder and this renew time."""


@dataclass(frozen=True, slots=True)
class NeverLed:
    """This replica has never held the Lease."""


@dataclass(frozen=True, slots=True)
class Led:
    """This replica's last successful renewal."""

    began: Instant
    """When it was sent. The API server, and so every other replica, saw it later."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Another replica holds the Lease."""


@dataclass(frozen=True, slots=True)
class Create:
    """There is no Lease: create it."""

    holding: Holding


@dataclass(frozen=True, slots=True)
class Update:
    """Write the Lease, on condition that it is unchanged since it was read."""

    lease: Lease
    holding: Holding


@dataclass(frozen=True, slots=True)
class Leading:
    """This replica leads."""

    until: Instant
    """The end of leadership unless a renewal succeeds before."""


@dataclass(frozen=True, slots=True)
class StandingBy:
    """This replica waits for the Lease."""

    holder: str
    """Identity of the holder; empty if it is unknown or there is none."""


@dataclass(frozen=True, slots=True)
class Lost:
    """This replica led, and never leads again."""

    message: str


@dataclass(frozen=True, slots=True)
class Election:
    """One replica's state of the election. Immutable: each event returns a new state."""

    identity: str
    """Unique to this process."""
    times: ElectionTimes
    seen: Seen | Unseen = Unseen()
    led: Led | NeverLed = NeverLed()

    def read(self, lease: Lease, now: Instant) -> Election:
        """The API server returned this Lease at ``now``."""
        if isinstance(self.seen, Seen) and self.seen.lease.holding == lease.holding:
            return replace(self, seen=Seen(lease, self.seen.since))
        return replace(self, seen=Seen(lease, now))

    def found_none(self) -> Election:
        """The API server has no such Lease."""
        return replace(self, seen=Unseen())

    def wrote(self, lease: Lease, began: Instant, now: Instant) -> Election:
        """A write that was sent at ``began`` succeeded. It changes nothing for a replica that already lost."""
        if isinstance(self.standing(now), Lost):
            return self
        return replace(self, seen=Seen(lease, now), led=Led(began))

    def turn(self, now: Instant, moment: datetime) -> Wait | Create | Update:
        """The next write; ``moment`` is the wall-clock time for the Lease's informational fields."""
        if isinstance(self.seen, Unseen):
            return Create(taken(self.identity, self.times, moment))
        lease, holding = self.seen.lease, self.seen.lease.holding
        if holding.holder == self.identity:
            return Update(lease, renewed(holding, self.times, moment))
        if holding.holder and now < self.seen.since + holding.duration_seconds:
            return Wait()
        return Update(lease, taken(self.identity, self.times, moment, holding.transitions + 1))

    def standing(self, now: Instant) -> Leading | StandingBy | Lost:
        """Whether this replica leads."""
        holder = self.seen.lease.holding.holder if isinstance(self.seen, Seen) else ""
        if isinstance(self.led, NeverLed):
            return StandingBy(holder)
        if isinstance(self.seen, Seen) and holder != self.identity:
            return Lost(f"{printable(holder) or 'no replica'} holds the Lease now")
        deadline = self.times.renew_deadline.total_seconds()
        if now >= self.led.began + deadline:
            return Lost(f"the Lease could not be renewed within {deadline:g} seconds")
        return Leading(self.led.began + deadline)
