"""The CEL of the rotation's admission policy, on AdmissionReviews that a real API server sent."""

from __future__ import annotations

import copy

import pytest

from signer.admission.policy import RefusalReason
from signer.kube.resources import NODE_ATTESTATION_POLICIES
from signer.rotation.admission_policy import OPERATIONS, OPERATIONS_POLICY, OPERATIONS_PROOF
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.cel import Evaluator, NotMatched
from tests.support.rotation_operations import CASES, REASONS, REVIEWS, ROTATOR, Case


@pytest.fixture(scope="module")
def evaluator() -> Evaluator:
    try:
        return Evaluator(OPERATIONS_POLICY)
    except MissingPart as missing:
        skip_or_fail(missing)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_it_says(evaluator: Evaluator, case: Case) -> None:
    refusals = evaluator.refusals(case.review, case.grants)
    if case.says is None:
        assert refusals in (NotMatched(), ())
    else:
        assert not isinstance(refusals, NotMatched)
        assert [(each.message, each.reason) for each in refusals][:1] == [
            (case.says, REASONS.get(case.says, RefusalReason.INVALID))
        ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_annotation_that_is_removed_or_unchanged_is_not_looked_at(evaluator: Evaluator, case: Case) -> None:
    asks = any(
        value is not None and name.startswith("attestation.cluster.x-k8s.io/") for name, value in case.change.items()
    )
    assert isinstance(evaluator.refusals(case.review, case.grants), NotMatched) is not asks


def test_each_message_is_said_by_some_case_and_each_operation_passes_in_one() -> None:
    assert {case.says for case in CASES} == {None, *OPERATIONS_POLICY.messages}
    passed = {value for case in CASES if case.says is None for value in case.change.values()}
    assert set(OPERATIONS) <= passed


def test_each_case_has_its_recorded_review_and_no_other_is_there() -> None:
    assert {path.stem for path in REVIEWS.glob("*.json")} == {case.name for case in CASES}
    for case in CASES:
        request = case.review["request"]
        assert (request["name"], request["userInfo"]["username"]) == (case.name, case.user)


@pytest.mark.parametrize("part", ["group", "resource", "namespace", "name", "verb", "user"])
def test_the_verb_on_something_else_does_not_count(evaluator: Evaluator, part: str) -> None:
    (case,) = (case for case in CASES if case.name == "start")
    (grant,) = case.grants
    assert evaluator.refusals(case.review, {grant}) == ()
    fields = {name: getattr(grant, name) for name in grant.__slots__}
    other = type(grant)(**{**fields, part: "other"})
    refusals = evaluator.refusals(case.review, {other})
    assert not isinstance(refusals, NotMatched)
    assert [each.reason for each in refusals] == [RefusalReason.FORBIDDEN]


@pytest.mark.parametrize("status", [{}, {"credentials": {}}, {"credentials": {"rotation": {}}}])
def test_a_status_that_ends_halfway_is_no_phase(evaluator: Evaluator, status: dict[str, object]) -> None:
    (case,) = (case for case in CASES if case.name == "complete")
    review = copy.deepcopy(case.review)
    review["request"]["oldObject"]["status"] = status
    refusals = evaluator.refusals(review, case.grants)
    assert not isinstance(refusals, NotMatched)
    assert len(refusals) == 1


def test_the_status_of_the_request_is_not_believed(evaluator: Evaluator) -> None:
    """API servers drop it before admission; if one did not, it would still not count."""
    (case,) = (case for case in CASES if case.name == "complete-before-start")
    review = copy.deepcopy(case.review)
    review["request"]["object"]["status"] = {
        "credentials": {"rotation": {"certificateAuthorities": {"phase": "Prepared"}}}
    }
    refusals = evaluator.refusals(review, case.grants)
    assert not isinstance(refusals, NotMatched)
    assert len(refusals) == 1


def test_it_looks_at_node_attestation_policies() -> None:
    (resource,) = OPERATIONS_POLICY.resources
    expected = NODE_ATTESTATION_POLICIES
    assert (resource.api_group, resource.plural, resource.namespaced) == (
        expected.group,
        expected.plural,
        expected.namespaced,
    )


def test_the_proof_fits_the_policy(evaluator: Evaluator) -> None:
    (case,) = (case for case in CASES if case.name == "start")
    review = copy.deepcopy(case.review)
    review["request"]["object"]["metadata"]["annotations"] = OPERATIONS_PROOF.refused["metadata"]["annotations"]
    refusals = evaluator.refusals(review, case.grants)
    assert not isinstance(refusals, NotMatched)
    assert [each.message for each in refusals] == [OPERATIONS_PROOF.message]
    del review["request"]["object"]["metadata"]["annotations"]
    assert evaluator.refusals(review, case.grants) == NotMatched()
    assert case.user == ROTATOR
