"""One move at a time: the checks in their order, and the end of a grant in the order that never varies."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from signer.access.checks import CHECKS
from signer.access.creator import NotProtected
from signer.access.facts import (
    ClusterOver,
    ClusterPaused,
    Facts,
    GrantForbidden,
    GrantsNotAllowed,
    Keepalive,
    KnownRecord,
    RulesUnknown,
)
from signer.access.lifetimes import Lifetime
from signer.access.parts import (
    AbsentBastion,
    BrokenBastion,
    PendingBastion,
    Publication,
    TargetNode,
    TargetsFound,
    TargetsGone,
    TargetsUnknown,
)
from signer.access.plan import (
    DeleteBastion,
    DeleteGrant,
    Issue,
    MakeBastion,
    NotIssued,
    RemoveFinalizer,
    RemoveKeepalive,
    Rest,
    Revoke,
    Step,
    WriteRecord,
    plan,
)
from signer.access.record import MAXIMUM_EPOCH, BrokenRecord, Cause, Closing, GrantRecord, Live, NoCertificate, Stage
from signer.access.right_answers import Denied, RightUnknown
from signer.model.access import Creator, DeletedAt, InvalidAccessGrant
from tests.unit.signer.access.looks import (
    BASTION_RULES,
    CREATED,
    INGRESS,
    LOCK,
    NOW,
    OTHER_LOCK,
    READY_BASTION,
    RULES,
    certify,
    facts,
    issued,
    reason,
    running,
    status,
    step_of,
)

WITH_BASTION: Final[dict[str, Any]] = {"spec": {"bastion": "aws", "ingress": INGRESS}, "rules": BASTION_RULES}
HOUR: Final = timedelta(hours=1)


def deleted(look: Facts) -> Facts:
    return replace(look, metadata=replace(look.metadata, deletion=DeletedAt(NOW)))


def record_of(step: Step) -> GrantRecord:
    assert isinstance(step.record, GrantRecord)
    return step.record


def state_of(step: Step) -> Closing:
    state = record_of(step).state
    assert isinstance(state, Closing)
    return state


# Alive


def test_everything_right_issues() -> None:
    step = step_of(facts())
    assert isinstance(step.move, Issue)
    assert [one.hop.value for one in step.move.requests] == ["node"]
    assert all(one.status == "True" for one in step.conditions if one.type != "SessionsTerminated")


HOLDS: Final[tuple[tuple[dict[str, Any], str], ...]] = (
    ({"cluster": ClusterPaused()}, "ClusterPaused"),
    ({"rules": RulesUnknown("invalid")}, "PolicyUnreadable"),
    ({"grant": InvalidAccessGrant("spec.target", "is missing")}, "Invalid"),
    ({"rules": GrantForbidden("no ticket")}, "ForbiddenByPolicy"),
    ({"lock": NotProtected("off")}, "CreatorNotProtected"),
    ({"right": RightUnknown("no answer", 10.0)}, "RightMissing"),
    ({"rules": replace(RULES, required_approvals=1)}, "ApprovalsMissing"),
    ({"targets": TargetsUnknown("not attested")}, "TargetsUnknown"),
    ({"authority": ""}, "AuthorityNotAvailable"),
    ({"rules": BASTION_RULES, "bastion": PendingBastion("soon")}, "BastionPending"),
    ({"rules": BASTION_RULES, "bastion": BrokenBastion("no quota")}, "FailedReconciling"),
    ({"rules": BASTION_RULES, "is_bastion_deleting": True}, "DeletionInProgress"),
)
ENDS: Final[tuple[tuple[dict[str, Any], Cause], ...]] = (
    ({"cluster": ClusterOver("gone")}, Cause.CLUSTER_GONE),
    ({"rules": GrantsNotAllowed("off")}, Cause.NOT_ALLOWED),
    ({"right": Denied("no right")}, Cause.RIGHT_LOST),
    ({"right": RightUnknown("no answer", 300.0)}, Cause.RIGHT_UNKNOWN),
    ({"now": CREATED + HOUR}, Cause.HEARTBEAT_MISSING),
    ({"targets": TargetsGone("all gone")}, Cause.TARGETS_GONE),
)


@pytest.mark.parametrize(("change", "why"), HOLDS, ids=[why for _, why in HOLDS])
def test_what_holds_a_grant_issues_nothing_and_ends_nothing(change: dict[str, Any], why: str) -> None:
    for look in (replace(facts(), **change), replace(running(), **change)):
        step = step_of(look)
        assert isinstance(step.move, (Rest, WriteRecord)), step.move
        assert reason(step) == why
        if isinstance(step.record, GrantRecord):
            assert isinstance(step.record.state, Live)


@pytest.mark.parametrize(("change", "cause"), ENDS, ids=[cause.value for _, cause in ENDS])
def test_what_ends_a_grant_is_sealed_first(change: dict[str, Any], cause: Cause) -> None:
    step = step_of(replace(running(), **change))
    assert isinstance(step.move, WriteRecord)
    assert state_of(step).cause is cause
    by_time = cause is Cause.HEARTBEAT_MISSING
    assert state_of(step).stage is (Stage.TERMINATED if by_time else Stage.CLOSING), "its certificates ended with it"
    assert reason(step) == cause.value


@pytest.mark.parametrize(("change", "cause"), ENDS, ids=[cause.value for _, cause in ENDS])
@pytest.mark.parametrize(("hold", "why"), HOLDS[2:3] + HOLDS[4:5] + HOLDS[8:9], ids=["invalid", "lock", "authority"])
def test_an_end_needs_no_other_check_to_pass(
    change: dict[str, Any], cause: Cause, hold: dict[str, Any], why: str
) -> None:
    del why
    assert state_of(step_of(replace(running(), **hold, **change))).cause is cause


def test_the_first_check_that_fails_has_the_word() -> None:
    """Everything is wrong; each mend shows the next one."""
    order: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"cluster": ClusterPaused()}, {"cluster": facts().cluster}),
        ({"rules": RulesUnknown("x")}, {"rules": replace(BASTION_RULES, required_approvals=1)}),
        ({"lock": NotProtected("x")}, {"lock": LOCK}),
        ({"right": RightUnknown("x", 1.0)}, {"right": facts().right}),
        ({}, {"rules": BASTION_RULES}),
        ({"targets": TargetsUnknown("x")}, {"targets": facts().targets}),
        ({"authority": ""}, {"authority": facts().authority}),
        ({"bastion": PendingBastion("x")}, {"bastion": READY_BASTION}),
    ]
    wrong = {name: value for change, _ in order for name, value in change.items()}
    look = replace(running(spec=WITH_BASTION["spec"]), **wrong)
    seen = []
    for _, mend in order:
        seen.append(reason(step_of(look)))
        look = replace(look, **mend)
    assert seen == [
        "ClusterPaused",
        "PolicyUnreadable",
        "CreatorNotProtected",
        "RightMissing",
        "ApprovalsMissing",
        "TargetsUnknown",
        "AuthorityNotAvailable",
        "BastionPending",
    ]
    assert isinstance(step_of(look).move, Issue)


def test_conditions_behind_the_first_that_fails_are_unknown() -> None:
    step = step_of(replace(running(), right=RightUnknown("no answer", 1.0)))
    assert status(step, "CreatorProven") == "True"
    assert status(step, "Authorized") == "Unknown"
    assert status(step, "Approved") == status(step, "BastionReady") == "Unknown"
    assert reason(step, "Approved") == "NotReached"


def test_every_check_has_an_explanation() -> None:
    assert all(check.run.__doc__ for check in CHECKS)


def test_certificates_that_cannot_be_made_hold_the_grant() -> None:
    def refuse(issuance: object) -> Any:
        raise NotIssued("KeyIsHostKey", "use another key")

    step = plan(facts(), refuse)
    assert isinstance(step.move, WriteRecord)
    assert reason(step) == "KeyIsHostKey"


def test_a_right_that_was_never_there_ends_nothing() -> None:
    step = step_of(facts(right=Denied("no right")))
    assert isinstance(step.move, WriteRecord)
    assert record_of(step).state == Live()
    assert reason(step, "Authorized") == "RightLost"


# Bastion


def test_a_bastion_is_made_after_the_seal_and_before_the_certificates() -> None:
    first = step_of(facts(**WITH_BASTION))
    assert isinstance(first.move, WriteRecord)
    look = replace(facts(**WITH_BASTION), record=first.record)
    assert isinstance(step_of(look).move, MakeBastion)
    ready = step_of(replace(look, bastion=READY_BASTION))
    assert isinstance(ready.move, Issue)
    assert [one.hop.value for one in ready.move.requests] == ["bastion", "node"]


def test_a_bastion_that_is_not_as_it_should_be_is_changed() -> None:
    look = running(**WITH_BASTION, bastion=READY_BASTION)
    assert isinstance(step_of(look).move, Rest)
    assert isinstance(step_of(replace(look, is_bastion_current=False)).move, MakeBastion)


def test_a_bastion_waits_for_an_address() -> None:
    """The API server refuses one without targets."""
    sealed = step_of(facts(**WITH_BASTION)).record
    without = TargetsFound((TargetNode("worker-1", ("worker-1",), 22),))
    look = replace(facts(**WITH_BASTION), record=sealed, targets=without)
    step = step_of(look)
    assert isinstance(step.move, Rest)
    assert reason(step, "BastionReady") == "TargetsUnknown"
    assert step.again is not None, "nothing tells of an address"
    assert isinstance(step_of(replace(look, targets=TargetsFound(()))).move, Rest)


# The end


def closing(look: Facts, stage: Stage, cause: Cause = Cause.DELETED, **changes: Any) -> Facts:
    assert isinstance(look.record, GrantRecord)
    record = look.record.next(state=Closing(cause, NOW, stage))
    return replace(look, record=record, **changes)


def test_the_end_has_one_order() -> None:
    """Each move's result is the next look, as if the controller began anew each time."""
    look = deleted(running(**WITH_BASTION, bastion=READY_BASTION))
    moves = []
    for change in ({}, {}, {"is_bastion_deleting": True, "bastion": PendingBastion("x")}, {"bastion": AbsentBastion()}):
        step = step_of(look)
        moves.append(type(step.move))
        look = replace(look, record=step.record, **change)
    assert moves == [WriteRecord, Revoke, DeleteBastion, Rest]
    assert isinstance(step_of(look).move, Rest), "nodes do not know yet"
    step = step_of(replace(look, publication=Publication.PUBLISHED))
    assert isinstance(step.move, WriteRecord)
    assert state_of(step).stage is Stage.TERMINATED
    assert status(step, "SessionsTerminated") == "True"
    assert isinstance(step_of(replace(look, record=step.record)).move, RemoveFinalizer)


