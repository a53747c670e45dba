"""What a grant waits for, whether it is over, and when its next heartbeat is due. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from node_access.client.conditions import (
    ENDED,
    HOPELESS,
    PAUSED,
    SUSPENDED,
    UNANSWERED,
    UNSEEN,
    Hint,
    detail,
    hint,
    named,
)
from node_access.client.grants import Condition, ConditionStatus, Grant

ORDER: Final = ("CreatorProven", "Authorized", "Approved", "BastionReady", "Ready")
"""The conditions in the order in which the controller checks."""
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


def why_ended(grant: Grant, now: datetime) -> str:
    """Why the grant never comes back; empty while it may."""
    if grant.is_deleting:
        return "it was revoked, or has ended"
    if why := _why_false(grant, ENDED):
        return why
    if any(now >= end for end in grant.status.expiration):
        paused = _why_false(grant, PAUSED)
        return f"its time is over, and {paused}" if paused else "its time is over, or this machine's clock is ahead"
    return ""


def why_over(grant: Grant, now: datetime) -> str:
    """Why a command does not wait for the grant: it has ended, or waiting does not help; empty otherwise."""
    return why_ended(grant, now) or _why_false(grant, PAUSED) or _why_false(grant, HOPELESS)


def why_paused(grant: Grant) -> str:
    """Why the controller takes no heartbeats for now; empty if it does."""
    if grant.suspended:
        return f"it waits for {SUSPENDED.missing}; {SUSPENDED.remedy}"
    return _why_false(grant, PAUSED)


def waits_for(grant: Grant) -> str:
    """What is missing and, unless it comes by itself in a moment, what the person can do."""
    missing, conditions = _missing(grant)
    if missing.is_usual:
        return missing.missing
    told = "".join(f" ({text})" for text in map(detail, conditions) if text)
    return f"{missing.missing}{told}; {_remedy(missing, grant)}"


def waited_for(grant: Grant) -> str:
    """The same for a person who waited in vain, with the condition's name."""
    missing, conditions = _missing(grant)
    told = "".join(f" ({named(one)})" for one in conditions)
    return f"{missing.missing}{told}; {_remedy(missing, grant)}"


def _missing(grant: Grant) -> tuple[Hint, tuple[Condition, ...]]:
    """The first check that has not passed, and its condition; those behind it, and one that goes on, are Unknown."""
    if grant.suspended:
        return SUSPENDED, ()
    found = [grant.status.condition(name) for name in ORDER]
    failed = [one for one in found if one.status is ConditionStatus.FALSE]
    unknown = [one for one in found[::-1] if one.status is ConditionStatus.UNKNOWN and one.reason]
    for one in (*failed, *unknown):
        return hint(one), (one,)
    return (UNANSWERED if grant.status.conditions else UNSEEN), ()


def _remedy(missing: Hint, grant: Grant) -> str:
    return missing.remedy.replace("{name}", grant.key.name)


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
    if why_ended(grant, now):
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


def _why_false(grant: Grant, table: Mapping[str, str]) -> str:
    """Why a condition with a reason of that table is False; empty if there is none."""
    found = [grant.status.condition(name) for name in reversed(ORDER)]
    matching = [one for one in found if one.status is ConditionStatus.FALSE and one.reason in table]
    for one in sorted(matching, key=lambda condition: not condition.message):
        what, separator, remedy = table[one.reason].partition("; ")
        told = detail(one)
        return f"{what} ({told}){separator}{remedy}" if told else table[one.reason]
    return ""
