"""One table of requests, as a real API server sent them: the CEL policies and the webhook's function say the same."""

from __future__ import annotations

import copy
import json
from typing import Any, Final

import pytest

from signer.access.admission import messages
from signer.access.admission.judge import Need, NeedsRights, Right, judge
from signer.access.admission.policies import access_policies
from signer.access.admission.review import AccessRequest, Allowed, Judgement, Refused, parse_review
from signer.admission.policy import AdmissionPolicy, RefusalReason, Validation
from tests.support.access_requests import (
    ALICE,
    APPROVAL_CASES,
    BASTION_CASES,
    CASES,
    CONTROLLERS,
    GRANT_CASES,
    REVIEWS,
    Case,
)
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.cel import Evaluator, NotMatched

POLICIES: Final = access_policies(CONTROLLERS)
cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def request_of(case: Case) -> AccessRequest:
    return parse_review(json.dumps(case.review).encode()).request


def judged(request: AccessRequest, case: Case) -> Judgement:
    """The judgement, with the rights that the case's user has."""
    judgement = judge(request, CONTROLLERS)
    if not isinstance(judgement, NeedsRights):
        return judgement
    granted = {Right(one.resource, one.name, one.verb) for one in case.grants}
    missing = [need.message for need in judgement.needs if need.right not in granted]
    return Refused(missing[0], RefusalReason.FORBIDDEN) if missing else Allowed()


def policy_of(case: Case) -> AdmissionPolicy:
    (policy,) = [each for each in POLICIES if each.resources[0].plural == case.resource.plural]
    return policy


@pytest.fixture(scope="module")
def evaluators() -> dict[str, Evaluator]:
    try:
        return {policy.name: Evaluator(policy) for policy in POLICIES}
    except MissingPart as missing:
        skip_or_fail(missing)


def refusals(evaluators: dict[str, Evaluator], case: Case, review: dict[str, Any]) -> tuple[Validation, ...]:
    found = evaluators[policy_of(case).name].refusals(review, case.grants)
    assert not isinstance(found, NotMatched)
    return found


@cases
def test_what_the_policies_say(evaluators: dict[str, Evaluator], case: Case) -> None:
    found = [(each.message, each.reason) for each in refusals(evaluators, case, case.review)]
    assert found[:1] == ([] if case.says is None else [(case.says, case.reason)])


@cases
def test_what_the_webhook_says(case: Case) -> None:
    expected = Allowed() if case.says is None else Refused(case.says, case.reason)
    assert judged(request_of(case), case) == expected


NEEDS_RIGHTS: Final = {
    *("create", "create-with-annotation", "create-with-keepalive", "create-for-other-logins"),
    *("create-for-a-login-without-right", "create-without-any-right", "create-for-eight-logins"),
    *("create-for-a-container", "create-for-a-container-without-right"),
    *(f"create-without-right-to-login-{index}" for index in range(8)),
    *("unsuspend-by-other", "unsuspend-by-verb", "finalizer-removed-by-creator", "finalizer-removed-by-verb"),
    *("finish-bastion-by-user", "finish-bastion-by-grants", "finish-bastion-by-verb"),
}


@cases
def test_rights_are_asked_only_where_nothing_else_decides(case: Case) -> None:
    """An answer about rights tells of them: a request in a foreign name gets none."""
    assert isinstance(judge(request_of(case), CONTROLLERS), NeedsRights) == (case.name in NEEDS_RIGHTS)


def test_an_invalid_grant_gets_no_answer_about_rights() -> None:
    (case,) = (case for case in CASES if case.name == "create")
    review = copy.deepcopy(case.review)
    review["request"]["object"]["spec"]["sshPublicKey"] = "none"
    judgement = judge(parse_review(json.dumps(review).encode()).request, CONTROLLERS)
    assert isinstance(judgement, Refused)
    assert "sshPublicKey" in judgement.message


