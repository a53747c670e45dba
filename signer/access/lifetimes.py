"""How long a grant lives, and its certificates: heartbeats prolong it, its duration ends it. Pure.

Only times that the controller sealed count, besides its clock. ``status`` and annotations hold times that others can
write, and a heartbeat is a change of text, whatever time the text names.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

MAXIMUM_CERTIFICATE_DURATION: Final = timedelta(hours=1)
"""A certificate ends by itself where no revocation reaches."""
MINIMUM_CERTIFICATE_DURATION: Final = timedelta(seconds=1)
HEARTBEAT_INTERVAL: Final = timedelta(seconds=15)
"""Heartbeats that follow sooner count together: each costs a write, and the creator chooses how many come."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The bounds of one grant's life."""

    created: datetime
    duration: timedelta
    """From ``created``: the grant's, at most the policy's and the operator's."""
    time_to_live: timedelta
    """From the last heartbeat."""


@dataclass(frozen=True, slots=True)
class Alive:
    """The grant lives."""

    until: datetime


@dataclass(frozen=True, slots=True)
class HeartbeatMissing:
    """No heartbeat came in time."""

    since: datetime


@dataclass(frozen=True, slots=True)
class DurationOver:
    """The grant has lived for its duration. No heartbeat prolongs that."""

    since: datetime


LifeState: TypeAlias = Alive | HeartbeatMissing | DurationOver


def first_created(stated: datetime, now: datetime) -> datetime:
    """When a grant was created, to be sealed at first sight. The API server states it; one in the future is now."""
    return min(stated, now).replace(microsecond=0)


def expiration(lifetime: Lifetime, heartbeat: datetime, now: datetime) -> datetime:
    """When a grant ends, if no other heartbeat comes. A heartbeat in the future, by a clock that was wrong, is now."""
    return min(min(heartbeat, now) + lifetime.time_to_live, lifetime.created + lifetime.duration)


def life_state(lifetime: Lifetime, heartbeat: datetime, now: datetime) -> LifeState:
    """Whether the grant lives."""
    end = lifetime.created + lifetime.duration
    if end <= now:
        return DurationOver(end)
    until = expiration(lifetime, heartbeat, now)
    return HeartbeatMissing(until) if until <= now else Alive(until)


def next_heartbeat_counts(heartbeat: datetime, created: datetime) -> datetime:
    """From when on another heartbeat counts. Creation counts as one, and the first one after it always does."""
    return heartbeat if heartbeat <= created else heartbeat + HEARTBEAT_INTERVAL


def certificate_lifetime(now: datetime, expires: datetime, maximum: timedelta) -> timedelta:
    """The lifetime of certificates made now, in whole seconds; never beyond the grant's expiration. Zero or less:
    there is no time left for one.
    """
    left = min(expires - now, maximum, MAXIMUM_CERTIFICATE_DURATION)
    return timedelta(seconds=int(left.total_seconds()))


__all__ = [
    "HEARTBEAT_INTERVAL",
    "MAXIMUM_CERTIFICATE_DURATION",
    "MINIMUM_CERTIFICATE_DURATION",
    "Alive",
    "DurationOver",
    "HeartbeatMissing",
    "LifeState",
    "Lifetime",
    "certificate_lifetime",
    "expiration",
    "first_created",
    "life_state",
    "next_heartbeat_counts",
]
