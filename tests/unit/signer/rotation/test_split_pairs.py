"""Rotations whose kube-controller-managers have a pair for client certificates and one for serving certificates."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from signer.authority.presented import Presented
from signer.rotation.authorities import AuthorityKind, Role
from signer.rotation.condition_types import EXCHANGE_CLIENT_CERTIFICATES
from signer.rotation.conditions import rotation_conditions
from signer.rotation.desired import DeleteKey, SplitPairs, WriteSigning, missing_writes, split_pairs
from signer.rotation.facts import Absent, CanarySigner, NotObserved, RenewalFacts, SigningFacts, Unusable
from signer.rotation.invariants import InvariantBroken, require_write
from signer.rotation.phases import FORWARD, HOLDING_STEPS, WITHOUT_SPLIT, SigningPairs, Step, forward
from signer.rotation.plan import UNSAFE, Advance, Wait, next_move
from signer.rotation.proofs import PROOF_OF, NotKnown, NotProven, Proof, Proven
from signer.rotation.reconciler import _servers_must_change
from signer.rotation.record import Moment, RotationRecord
from signer.rotation.rotations import Verified
from signer.rotation.status import rotation_status
from tests.unit.signer.rotation.model_world import START
from tests.unit.signer.rotation.situations import (
    DIGEST,
    NEW,
    NOW,
    OLD,
    facts_at,
    record_at,
    server,
    with_machine,
    with_pair,
    with_servers,
    without,
)

CA = AuthorityKind.CLUSTER
SIGN = Step.CONTROLLER_MANAGERS_SIGN
SPLIT = SigningPairs.SPLIT


def split(step: Step, **changes: Any) -> RotationRecord:
    """The record of a rotation with split pairs, at that step."""
    return replace(record_at(step, signing_pairs=SPLIT), **changes)


def signed_by_new(step: Step) -> RotationRecord:
    """The same, on the way back, after kube-controller-managers may have got the new CA's pair."""
    record = split(step)
    return replace(record, times={**record.times, Moment.CONTROLLER_MANAGERS: START})


# Steps and writes


def test_a_rotation_with_one_pair_has_a_step_less() -> None:
    assert forward(SPLIT) == FORWARD
    assert forward(SigningPairs.ONE_PAIR) == WITHOUT_SPLIT
    assert set(FORWARD) - set(WITHOUT_SPLIT) == {SIGN}


def test_clients_first_then_both_and_back() -> None:
    steps = FORWARD[FORWARD.index(Step.PUBLISH_TRUST) :]
    for step in steps:
        client: Role = NEW if step.is_at_least(SIGN) else OLD
        serving = NEW if step.is_at_least(Step.SWITCH) else OLD
        assert split_pairs(split(step)) == SplitPairs(client, serving), step
    for step in (Step.SIGN_BY_OLD, Step.NODES_RETURN, Step.DISCARD_NEW):
        assert split_pairs(split(step)) == SplitPairs(OLD, OLD)


@pytest.mark.parametrize("held", [step for step in Step if step in HOLDING_STEPS])
def test_a_rollback_of_clients_leaves_controller_managers_as_they_are(held: Step) -> None:
    assert split_pairs(split(Step.SIGN_BY_OLD, held_at=held)) == SplitPairs(NEW, NEW)


@pytest.mark.parametrize("held", [Absent(), Unusable("two certificates"), SigningFacts(DIGEST[OLD], DIGEST[OLD])])
def test_another_content_is_replaced(held: SigningFacts | Absent | Unusable) -> None:
    facts = replace(facts_at(SIGN), signing=held)
    assert list(missing_writes(split(SIGN), facts)) == [WriteSigning(SplitPairs(NEW, OLD))]


def test_nothing_is_written_before_trust_is_nor_with_one_pair() -> None:
    assert list(missing_writes(split(Step.ACCEPT), replace(facts_at(Step.ACCEPT), signing=Absent()))) == []
    step = Step.NODES_TRUST
    assert list(missing_writes(record_at(step), replace(facts_at(step), signing=Absent()))) == []


