"""The replay of an attestor's answer about a former instance."""

from __future__ import annotations

from typing import Any, cast

import pytest

from attestors.contract import (
    AnswerForm,
    FormerInstance,
    InstanceExists,
    InstanceGone,
    Termination,
    TerminationNotProvable,
)
from signer.audit.attestor_replay import terminated
from signer.audit.decision_inputs import FormerInstanceStage
from signer.audit.errors import Inconsistent
from signer.audit.replay_attestors import NotAsked
from signer.audit.values import InvalidValue
from tests.unit.signer.builders import record

STATE: AnswerForm[str] = AnswerForm(str, str)
CALLS = ({"question": "cloud", "answer": "terminated"},)
GONE = FormerInstanceStage.of(InstanceGone(), CALLS)


class Prover:
    """Asks its cloud through the recorded calls, and never itself."""

    async def termination_of(self, former: FormerInstance) -> Termination:
        assert former.identity == "ek:1"
        state = await former.recorded_calls.ask("cloud", self._fail, STATE)
        return InstanceGone() if state == "terminated" else InstanceExists(f"it is {state}")

    async def _fail(self) -> str:
        raise AssertionError("a replay calls no cloud")


async def replayed(
    stage: FormerInstanceStage, plugin: Any = None, provider: str = "tpm"
) -> tuple[Termination, list[str]]:
    taken: list[str] = []
    return await terminated(record(), stage, provider, plugin or cast("Any", Prover()), taken), taken


async def test_the_same() -> None:
    assert await replayed(GONE) == (InstanceGone(), [])


@pytest.mark.parametrize(
    "stage",
    [
        FormerInstanceStage.of(InstanceGone(), ({"question": "cloud", "answer": "running"},)),
        FormerInstanceStage.of(InstanceExists("it is running"), CALLS),
        FormerInstanceStage.of(TerminationNotProvable("no answer"), CALLS),
    ],
)
async def test_a_forged_answer(stage: FormerInstanceStage) -> None:
    with pytest.raises(Inconsistent, match="about the former instance"):
        await replayed(stage)


async def test_no_proof_of_an_attestor_that_was_not_asked() -> None:
    for plugin, provider in ((Prover(), "aws"), (object(), "tpm")):
        with pytest.raises(Inconsistent):
            await replayed(GONE, plugin, provider)
        stage = FormerInstanceStage.of(TerminationNotProvable("not asked"), ())
        assert (await replayed(stage, plugin, provider))[1] == []


@pytest.mark.parametrize("plugin", [NotAsked("not installed"), Prover()], ids=["not-asked", "no-answer"])
async def test_what_cannot_be_replayed_is_taken(plugin: Any) -> None:
    answer, (taken,) = await replayed(FormerInstanceStage.of(InstanceGone(), ()), plugin)
    assert answer == InstanceGone()
    assert taken.startswith("the attestor's answer about the former instance: ")


@pytest.mark.parametrize("stage", [FormerInstanceStage("Gone", "", ()), FormerInstanceStage("InstanceExists", "", ())])
async def test_an_answer_of_no_kind(stage: FormerInstanceStage) -> None:
    with pytest.raises(InvalidValue, match="the answer about the former instance"):
        await replayed(stage)