def test_the_key_id_is_revoked_until_the_last_certificate_ends() -> None:
    look = closing(deleted(running()), Stage.CLOSING)
    step = step_of(look)
    assert isinstance(step.move, Revoke)
    assert isinstance(look.record, GrantRecord)
    assert step.move.key_ids == (look.record.journal[0].key_id,)
    assert step.move.until == look.record.last_end


def test_the_bastion_goes_before_the_finalizer() -> None:
    look = closing(deleted(running(**WITH_BASTION, bastion=READY_BASTION)), Stage.REVOKED)
    step = step_of(replace(look, publication=Publication.PUBLISHED))
    assert isinstance(step.move, DeleteBastion)
    pending = replace(look, publication=Publication.PUBLISHED, is_bastion_deleting=True)
    assert isinstance(step_of(replace(pending, bastion=PendingBastion("x"))).move, Rest)


@pytest.mark.parametrize("publication", [Publication.PENDING, Publication.OUT_OF_REACH])
def test_out_of_reach_the_finalizer_goes_when_the_last_certificate_has_ended(publication: Publication) -> None:
    look = closing(deleted(running()), Stage.REVOKED, publication=publication)
    assert isinstance(step_of(look).move, Rest)
    over = step_of(replace(look, now=NOW + HOUR))
    assert isinstance(over.move, WriteRecord)
    assert state_of(over).stage is Stage.TERMINATED


