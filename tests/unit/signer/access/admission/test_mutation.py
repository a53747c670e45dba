"""The mutating policy makes the user of the request the creator, as the webhook does.

The evaluator knows no JSONPatch, so its constructors are read as maps; tests/e2e/test_access_admission.py asks an API
server that has the real ones.
"""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from signer.access.admission.judge import creator_patch
from signer.access.admission.mutation import EXPRESSION, VARIABLES, mutation_binding_spec, mutation_spec
from tests.support.access_requests import CASES
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.cel import MapEvaluator
from tests.unit.signer.access.admission.test_review import parsed


@pytest.fixture(scope="module")
def evaluator() -> MapEvaluator:
    try:
        return MapEvaluator()
    except MissingPart as missing:
        skip_or_fail(missing)


def patch_of(evaluator: MapEvaluator, review: dict[str, Any]) -> Any:
    text = re.sub(r"(?:JSONPatch|Object[a-zA-Z.]*)\{", "{", EXPRESSION)
    text = re.sub(r"(?<=[{ ])(op|path|value|username|uid|groups): ", r"'\1': ", text)
    variables: dict[str, Any] = {}
    for name, expression in VARIABLES:
        variables[name] = evaluator.value(expression, review["request"], variables)
    return evaluator.value(text, review["request"], variables)


def applied(review: dict[str, Any], patch: Any) -> dict[str, Any]:
    """The object after a patch of additions to maps (RFC 6902)."""
    found: dict[str, Any] = copy.deepcopy(review["request"]["object"])
    for one in patch:
        *way, last = [part.replace("~1", "/") for part in one["path"].split("/")[1:]]
        place = found
        for part in way:
            place = place[part]
        place[last] = one["value"]
    return found


def by_groups(found: dict[str, Any]) -> dict[str, Any]:
    found["spec"]["createdBy"]["groups"] = sorted(found["spec"]["createdBy"]["groups"])
    return found


@pytest.mark.parametrize("name", ["create", "create-in-foreign-name", "create-without-creator", "approve"])
@pytest.mark.parametrize("uid", ["", "u-1"])
def test_policy_and_webhook_fill_in_the_same(evaluator: MapEvaluator, name: str, uid: str) -> None:
    (case,) = (case for case in CASES if case.name == name)
    for before in ({}, {"a": "b"}, {"access.cluster.x-k8s.io/created-by": "eve"}):
        review = case.review
        if before:
            review["request"]["object"]["metadata"]["annotations"] = before
        if uid:
            review["request"]["userInfo"]["uid"] = uid
        by_policy = by_groups(applied(review, patch_of(evaluator, review)))
        assert by_policy == by_groups(applied(review, creator_patch(parsed(review).request)))
        assert by_policy["spec"]["createdBy"]["username"] == case.user
        assert by_policy["metadata"]["annotations"]["access.cluster.x-k8s.io/created-by"] == case.user
        assert ("uid" in by_policy["spec"]["createdBy"]) is bool(uid)


def test_it_looks_at_creations_only() -> None:
    (rule,) = mutation_spec()["matchConstraints"]["resourceRules"]
    assert (rule["operations"], rule["resources"]) == (["CREATE"], ["accessgrants", "accessapprovals"])
    assert mutation_binding_spec() == {"policyName": "node-access-creator"}
