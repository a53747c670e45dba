"""Who leads, by a Lease, as far as one replica can tell: client-go's ``LeaderElector`` without its I/O.

Times on other machines' clocks are never compared. A standby takes over when *it* has seen the Lease unchanged for the
Lease's duration, and a leader stops when a renewal has not succeeded that *it* began within the renew deadline, which
is shorter. As long as clocks run at about the same speed, these never overlap; no decision rests upon that.
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
    """No Lease was seen yet, or there is none."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The Lease as it was last seen."""

    lease: Lease
    since: Instant
    """When it was first seen in these hands and renewed at that time."""


@dataclass(frozen=True, slots=True)
class NeverLed:
    """This replica has never held the Lease."""


@dataclass(frozen=True, slots=True)
class Led:
    """This replica's last renewal that succeeded."""

    began: Instant
    """When it was sent: the API server, and so everybody else, saw it later."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Somebody else holds the Lease."""


@dataclass(frozen=True, slots=True)
class Create:
    """There is no Lease: make one."""

    holding: Holding


@dataclass(frozen=True, slots=True)
class Update:
    """Write the Lease, on condition that it is still the one that was seen."""

    lease: Lease
    holding: Holding


@dataclass(frozen=True, slots=True)
class Leading:
    """This replica leads."""

    until: Instant
    """Unless a renewal succeeds before."""


@dataclass(frozen=True, slots=True)
class StandingBy:
    """This replica waits for the Lease."""

    holder: str
    """Who has it; empty where that is not known, or nobody has."""


@dataclass(frozen=True, slots=True)
class Lost:
    """This replica has led, and does so no more, for good."""

    message: str


@dataclass(frozen=True, slots=True)
class Election:
    """What one replica knows about the Lease; each thing that happens makes a new one of it."""

    identity: str
    """Of this process and no other, ever."""
    times: ElectionTimes
    seen: Seen | Unseen = Unseen()
    led: Led | NeverLed = NeverLed()

    def read(self, lease: Lease, now: Instant) -> Election:
        """The API server answered with this Lease at ``now``."""
        if isinstance(self.seen, Seen) and self.seen.lease.holding == lease.holding:
            return replace(self, seen=Seen(lease, self.seen.since))
        return replace(self, seen=Seen(lease, now))

    def found_none(self) -> Election:
        """The API server has no such Lease."""
        return replace(self, seen=Unseen())

    def wrote(self, lease: Lease, began: Instant, now: Instant) -> Election:
        """A write that was sent at ``began`` succeeded: ``lease`` is ours, but for one that has lost it before."""
        if isinstance(self.standing(now), Lost):
            return self
        return replace(self, seen=Seen(lease, now), led=Led(began))

    def turn(self, now: Instant, moment: datetime) -> Wait | Create | Update:
        """What to write next; ``moment`` is the time of day, for people to read."""
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
            return Lost(f"{printable(holder) or 'nobody'} holds the Lease now")
        deadline = self.times.renew_deadline.total_seconds()
        if now >= self.led.began + deadline:
            return Lost(f"the Lease could not be renewed within {deadline:g} seconds")
        return Leading(self.led.began + deadline)