# Invariants


def broken(number: str, write: WriteSigning | DeleteKey, record: RotationRecord, facts: object) -> None:
    with pytest.raises(InvariantBroken, match=f"^{number}: "):
        require_write(write, record, facts)  # type: ignore[arg-type]


def test_nothing_signs_by_the_new_ca_that_a_server_refuses() -> None:
    write, record = WriteSigning(SplitPairs(NEW, OLD)), split(SIGN)
    require_write(write, record, facts_at(SIGN))
    broken("I2", write, record, with_servers(facts_at(SIGN), server(Presented.OLD_LINKED, new=False)))
    broken("I2", write, record, with_servers(facts_at(SIGN), unseen={"control-plane-1": "timeout"}))


def test_nothing_signs_by_the_old_ca_that_a_server_refuses() -> None:
    write, record = WriteSigning(SplitPairs(OLD, OLD)), split(Step.SIGN_BY_OLD)
    facts = facts_at(Step.SIGN_BY_OLD)
    require_write(write, record, facts)
    require_write(write, record, replace(facts, servers=NotObserved("timeout")))  # it signed by it before
    broken("I2", write, record, with_servers(facts, server(Presented.OLD_LINKED, old=False)))


def test_both_pairs_are_kept_before_either_is_written() -> None:
    for role in Role:
        broken("I4", WriteSigning(SplitPairs(NEW, OLD)), split(SIGN), with_pair(facts_at(SIGN), CA, role, Absent()))


@pytest.mark.parametrize(("step", "role"), [(Step.FORGET, OLD), (Step.DISCARD_NEW, NEW)])
def test_no_key_is_deleted_that_a_controller_manager_may_read(step: Step, role: Role) -> None:
    write, kept = DeleteKey(CA, role), NEW if role is OLD else OLD
    require_write(write, split(step), replace(facts_at(step), signing=SigningFacts(DIGEST[kept], DIGEST[kept])))
    for held in (SigningFacts(DIGEST[kept], DIGEST[role]), SigningFacts(DIGEST[role], DIGEST[kept]), Absent()):
        broken("I6", write, split(step), replace(facts_at(step), signing=held))
    require_write(write, record_at(step), replace(facts_at(step), signing=Absent()))


# Proofs


def proof(facts: object) -> Proof:
    return PROOF_OF[SIGN](split(SIGN), facts)  # type: ignore[arg-type]


def test_every_controller_manager_signs_clients_by_the_new_ca() -> None:
    facts = facts_at(SIGN)
    assert proof(facts) == Proven()
    lagging = proof(replace(facts, renewal=RenewalFacts(("control-plane-1",), "older"), actuator="roll"))
    assert isinstance(lagging, NotProven)
    assert (lagging.members, lagging.message) == (("control-plane-1",), "older: control-plane-1; roll")
    started = proof(with_machine(facts, started=START))
    assert isinstance(started, NotProven)
    assert started.members == ("control-plane-1",)
    unknown = proof(with_machine(facts, started=NotObserved("it was started with other flags")))
    assert isinstance(unknown, NotKnown)
    assert "other flags" in unknown.message


def test_the_canary_is_by_the_new_ca() -> None:
    facts = facts_at(SIGN)
    for signer, says in ((CanarySigner.OLD, "old CA"), (CanarySigner.OTHER, "none of this rotation")):
        found = proof(replace(facts, canary=signer))
        assert isinstance(found, NotProven)
        assert says in found.message
    assert isinstance(proof(replace(facts, canary=NotObserved("15 seconds"))), NotKnown)