def test_a_bastion_that_never_goes_holds_the_grant_for_a_while_only() -> None:
    stuck: dict[str, Any] = {"bastion": PendingBastion("x"), "is_bastion_deleting": True, "now": NOW + HOUR}
    look = closing(deleted(running(**WITH_BASTION, bastion=READY_BASTION)), Stage.REVOKED, **stuck)
    assert isinstance(step_of(look).move, WriteRecord)
    assert isinstance(look.record, GrantRecord)
    look = replace(look, record=replace(look.record, state=Closing(Cause.DELETED, NOW + HOUR, Stage.REVOKED)))
    assert isinstance(step_of(look).move, Rest)


def test_a_grant_without_certificates_is_gone_at_once() -> None:
    for record in (facts().record, step_of(facts(authority="")).record):
        assert isinstance(step_of(deleted(facts(record=record))).move, RemoveFinalizer)


def test_a_grant_that_ended_by_time_is_deleted() -> None:
    look = closing(running(), Stage.TERMINATED, Cause.HEARTBEAT_MISSING, now=CREATED + HOUR)
    assert isinstance(step_of(look).move, DeleteGrant)


def test_a_denied_grant_stays_for_people_until_its_time_is_over() -> None:
    look = closing(running(), Stage.TERMINATED, Cause.DENIED)
    assert isinstance(step_of(look).move, Rest)
    assert step_of(look).again == CREATED + HOUR


