"""What an account leaves out, and what stands for an attestor's answer."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from attestors.contract import AssertedIdentity, ChallengeIssued, Denied, NotProvableYet, Outcome, VerifiedIdentity
from attestors.wire.binding import Binding, BindingMismatch
from signer.audit.decision_inputs import Answer, BuiltinStage, DecisionInputs, MachineStage
from signer.audit.values import InvalidValue, write
from signer.rules.machine import MachineGone
from tests.unit.signer.builders import record

BINDING = Binding(b"\x07" * 32)
SEAL = "seal-of-this-record"
OUTCOMES: list[Outcome] = [
    VerifiedIdentity("aws:///a/i-1", "aws:i-1", BINDING.prove(BINDING.value), ("node",), ("node.example",)),
    VerifiedIdentity("a", "b", BINDING.prove(BINDING.value), hardware="chip:1", hardware_identity="tpm:1"),
    AssertedIdentity("test:///a", "a"),
    Denied("Wrong", "why"),
    NotProvableYet("Later", "why", timedelta(seconds=30)),
]


def test_no_seal_of_a_record_is_kept() -> None:
    sealed = replace(record(), seal=SEAL)
    decision_inputs = DecisionInputs(
        machine=MachineStage(sealed, MachineGone(), (), (sealed,), frozenset()),
        builtin=BuiltinStage(sealed, MachineGone()),
    )
    assert SEAL.encode() in write(decision_inputs)
    assert SEAL.encode() not in write(decision_inputs.without_seals())


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
def test_an_answer_stands_for_its_outcome(outcome: Outcome) -> None:
    assert Answer.of(outcome).outcome(BINDING) == outcome


def test_of_a_challenge_its_digest() -> None:
    assert "opened" not in repr(Answer.of(ChallengeIssued("to be opened by one TPM")))


def test_an_identity_for_another_request_is_none() -> None:
    with pytest.raises(BindingMismatch):
        Answer.of(OUTCOMES[0]).outcome(Binding(b"\x08" * 32))


@pytest.mark.parametrize("change", [{"kind": "Believed"}, {"binding": "xyz"}, {"identity": ""}])
def test_what_stands_for_no_outcome(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        replace(Answer.of(OUTCOMES[0]), **change).outcome(BINDING)
