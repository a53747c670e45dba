"""What wakes a request for a Machine that shows no provider ID."""

from __future__ import annotations

from typing import Any, cast

from signer.audit.decision_inputs import DecisionInputs
from signer.decision.request_decision import RequestDecision
from signer.model.decision import Deferred
from signer.model.reasons import Reason
from signer.model.record import unidentified
from tests.unit.signer.builders import signing_request


def test_a_change_of_the_machine_wakes_the_request() -> None:
    decision = RequestDecision(cast("Any", None), signing_request(), DecisionInputs())
    error = Deferred(Reason.MACHINE_PAUSED, "it is paused", grows=True, waits_for=("p1",))
    assert decision.waiting(error) is error
    decision.waits_for = (unidentified("m1"),)
    waiting = decision.waiting(error)
    assert waiting.defer.waits_for == ("p1", unidentified("m1"))
    rest = ("reason", "message", "retry_after", "grows")
    assert all(getattr(waiting.defer, name) == getattr(error.defer, name) for name in rest)
