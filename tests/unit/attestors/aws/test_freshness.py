"""How old evidence may be."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import pytest

from attestors.aws.freshness import Freshness
from attestors.contract import Denied, NotProvableYet
from attestors.verdict import Ended
from tests.unit.attestors.support import NOW

BOUNDS: Final = Freshness(maximum_age=timedelta(minutes=5), clock_skew=timedelta(seconds=60))


def outcome(age_seconds: int) -> Denied | NotProvableYet:
    """What it ends with."""
    made_at = NOW - timedelta(seconds=age_seconds)
    with pytest.raises(Ended) as ended:
        BOUNDS.require_fresh("it", made_at=made_at, lifetime=timedelta(seconds=900), now=NOW)
    return ended.value.outcome


def check(age_seconds: int, lifetime_seconds: int = 900, *, later: timedelta = timedelta()) -> str:
    """The reason, or nothing."""
    made_at = NOW - timedelta(seconds=age_seconds)
    try:
        BOUNDS.require_fresh("it", made_at=made_at, lifetime=timedelta(seconds=lifetime_seconds), now=NOW + later)
    except Ended as ended:
        return ended.outcome.reason
    return ""


@pytest.mark.parametrize("age", [-60, 0, 300, 359])
def test_evidence_of_now_passes_within_the_skew(age: int) -> None:
    assert check(age) == ""


@pytest.mark.parametrize("age", [360, 960, 16 * 60, 86400])
def test_old_evidence_is_denied(age: int) -> None:
    assert check(age) == "EvidenceExpired"


@pytest.mark.parametrize("ahead", [61, 90, 300, 360])
def test_what_is_a_little_ahead_waits_for_its_time_and_passes_then(ahead: int) -> None:
    """A node whose clock stays ahead would be denied for ever: its next evidence would be as far ahead."""
    found = outcome(-ahead)
    assert isinstance(found, NotProvableYet)
    assert (found.reason, found.retry_after) == ("EvidenceNotYetValid", timedelta(seconds=ahead - 60))
    assert f"{ahead} seconds from now" in found.message
    assert check(-ahead, later=found.retry_after) == ""


@pytest.mark.parametrize("age", [-361, -900, -86400 * 30])
def test_evidence_from_the_future_is_denied(age: int) -> None:
    """Nobody is kept waiting for what is dated next year, and nothing is kept of it."""
    found = outcome(age)
    assert isinstance(found, Denied)
    assert found.reason == "EvidenceFromTheFuture"


def test_it_waits_for_no_longer_than_it_is_good_for() -> None:
    """Where our clock is the one that is behind, AWS would not take it any more by then."""
    assert check(-120, lifetime_seconds=60) == "EvidenceNotYetValid"
    assert check(-121, lifetime_seconds=60) == "EvidenceFromTheFuture"


def test_it_expires_by_its_own_word_too() -> None:
    assert check(119, lifetime_seconds=60) == ""
    assert check(120, lifetime_seconds=60) == "EvidenceExpired"
