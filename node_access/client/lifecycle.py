"""What a grant waits for, whether it is over, and when its next heartbeat is due. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from node_access.client.grants import Condition, ConditionStatus, Grant

ORDER: Final = ("CreatorProven", "Authorized", "Approved", "BastionReady", "Ready")
"""The conditions in the order in which the controller checks."""
_OVER: Final = {
    "CreatorNotProven": "nothing will ever prove who made it",  # CreatorNotProtected may become better
    "Deleted": "it was revoked",
    "HeartbeatMissing": "it had no heartbeat in time",
    "DurationOver": "its duration is over",
    "ClusterGone": "its Cluster is gone",
    "TargetsGone": "its nodes are gone",
    "DeniedByApprover": "an approver denied it",
    "RecordNotAuthentic": "its record is not authentic",
    "TooManyReturns": "it was suspended too often",
    "RightLost": "its creator has no right to the login any more",
    "NotAllowed": "the Cluster's policy does not allow it",
}
_SHORTEST_INTERVAL: Final = timedelta(seconds=1)
_LONGEST_INTERVAL: Final = timedelta(hours=6)
_JITTER: Final = 0.1


def is_ready(grant: Grant) -> bool:
    """Whether the status is of the present spec, and has certificates."""
    status = grant.status
    return (
        status.condition("Ready").status is ConditionStatus.TRUE
        and status.observed_generation >= grant.generation
        and bool(status.certificates)
        and not grant.is_deleting
    )


def why_over(grant: Grant, now: datetime) -> str:
    """Why nothing will come of the grant any more; empty while something may."""
    if grant.is_deleting:
        return "it was revoked, or has ended"
    for name in reversed(ORDER):
        condition = grant.status.condition(name)
        if condition.status is ConditionStatus.FALSE and condition.reason in _OVER:
            return f"{_OVER[condition.reason]}{_told(condition)}"
    if any(now >= end for end in grant.status.expiration):
        return "its time is over, or this machine's clock is ahead"
    return ""


def is_paused(grant: Grant) -> bool:
    """Whether a heartbeat is of no use for now."""
    return grant.suspended


def waits_for(grant: Grant) -> str:
    """The first check that has not passed, in a few words. Those behind it are Unknown, and so is one that goes on."""
    if grant.suspended:
        return "it is suspended"
    found = [grant.status.condition(name) for name in ORDER]
    failed = [one for one in found if one.status is ConditionStatus.FALSE]
    unknown = [one for one in found[::-1] if one.status is ConditionStatus.UNKNOWN and one.reason]
    for one in (*failed, *unknown):
        return f"{one.type}: {one.message or one.reason}"
    return "the controller" if not grant.status.conditions else "certificates"


def time_to_live(grant: Grant) -> timedelta:
    """How long a heartbeat prolongs. The last one may be shortened by the end of the grant."""
    begun = grant.status.last_heartbeat or (grant.created,)
    ends = grant.status.expiration or (grant.created + timedelta(hours=1),)
    return max(timedelta(), ends[0] - begun[0])


def interval(grant: Grant, chance: float) -> timedelta:
    """The time between two heartbeats: a quarter of the time to live, more or less. ``chance`` is from 0 to 1."""
    quarter = time_to_live(grant) / 4 * (1 + _JITTER * (2 * chance - 1))
    return min(max(quarter, _SHORTEST_INTERVAL), _LONGEST_INTERVAL)


def state(grant: Grant, now: datetime) -> str:
    """One word for a table."""
    if why_over(grant, now):
        return "Ended"
    if grant.suspended:
        return "Suspended"
    if is_ready(grant):
        return "Ready"
    for name in ORDER:
        condition = grant.status.condition(name)
        if condition.status is ConditionStatus.FALSE:
            return condition.reason or name
    return "Pending"


def _told(condition: Condition) -> str:
    return f": {condition.message}" if condition.message else ""
