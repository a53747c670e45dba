"""The link certificate is renewed as long as API servers present it, and they are given the renewed one."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from signer.model.fields import format_time
from signer.model.rotation_waits import Waits
from signer.rotation.authorities import AuthorityKind
from signer.rotation.conditions import rotation_conditions
from signer.rotation.desired import LINK_LIFETIME
from signer.rotation.facts import Absent, Facts, Link, RenewalFacts, TrustFacts
from signer.rotation.management import RENEWED_BEFORE_END
from signer.rotation.operations import Operation
from signer.rotation.phases import Phase, Step, TakesBack
from signer.rotation.plan import Advance, Wait, next_move
from signer.rotation.proofs import PROOF_OF, NotProven, Proven
from signer.rotation.reconciler import _servers_must_change
from signer.rotation.record import Moment, NotYet, RotationRecord
from signer.rotation.rotations import Verified
from signer.rotation.status import rotation_status
from tests.unit.signer.rotation.fault_world import Controller, FaultWorld, at_step, certificates, go_on, in_phase, run
from tests.unit.signer.rotation.model_world import START
from tests.unit.signer.rotation.situations import facts_at, record_at, without

ONE: Final = (AuthorityKind.CLUSTER,)
LATER: Final = START + timedelta(days=50)
RENEWED: Final = {Moment.LINK_RENEWED: LATER, Moment.TRUST_WRITTEN: LATER}


def later_rotation(step: Step, **changes: Any) -> RotationRecord:
    """The old CA certifies the new one."""
    record = record_at(step, kinds=ONE)
    times = {**record.times, Moment.SWITCHED: START + timedelta(hours=1), **changes.pop("times", {})}
    return replace(record, takes_back=TakesBack.LINKED, times=times, **changes)


def renewed(step: Step, record: RotationRecord) -> Facts:
    """The published link was made just now; the Machines are older."""
    facts = facts_at(step, now=LATER, renewal=RenewalFacts(("control-plane-1",), "older than the link"))
    assert isinstance(facts.trust, TrustFacts)
    link = Link.OLD_WITH_NEW if record.goes_back else Link.NEW_WITH_OLD
    return replace(facts, trust=replace(facts.trust, link=link, link_not_after=LATER + LINK_LIFETIME))


@pytest.mark.parametrize("step", [Step.SERVERS_PRESENT, Step.SIGN_SERVING, Step.NODES_RETURN])
def test_older_machines_are_replaced(step: Step) -> None:
    record = later_rotation(step)
    facts = renewed(step, record)
    move = next_move(record, facts)
    assert isinstance(move, Advance)
    after = move.record
    assert (after.step, after.at(Moment.LINK_RENEWED), after.at(Moment.TRUST_WRITTEN)) == (step, LATER, LATER)
    assert after.at(Moment.LINK_ENDS) == LATER + LINK_LIFETIME
    assert after.machines_made_after == LATER
    again = next_move(after, facts)
    assert isinstance(again, Wait), "it is recorded once, and Machines with the former link hold the step"
    assert again.proof == NotProven("older than the link: control-plane-1", ("control-plane-1",))
    assert _servers_must_change(after, facts)
    assert not isinstance(next_move(after, replace(facts, renewal=RenewalFacts((), ""))), Wait)


def test_while_a_person_is_waited_for() -> None:
    """After a rollback of clients only, which may stay for months."""
    held = later_rotation(Step.SIGN_BY_OLD, phase=Phase.ROLLING_BACK, held_at=Step.SIGN_SERVING)
    facts = renewed(Step.SIGN_SERVING, replace(held, step=Step.SIGN_SERVING))
    move = next_move(held, facts)
    assert isinstance(move, Advance)
    assert move.record.machines_made_after == LATER
    assert _servers_must_change(move.record, facts)
    assert not _servers_must_change(held, facts)
    assert not _servers_must_change(move.record, replace(facts, renewal=RenewalFacts((), "")))


@pytest.mark.parametrize("step", [Step.SERVERS_PRESENT, Step.SIGN_SERVING, Step.NODES_RETURN])
def test_without_a_renewal_nothing_more_is_replaced(step: Step) -> None:
    facts = facts_at(step, renewal=RenewalFacts(("control-plane-1",), "older"))
    record = record_at(step, kinds=ONE)
    assert PROOF_OF[step](record, facts) == Proven()
    if step is not Step.SERVERS_PRESENT:
        assert not _servers_must_change(record, facts)
    assert isinstance(record_at(Step.SIGN_SERVING).machines_made_after, NotYet)


def test_a_renewal_before_the_switch_replaces_nothing_after_it() -> None:
    """The rollout of the second phase has replaced all of them."""
    record = later_rotation(Step.SIGN_SERVING, times={**RENEWED, Moment.SWITCHED: LATER + timedelta(hours=1)})
    assert isinstance(record.machines_made_after, NotYet)
    assert replace(record, step=Step.SERVERS_PRESENT).machines_made_after == LATER + timedelta(hours=1)


# When it ends


@pytest.mark.parametrize("step", [Step.SWITCH, Step.SERVERS_PRESENT, Step.SIGN_SERVING, Step.DROP_OLD])
def test_the_status_shows_the_end_after_the_switch(step: Step) -> None:
    """Secret ``<cluster>-trust`` has no link by then, and API servers still present it."""
    record, ends = record_at(step), START + LINK_LIFETIME
    assert "linkNotAfter" not in rotation_status(record, facts_at(step))
    known = replace(record, times={**record.times, Moment.LINK_ENDS: ends})
    for facts in (facts_at(step), None):
        assert rotation_status(known, facts)["linkNotAfter"] == format_time(ends)


@pytest.mark.parametrize("step", [Step.PUBLISH_TRUST, Step.SWITCH])
def test_the_end_is_recorded_with_the_trust(step: Step) -> None:
    record = record_at(step)
    facts = facts_at(step)
    move = next_move(without(record, Moment.TRUST_WRITTEN), facts)
    assert isinstance(move, Advance)
    assert isinstance(facts.trust, TrustFacts)
    ends = facts.trust.link_not_after
    assert move.record.at(Moment.LINK_ENDS) == (NotYet() if isinstance(ends, Absent) else ends)
    assert isinstance(move.record.at(Moment.LINK_RENEWED), NotYet)


def test_on_the_way_back_the_former_end_is_shown() -> None:
    """A link that is written again then is not in the API servers that run."""
    record = replace(record_at(Step.RESTORE_OLD), times={**record_at(Step.RESTORE_OLD).times, Moment.LINK_ENDS: LATER})
    facts = facts_at(Step.RESTORE_OLD)
    assert isinstance(facts.trust, TrustFacts)
    written = replace(facts, trust=replace(facts.trust, link_not_after=LATER + LINK_LIFETIME))
    assert rotation_status(record, written)["linkNotAfter"] == format_time(LATER)
    earlier = without(record, Moment.TRUST_WRITTEN)
    move = next_move(earlier, written)
    assert isinstance(move, Advance)
    assert move.record.at(Moment.LINK_ENDS) == LATER


def test_a_person_is_told_how_long_api_servers_present_it_after_a_rollback() -> None:
    record = replace(record_at(Step.DISCARD_NEW), phase=Phase.ROLLED_BACK)
    ended = replace(record, times={**record.times, Moment.LINK_ENDS: START + LINK_LIFETIME})
    for one, says in ((record, ""), (ended, f"before {START + LINK_LIFETIME:%Y-%m-%d}")):
        (progressing, *_) = rotation_conditions(Verified(one, "uid", "1"), None, None)
        assert progressing.reason == "RolledBack"
        assert says in progressing.message
    told = rotation_conditions(Verified(record, "uid", "1"), None, None)[0].message
    assert told == "the old CA signs, as before the rotation"


# With the writer, the observer and certificates


def test_a_link_is_renewed_in_a_long_overlap() -> None:
    """Of a rotation after the first one, in which the old CA certifies the new one."""

    async def scenario() -> None:
        world = FaultWorld.new(kinds=ONE, servers=2, nodes=1, takes_back=TakesBack.LINKED)
        world.state.waits = Waits(overlap=timedelta(days=60))
        controller = await Controller.started(world)
        world.order(Operation.START)
        await go_on(world, controller, in_phase(Phase.PREPARED))
        world.order(Operation.COMPLETE)
        await go_on(world, controller, at_step(Step.SIGN_SERVING))
        first = world.secret("trust")["link.crt"]
        assert {one.link for one in world.state.servers} == set(certificates(first))
        world.wait((LINK_LIFETIME - RENEWED_BEFORE_END).total_seconds() + 60)
        await controller.settle()
        second = world.secret("trust")["link.crt"]
        assert second != first
        for _ in range(3):
            await world.progress(controller)
            await controller.settle()
        assert world.now_record.step is Step.SIGN_SERVING
        assert {one.link for one in world.state.servers} == set(certificates(second))
        world.wait(timedelta(days=30).total_seconds())
        await go_on(world, controller, in_phase(Phase.COMPLETED))

    run(scenario())


def test_a_link_is_renewed_on_the_way_back() -> None:
    async def scenario() -> None:
        world = FaultWorld.new(kinds=ONE, servers=2, nodes=1)
        controller = await Controller.started(world)
        world.order(Operation.START)
        await go_on(world, controller, in_phase(Phase.PREPARED))
        first = world.secret("trust")["link.crt"]
        assert {one.link for one in world.state.servers} == set(certificates(first))
        world.order(Operation.ROLLBACK)
        while world.now_record.step is not Step.NODES_RETURN:
            await controller.settle()
        world.wait((LINK_LIFETIME - RENEWED_BEFORE_END).total_seconds() + 60)
        await controller.settle()
        second = world.secret("trust")["link.crt"]
        assert second != first
        await go_on(world, controller, at_step(Step.WITHDRAW_TRUST))
        assert {one.link for one in world.state.servers} <= {*certificates(second), b""}
        assert not {one.link for one in world.state.servers} & set(certificates(first))

    run(scenario())
