"""What a grant waits for, when it is over, and when it is kept alive."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from node_access.client.grants import Condition, ConditionStatus, Grant
from node_access.client.lifecycle import interval, is_paused, is_ready, state, waits_for, why_over
from tests.unit.node_access.client.made import grant

NOW = datetime.now(UTC)


def with_condition(name: str, reason: str, message: str = "") -> Grant:
    made = grant()
    others = tuple(one for one in made.status.conditions if one.type not in (name, "Ready"))
    conditions = (
        *others,
        Condition(name, ConditionStatus.FALSE, reason, message),
        Condition("Ready", ConditionStatus.FALSE, reason, ""),
    )
    return replace(made, status=replace(made.status, conditions=conditions))


def test_a_ready_grant() -> None:
    made = grant()
    assert is_ready(made)
    assert why_over(made, NOW) == ""
    assert state(made, NOW) == "Ready"
    assert not is_ready(replace(made, generation=2))
    assert not is_ready(replace(made, is_deleting=True))
    assert not is_ready(replace(made, status=replace(made.status, certificates=())))


@pytest.mark.parametrize(
    ("name", "reason", "words"),
    [
        ("CreatorProven", "CreatorNotProven", "prove"),
        ("Ready", "HeartbeatMissing", "no heartbeat"),
        ("Ready", "DurationOver", "duration"),
        ("Approved", "DeniedByApprover", "denied"),
        ("Authorized", "RightLost", "no right"),
        ("Authorized", "NotAllowed", "policy"),
        ("Ready", "ClusterGone", "Cluster"),
    ],
)
def test_what_ends_a_grant(name: str, reason: str, words: str) -> None:
    made = with_condition(name, reason)
    assert words in why_over(made, NOW)
    assert state(made, NOW) == "Ended"


def test_time_and_deletion_end_a_grant() -> None:
    made = grant()
    assert "time is over" in why_over(made, made.status.expiration[0])
    assert "revoked" in why_over(replace(made, is_deleting=True), NOW)


def test_what_it_waits_for() -> None:
    made = with_condition("Approved", "ApprovalsMissing", "1 of 2")
    assert why_over(made, NOW) == ""
    assert waits_for(made) == "Approved: 1 of 2"
    assert state(made, NOW) == "ApprovalsMissing"
    fresh = replace(made, status=replace(made.status, conditions=()))
    assert waits_for(fresh) == "the controller"
    assert state(fresh, NOW) == "Pending"


def test_it_waits_while_creators_are_not_protected() -> None:
    made = with_condition("CreatorProven", "CreatorNotProtected", "install the policies for access")
    assert why_over(made, NOW) == ""
    assert waits_for(made) == "CreatorProven: install the policies for access"


def test_a_check_that_failed_is_named_before_those_behind_it() -> None:
    made = grant()
    unknown = [Condition(name, ConditionStatus.UNKNOWN, "EarlierCheck", "not yet") for name in ("Authorized", "Ready")]
    pending = replace(made, status=replace(made.status, conditions=tuple(unknown)))
    assert waits_for(pending) == "Ready: not yet"
    failed = (*unknown, Condition("BastionReady", ConditionStatus.FALSE, "FailedReconciling", "no quota"))
    assert waits_for(replace(made, status=replace(made.status, conditions=failed))) == "BastionReady: no quota"


def test_a_suspended_grant_is_paused() -> None:
    made = replace(grant(), suspended=True)
    assert is_paused(made)
    assert "suspended" in waits_for(made)
    assert state(made, NOW) == "Suspended"


@pytest.mark.parametrize(("chance", "seconds"), [(0.0, 810), (0.5, 900), (1.0, 990)])
def test_a_heartbeat_comes_every_quarter_of_the_time_to_live(chance: float, seconds: int) -> None:
    assert interval(grant(), chance) == timedelta(seconds=seconds)


def test_a_heartbeat_never_comes_too_often() -> None:
    made = grant()
    status = replace(made.status, expiration=made.status.last_heartbeat)
    assert interval(replace(made, status=status), 0.5) == timedelta(seconds=1)