def test_the_way_back_replaces_machines_that_may_sign_by_the_new_ca() -> None:
    step = Step.NODES_RETURN
    facts = replace(facts_at(step), renewal=RenewalFacts(("control-plane-1",), "older"))
    one_pair = record_at(step)
    assert PROOF_OF[step](one_pair, facts) == Proven()
    assert not _servers_must_change(one_pair, facts)
    assert isinstance(PROOF_OF[step](split(step), facts), NotProven), "a restored record may be older than that step"
    unpublished = without(split(step), Moment.TRUST_WRITTEN)
    assert PROOF_OF[step](unpublished, facts) == Proven()
    assert not _servers_must_change(unpublished, facts)
    assert isinstance(PROOF_OF[step](signed_by_new(step), facts), NotProven)
    assert _servers_must_change(signed_by_new(step), facts)
    assert PROOF_OF[step](signed_by_new(step), facts_at(step)) == Proven()


# What people see


def exchange(record: RotationRecord) -> str:
    found = rotation_conditions(Verified(record, "u", "1"), facts_at(record.step), None)
    return next((one.reason for one in found if one.type == EXCHANGE_CLIENT_CERTIFICATES), "")


def test_when_clients_can_exchange_their_certificates() -> None:
    one_pair, split_pair = (
        [exchange(replace(record_at(step), signing_pairs=pairs)) for step in WITHOUT_SPLIT] for pairs in SigningPairs
    )
    opens = {SigningPairs.ONE_PAIR: Step.SIGN_SERVING, SPLIT: Step.PREPARED}
    for pairs, found in ((SigningPairs.ONE_PAIR, one_pair), (SPLIT, split_pair)):
        first, last = (WITHOUT_SPLIT.index(step) for step in (opens[pairs], Step.DROP_OLD))
        expected = ["NotOpen"] * first + ["Open"] * (last - first) + ["Closed"] * (len(WITHOUT_SPLIT) - last)
        assert found == expected, pairs
    assert exchange(split(Step.SIGN_BY_OLD)) == ""


def test_the_status_names_split_pairs() -> None:
    assert rotation_status(split(SIGN), None)["signingPairs"] == "Split"
    assert "signingPairs" not in rotation_status(record_at(Step.PREPARED), None)


def test_the_trust_ages_anew_when_controller_managers_change() -> None:
    """Both are files of the same Machines: what started before counts as older."""
    record = split(SIGN, times={**split(SIGN).times, Moment.TRUST_WRITTEN: NOW})
    facts = with_machine(facts_at(SIGN), started=NOW - timedelta(seconds=1))
    assert isinstance(PROOF_OF[Step.SERVERS_TRUST](record, facts), NotProven)


# Restored records


def test_a_rollout_that_a_machine_would_not_join_does_not_begin() -> None:
    """``<cluster>-ca`` holds the old CA by a backup, and some API servers present the new one."""
    began = split(SIGN, times={Moment.STEP: NOW, Moment.TRUST_WRITTEN: START})
    facts = with_servers(facts_at(SIGN), server(Presented.OLD_LINKED), server(Presented.NEW, name="control-plane-2"))
    move = next_move(began, facts)
    assert isinstance(move, Wait)
    assert move.reason == UNSAFE
    assert move.proof.message.startswith("I7")
    assert isinstance(next_move(began, facts_at(SIGN)), Advance)


def test_machines_that_were_switched_already_need_no_rollout() -> None:
    began = split(SIGN, times={Moment.STEP: NOW, Moment.TRUST_WRITTEN: START})
    new = with_servers(facts_at(SIGN), *(server(Presented.NEW, name=name) for name in ("a", "b")))
    move = next_move(began, new)
    assert isinstance(move, Advance)
    assert move.record.step is Step.NODES_TRUST
    some = with_servers(facts_at(SIGN), server(Presented.NEW), unseen={"control-plane-2": "timeout"})
    for facts in (some, with_servers(facts_at(SIGN)), replace(new, servers=NotObserved("timeout"))):
        assert isinstance(next_move(began, facts), Wait)
