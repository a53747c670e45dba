"""The evaluator of CEL: what does not compile, fails, or is no boolean, is an error and no answer."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from signer.admission.policy import RefusalReason, Validation, Variable
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.cel import Evaluator, ExpressionFailed, NotMatched, RuleEvaluator
from tests.unit.signer.admission.policies import MESSAGE, POLICY

RULE = Validation("true", "message", RefusalReason.INVALID)


@pytest.fixture(autouse=True, scope="module")
def _installed() -> None:
    try:
        RuleEvaluator()
    except MissingPart as missing:
        skip_or_fail(missing)


def review(**object_: Any) -> dict[str, Any]:
    return {"request": {"object": object_, "oldObject": None, "userInfo": {"username": "user"}}}


def test_a_policy() -> None:
    evaluator = Evaluator(POLICY)
    assert evaluator.refusals(review(), ()) == NotMatched()
    assert evaluator.refusals(review(colour="red"), ()) == ()
    (refusal,) = evaluator.refusals(review(colour="blue"), ())  # type: ignore[misc]
    assert refusal.message == MESSAGE


@pytest.mark.parametrize(
    "expression",
    [
        "1 + 'a'",
        "(",
        "nothing",
        "authorizer.check('get').allowed()",
        "authorizer.group('a').check('get').allowed()",
        "authorizer.group('a').resource('b').allowed()",
        "authorizer.group('a').resource('b').check('get') == 'a'",
        "authorizer.group(1).resource('b').check('get').allowed()",
    ],
)
def test_what_does_not_compile(expression: str) -> None:
    policy = dataclasses.replace(POLICY, validations=(dataclasses.replace(RULE, expression=expression),))
    with pytest.raises(ExpressionFailed):
        Evaluator(policy)


@pytest.mark.parametrize("expression", ["object.nothing", "object.colour", "variables.nothing == 1"])
def test_what_fails(expression: str) -> None:
    policy = dataclasses.replace(POLICY, validations=(dataclasses.replace(RULE, expression=expression),))
    with pytest.raises(ExpressionFailed):
        Evaluator(policy).refusals(review(colour="red"), ())


def test_a_variable_that_fails() -> None:
    policy = dataclasses.replace(POLICY, variables=(Variable("isBlue", "object.nothing"),))
    with pytest.raises(ExpressionFailed):
        Evaluator(policy).refusals(review(colour="red"), ())


def test_a_rule() -> None:
    assert RuleEvaluator().holds("self.size() < 2", [1])
    assert not RuleEvaluator().holds("self.size() < 2", [1, 2])
    for rule in ("self +", "self.nothing", "self"):
        with pytest.raises(ExpressionFailed):
            RuleEvaluator().holds(rule, {"a": 1})