def test_a_final_end_never_comes_back() -> None:
    for cause in Cause:
        step = step_of(closing(running(), Stage.TERMINATED, cause))
        assert isinstance(step.move, Rest if cause.is_final else Issue), cause


@pytest.mark.parametrize("cause", [cause for cause in Cause if not cause.is_final])
def test_a_grant_that_comes_back_has_another_key_id(cause: Cause) -> None:
    look = closing(running(), Stage.TERMINATED, cause)
    assert isinstance(look.record, GrantRecord)
    step = step_of(look)
    assert isinstance(step.move, Issue)
    assert {str(one.key_id) for one in step.move.requests} == {f"{look.record.journal[0].key_id}/1"}
    assert record_of(step).last_end == NoCertificate()


def test_a_grant_that_had_no_certificate_comes_back_with_its_key_id() -> None:
    look = facts(record=replace(issued(facts()), journal=(), last_end=NoCertificate()))
    step = step_of(closing(look, Stage.TERMINATED, Cause.SUSPENDED))
    assert isinstance(step.move, Issue)
    assert record_of(step).epoch == 0


def test_a_grant_comes_back_a_bounded_number_of_times() -> None:
    look = running()
    assert isinstance(look.record, GrantRecord)
    last = closing(replace(look, record=replace(look.record, epoch=MAXIMUM_EPOCH)), Stage.TERMINATED, Cause.SUSPENDED)
    step = step_of(last)
    assert isinstance(step.move, WriteRecord)
    assert state_of(step).cause is Cause.TOO_MANY_RETURNS


@pytest.mark.parametrize("stage", [Stage.CLOSING, Stage.REVOKED])
def test_nothing_comes_back_before_its_end_is_complete(stage: Stage) -> None:
    assert not isinstance(step_of(closing(running(), stage, Cause.SUSPENDED)).move, Issue)


def test_a_paused_grant_can_end_for_good() -> None:
    look = closing(running(), Stage.TERMINATED, Cause.SUSPENDED, targets=TargetsGone("gone"))
    assert state_of(step_of(look)).cause is Cause.TARGETS_GONE
    assert isinstance(step_of(replace(look, cluster=ClusterOver("gone"))).move, DeleteGrant)


# GEP-0015's keepalive


def test_a_keepalive_is_removed_and_then_counts() -> None:
    look = replace(running(), now=NOW + HOUR / 2)
    step = step_of(replace(look, keepalive=Keepalive.ASKED))
    assert step.move == RemoveKeepalive(counts=True)
    counted = step_of(replace(look, keepalive=Keepalive.TAKEN))
    assert isinstance(counted.move, Issue)
    assert record_of(counted).heartbeat == NOW + HOUR / 2


