"""The one move that comes next, and what orders do."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from signer.authority.presented import Presented
from signer.rotation import plan
from signer.rotation.authorities import AuthorityKind, NotMade, Role
from signer.rotation.desired import LINK_LIFETIME, SplitPairs, WriteAuthority, WriteSigning, WriteTrust
from signer.rotation.facts import Absent, Facts, HeldCertificate, HeldPair, NotObserved, TrustFacts, Unusable
from signer.rotation.operations import Gate, NeverRotated, Operation, OperationRejected, Order
from signer.rotation.phases import (
    BACK,
    FORWARD,
    HOLDING_STEPS,
    Phase,
    RollbackAvailable,
    SigningPairs,
    Step,
    TakesBack,
    forward,
)
from signer.rotation.plan import (
    FOREIGN_AUTHORITY,
    HELD,
    PAUSED,
    REASONS,
    TITLES,
    UNSAFE,
    WAITING_FOR_COMPLETION,
    Advance,
    Finished,
    Make,
    Move,
    Wait,
    abandoned,
    carry_out,
    next_move,
    rollback_possible,
    started,
)
from signer.rotation.proofs import decided_by_record
from signer.rotation.record import Moment, NotYet, RotationRecord, SkippedGate, WorkersRollout
from tests.unit.signer.rotation.model_world import START, first_record, reference
from tests.unit.signer.rotation.situations import (
    NEW,
    NOW,
    OLD,
    facts_at,
    node,
    pair,
    record_at,
    server,
    with_machine,
    with_pair,
    with_secret,
    with_servers,
    without,
)

CA, ETCD = AuthorityKind.CLUSTER, AuthorityKind.ETCD
UNKNOWN = NotObserved("timeout")


def advanced(move: Move) -> RotationRecord:
    assert isinstance(move, Advance), move
    return move.record


def waits(move: Move, reason: str) -> str:
    assert isinstance(move, Wait), move
    assert move.reason == reason
    return move.proof.message


def test_every_step_has_a_title() -> None:
    assert TITLES.keys() == set(Step)
    assert len(set(REASONS)) == len(REASONS)
    assert not set(REASONS) & {step.value for step in Step}


@pytest.mark.parametrize(
    "step", [step for step in Step if step not in (Step.NEW_AUTHORITY, Step.PREPARED, Step.FORGET, Step.DISCARD_NEW)]
)
def test_a_proven_step_is_followed_by_the_next_one(step: Step) -> None:
    record = record_at(step)
    direction = BACK if step in BACK else forward(record.signing_pairs)
    after = advanced(next_move(record, facts_at(step)))
    assert after.step is direction[direction.index(step) + 1]
    assert after.sequence == record.sequence + 1
    assert after.at(Moment.STEP) == NOW
    assert after.phase is (Phase.PREPARED if step is Step.NODES_TRUST else record.phase)
    assert (after.at(Moment.PREPARED) == NOW) is (step is Step.NODES_TRUST)
    assert (after.at(Moment.SWITCHED) == NOW) is (step is Step.SWITCH)


def test_controller_managers_have_a_step_where_they_have_a_pair_of_their_own() -> None:
    """The record knows of it before anything is written, so that a rollback does, too."""
    one, split = (record_at(Step.SIGN_CLIENTS, signing_pairs=pairs) for pairs in SigningPairs)
    facts = facts_at(Step.SIGN_CLIENTS)
    after = advanced(next_move(one, facts))
    assert (after.step, after.at(Moment.CONTROLLER_MANAGERS)) == (Step.NODES_TRUST, NotYet())
    after = advanced(next_move(split, facts))
    assert (after.step, after.at(Moment.CONTROLLER_MANAGERS)) == (Step.CONTROLLER_MANAGERS_SIGN, NOW)
    assert next_move(after, facts) == Make(WriteSigning(SplitPairs(NEW, OLD)))
    written = facts_at(Step.CONTROLLER_MANAGERS_SIGN)
    later = replace(after, times={**after.times, Moment.STEP: NOW + timedelta(seconds=1)})
    assert advanced(next_move(later, written)).at(Moment.TRUST_WRITTEN) == NOW


@pytest.mark.parametrize(
    ("step", "role", "phase"),
    [(Step.FORGET, OLD, Phase.COMPLETED), (Step.DISCARD_NEW, NEW, Phase.ROLLED_BACK)],
)
def test_the_last_step_ends_it(step: Step, role: Role, phase: Phase) -> None:
    facts = facts_at(step)
    for kind in AuthorityKind:
        facts = with_pair(facts, kind, role, HeldCertificate(reference(role, kind)))
    after = advanced(next_move(record_at(step), facts))
    assert (after.phase, after.step, after.at(Moment.FINISHED)) == (phase, step, NOW)
    assert next_move(after, facts) == Finished()


def test_the_record_seals_the_new_authorities_before_anything_names_them() -> None:
    record, facts = record_at(Step.NEW_AUTHORITY), facts_at(Step.NEW_AUTHORITY)
    sealed = advanced(next_move(record, facts))
    assert sealed.step is Step.NEW_AUTHORITY
    assert [one.new for one in sealed.authorities] == [reference(NEW, kind) for kind in AuthorityKind]
    assert advanced(next_move(sealed, facts)).step is Step.ACCEPT


@pytest.mark.parametrize("step", Step)
def test_a_paused_cluster_is_left_alone(step: Step) -> None:
    changed = with_secret(facts_at(step), CA, pair(OLD if step is Step.SERVERS_PRESENT else NEW))
    waits(next_move(record_at(step), replace(changed, paused=True)), PAUSED)


# A tenant's edits


@pytest.mark.parametrize("kind", AuthorityKind)
@pytest.mark.parametrize("step", Step)
def test_a_foreign_authority_in_a_secret_stops_everything(step: Step, kind: AuthorityKind) -> None:
    foreign = replace(reference(OLD), digest="f" * 64)
    for held in (
        HeldPair((foreign,), foreign),
        HeldPair((reference(OLD, kind), foreign), reference(OLD, kind)),
        Unusable("tls.key is missing"),
        Absent(),
        HeldCertificate(reference(OLD, kind)),
    ):
        message = waits(next_move(record_at(step), with_secret(facts_at(step), kind, held)), FOREIGN_AUTHORITY)
        assert f"authority {kind.value}" in message
        assert ("tls.key is missing" in message) is isinstance(held, Unusable)


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("step", [step for step in Step if step is not Step.NEW_AUTHORITY])
def test_a_foreign_pair_stops_everything(step: Step, role: Role) -> None:
    """One that another wrote, one that was swapped with the other, and one with a certificate too many."""
    other = NEW if role is OLD else OLD
    for held in (Unusable("this controller did not put it there"), pair(other), HeldCertificate(reference(other))):
        waits(next_move(record_at(step), with_pair(facts_at(step), CA, role, held)), FOREIGN_AUTHORITY)
    two = HeldPair((reference(role), reference(other)), reference(role))
    waits(next_move(record_at(step), with_pair(facts_at(step), CA, role, two)), FOREIGN_AUTHORITY)


def test_a_pair_that_was_there_before_the_first_is_not_taken() -> None:
    """A tenant who guesses the name chooses no CA: without the seal the pair is unusable."""
    record, facts = record_at(Step.NEW_AUTHORITY), facts_at(Step.NEW_AUTHORITY)
    waits(next_move(record, with_pair(facts, CA, NEW, Unusable("not sealed"))), FOREIGN_AUTHORITY)
    waits(next_move(record, with_pair(facts, CA, OLD, pair(NEW))), FOREIGN_AUTHORITY)
    keyless = with_pair(facts, CA, NEW, HeldCertificate(reference(NEW)))
    after = advanced(next_move(record, keyless))
    assert isinstance(after.authority(CA).new, NotMade)
    assert "no key any more" in waits(next_move(after, keyless), Step.NEW_AUTHORITY.value)


def test_an_older_record_writes_nothing_that_servers_refuse() -> None:
    """A restored backup, or a replay: its seal is valid."""
    facts = facts_at(Step.DROP_OLD)
    for kind in AuthorityKind:
        if kind is not AuthorityKind.SERVICE_ACCOUNT:
            facts = with_pair(facts, kind, OLD, HeldCertificate(reference(OLD, kind)))
    for step in FORWARD[FORWARD.index(Step.ACCEPT) : FORWARD.index(Step.SWITCH)]:
        move = next_move(record_at(step), facts)
        assert not isinstance(move, Advance), step
        assert not (isinstance(move, Make) and isinstance(move.write, WriteAuthority)), step
    with_keys = facts_at(Step.DROP_OLD)
    for step in FORWARD[FORWARD.index(Step.PUBLISH_TRUST) : FORWARD.index(Step.SWITCH)]:
        broken = "I2" if step is Step.CONTROLLER_MANAGERS_SIGN else "I7"
        assert waits(next_move(record_at(step), with_keys), UNSAFE).startswith(broken)


# Waiting


def test_a_step_that_is_not_proven_waits() -> None:
    for step in (Step.SERVERS_TRUST, Step.SERVERS_PRESENT, Step.NODES_RETURN):
        move = next_move(record_at(step), replace(facts_at(step), servers=UNKNOWN))
        assert "timeout" in waits(move, step.value)


def test_workers_that_the_owner_replaces_have_a_phase() -> None:
    facts = replace(facts_at(Step.NODES_TRUST), nodes=(node(),))
    record = record_at(
        Step.NODES_TRUST, phase=Phase.PREPARING_WITHOUT_WORKERS_ROLLOUT, workers_rollout=WorkersRollout.BY_OWNER
    )
    waiting = advanced(next_move(record, facts))
    assert (waiting.phase, waiting.step) == (Phase.WAITING_FOR_WORKERS_ROLLOUT, Step.NODES_TRUST)
    waits(next_move(waiting, facts), "NodesTrust")
    waits(next_move(record_at(Step.NODES_TRUST), facts), "NodesTrust")
    by_owner = record_at(Step.SERVERS_TRUST, workers_rollout=WorkersRollout.BY_OWNER)
    waits(next_move(by_owner, replace(facts_at(Step.SERVERS_TRUST), servers=UNKNOWN)), "ServersTrust")


def test_a_prepared_rotation_waits_for_a_person() -> None:
    record, facts = record_at(Step.PREPARED), facts_at(Step.PREPARED)
    assert "order complete-ca-rotation" in waits(next_move(record, facts), WAITING_FOR_COMPLETION)
    message = waits(next_move(record, replace(facts, unattested=("m",))), WAITING_FOR_COMPLETION)
    assert "never attested: m" in message


@pytest.mark.parametrize("step", [Step.PUBLISH_TRUST, Step.SWITCH, Step.DROP_OLD, Step.RESTORE_OLD])
def test_the_time_at_which_all_was_written_is_recorded_when_all_was_seen(step: Step) -> None:
    record = record_at(step)
    earlier = replace(record, times={**record.times, Moment.STEP: START + timedelta(hours=1)})
    after = advanced(next_move(earlier, facts_at(step)))
    assert (after.step, after.at(Moment.TRUST_WRITTEN)) == (step, NOW)
    assert "timeout" in waits(next_move(earlier, replace(facts_at(step), cluster_info=UNKNOWN)), step.value)
    assert advanced(next_move(without(record, Moment.TRUST_WRITTEN), facts_at(step))).step is step
    assert advanced(next_move(record, facts_at(step))).step is not step
    assert advanced(next_move(without(record, Moment.STEP), facts_at(step))).step is not step


@pytest.mark.parametrize("step", [Step.ACCEPT, Step.SERVERS_TRUST, Step.SERVERS_PRESENT, Step.PRUNE, Step.NODES_RETURN])
def test_other_steps_leave_that_time_alone(step: Step) -> None:
    """Machines that are older than it would count as old again."""
    later = record_at(step, times={Moment.STEP: START + timedelta(hours=1)})
    assert advanced(next_move(later, facts_at(step))).at(Moment.TRUST_WRITTEN) == START


LINK_ENDS = NOW + LINK_LIFETIME


@pytest.mark.parametrize("step", [Step.SERVERS_TRUST, Step.SIGN_CLIENTS, Step.NODES_TRUST, Step.PREPARED])
def test_a_link_that_is_younger_than_the_trust_was_written_anew(step: Step) -> None:
    facts = facts_at(step)
    assert isinstance(facts.trust, TrustFacts)
    younger = replace(facts, trust=replace(facts.trust, link_not_after=LINK_ENDS))
    after = advanced(next_move(record_at(step), younger))
    assert (after.step, after.phase, after.at(Moment.TRUST_WRITTEN)) == (step, record_at(step).phase, NOW)
    again = next_move(after, replace(younger, now=NOW + timedelta(seconds=1)))
    assert not isinstance(again, Advance) or again.record.step is not step, "it is recorded once"
    older = replace(facts, trust=replace(facts.trust, link_not_after=START + LINK_LIFETIME))
    assert next_move(record_at(step), older) == next_move(record_at(step), facts)


@pytest.mark.parametrize("step", [Step.SWITCH, Step.SERVERS_PRESENT, Step.RESTORE_OLD])
def test_no_other_link_is_waited_for(step: Step) -> None:
    """Machines that join in these steps do not need it."""
    facts = facts_at(step)
    assert isinstance(facts.trust, TrustFacts)
    younger = replace(facts, trust=replace(facts.trust, link_not_after=LINK_ENDS))
    assert next_move(record_at(step), younger) == next_move(record_at(step), facts)


def test_a_write_that_is_missing_comes_before_the_proof() -> None:
    facts = replace(facts_at(Step.PUBLISH_TRUST), trust=Absent())
    move = next_move(record_at(Step.PUBLISH_TRUST), facts)
    assert isinstance(move, Make)
    assert isinstance(move.write, WriteTrust)


def test_an_unsafe_write_is_not_made() -> None:
    facts = with_servers(facts_at(Step.PREPARED), server(Presented.OLD_LINKED, new=False))
    assert waits(next_move(record_at(Step.SWITCH), facts), UNSAFE).startswith("I2")


def test_a_step_whose_proof_is_defective_is_not_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "PROOF_OF", dict.fromkeys(Step, decided_by_record))
    refuses = with_servers(facts_at(Step.SERVERS_TRUST), server(Presented.OLD_LINKED, new=False))
    assert waits(next_move(record_at(Step.SERVERS_TRUST), refuses), UNSAFE).startswith("I2")


# The way back


def test_a_rollback_turns_into_one_of_clients_when_a_server_presents_the_new_ca() -> None:
    record = record_at(Step.SIGN_BY_OLD)
    switched = with_secret(facts_at(Step.SIGN_BY_OLD), CA, pair(NEW))
    for facts in (
        with_servers(switched, server(Presented.NEW)),
        with_servers(switched, server(Presented.OLD_LINKED), unseen={"b": "away"}),
        with_machine(switched, joined=False),
        replace(switched, servers=UNKNOWN),
    ):
        after = advanced(next_move(record, facts))
        assert (after.step, after.held_at) == (Step.SIGN_BY_OLD, Step.SWITCH)
    safe = next_move(record, switched)
    assert isinstance(safe, Make)
    old = with_servers(facts_at(Step.SIGN_BY_OLD), server(Presented.NEW))
    assert advanced(next_move(record, old)).step is Step.RESTORE_OLD, "the Secrets never held the new CA"


def test_a_rollback_of_clients_waits_for_a_person() -> None:
    record = record_at(Step.SIGN_BY_OLD, held_at=Step.SERVERS_PRESENT)
    facts = facts_at(Step.SERVERS_PRESENT)
    assert "worker-1" in waits(next_move(record, facts), HELD)
    returned = replace(facts, nodes=(node(evidence=NEW),))
    assert "retry-ca-rotation" in waits(next_move(record, returned), HELD)


@pytest.mark.parametrize("step", FORWARD[: FORWARD.index(Step.SWITCH)])
def test_before_the_switch_everything_is_taken_back_whatever_the_secret_holds(step: Step) -> None:
    """A damaged Secret must not turn a rollback into one that goes on to the new CA."""
    facts = replace(with_secret(facts_at(step), CA, Unusable("edited")), servers=UNKNOWN)
    assert rollback_possible(record_at(step), facts) is RollbackAvailable.FULL
    after = carried_out(Operation.ROLLBACK, record_at(step), facts)
    assert (after.phase, after.step) == (Phase.ROLLING_BACK, Step.SIGN_BY_OLD)
    assert not isinstance(after.held_at, Step)


@pytest.mark.parametrize("takes_back", TakesBack)
@pytest.mark.parametrize("step", [step for step in FORWARD if step in HOLDING_STEPS])
def test_after_the_switch_it_is_taken_back_as_far_as_servers_allow(step: Step, takes_back: TakesBack) -> None:
    record = record_at(step, takes_back=takes_back)
    facts = with_secret(facts_at(step), CA, pair(NEW))
    full = step is Step.SWITCH or takes_back is TakesBack.LINKED
    linked = with_servers(facts, server(Presented.NEW_LINKED))
    expected = RollbackAvailable.FULL if full else RollbackAvailable.CLIENTS_ONLY
    assert rollback_possible(record, linked) is expected
    assert rollback_possible(record, with_servers(facts, server(Presented.OLD_LINKED))) is (
        RollbackAvailable.FULL if step is not Step.SIGN_SERVING else expected
    )
    assert rollback_possible(record, with_servers(facts, server(Presented.NEW))) is RollbackAvailable.CLIENTS_ONLY
    after = carried_out(Operation.ROLLBACK, record, with_servers(facts, server(Presented.NEW)))
    assert (after.step, after.held_at) == (Step.SIGN_BY_OLD, step)
    again = carried_out(Operation.RETRY, after, facts, number=3)
    assert (again.phase, again.step, isinstance(again.held_at, Step)) == (Phase.COMPLETING, step, False)


def test_what_a_damaged_secret_leaves_after_the_switch() -> None:
    for held in (Unusable("edited"), Absent()):
        facts = with_secret(facts_at(Step.SWITCH), CA, held)
        assert rollback_possible(record_at(Step.SWITCH), facts) is RollbackAvailable.FULL
        new = with_servers(facts, server(Presented.NEW))
        assert rollback_possible(record_at(Step.SWITCH), new) is RollbackAvailable.CLIENTS_ONLY


@pytest.mark.parametrize("step", [Step.RETIRE_OLD, Step.FORGET, *BACK])
def test_nothing_is_taken_back_twice_or_too_late(step: Step) -> None:
    for facts in (facts_at(step), replace(with_secret(facts_at(step), CA, pair(NEW)), servers=UNKNOWN)):
        assert rollback_possible(record_at(step), facts) is RollbackAvailable.NONE


# Orders


def carried_out(
    operation: Operation, record: RotationRecord, facts: Facts, *, number: int = 2, stalled: bool = False, **order: Any
) -> RotationRecord:
    return carry_out(Order(operation, f"uid/{number}", **order), record, facts, stalled=stalled)


def test_completion() -> None:
    after = carried_out(Operation.COMPLETE, record_at(Step.PREPARED), facts_at(Step.PREPARED))
    assert (after.phase, after.step, after.operation) == (Phase.COMPLETING, Step.SWITCH, "uid/2")
    assert after.at(Moment.COMPLETION_TRIGGERED) == after.at(Moment.STEP) == NOW


def test_completion_is_rejected_while_the_switch_is_not_safe() -> None:
    record, facts = record_at(Step.PREPARED), facts_at(Step.PREPARED)
    lagging = replace(facts, nodes=(node(),), unattested=("m",))
    with pytest.raises(OperationRejected, match="worker-1"):
        carried_out(Operation.COMPLETE, record, lagging)
    after = carried_out(Operation.COMPLETE, record, lagging, skip_gates=("unreachable-nodes",))
    assert after.skipped == (SkippedGate(Gate.UNREACHABLE_NODES, NOW),)
    with pytest.raises(OperationRejected, match="timeout"):
        carried_out(
            Operation.COMPLETE,
            record,
            replace(facts, servers=UNKNOWN),
            skip_gates=tuple(Gate(one).value for one in Gate),
        )


def test_the_same_order_again_changes_nothing() -> None:
    record = record_at(Step.PREPARED, operation="uid/2")
    assert carried_out(Operation.COMPLETE, record, facts_at(Step.PREPARED)) is record


def test_an_order_that_is_not_possible_now_changes_nothing() -> None:
    for operation in (Operation.COMPLETE, Operation.START, Operation.RETRY):
        with pytest.raises(OperationRejected):
            carried_out(operation, record_at(Step.ACCEPT), facts_at(Step.ACCEPT))
    with pytest.raises(OperationRejected, match="nothing can be rolled back"):
        carried_out(Operation.ROLLBACK, record_at(Step.RETIRE_OLD), facts_at(Step.RETIRE_OLD))


def test_skipped_gates_are_kept_once_for_ever() -> None:
    before = (SkippedGate(Gate.OVERLAP, START),)
    record = record_at(Step.ACCEPT, skipped=before)
    after = carried_out(
        Operation.RETRY, record, facts_at(Step.ACCEPT), stalled=True, skip_gates=("overlap", "trust-age", "machines")
    )
    assert after.skipped == (*before, SkippedGate(Gate.MACHINES, NOW), SkippedGate(Gate.TRUST_AGE, NOW))
    assert (after.phase, after.step) == (record.phase, record.step)
    with pytest.raises(OperationRejected, match="is no gate"):
        carried_out(Operation.RETRY, record, facts_at(Step.ACCEPT), stalled=True, skip_gates=("x",))


@pytest.mark.parametrize("step", Step)
def test_a_person_takes_over_at_any_step(step: Step) -> None:
    """It needs no facts, and nothing else of the record changes."""
    record = record_at(step, sequence=40)
    order = Order(Operation.ABANDON, "uid/9")
    after = abandoned(order, record, NOW + timedelta(microseconds=5))
    assert (after.phase, after.step, after.at(Moment.FINISHED)) == (Phase.ABANDONED, step, NOW)
    assert after.authorities == record.authorities
    assert next_move(after, facts_at(step)) == Finished()
    assert abandoned(order, after, NOW) is after
    with pytest.raises(OperationRejected, match="the rotation is Abandoned: there is nothing to abandon"):
        abandoned(Order(Operation.ABANDON, "uid/10"), after, NOW)


def test_times_of_orders_are_whole_seconds() -> None:
    facts = replace(facts_at(Step.PREPARED), now=NOW + timedelta(microseconds=5))
    after = carried_out(Operation.COMPLETE, record_at(Step.PREPARED), facts, skip_gates=("overlap",))
    assert after.at(Moment.COMPLETION_TRIGGERED) == after.skipped[0].at == NOW


@pytest.mark.parametrize(("step", "phase"), [(Step.FORGET, Phase.COMPLETED), (Step.DISCARD_NEW, Phase.ROLLED_BACK)])
def test_another_rotation_goes_on_counting(step: Step, phase: Phase) -> None:
    order = Order(Operation.START, "uid/9")
    over = record_at(step, phase=phase, sequence=40)
    assert started(order, over, first_record()) == replace(first_record(), sequence=41)
    assert started(order, NeverRotated(), first_record()) == first_record()
    with pytest.raises(OperationRejected, match="complete it or roll it back"):
        started(order, record_at(Step.ACCEPT), first_record())
