"""Orders on a policy: which are read, and which are possible when."""

from __future__ import annotations

from typing import Any

import pytest

from signer.rotation.operations import (
    ALIASES,
    NAMES,
    OPERATION_ANNOTATION,
    SKIP_GATES_ANNOTATION,
    SSH_OPERATIONS,
    Gate,
    NeverRotated,
    NoOrder,
    Operation,
    OperationRejected,
    Order,
    UnknownGate,
    UnknownOperation,
    read_gates,
    read_order,
    require_possible,
)
from signer.rotation.phases import Phase, RollbackAvailable


def policy(**annotations: Any) -> dict[str, Any]:
    named = {"order": OPERATION_ANNOTATION, "skip": SKIP_GATES_ANNOTATION}
    written = {named[key]: value for key, value in annotations.items()}
    return {"metadata": {"uid": "u", "resourceVersion": "7", "annotations": written}}


@pytest.mark.parametrize("name", NAMES)
def test_each_name_is_an_operation(name: str) -> None:
    assert read_order(policy(order=name)) == Order(NAMES[name], "u/7")


def test_the_names_are_those_of_the_gep_and_of_gardener() -> None:
    assert NAMES["start-ca-rotation"] is NAMES["rotate-ca-start"] is Operation.START
    assert NAMES["complete-ca-rotation"] is NAMES["rotate-ca-complete"] is Operation.COMPLETE
    assert NAMES["start-ssh-ca-rotation"] is NAMES["rotate-ssh-ca-start"] is NAMES["rotate-ssh-keypair"]
    assert NAMES["complete-ssh-ca-rotation"] is NAMES["rotate-ssh-ca-complete"] is Operation.COMPLETE_SSH
    assert len(NAMES) == len(Operation) + len(ALIASES)
    assert [one for one in Operation if one.is_start] == [Operation.START, Operation.START_WITHOUT_WORKERS_ROLLOUT]


def test_operations_on_ssh() -> None:
    assert [one for one in Operation if one.is_on_ssh] == [one for one in Operation if "-ssh-" in one.value]


@pytest.mark.parametrize(
    "manifest", [{}, {"metadata": None}, {"metadata": {"annotations": []}}, policy(), policy(order=""), policy(order=7)]
)
def test_a_policy_without_an_order(manifest: dict[str, Any]) -> None:
    assert read_order(manifest) == NoOrder()


@pytest.mark.parametrize("name", ["start", "START-CA-ROTATION", "start-ca-rotation ", "start-ca-rotation\n"])
def test_another_value_is_no_operation(name: str) -> None:
    assert isinstance(read_order(policy(order=name)), UnknownOperation)


def test_what_is_shown_of_another_value_is_short_and_printable() -> None:
    read = read_order(policy(order="\x1b[31m" + "x" * 9000))
    assert isinstance(read, UnknownOperation)
    assert len(read.value) < 80
    assert read.value.isprintable()


def test_gates_that_are_to_be_skipped() -> None:
    read = read_order(policy(order="start-ca-rotation", skip=" overlap ,,machines"))
    assert read == Order(Operation.START, "u/7", ("overlap", "machines"))
    assert read_gates(read.skip_gates) == {Gate.OVERLAP, Gate.MACHINES}


def test_an_unknown_gate_is_refused_with_those_that_exist() -> None:
    with pytest.raises(UnknownGate, match="overlap, trust-age, unreachable-nodes, machines") as raised:
        read_gates(("overlap", "\x1b" + "x" * 9000))
    assert len(str(raised.value)) < 300
    assert str(raised.value).isprintable()


OVER = (NeverRotated(), Phase.COMPLETED, Phase.ROLLED_BACK, Phase.ABANDONED)
POSSIBLE = {
    Operation.START: OVER,
    Operation.START_WITHOUT_WORKERS_ROLLOUT: OVER,
    Operation.COMPLETE: (Phase.PREPARED,),
    Operation.ROLLBACK: tuple(phase for phase in Phase if phase not in OVER),
    Operation.ROTATE_NODE_CLIENT: (),
    Operation.RETRY: (*Phase, NeverRotated()),
    Operation.ABANDON: tuple(phase for phase in Phase if phase not in OVER),
    **dict.fromkeys(SSH_OPERATIONS, ()),
}


@pytest.mark.parametrize("phase", [*Phase, NeverRotated()])
@pytest.mark.parametrize("operation", Operation)
def test_which_operation_is_possible_when(operation: Operation, phase: Phase | NeverRotated) -> None:
    if phase in POSSIBLE[operation]:
        require_possible(operation, phase, RollbackAvailable.FULL, stalled=True)
        return
    with pytest.raises(OperationRejected) as raised:
        require_possible(operation, phase, RollbackAvailable.FULL, stalled=True)
    shown = "no rotation was started" if isinstance(phase, NeverRotated) else f"the rotation is {phase.value}"
    assert str(raised.value).startswith(shown)


@pytest.mark.parametrize("available", RollbackAvailable)
def test_a_rollback_needs_something_that_leads_back(available: RollbackAvailable) -> None:
    if available is RollbackAvailable.NONE:
        with pytest.raises(OperationRejected, match="nothing can be rolled back; to replace the new CA"):
            require_possible(Operation.ROLLBACK, Phase.COMPLETING, available, stalled=True)
    else:
        require_possible(Operation.ROLLBACK, Phase.COMPLETING, available, stalled=False)


def test_after_a_rotation_there_is_no_advice_to_complete_it() -> None:
    with pytest.raises(OperationRejected) as raised:
        require_possible(Operation.ROLLBACK, Phase.COMPLETED, RollbackAvailable.NONE, stalled=False)
    assert str(raised.value) == "the rotation is Completed: nothing can be rolled back"


def test_a_rotation_that_goes_on_is_not_retried() -> None:
    with pytest.raises(OperationRejected, match="not stalled"):
        require_possible(Operation.RETRY, Phase.PREPARING, RollbackAvailable.FULL, stalled=False)
