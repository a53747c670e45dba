"""Phases, steps and their order."""

from __future__ import annotations

import pytest

from signer.rotation.phases import (
    BACK,
    COMPLETING_STEPS,
    FORWARD,
    HOLDING_STEPS,
    PREPARING_STEPS,
    GEPPhase,
    Phase,
    RollbackAvailable,
    Step,
    TakesBack,
    gep_phase,
    rollback_available,
)


def test_every_step_has_one_direction() -> None:
    assert (*FORWARD, *BACK) == tuple(Step)
    assert (*PREPARING_STEPS, Step.PREPARED, *COMPLETING_STEPS) == FORWARD
    assert set(COMPLETING_STEPS) > HOLDING_STEPS
    assert (FORWARD[0], FORWARD[-1], BACK[0], BACK[-1]) == (
        Step.NEW_AUTHORITY,
        Step.FORGET,
        Step.SIGN_BY_OLD,
        Step.DISCARD_NEW,
    )


@pytest.mark.parametrize("direction", [FORWARD, BACK])
def test_order_of_steps(direction: tuple[Step, ...]) -> None:
    for position, step in enumerate(direction):
        for other_position, other in enumerate(direction):
            assert step.is_at_least(other) is (position >= other_position)


def test_steps_of_different_directions_have_no_order() -> None:
    for one, other in ((Step.SWITCH, Step.RESTORE_OLD), (Step.RESTORE_OLD, Step.SWITCH)):
        with pytest.raises(ValueError, match="different directions"):
            one.is_at_least(other)


def test_another_rotation_may_start_only_when_one_is_over() -> None:
    assert {phase for phase in Phase if phase.is_over} == {Phase.COMPLETED, Phase.ROLLED_BACK, Phase.ABANDONED}


def test_phases_of_the_gep() -> None:
    others = {
        Phase.COMPLETING: GEPPhase.FINALIZE,
        Phase.COMPLETED: GEPPhase.COMPLETED,
        Phase.ROLLED_BACK: GEPPhase.NONE,
        Phase.ABANDONED: GEPPhase.NONE,
    }
    for phase in Phase:
        assert gep_phase(phase) is others.get(phase, GEPPhase.PREPARE)


@pytest.mark.parametrize("link", TakesBack)
@pytest.mark.parametrize("step", Step)
def test_what_can_be_taken_back(step: Step, link: TakesBack) -> None:
    expected = RollbackAvailable.FULL
    if step in (Step.SERVERS_PRESENT, Step.SIGN_SERVING) and link is TakesBack.NOT_LINKED:
        expected = RollbackAvailable.CLIENTS_ONLY
    if step in (Step.RETIRE_OLD, Step.DROP_OLD, Step.PRUNE, Step.FORGET, *BACK):
        expected = RollbackAvailable.NONE
    assert rollback_available(Phase.COMPLETING, step, link) is expected
    assert rollback_available(Phase.COMPLETED, step, link) is RollbackAvailable.NONE
    assert rollback_available(Phase.ROLLED_BACK, step, link) is RollbackAvailable.NONE
    assert rollback_available(Phase.ABANDONED, step, link) is RollbackAvailable.NONE
