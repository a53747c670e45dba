"""Requests that an attestor defers are decided less and less often, and not in step with others."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from random import Random

import pytest

from signer.controller.requests.deferral_backoff import GROWTH, JITTER, MAXIMUM, DeferralBackoff
from signer.model.decision import Defer

TEN = timedelta(seconds=10)
DAY = timedelta(days=1).total_seconds()
UNKNOWN = Defer("EndorsementKeyUnknown", "nobody knows it", TEN, grows=True)


def ages(retry_after: timedelta, until: float = DAY) -> list[float]:
    """The age of a request at each decision except the first."""
    pauses, found, age = DeferralBackoff(Random(1)), [0.0], 0.0
    while age < until:
        age += pauses.seconds("csr", UNKNOWN, retry_after)
        found.append(age)
    return found[1:]


def test_the_first_pause_is_what_the_attestor_asks_for() -> None:
    assert TEN.total_seconds() <= DeferralBackoff().seconds("csr", UNKNOWN, TEN) <= TEN.total_seconds() * (1 + JITTER)


def test_a_day_has_a_few_hundred_attempts() -> None:
    assert DAY / MAXIMUM.total_seconds() * 0.9 < len(ages(TEN)) < DAY / MAXIMUM.total_seconds() + 20


def test_pauses_are_a_fraction_of_the_request_age() -> None:
    looked = ages(TEN, until=1200)
    for before, after in pairwise(looked):
        assert after - before <= 2 * TEN.total_seconds() + before * (GROWTH - 1) * (1 + JITTER)


@pytest.mark.parametrize("retry_after", [MAXIMUM, timedelta(minutes=10)])
def test_a_long_pause_does_not_grow(retry_after: timedelta) -> None:
    pauses = DeferralBackoff(Random(1))
    for _ in range(5):
        seconds = pauses.seconds("csr", UNKNOWN, retry_after)
        assert retry_after.total_seconds() <= seconds <= retry_after.total_seconds() * (1 + JITTER)


def test_pauses_of_checks_and_api_servers_do_not_grow() -> None:
    pauses = DeferralBackoff()
    pending = Defer("ReservationPending", "others write", timedelta(seconds=0.1))
    assert [pauses.seconds("csr", pending, timedelta(seconds=0.1)) for _ in range(50)] == [0.1] * 50
    assert len(pauses) == 0


def test_each_request_has_its_own_backoff() -> None:
    pauses = DeferralBackoff(Random(1))
    for _ in range(20):
        pauses.seconds("old", UNKNOWN, TEN)
    assert pauses.seconds("new", UNKNOWN, TEN) < 12
    assert pauses.seconds("old", UNKNOWN, TEN) > 200


def test_forgotten_requests_hold_no_memory() -> None:
    pauses = DeferralBackoff(Random(1))
    for _ in range(20):
        pauses.seconds("csr", UNKNOWN, TEN)
    pauses.forget("csr")
    pauses.forget("another")
    assert len(pauses) == 0
    assert pauses.seconds("csr", UNKNOWN, TEN) < 12