def test_a_keepalive_without_proof_is_removed_and_does_not_count() -> None:
    look = replace(running(), keepalive=Keepalive.ASKED, lock=NotProtected("off"))
    assert step_of(look).move == RemoveKeepalive(counts=False)


@pytest.mark.parametrize("change", [{"lock": OTHER_LOCK}, {"right": RightUnknown("no answer", 1.0)}])
def test_a_keepalive_under_other_guards_or_without_the_right_does_not_count_later_either(
    change: dict[str, Any],
) -> None:
    look = replace(running(), keepalive=Keepalive.ASKED, **change)
    assert step_of(look).move == RemoveKeepalive(counts=False)


def test_a_plan_is_a_function_of_its_facts() -> None:
    assert plan(facts(), certify) == plan(facts(), certify)


LONG: Final = {"username": "ü" * 512, "groups": ["system:authenticated"]}
"""Six characters of a key id for each: longer than a key id may be."""


def test_a_creator_who_fits_no_key_id_gets_no_record() -> None:
    """Otherwise the grant could not end: what is to be revoked has no name."""
    step = step_of(facts(spec={"creator": LONG}, sealed=False))
    assert isinstance(step.move, Rest)
    assert not isinstance(step.record, GrantRecord)
    assert reason(step) == "Invalid"


def test_the_key_ids_of_later_epochs_fit_too() -> None:
    """``/15`` takes three characters, and so does an escaped slash."""
    look = facts()
    for characters, fits in ((0, True), (1, False)):
        used = len(issued(look).key_id(look.metadata, 0)) - len("alice")
        name = "/" * 300 + "a" * (1021 + characters - used - 900)
        long = facts(spec={"creator": {**LONG, "username": name}})
        assert isinstance(step_of(long).record, GrantRecord) is fits


def test_a_lost_record_with_such_a_creator_ends_all_the_same() -> None:
    look = facts(spec={"creator": LONG}, record=BrokenRecord("somebody changed it"))
    step = step_of(look)
    assert isinstance(step.move, Revoke)
    assert all("/unknown" in one for one in step.move.key_ids)


def test_a_lost_record_is_revoked_by_what_the_process_remembers() -> None:
    """Who edits ``spec.createdBy`` and takes the record away has other key ids revoked than those that were issued."""
    before = running().record
    assert isinstance(before, GrantRecord)
    stated = Creator("mallory", "", frozenset())
    look = facts(record=BrokenRecord("changed"), stated_creator=stated, stated_cluster="other")
    assert record_of(step_of(look)).creator == stated, "nothing is remembered"
    record = record_of(step_of(replace(look, known=KnownRecord.of(before))))
    assert record.sequence > before.sequence + 1
    assert record.cluster == before.cluster
    assert record.key_id(look.metadata, 0) == before.key_id(look.metadata, 0)


# Renewal


def living_for(hours: int) -> Facts:
    """A grant with certificates for an hour, which lives for so long without a heartbeat."""
    return running(lifetime=Lifetime(CREATED, timedelta(hours=24), hours * HOUR))


def test_certificates_are_renewed_before_they_end_in_a_grant_that_lives_longer() -> None:
    look = living_for(8)
    step = step_of(look)
    assert isinstance(step.move, Rest)
    [entry] = look.record.journal if isinstance(look.record, GrantRecord) else ()
    assert step.again is not None
    assert entry.issued < step.again < entry.ends
    renewed = step_of(replace(look, now=step.again))
    assert isinstance(renewed.move, Issue)
    after = replace(look, now=step.again, record=issued(replace(look, now=step.again)))
    assert isinstance(step_of(after).move, Rest), "once"


def test_certificates_of_a_grant_that_ends_with_them_are_not_renewed() -> None:
    look = living_for(1)
    assert isinstance(look.record, GrantRecord)
    assert isinstance(step_of(replace(look, now=look.record.journal[0].ends - timedelta(seconds=5))).move, Rest)
