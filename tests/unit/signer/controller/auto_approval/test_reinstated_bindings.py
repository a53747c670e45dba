"""Bindings that somebody keeps putting back: told apart from one that came back once, and forgotten in the end."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from signer.controller.auto_approval.reinstated_bindings import FORGOTTEN, QUIET, ReturningGrants
from signer.controller.status.conditions import AUTO_APPROVAL_REMOVED, WAITING_FOR_ATTESTATION, PolicyCondition
from tests.unit.signer.controller.support import NOW

SHUT = PolicyCondition(AUTO_APPROVAL_REMOVED, True, "Removed", "nothing is approved")
WAITING = PolicyCondition(AUTO_APPROVAL_REMOVED, False, WAITING_FOR_ATTESTATION, "renewal stays")
NAME = "kubeadm:node-autoapprove-bootstrap"


@pytest.fixture
def returning() -> ReturningGrants:
    return ReturningGrants()


def removed_every(returning: ReturningGrants, pause: timedelta, times: int = 3) -> Iterator[PolicyCondition]:
    for number in range(times):
        returning.removed({NAME: str(number)}, NOW + number * pause)
        yield returning.judged(SHUT, NOW + number * pause)


@pytest.mark.parametrize(
    "pause", [timedelta(seconds=5), timedelta(minutes=3), timedelta(minutes=10), timedelta(hours=1)]
)
def test_the_third_removal_says_so_until_it_has_stayed_away(returning: ReturningGrants, pause: timedelta) -> None:
    """Also between the looks that remove it, at which the door is shut."""
    *before, condition = removed_every(returning, pause)
    assert before == [SHUT, SHUT]
    assert (condition.met, condition.reason) == (False, "RemovedGrantReturns")
    assert NAME in condition.message
    assert "at the last look: nothing is approved" in condition.message
    last, quiet = NOW + 2 * pause, max(QUIET, 2 * pause)
    assert returning.judged(SHUT, last + quiet - timedelta(seconds=1)) == condition
    assert returning.judged(SHUT, last + quiet) == SHUT
    returning.removed({NAME: "another"}, last + quiet)
    assert returning.judged(SHUT, last + quiet).met is False, "it is known by now"


def test_what_comes_back_once_in_a_while_is_an_upgrade(returning: ReturningGrants) -> None:
    assert list(removed_every(returning, FORGOTTEN, times=9)) == [SHUT] * 9


def test_different_bindings_do_not_add_up(returning: ReturningGrants) -> None:
    for number in range(9):
        returning.removed({f"binding-{number}": str(number)}, NOW)
    assert returning.judged(SHUT, NOW) == SHUT


def test_what_its_finalizers_hold_has_not_been_put_back(returning: ReturningGrants) -> None:
    """It can be deleted at every look, and is gone for good in the end."""
    for number in range(9):
        returning.removed({NAME: "held"}, NOW + number * timedelta(minutes=3))
    assert returning.judged(SHUT, NOW + timedelta(minutes=27)) == SHUT
    assert [one.met for one in removed_every(returning, timedelta(seconds=5), times=2)] == [True, False]


def test_it_is_not_called_shut_but_for_renewal(returning: ReturningGrants) -> None:
    list(removed_every(returning, timedelta(0)))
    condition = returning.judged(WAITING, NOW)
    assert (condition.met, condition.reason) == (False, "RemovedGrantReturns")
    assert "renewal stays" in condition.message


def test_what_is_worse_stays_the_reason(returning: ReturningGrants) -> None:
    list(removed_every(returning, timedelta(0)))
    worse = PolicyCondition(AUTO_APPROVAL_REMOVED, False, "GrantedByOtherBinding", "somebody is let in")
    condition = returning.judged(worse, NOW)
    assert condition.reason == "GrantedByOtherBinding"
    assert condition.message.startswith("somebody is let in; somebody keeps putting back")
    unknown = PolicyCondition(AUTO_APPROVAL_REMOVED, None, "TimedOut", "too slow")
    assert returning.judged(unknown, NOW) == unknown


def test_what_is_remembered_and_said_is_bounded(returning: ReturningGrants) -> None:
    for again in range(3):
        returning.removed({f"{number}\x1b" + "x" * 1000: str(again) for number in range(1000)}, NOW)
    assert len(returning._removals) <= 256
    for again in range(3):
        returning.removed({f"{number}\x1b" + "x" * 1000: str(again) for number in range(200)}, NOW)
    said = returning.judged(SHUT, NOW).message
    assert said.isprintable()
    assert len(said) <= 1024
