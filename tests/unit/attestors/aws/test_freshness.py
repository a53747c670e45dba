"""How old evidence may be."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import pytest

from attestors.aws.freshness import Freshness
from attestors.verdict import Ended
from tests.unit.attestors.support import NOW

BOUNDS: Final = Freshness(maximum_age=timedelta(minutes=5), clock_skew=timedelta(seconds=60))


def check(age_seconds: int, lifetime_seconds: int = 900) -> str:
    """The reason, or nothing."""
    made_at = NOW - timedelta(seconds=age_seconds)
    try:
        BOUNDS.require_fresh("it", made_at=made_at, lifetime=timedelta(seconds=lifetime_seconds), now=NOW)
    except Ended as ended:
        return ended.outcome.reason
    return ""


@pytest.mark.parametrize("age", [-60, 0, 300, 359])
def test_evidence_of_now_passes_within_the_skew(age: int) -> None:
    assert check(age) == ""


@pytest.mark.parametrize("age", [360, 960, 16 * 60, 86400])
def test_old_evidence_is_denied(age: int) -> None:
    assert check(age) == "EvidenceExpired"


@pytest.mark.parametrize("age", [-61, -900, -86400 * 30])
def test_evidence_from_the_future_is_denied(age: int) -> None:
    assert check(age) == "EvidenceFromTheFuture"


def test_it_expires_by_its_own_word_too() -> None:
    assert check(119, lifetime_seconds=60) == ""
    assert check(120, lifetime_seconds=60) == "EvidenceExpired"
