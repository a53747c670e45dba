"""Heartbeats prolong a grant, its duration ends it, and only sealed times and the controller's clock count."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as some

from signer.access.lifetimes import (
    Alive,
    DurationOver,
    HeartbeatMissing,
    Lifetime,
    certificate_lifetime,
    expiration,
    first_created,
    life_state,
    next_heartbeat_counts,
)
from signer.access.plan import DeleteGrant, Issue, WriteRecord
from signer.access.record import Cause, Closing, GrantRecord
from tests.unit.signer.access.looks import CREATED, NOW, facts, issued, running, step_of

LIFE: Final = Lifetime(CREATED, timedelta(hours=8), timedelta(hours=1))
HOUR: Final = timedelta(hours=1)
SECOND: Final = timedelta(seconds=1)


def test_a_heartbeat_prolongs_to_its_time_to_live() -> None:
    assert life_state(LIFE, CREATED, CREATED + HOUR - SECOND) == Alive(CREATED + HOUR)
    assert life_state(LIFE, CREATED + HOUR - SECOND, CREATED + HOUR) == Alive(CREATED + 2 * HOUR - SECOND)


def test_without_a_heartbeat_the_grant_ends() -> None:
    assert life_state(LIFE, CREATED, CREATED + HOUR) == HeartbeatMissing(CREATED + HOUR)


def test_no_heartbeat_outlives_the_duration() -> None:
    late = CREATED + 8 * HOUR - SECOND
    assert life_state(LIFE, late, late) == Alive(CREATED + 8 * HOUR)
    assert life_state(LIFE, late, CREATED + 8 * HOUR) == DurationOver(CREATED + 8 * HOUR)


@given(some.timedeltas(min_value=timedelta(0), max_value=timedelta(days=9000)))
def test_a_time_in_the_future_prolongs_no_more_than_now(ahead: timedelta) -> None:
    assert expiration(LIFE, NOW + ahead, NOW) == NOW + HOUR
    assert first_created(NOW + ahead, NOW) <= NOW


def test_the_first_heartbeat_counts_at_once_and_others_after_an_interval() -> None:
    assert next_heartbeat_counts(CREATED, CREATED) == CREATED
    assert next_heartbeat_counts(NOW, CREATED) > NOW


@pytest.mark.parametrize("left", [timedelta(seconds=1), timedelta(minutes=59), timedelta(hours=5)])
def test_no_certificate_outlives_its_grant_or_an_hour(left: timedelta) -> None:
    assert certificate_lifetime(NOW, NOW + left, timedelta(hours=3)) == min(left, HOUR)


def test_a_policy_shortens_certificates() -> None:
    assert certificate_lifetime(NOW, NOW + HOUR, timedelta(minutes=10)) == timedelta(minutes=10)


# Through the plan


def later(record: GrantRecord, after: timedelta, heartbeat: str = "") -> GrantRecord:
    look = facts(heartbeat=heartbeat, record=record, now=NOW + after)
    step = step_of(look)
    assert isinstance(step.record, GrantRecord)
    return issued(look) if isinstance(step.move, Issue) else step.record


def test_each_heartbeat_issues_again_and_a_grant_without_gets_no_new_certificate() -> None:
    record = issued(facts())
    assert later(record, timedelta(minutes=31)) == record, "half of the time is over, and no heartbeat came"
    prolonged = later(record, timedelta(minutes=31), "1")
    assert prolonged.journal[-1].issued == NOW + timedelta(minutes=31)
    assert prolonged.heartbeat == NOW + timedelta(minutes=31)


def test_a_time_in_the_annotation_or_in_the_status_decides_nothing() -> None:
    for text in ("2999-01-01T00:00:00Z", "1970-01-01T00:00:00Z"):
        record = later(issued(facts()), timedelta(minutes=31), text)
        assert record.heartbeat == NOW + timedelta(minutes=31)


def test_a_heartbeat_that_was_seen_counts_once() -> None:
    once = later(issued(facts()), timedelta(minutes=10), "1")
    assert later(once, timedelta(minutes=20), "1").heartbeat == once.heartbeat


def test_heartbeats_in_a_row_count_together() -> None:
    once = later(issued(facts()), timedelta(minutes=10), "1")
    again = later(once, timedelta(minutes=10, seconds=2), "2")
    assert again == once, "each would cost a write"
    assert later(once, timedelta(minutes=10, seconds=20), "2").heartbeat > once.heartbeat


def test_missing_heartbeat_and_duration_end_the_grant_each_with_its_cause() -> None:
    for after, heartbeat, cause in (
        (HOUR, CREATED, Cause.HEARTBEAT_MISSING),
        (8 * HOUR, CREATED + 8 * HOUR - SECOND, Cause.DURATION_OVER),
    ):
        look = running(now=CREATED + after)
        assert isinstance(look.record, GrantRecord)
        step = step_of(replace(look, record=look.record.next(heartbeat=heartbeat)))
        assert isinstance(step.move, WriteRecord)
        assert isinstance(step.record, GrantRecord)
        assert isinstance(step.record.state, Closing)
        assert step.record.state.cause is cause


def test_a_grant_that_was_never_sealed_is_deleted_at_the_end_of_its_time() -> None:
    assert isinstance(step_of(facts(sealed=False, now=CREATED + HOUR)).move, DeleteGrant)


def test_the_next_look_is_at_the_expiration() -> None:
    assert step_of(running()).again == CREATED + HOUR
