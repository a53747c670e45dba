"""What people see of a rotation, in every state in which a rotation can be."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer.model.cluster import ClusterKey
from signer.rotation.conditions import rotation_conditions
from signer.rotation.operations import OPERATION_ANNOTATION, Operation
from signer.rotation.phases import BACK, WITHOUT_SPLIT, Phase, RollbackAvailable, SigningPairs, Step, TakesBack, forward
from signer.rotation.plan import Finished, Wait, carry_out, next_move
from signer.rotation.record import RotationRecord
from signer.rotation.rotations import Known, Unverified, Verified
from signer.rotation.status import rotation_status
from signer.rotation.view import Attention, NoRotation, RotationView, StepState, View, rotation_view
from tests.unit.signer.rotation.model_world import KEY, ModelWorld
from tests.unit.signer.rotation.records import RECORDS, rotation_object

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


def policy_of(world: ModelWorld, known: Known | None = None) -> dict[str, Any]:
    """The policy as the controller writes it after a pass."""
    facts = world.facts()
    move = next_move(world.record, facts)
    conditions = rotation_conditions(known or Verified(world.record, "uid", "1"), facts, move)
    return {
        "status": {
            "conditions": [
                {"type": str(one.type), "status": one.status, "reason": one.reason, "message": one.message}
                for one in conditions
            ],
            "credentials": {"rotation": {"certificateAuthorities": rotation_status(world.record, facts)}},
        }
    }


def view_of(world: ModelWorld) -> RotationView:
    view = rotation_view(KEY, policy_of(world), rotation_object(world.record))
    assert isinstance(view, RotationView)
    return view


def progress(world: ModelWorld) -> None:
    """The world moves as it would by itself."""
    world.roll_one()
    for number in range(len(world.nodes)):
        world.renew(number)
    world.wait(2 * 86400)


def passes(world: ModelWorld, most: int = 400) -> None:
    for _ in range(most):
        if isinstance(world.step(), Wait | Finished):
            if world.record.phase is Phase.PREPARED or world.record.phase.is_over:
                return
            progress(world)
    raise AssertionError("no end")


def test_split_pairs_have_a_step_more() -> None:
    world = ModelWorld(signing_pairs=SigningPairs.SPLIT)
    passes(world)
    assert [one.step for one in view_of(world).steps] == list(forward(SigningPairs.SPLIT))
    by_status = rotation_view(KEY, policy_of(world), {})
    assert isinstance(by_status, RotationView)
    assert [one.step for one in by_status.steps] == list(forward(SigningPairs.SPLIT))


def test_a_whole_rotation() -> None:
    world = ModelWorld()
    passes(world)
    prepared = view_of(world)
    assert (prepared.phase, prepared.attention) == (Phase.PREPARED, Attention.PERSON)
    assert [one.step for one in prepared.steps] == list(WITHOUT_SPLIT)
    assert [one.state for one in prepared.steps[5:8]] == [StepState.PROVEN, StepState.CURRENT, StepState.AHEAD]
    assert prepared.waits_for
    assert prepared.nodes.trust_new == prepared.nodes.total == 2
    assert {server.accepts_old for server in prepared.servers} == {"Accepted"}
    assert prepared.rollback_available is RollbackAvailable.FULL
    world.wait(4 * 3600)
    order = world.order(Operation.COMPLETE, 2)
    world.record = carry_out(order, world.record, world.facts(), stalled=False)
    passes(world)
    completed = view_of(world)
    assert (completed.phase, completed.attention, completed.waits_for) == (Phase.COMPLETED, Attention.NONE, "")
    assert {one.state for one in completed.steps} == {StepState.PROVEN}


def test_the_way_back() -> None:
    world = ModelWorld()
    passes(world)
    world.record = carry_out(world.order(Operation.ROLLBACK, 2), world.record, world.facts(), stalled=False)
    view = view_of(world)
    assert [one.step for one in view.steps] == list(BACK)
    assert view.steps[0].state is StepState.CURRENT
    assert view.rollback_available is RollbackAvailable.NONE


def test_a_rollback_of_clients_waits_for_a_person() -> None:
    world = ModelWorld(takes_back=TakesBack.NOT_LINKED)
    passes(world)
    world.wait(4 * 3600)
    world.record = carry_out(world.order(Operation.COMPLETE, 2), world.record, world.facts(), stalled=False)
    while world.record.step is not Step.SERVERS_PRESENT:
        if isinstance(world.step(), Wait):
            progress(world)
    world.roll_one()
    world.record = carry_out(world.order(Operation.ROLLBACK, 3), world.record, world.facts(), stalled=False)
    world.run()
    view = view_of(world)
    assert view.held
    assert view.attention is Attention.PERSON
    assert [one.step for one in view.steps] == [Step.SIGN_BY_OLD]
    by_status = rotation_view(KEY, policy_of(world), {})
    assert isinstance(by_status, RotationView)
    assert by_status.held


def test_a_step_that_lasts_needs_attention() -> None:
    world = ModelWorld()
    while not isinstance(world.step(), Wait):
        pass
    assert view_of(world).attention is Attention.NONE
    world.wait(4 * 3600)
    view = view_of(world)
    assert (view.step, view.attention) == (Step.SERVERS_TRUST, Attention.NEEDED)
    assert "control-plane-1" in view.waits_for


@pytest.mark.parametrize("seed", range(12))
def test_the_status_alone_shows_the_same(seed: int) -> None:
    """To a viewer who may not read the rotation: all but what the status lacks."""
    world, random = ModelWorld(), Random(seed)
    for _ in range(random.randrange(60)):
        if isinstance(world.step(), Wait):
            progress(world)
    whole, alone = view_of(world), rotation_view(KEY, policy_of(world), {})
    assert isinstance(alone, RotationView)
    for name in ("rotation_id", "phase", "step", "steps", "waits_for", "attention", "nodes", "servers", "skipped"):
        assert getattr(alone, name) == getattr(whole, name), name
    assert (alone.authorities[0].old, alone.authorities[0].new) == (
        whole.authorities[0].old,
        whole.authorities[0].new,
    )


def test_a_status_of_another_rotation_says_nothing_of_this_one() -> None:
    world = ModelWorld()
    passes(world)
    policy = policy_of(world)
    policy["status"]["credentials"]["rotation"]["certificateAuthorities"]["rotationID"] = "aaaaaaaa"
    view = rotation_view(KEY, policy, rotation_object(world.record))
    assert isinstance(view, RotationView)
    assert (view.reported, view.nodes.total, view.servers) == (False, 0, ())
    assert view.attention is Attention.NEEDED


def test_a_new_step_does_not_wait_for_what_the_former_one_did() -> None:
    """The policy's status follows the record some seconds later."""
    world = ModelWorld()
    while not isinstance(world.step(), Wait):
        pass
    world.wait(4 * 3600)
    former = policy_of(world)
    assert view_of(world).waits_for
    assert view_of(world).attention is Attention.NEEDED
    before = world.record.step
    while world.record.step is before:
        if isinstance(world.step(), Wait):
            progress(world)
    view = rotation_view(KEY, former, rotation_object(world.record))
    assert isinstance(view, RotationView)
    assert (view.step is before, view.reported, view.up_to_date) == (False, True, False)
    assert (view.waits_for, view.reason, view.attention) == ("", "", Attention.NONE)


