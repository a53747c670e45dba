"""Repeatedly reinstated bindings, as opposed to a single reinstatement, and when they are forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from signer.controller.auto_approval.reinstated_bindings import QUIET, RESET_AFTER, ReinstatedBindings
from signer.model.condition import AUTO_APPROVAL_REMOVED, WAITING_FOR_ATTESTATION, PolicyCondition
from tests.unit.signer.controller.support import NOW

REMOVED = PolicyCondition(AUTO_APPROVAL_REMOVED, True, "Removed", "nothing is approved")
WAITING = PolicyCondition(AUTO_APPROVAL_REMOVED, False, WAITING_FOR_ATTESTATION, "renewal stays")
NAME = "kubeadm:node-autoapprove-bootstrap"


@pytest.fixture
def reinstated() -> ReinstatedBindings:
    return ReinstatedBindings()


def removed_every(reinstated: ReinstatedBindings, pause: timedelta, times: int = 3) -> Iterator[PolicyCondition]:
    for number in range(times):
        reinstated.removed({NAME: str(number)}, NOW + number * pause)
        yield reinstated.adjusted(REMOVED, NOW + number * pause)


@pytest.mark.parametrize(
    "pause", [timedelta(seconds=5), timedelta(minutes=3), timedelta(minutes=10), timedelta(hours=1)]
)
def test_the_third_removal_is_reported_until_the_binding_stays_away(
    reinstated: ReinstatedBindings, pause: timedelta
) -> None:
    """Also at checks that find auto-approval removed."""
    *before, condition = removed_every(reinstated, pause)
    assert before == [REMOVED, REMOVED]
    assert (condition.met, condition.reason) == (False, "RemovedGrantReturns")
    assert NAME in condition.message
    assert "at the last check: nothing is approved" in condition.message
    last, quiet = NOW + 2 * pause, max(QUIET, 2 * pause)
    assert reinstated.adjusted(REMOVED, last + quiet - timedelta(seconds=1)) == condition
    assert reinstated.adjusted(REMOVED, last + quiet) == REMOVED
    reinstated.removed({NAME: "another"}, last + quiet)
    assert reinstated.adjusted(REMOVED, last + quiet).met is False, "it is known by now"


def test_rare_reinstatements_are_upgrades(reinstated: ReinstatedBindings) -> None:
    assert list(removed_every(reinstated, RESET_AFTER, times=9)) == [REMOVED] * 9


def test_different_bindings_do_not_add_up(reinstated: ReinstatedBindings) -> None:
    for number in range(9):
        reinstated.removed({f"binding-{number}": str(number)}, NOW)
    assert reinstated.adjusted(REMOVED, NOW) == REMOVED


def test_a_binding_held_by_finalizers_is_not_reinstated(reinstated: ReinstatedBindings) -> None:
    """Each check can delete it again until its finalizers are done."""
    for number in range(9):
        reinstated.removed({NAME: "held"}, NOW + number * timedelta(minutes=3))
    assert reinstated.adjusted(REMOVED, NOW + timedelta(minutes=27)) == REMOVED
    assert [one.met for one in removed_every(reinstated, timedelta(seconds=5), times=2)] == [True, False]


def test_reinstated_bindings_replace_waiting_for_attestation(reinstated: ReinstatedBindings) -> None:
    list(removed_every(reinstated, timedelta(0)))
    condition = reinstated.adjusted(WAITING, NOW)
    assert (condition.met, condition.reason) == (False, "RemovedGrantReturns")
    assert "renewal stays" in condition.message


def test_a_worse_reason_is_kept(reinstated: ReinstatedBindings) -> None:
    list(removed_every(reinstated, timedelta(0)))
    worse = PolicyCondition(AUTO_APPROVAL_REMOVED, False, "GrantedByOtherBinding", "somebody is let in")
    condition = reinstated.adjusted(worse, NOW)
    assert condition.reason == "GrantedByOtherBinding"
    assert condition.message.startswith("somebody is let in; removed bindings keep being reinstated")
    unknown = PolicyCondition(AUTO_APPROVAL_REMOVED, None, "TimedOut", "too slow")
    assert reinstated.adjusted(unknown, NOW) == unknown


def test_memory_and_message_are_bounded(reinstated: ReinstatedBindings) -> None:
    for round_number in range(3):
        reinstated.removed({f"{number}\x1b" + "x" * 1000: str(round_number) for number in range(1000)}, NOW)
    assert len(reinstated._removals) <= 256
    for round_number in range(3):
        reinstated.removed({f"{number}\x1b" + "x" * 1000: str(round_number) for number in range(200)}, NOW)
    message = reinstated.adjusted(REMOVED, NOW).message
    assert message.isprintable()
    assert len(message) <= 1024
