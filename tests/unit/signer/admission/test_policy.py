"""What is no admission policy."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from signer.admission.policy import (
    MAXIMUM_MATCH_CONDITIONS,
    MAXIMUM_MESSAGE_CHARACTERS,
    MAXIMUM_POLICY_NAME_CHARACTERS,
    MatchCondition,
    RefusalReason,
    Validation,
    Variable,
)
from tests.unit.signer.admission.policies import POLICY, RESOURCE

RIGHT = Validation("true", "message", RefusalReason.FORBIDDEN)


def test_the_longest_parts() -> None:
    dataclasses.replace(
        POLICY,
        name="a" * MAXIMUM_POLICY_NAME_CHARACTERS,
        match_conditions=tuple(MatchCondition(f"c{n}", "true") for n in range(MAXIMUM_MATCH_CONDITIONS)),
        validations=(dataclasses.replace(RIGHT, message="m" * MAXIMUM_MESSAGE_CHARACTERS),),
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"name": "a" * (MAXIMUM_POLICY_NAME_CHARACTERS + 1)}, "at most 63"),
        ({"name": ""}, "no name"),
        ({"name": "Colours"}, "no name"),
        ({"name": "a'b"}, "no name"),
        ({"resources": ()}, "some operation"),
        ({"resources": (dataclasses.replace(RESOURCE, operations=()),)}, "some operation"),
        ({"match_conditions": (MatchCondition("a b", "true"),)}, "no name"),
        ({"match_conditions": (MatchCondition("a", " "),)}, "expression is empty"),
        (
            {"match_conditions": tuple(MatchCondition(f"c{n}", "true") for n in range(MAXIMUM_MATCH_CONDITIONS + 1))},
            "at most 64",
        ),
        ({"match_conditions": (MatchCondition("a", "true"), MatchCondition("a", "false"))}, "name is there twice"),
        ({"variables": (Variable("is-blue", "true"),)}, "no name"),
        ({"variables": (Variable("a", "true"), Variable("a", "false"))}, "name is there twice"),
        ({"variables": (Variable("a", ""),)}, "expression is empty"),
        ({"validations": ()}, "validates something"),
        ({"validations": (dataclasses.replace(RIGHT, expression=""),)}, "expression is empty"),
        ({"validations": (dataclasses.replace(RIGHT, message=""),)}, "one line"),
        ({"validations": (dataclasses.replace(RIGHT, message="a\nb"),)}, "one line"),
        ({"validations": (dataclasses.replace(RIGHT, message="m" * (MAXIMUM_MESSAGE_CHARACTERS + 1)),)}, "one line"),
        ({"validations": (RIGHT, RIGHT)}, "message is there twice"),
    ],
)
def test_a_malformed_policy(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        dataclasses.replace(POLICY, **change)