def test_a_rotation_that_does_not_authenticate_needs_attention() -> None:
    world = ModelWorld()
    policy = policy_of(world, Unverified("forged"))
    policy["status"]["credentials"] = {}
    view = rotation_view(KEY, policy, rotation_object(world.record))
    assert isinstance(view, RotationView)
    assert view.attention is Attention.NEEDED
    assert "forged" in view.waits_for, "whichever step the status is of"
    assert rotation_view(KEY, policy, {"spec": 1}).attention is Attention.NEEDED


def test_no_rotation_and_an_order() -> None:
    view = rotation_view(KEY, {"metadata": {"annotations": {OPERATION_ANNOTATION: "start\x1b-ca"}}}, {})
    assert view == NoRotation(KEY, pending_order="start\\x1b-ca")
    assert view.attention is Attention.NONE


@given(RECORDS)
def test_every_record_has_a_view(record: RotationRecord) -> None:
    view = rotation_view(record.cluster, {}, rotation_object(record))
    assert isinstance(view, RotationView)
    current = [one.step for one in view.steps if one.state is StepState.CURRENT]
    assert current == ([] if record.phase in (Phase.COMPLETED, Phase.ROLLED_BACK) else [record.step])


@given(JSON, JSON, JSON)
def test_any_object_is_read(status: Any, metadata: Any, rotation: Any) -> None:
    policy = {
        "metadata": metadata,
        "status": {"conditions": [status], "credentials": {"rotation": {"certificateAuthorities": status}}},
    }
    view: View = rotation_view(ClusterKey("a", "b"), policy, rotation if isinstance(rotation, dict) else {})
    assert view.attention in Attention
