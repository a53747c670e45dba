"""What an attestor answers about a former instance, right or wrong."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from attestors.contract import (
    FormerInstance,
    InstanceExists,
    InstanceGone,
    Security,
    Termination,
    TerminationNotProvable,
)
from signer.audit.decision_inputs import DecisionInputs, FormerInstanceStage, NotReached
from signer.decision.attestation import Attestation
from signer.decision.attestor_set import AttestorTimings
from signer.decision.former_instance import ask_whether_gone
from signer.model.decision import Deferred
from signer.model.reasons import Reason
from signer.model.record import AttestedIdentity, MachineKey
from tests.unit.signer.builders import CLUSTER, attested_identity, machine_view

MACHINE = MachineKey.of(machine_view())


class Prover:
    """A plugin with that answer, which may be anything."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[FormerInstance] = []

    async def termination_of(self, former: FormerInstance) -> Any:
        self.asked.append(former)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


class Asking:
    """One question to a plugin."""

    def __init__(self, plugin: object) -> None:
        ready = SimpleNamespace(ready=lambda provider: SimpleNamespace(server_plugin=plugin))
        self.inputs = DecisionInputs()
        self._snapshot = SimpleNamespace(attestors=ready, decision_inputs=self.inputs)
        timings = AttestorTimings(lambda provider, seconds: None, lambda: 0.0)
        self._attestation = Attestation(CLUSTER, cast("Any", None), cast("Any", None), cast("Any", None), timings)

    async def about(self, former: AttestedIdentity) -> Termination:
        return await ask_whether_gone(former, MACHINE, "tpm", cast("Any", self._snapshot), self._attestation)


@pytest.mark.parametrize(
    "answer", [InstanceGone(), InstanceExists("it is running"), TerminationNotProvable("the cloud does not answer")]
)
async def test_an_answer_is_passed_on_and_recorded(answer: Termination) -> None:
    plugin = Prover(answer)
    asking = Asking(plugin)
    assert await asking.about(attested_identity("ek:2")) == answer
    (asked,) = plugin.asked
    assert (asked.identity, asked.provider_id) == ("ek:2", MACHINE.provider_id)
    stage = asking.inputs.former_instance
    assert isinstance(stage, FormerInstanceStage)
    assert stage.termination() == answer


async def test_the_identity_of_another_attestor_is_not_asked_about() -> None:
    plugin = Prover(InstanceGone())
    answer = await Asking(plugin).about(AttestedIdentity("aws", "ek:2", Security.SECURE))
    assert answer == TerminationNotProvable("it was attested by aws, and this request by tpm")
    assert plugin.asked == []


async def test_a_plugin_without_proof() -> None:
    asking = Asking(object())
    answer = await asking.about(attested_identity("ek:2"))
    assert answer == TerminationNotProvable("attestor tpm cannot prove that an instance is gone")
    assert not isinstance(asking.inputs.former_instance, NotReached)


@pytest.mark.parametrize("answer", [True, None, "gone", InstanceGone, OSError("x"), SystemExit(1), TimeoutError()])
async def test_an_answer_of_another_kind_or_a_failure_is_no_proof(answer: Any) -> None:
    asking = Asking(Prover(answer))
    with pytest.raises(Deferred) as caught:
        await asking.about(attested_identity("ek:2"))
    assert caught.value.defer.reason == Reason.INTERNAL_ERROR
    assert "attestor tpm" in caught.value.defer.message
    assert isinstance(asking.inputs.former_instance, NotReached)


async def test_a_method_that_is_not_async() -> None:
    plugin = SimpleNamespace(termination_of=lambda former: InstanceGone())
    with pytest.raises(Deferred, match="not async"):
        await Asking(plugin).about(attested_identity("ek:2"))
