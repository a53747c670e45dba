"""n of m: never one's own, for exactly this grant, each person once, and a denial ends it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from signer.access.approvals import (
    MAXIMUM_CANDIDATES,
    MAXIMUM_SEALED,
    ApprovalsMissing,
    JudgedApproval,
    candidates,
    digest_of_approval,
    newly_sealed,
    tally,
)
from signer.access.auditing import counted_approvals
from signer.access.creator import Lock, NotProtected
from signer.access.facts import Facts
from signer.access.plan import Issue, Rest, Step, WriteRecord
from signer.access.record import Cause, Closing, GrantRecord, Live
from signer.access.right_answers import Allowed, Denied, RightUnknown
from signer.model.access import AccessApproval, AccessGrant, Creator
from tests.support.access_objects import ALICE, BOB, GRANT_UID
from tests.unit.signer.access.looks import OTHER_LOCK, RULES, approval, facts, issued, reason, status, step_of

TWO: Final = replace(RULES, required_approvals=2)
ONE: Final = replace(RULES, required_approvals=1)
HAS_RIGHT: Final = Allowed()
CAROL: Final = {"username": "carol", "uid": "u-3", "groups": ["system:authenticated"]}


def look(rules: Any, *approvals: AccessApproval, right: Any = HAS_RIGHT, lock: Lock | None = None) -> Facts:
    answers = {one.metadata.uid: right for one in approvals}
    found = facts(rules=rules, approvals=tuple(approvals), approvers=answers)
    return found if lock is None else replace(found, lock=lock)


def said(creator: Mapping[str, Any] = BOB, uid: str = "a-1", **spec: Any) -> AccessApproval:
    found: AccessApproval = approval(facts(), uid, dict(creator), uid, **spec)
    return found


def allowed(*approvals: AccessApproval) -> Mapping[str, Allowed]:
    return dict.fromkeys((one.metadata.uid for one in approvals), HAS_RIGHT)


def held(step: Step) -> None:
    assert not isinstance(step.move, Issue)
    assert reason(step, "Approved") == "ApprovalsMissing"
    assert status(step, "BastionReady") == "Unknown"


def test_enough_persons_approve() -> None:
    enough = look(TWO, said(), said(CAROL, "a-2"))
    step = step_of(enough)
    assert isinstance(step.move, Issue)
    assert isinstance(step.record, GrantRecord)
    assert [one.username for one in counted_approvals(enough, step.record)] == ["bob", "carol"]


def test_none_is_needed_where_none_is_required() -> None:
    assert isinstance(step_of(look(RULES)).move, Issue)


def test_too_few_approve() -> None:
    held(step_of(look(TWO, said())))


@pytest.mark.parametrize(
    "creator", [ALICE, {**ALICE, "uid": ""}, {**CAROL, "uid": ALICE["uid"]}], ids=["name and uid", "name", "uid"]
)
def test_nobody_approves_her_own_grant(creator: dict[str, Any]) -> None:
    held(step_of(look(ONE, said(creator))))


@pytest.mark.parametrize("second", [BOB, {**CAROL, "uid": BOB["uid"]}])
def test_one_person_counts_once(second: dict[str, Any]) -> None:
    held(step_of(look(TWO, said(), said(second, "a-2"))))


@pytest.mark.parametrize("right", [Denied("no"), RightUnknown("no answer", 3.0)])
def test_a_person_without_the_right_does_not_count(right: object) -> None:
    step = step_of(look(ONE, said(), right=right))
    held(step)


def test_a_person_whose_right_was_not_asked_does_not_count() -> None:
    held(step_of(replace(look(ONE, said()), approvers={})))


def test_only_approvals_of_this_grant_are_looked_at() -> None:
    grant = facts().grant
    assert isinstance(grant, AccessGrant)
    others = [
        said(grantRef={"name": "repair", "uid": "9" * 8 + GRANT_UID[8:]}),
        said(grantRef={"name": "other", "uid": GRANT_UID}),
        replace(said(), spec_digest="1" * 64),
        replace(said(), metadata=replace(said().metadata, namespace="team-b")),
    ]
    assert candidates(grant, others) == ()
    assert candidates(grant, [said()]) == (said(),)


def test_an_approval_of_an_older_spec_does_not_count() -> None:
    other = facts(spec={"logins": ["admin"]}).grant
    assert isinstance(other, AccessGrant)
    assert candidates(other, [said()]) == ()


def test_a_flood_of_approvals_is_bounded() -> None:
    grant = facts().grant
    assert isinstance(grant, AccessGrant)
    flood = [said({**BOB, "username": f"p{n}", "uid": f"u-{n}"}, f"a-{n}") for n in range(100)]
    found = candidates(grant, flood)
    assert len(found) == MAXIMUM_CANDIDATES
    creator = grant.created_by
    assert isinstance(creator, Creator)
    assert len(newly_sealed(found, (), facts().lock, creator, allowed(*found))) == MAXIMUM_SEALED


def test_who_may_not_approve_takes_no_place() -> None:
    """A member of the project makes many approvals, so that no denial counts."""
    flood = [said({**BOB, "username": f"p{n}", "uid": f"w-{n}"}, f"a-{n}") for n in range(MAXIMUM_SEALED)]
    denial = said(CAROL, "b-1", decision="Deny")
    full = look(RULES, *flood, denial)
    step = step_of(replace(full, approvers={**dict.fromkeys(full.approvers, Denied("no")), "b-1": HAS_RIGHT}))
    assert isinstance(step.record, GrantRecord)
    assert isinstance(step.record.state, Closing) or reason(step) == Cause.DENIED.value, step
    assert [one.username for one in step.record.approvals] == ["carol"]


def test_a_denial_has_a_place_although_all_are_taken() -> None:
    flood = [said({**BOB, "username": f"p{n}", "uid": f"w-{n}"}, f"a-{n}") for n in range(MAXIMUM_SEALED)]
    record = issued(look(RULES, *flood))
    assert len(record.approvals) == MAXIMUM_SEALED
    step = step_of(replace(look(RULES, *flood, said(CAROL, "b-1", decision="Deny")), record=record))
    assert isinstance(step.record, GrantRecord)
    assert isinstance(step.record.state, Closing)
    assert step.record.state.cause is Cause.DENIED
    assert len(step.record.approvals) == MAXIMUM_SEALED


def test_a_second_approval_of_a_person_takes_no_place() -> None:
    step = step_of(look(ONE, said(), said(uid="a-2"), said({**CAROL, "uid": BOB["uid"]}, "a-3")))
    assert isinstance(step.record, GrantRecord)
    assert [one.uid for one in step.record.approvals] == ["a-1"]


def test_one_person_cannot_crowd_others_out() -> None:
    grant = facts().grant
    assert isinstance(grant, AccessGrant)
    flood = [said(BOB, f"a-{n}") for n in range(100)]
    denial = said(CAROL, "b-1", decision="Deny")
    assert [one.metadata.uid for one in candidates(grant, [*flood, denial])] == ["b-1", "a-99"]
    record = issued(look(RULES, said(BOB, "a-0")))
    found = candidates(grant, [*flood, denial], record.approvals)
    assert [one.metadata.uid for one in found] == ["a-0", "b-1", "a-99"], "what is sealed stays"


@pytest.mark.parametrize("lock", [NotProtected("off"), OTHER_LOCK], ids=["no lock", "younger lock"])
def test_an_approval_whose_creator_is_not_proven_is_never_sealed(lock: Lock) -> None:
    record = issued(facts())
    step = step_of(replace(look(ONE, said(), lock=lock), record=record))
    assert isinstance(step.record, GrantRecord)
    assert step.record.approvals == ()
    assert not isinstance(step.move, Issue)


def test_a_sealed_approval_counts_as_it_was() -> None:
    record = issued(look(ONE, said()))
    kept = replace(look(ONE, said()), record=record)
    assert isinstance(step_of(kept).move, Rest)
    for edited in (said(CAROL), said({**BOB, "groups": ["admins"]}), replace(said(), metadata=said().metadata)):
        if digest_of_approval(edited) != digest_of_approval(said()):
            held(step_of(replace(look(ONE, edited), record=record)))


def test_a_withdrawn_approval_counts_no_more() -> None:
    record = issued(look(ONE, said()))
    held(step_of(replace(look(ONE), record=record)))


def test_a_denial_ends_the_grant() -> None:
    denial = said(decision="Deny")
    step = step_of(look(RULES, denial))
    assert isinstance(step.move, WriteRecord)
    assert isinstance(step.record, GrantRecord)
    assert isinstance(step.record.state, Closing)
    assert step.record.state.cause is Cause.DENIED
    assert step.record.state.cause.is_final
    assert reason(step, "Approved") == "DeniedByApprover"


def test_a_denial_without_the_right_does_not_count() -> None:
    assert isinstance(step_of(look(RULES, said(decision="Deny"), right=Denied("no right"))).move, Issue)


def test_a_denial_holds_the_grant_until_the_right_to_it_is_known() -> None:
    """Also one that is sealed already, and one that comes while no right is answered."""
    unknown = RightUnknown("no answer", 1.0)
    fresh = look(RULES, said(decision="Deny"), right=unknown)
    assert reason(step_of(fresh)) == "ApprovalsMissing"
    assert isinstance(step_of(fresh).move, WriteRecord)
    known = replace(fresh, approvers={"a-1": Allowed()})
    sealed = step_of(known).record
    assert isinstance(sealed, GrantRecord)
    assert sealed.approvals
    later = replace(fresh, record=replace(sealed, state=Live()))
    assert reason(step_of(later)) == "ApprovalsMissing"
    assert not isinstance(step_of(later).move, Issue)
    own = look(RULES, said(ALICE, decision="Deny"), right=unknown)
    assert isinstance(step_of(own).move, Issue), "the creator's own is none"


def test_the_creator_ends_the_grant_by_deletion_and_not_by_a_denial() -> None:
    assert isinstance(step_of(look(RULES, said(ALICE, decision="Deny"))).move, Issue)


def test_the_creators_own_approval_takes_no_place_and_counts_for_nothing() -> None:
    """Each by itself: it is not sealed, and a sealed one would not count."""
    grant = facts().grant
    assert isinstance(grant, AccessGrant)
    creator = grant.created_by
    assert isinstance(creator, Creator)
    own = said(ALICE, "own")
    assert newly_sealed((own,), (), facts().lock, creator, allowed(own)) == ()
    assert isinstance(tally(creator, (JudgedApproval(own),), 1), ApprovalsMissing)