def test_the_creator_and_the_controllers_need_no_rights() -> None:
    by_name = {case.name: case for case in CASES}
    for name in ("unsuspend-by-creator", "finalizer-removed-by-controller", "finish-bastion"):
        assert judge(request_of(by_name[name]), CONTROLLERS) == Allowed()
    unsuspend = Right("accessgrants", "unsuspend-by-verb", "unsuspend")
    expected = NeedsRights((Need(unsuspend, messages.FOREIGN_UNSUSPEND),))
    assert judge(request_of(by_name["unsuspend-by-verb"]), CONTROLLERS) == expected


def test_each_message_is_said_by_some_case() -> None:
    for policy, of_kind in zip(POLICIES, (GRANT_CASES, APPROVAL_CASES, BASTION_CASES), strict=True):
        assert {case.says for case in of_kind} == {None, *policy.messages}


def test_each_case_has_its_recorded_review_and_no_other_is_there() -> None:
    assert {path.stem for path in REVIEWS.glob("*.json")} == {case.name for case in CASES}
    for case in CASES:
        request = case.review["request"]
        assert (request["name"], request["userInfo"]["username"]) == (case.name, case.user)


@pytest.mark.parametrize("part", ["group", "resource", "namespace", "name", "verb", "user"])
def test_a_right_to_something_else_does_not_count(evaluators: dict[str, Evaluator], part: str) -> None:
    (case,) = (case for case in CASES if case.name == "create")
    (evaluator,) = (evaluators[policy.name] for policy in POLICIES if policy == policy_of(case))
    other = [type(one)(**{**{name: getattr(one, name) for name in one.__slots__}, part: "x"}) for one in case.grants]
    found = evaluator.refusals(case.review, other)
    assert not isinstance(found, NotMatched)
    assert [each.message for each in found] == [messages.LOGIN_MESSAGES[0]]


def test_a_user_with_the_creators_name_and_another_uid_is_not_the_creator(evaluators: dict[str, Evaluator]) -> None:
    """A name may be given to another person."""
    (case,) = (case for case in CASES if case.name == "ingress-by-creator")
    review = copy.deepcopy(case.review)
    review["request"]["userInfo"]["uid"] = "u-new"
    assert [each.message for each in refusals(evaluators, case, review)] == [messages.FOREIGN_INGRESS]
    request = parse_review(json.dumps(review).encode()).request
    assert judged(request, case) == Refused(messages.FOREIGN_INGRESS, case.reason)
    for each in ("object", "oldObject"):
        review["request"][each]["spec"]["createdBy"]["uid"] = "u-new"
    assert refusals(evaluators, case, review) == ()
    assert judged(parse_review(json.dumps(review).encode()).request, case) == Allowed()


def test_nobody_is_the_creator_of_a_grant_without_creator(evaluators: dict[str, Evaluator]) -> None:
    """It was made before the policies were there."""
    (case,) = (case for case in CASES if case.name == "ingress-by-creator")
    review = copy.deepcopy(case.review)
    for each in ("object", "oldObject"):
        del review["request"][each]["spec"]["createdBy"]
    review["request"]["userInfo"] = {"username": ALICE}
    assert messages.FOREIGN_INGRESS in [each.message for each in refusals(evaluators, case, review)]
    request = parse_review(json.dumps(review).encode()).request
    assert judged(request, case) == Refused(messages.FOREIGN_INGRESS, case.reason)


def test_a_uid_is_proven_where_the_api_server_gives_one(evaluators: dict[str, Evaluator]) -> None:
    (case,) = (case for case in CASES if case.name == "create")
    review = copy.deepcopy(case.review)
    review["request"]["userInfo"]["uid"] = "u-1"
    assert [each.message for each in refusals(evaluators, case, review)] == [messages.NOT_YOUR_UID]
    review["request"]["object"]["spec"]["createdBy"]["uid"] = "u-1"
    assert refusals(evaluators, case, review) == ()
    assert judged(parse_review(json.dumps(review).encode()).request, case) == Allowed()
