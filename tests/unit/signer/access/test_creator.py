"""A creator is believed once, while admission proves it, and compared ever after."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from signer.access.creator import (
    CreatorNotProven,
    Guard,
    Lock,
    NotProtected,
    Protected,
    ProtectionUnknown,
    Unverified,
    is_same_person,
    prove_creator,
)
from signer.access.plan import AddFinalizer, Issue, Rest
from signer.access.record import GrantRecord, NoRecord
from signer.model.access import Creator, CreatorNotStated
from tests.support.access_objects import BOB
from tests.unit.signer.access.looks import CREATED, GUARD, LOCK, NOW, facts, reason, running, status, step_of

ALICE = Creator("alice", "u-1", frozenset({"team-a"}))
LATE = Protected((GUARD, replace(GUARD, name="binding", changed=CREATED)), NOW)


def test_a_creator_is_proven_by_older_guards() -> None:
    assert prove_creator(ALICE, CREATED, LOCK) == ALICE


@pytest.mark.parametrize("lock", [NotProtected("off"), ProtectionUnknown("no answer")])
def test_without_protection_it_may_be_proven_later(lock: Lock) -> None:
    with pytest.raises(CreatorNotProven) as refused:
        prove_creator(ALICE, CREATED, lock)
    assert not refused.value.is_final


@pytest.mark.parametrize("changed", [timedelta(0), timedelta(seconds=-1), timedelta(minutes=5)])
def test_a_guard_that_is_not_older_proves_nothing(changed: timedelta) -> None:
    with pytest.raises(CreatorNotProven) as refused:
        prove_creator(ALICE, CREATED, Protected((replace(GUARD, changed=CREATED + changed),), NOW))
    assert refused.value.is_final


def test_every_guard_must_be_older() -> None:
    with pytest.raises(CreatorNotProven):
        prove_creator(ALICE, CREATED, LATE)


def test_an_object_without_creator_counts_for_nothing() -> None:
    with pytest.raises(CreatorNotProven):
        prove_creator(CreatorNotStated(), CREATED, Unverified())


def test_the_operator_may_have_creators_believed() -> None:
    assert prove_creator(ALICE, CREATED, Unverified()) == ALICE


def test_each_change_of_a_guard_changes_the_identity() -> None:
    def identity(guard: Guard) -> str:
        return Protected((guard,), NOW).identity

    others = [replace(GUARD, uid="p-2"), replace(GUARD, generation=2), replace(GUARD, name="x")]
    assert len({identity(GUARD), *map(identity, others)}) == 4
    assert identity(replace(GUARD, changed=NOW)) == identity(GUARD)


def test_a_person_is_known_by_name_or_uid() -> None:
    assert is_same_person(ALICE, Creator("alice", "", frozenset()))
    assert is_same_person(ALICE, Creator("alice2", "u-1", frozenset()))
    assert not is_same_person(Creator("a", "", frozenset()), Creator("b", "", frozenset()))


# Through the plan


@pytest.mark.parametrize(
    ("lock", "why"),
    [
        (NotProtected("accepted in a foreign name"), "CreatorNotProtected"),
        (ProtectionUnknown("no answer"), "CreatorNotProtected"),
        (LATE, "CreatorNotProven"),
    ],
)
def test_nothing_is_sealed_while_the_creator_is_not_proven(lock: Lock, why: str) -> None:
    step = step_of(facts(lock=lock))
    assert isinstance(step.move, Rest)
    assert isinstance(step.record, NoRecord)
    assert (reason(step), reason(step, "CreatorProven")) == (why, why)
    assert status(step, "Authorized") == "Unknown"


def test_the_finalizer_comes_before_the_seal() -> None:
    assert isinstance(step_of(facts(sealed=False)).move, AddFinalizer)


def test_the_creator_is_sealed_at_first_sight() -> None:
    step = step_of(facts())
    assert isinstance(step.move, Issue)
    assert isinstance(step.record, GrantRecord)
    assert step.record.creator.username == "alice"


@pytest.mark.parametrize("lock", [NotProtected("off"), ProtectionUnknown("no answer")])
def test_nothing_more_is_issued_while_the_lock_is_off(lock: Lock) -> None:
    step = step_of(replace(running(), lock=lock, authority="SHA256:another"))
    assert isinstance(step.move, Rest), "and what lives goes on living"
    assert reason(step, "CreatorProven") == "CreatorNotProtected"


def test_another_creator_after_the_seal_changes_nothing() -> None:
    look = running()
    edited = facts(spec={"creator": BOB}, record=look.record)
    step = step_of(edited)
    assert isinstance(step.move, Rest)
    assert step.record == look.record
    assert reason(step) == "SpecChanged"
