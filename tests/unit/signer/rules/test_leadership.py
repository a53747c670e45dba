"""One replica's view of the Lease, step by step; what several replicas do is in the properties beside it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from signer.model.lease import ElectionTimes, Holding, Lease, released, renewed, taken
from signer.rules.leadership import Create, Election, Leading, Lost, StandingBy, Update, Wait

DAY = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
TIMES = ElectionTimes()
OTHERS = taken("other", TIMES, DAY, 3)
ME = Election("me", TIMES)


def lease(holding: Holding, version: str = "1") -> Lease:
    return Lease(holding, {"metadata": {"resourceVersion": version}})


def leading_since(began: float) -> Election:
    return ME.wrote(lease(taken("me", TIMES, DAY)), began, began + 0.5)


def test_who_finds_no_lease_makes_one() -> None:
    assert ME.turn(0.0, DAY) == Create(taken("me", TIMES, DAY))
    assert ME.read(lease(OTHERS), 0.0).found_none().turn(0.0, DAY) == Create(taken("me", TIMES, DAY))
    assert ME.standing(0.0) == StandingBy("")


def test_anothers_lease_is_waited_for() -> None:
    waiting = ME.read(lease(OTHERS), 100.0)
    assert waiting.turn(114.9, DAY) == Wait()
    assert waiting.standing(500.0) == StandingBy("other")


def test_unchanged_for_its_duration_it_is_taken() -> None:
    waiting = ME.read(lease(OTHERS), 100.0).read(lease(OTHERS, "2"), 110.0)  # the same holding, labelled by somebody
    assert waiting.turn(114.9, DAY) == Wait()
    assert waiting.turn(115.0, DAY) == Update(lease(OTHERS, "2"), taken("me", TIMES, DAY, 4))


def test_the_version_that_is_written_upon_is_the_one_that_was_read_last() -> None:
    turn = ME.read(lease(OTHERS), 100.0).read(lease(OTHERS, "2"), 110.0).turn(115.0, DAY)
    assert isinstance(turn, Update)
    assert turn.lease.manifest == {"metadata": {"resourceVersion": "2"}}


def test_a_lease_that_was_taken_as_often_as_can_be_written_is_taken_again() -> None:
    """The API server refuses more than an int32: who wrote the number by hand would keep everybody out for good."""
    turn = ME.read(lease(replace(OTHERS, transitions=2**31 - 1)), 100.0).turn(115.0, DAY)
    assert isinstance(turn, Update)
    assert turn.holding.transitions == 2**31 - 1


def test_each_renewal_of_another_begins_the_wait_anew() -> None:
    again = renewed(OTHERS, TIMES, DAY + timedelta(seconds=2))
    waiting = ME.read(lease(OTHERS), 100.0).read(lease(again, "2"), 110.0)
    assert waiting.turn(124.9, DAY) == Wait()
    assert isinstance(waiting.turn(125.0, DAY), Update)


def test_the_holders_duration_counts_and_not_ones_own() -> None:
    long = Holding("other", 60, OTHERS.acquire_time, OTHERS.renew_time, 0)
    assert ME.read(lease(long), 100.0).turn(159.9, DAY) == Wait()


def test_no_clock_of_another_machine_is_looked_at() -> None:
    """Its renewTime lies in the far past, or future: the wait is the same."""
    for year in (1999, 2999):
        odd = taken("other", TIMES, DAY.replace(year=year))
        assert ME.read(lease(odd), 100.0).turn(114.9, DAY) == Wait()
        assert isinstance(ME.read(lease(odd), 100.0).turn(115.0, DAY), Update)


def test_a_released_lease_is_taken_at_once() -> None:
    free = released(OTHERS, DAY)
    assert ME.read(lease(free), 100.0).turn(100.0, DAY) == Update(lease(free), taken("me", TIMES, DAY, 4))


def test_ones_own_lease_is_renewed_and_stays_the_same_term() -> None:
    turn = leading_since(100.0).turn(102.0, DAY + timedelta(seconds=2))
    assert turn == Update(
        lease(taken("me", TIMES, DAY)), renewed(taken("me", TIMES, DAY), TIMES, DAY + timedelta(seconds=2))
    )


def test_a_write_without_an_answer_is_found_and_confirmed() -> None:
    """It may have happened: reading it is no proof of when, so it is written once more before anybody leads."""
    found = ME.read(lease(taken("me", TIMES, DAY)), 100.0)
    assert found.standing(100.0) == StandingBy("me")
    assert isinstance(found.turn(100.0, DAY), Update)


def test_it_leads_until_the_deadline_after_its_last_renewal_was_sent() -> None:
    leading = leading_since(100.0)
    assert leading.standing(109.9) == Leading(110.0)
    assert leading.standing(110.0) == Lost("the Lease could not be renewed within 10 seconds")
    again = leading.wrote(lease(taken("me", TIMES, DAY), "2"), 108.0, 109.0)
    assert again.standing(117.9) == Leading(118.0)


def test_it_leads_no_more_when_another_holds_the_lease() -> None:
    assert leading_since(100.0).read(lease(OTHERS), 101.0).standing(101.0) == Lost("other holds the Lease now")
    free = leading_since(100.0).read(lease(released(OTHERS, DAY)), 101.0)
    assert free.standing(101.0) == Lost("no replica holds the Lease now")


def test_who_has_lost_it_has_lost_it_for_good() -> None:
    """Its last renewal may have been carried out; the answer came when others could already have taken over."""
    late = leading_since(100.0).wrote(lease(taken("me", TIMES, DAY), "2"), 109.9, 110.0)
    assert late.standing(110.0) == Lost("the Lease could not be renewed within 10 seconds")
    taken_away = (
        leading_since(100.0).read(lease(OTHERS), 101.0).wrote(lease(taken("me", TIMES, DAY), "3"), 101.0, 102.0)
    )
    assert taken_away.standing(102.0) == Lost("other holds the Lease now")


def test_a_lease_that_somebody_deleted_is_made_again() -> None:
    without = leading_since(100.0).found_none()
    assert without.standing(101.0) == Leading(110.0)
    assert isinstance(without.turn(101.0, DAY), Create)


def test_a_holders_name_is_printable() -> None:
    strange = Holding("\x1b[31mother", 15, "", "", 0)
    standing = leading_since(100.0).read(lease(strange), 101.0).standing(101.0)
    assert isinstance(standing, Lost)
    assert standing.message.isprintable()
