"""What a grant waits for, when it is over, and when it is kept alive."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from node_access.client.conditions import ENDED, HOPELESS, PAUSED, WAITING, hint
from node_access.client.grants import Condition, ConditionStatus, Grant
from node_access.client.lifecycle import (
    interval,
    is_ready,
    state,
    waited_for,
    waits_for,
    why_ended,
    why_over,
    why_paused,
)
from signer.access.certificates import CertificateReason
from signer.access.conditions import GrantReason
from signer.access.record import Cause
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
        ("Ready", "ClusterGone", "Cluster"),
    ],
)
def test_what_ends_a_grant(name: str, reason: str, words: str) -> None:
    made = with_condition(name, reason)
    assert words in why_ended(made, NOW)
    assert words in why_over(made, NOW)
    assert state(made, NOW) == "Ended"


@pytest.mark.parametrize(
    ("name", "reason", "words"),
    [
        ("Authorized", "RightLost", "ask for verb 'use' on logins"),
        ("Authorized", "RightUnknown", "authorizer"),
        ("Ready", "NotAllowed", "policy"),
    ],
)
def test_a_grant_that_may_come_back_is_paused_until_its_time_is_over(name: str, reason: str, words: str) -> None:
    """The controller brings it back when the right is there again. A command does not wait for that."""
    made = with_condition(name, reason, "alice may not")
    assert why_ended(made, NOW) == ""
    assert words in why_paused(made)
    assert "(alice may not)" in why_over(made, NOW)
    assert state(made, NOW) != "Ended"
    at_the_end = why_ended(made, made.status.expiration[0])
    assert "its time is over, and" in at_the_end
    assert words in at_the_end


@pytest.mark.parametrize("reason", HOPELESS)
def test_a_command_does_not_wait_for_what_another_grant_alone_mends(reason: str) -> None:
    made = with_condition("Ready", reason, "spec.ticket does not have the form")
    assert "make another grant" in why_over(made, NOW)
    assert "spec.ticket" in why_over(made, NOW)
    assert why_ended(made, NOW) == ""


@pytest.mark.parametrize("reason", WAITING)
def test_whoever_waits_reads_what_is_missing_and_what_to_do(reason: str) -> None:
    made = with_condition("BastionReady", reason, "the controller's words")
    found = WAITING[reason]
    assert waits_for(made).startswith(found.missing)
    in_vain = waited_for(made)
    assert found.missing in in_vain
    assert f"BastionReady, {reason}: the controller's words" in in_vain
    assert in_vain.endswith(found.remedy.replace("{name}", "repair"))
    assert why_over(made, NOW) == ""


def test_every_reason_of_the_controller_has_its_words() -> None:
    ours = {*ENDED, *PAUSED, *HOPELESS, *WAITING}
    causes = {one.value for one in Cause} - {"Suspended"}
    passed = {"CertificatesIssued", "Sealed", "Allowed", "EnoughApprovals", "SuccessfullyReconciled", "NotNeeded"}
    of_the_end = {"NotReached", "NotEnded", "Revoking", "Publishing", "Terminated"}
    held = {one.value for one in GrantReason} - passed - of_the_end
    certificates = {one.value for one in CertificateReason}
    raised = {
        "RevocationsUnknown",
        "RevocationListFull",
        "AuthorityChanged",
        "SigningFailed",
        "GatewayNotReady",
    }  # names of exceptions
    assert causes | held | certificates | raised == ours


def test_an_unknown_reason_of_a_newer_controller_is_shown_with_its_name() -> None:
    made = with_condition("Ready", "SomethingNew", "text")
    assert waits_for(made) == "condition Ready (text); see docs/troubleshooting.md for SomethingNew"
    assert hint(made.status.condition("Ready")).missing == "condition Ready"


def test_a_message_of_any_length_stays_short() -> None:
    assert len(waits_for(with_condition("Approved", "ApprovalsMissing", "x" * 30_000))) < 700


def test_time_and_deletion_end_a_grant() -> None:
    made = grant()
    assert "time is over" in why_over(made, made.status.expiration[0])
    assert "revoked" in why_over(replace(made, is_deleting=True), NOW)


def test_what_it_waits_for() -> None:
    made = with_condition("Approved", "ApprovalsMissing", "1 of 2")
    assert why_over(made, NOW) == ""
    assert waits_for(made) == "approval (1 of 2); another person runs: node-access grant approve repair"
    assert state(made, NOW) == "ApprovalsMissing"
    fresh = replace(made, status=replace(made.status, conditions=()))
    assert waits_for(fresh) == "the controller to look at it"
    assert "node-attestation-controller" in waited_for(fresh)
    assert state(fresh, NOW) == "Pending"


def test_it_waits_while_creators_are_not_protected() -> None:
    made = with_condition("CreatorProven", "CreatorNotProtected", "install the policies for access")
    assert why_over(made, NOW) == ""
    assert waits_for(made).startswith("proof of who made it (install the policies for access); ")


def test_a_check_that_failed_is_named_before_those_behind_it() -> None:
    made = grant()
    unknown = [Condition(name, ConditionStatus.UNKNOWN, "RightMissing", "not yet") for name in ("Authorized", "Ready")]
    pending = replace(made, status=replace(made.status, conditions=tuple(unknown)))
    assert waits_for(pending).startswith("the API server's word that you may use the login (not yet); ")
    failed = (*unknown, Condition("BastionReady", ConditionStatus.FALSE, "FailedReconciling", "no quota"))
    bastion = waits_for(replace(made, status=replace(made.status, conditions=failed)))
    assert bastion.startswith("the bastion, which failed (no quota); ")


def test_a_suspended_grant_is_paused() -> None:
    made = replace(grant(), suspended=True)
    assert "spec.suspend" in why_paused(made)
    assert "suspended" in waits_for(made)
    assert state(made, NOW) == "Suspended"


@pytest.mark.parametrize(("chance", "seconds"), [(0.0, 810), (0.5, 900), (1.0, 990)])
def test_a_heartbeat_comes_every_quarter_of_the_time_to_live(chance: float, seconds: int) -> None:
    assert interval(grant(), chance) == timedelta(seconds=seconds)


def test_a_heartbeat_never_comes_too_often() -> None:
    made = grant()
    status = replace(made.status, expiration=made.status.last_heartbeat)
    assert interval(replace(made, status=status), 0.5) == timedelta(seconds=1)
