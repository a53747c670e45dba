"""Conditions of a CertificateSigningRequest: what /approval and what /status accept."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from tests.conformance.api import fields, refused
from tests.support.raw_client import MERGE_PATCH, STRATEGIC_PATCH, RawClient
from tests.support.signing_requests import COLLECTION, condition, signing_request, with_certificate, with_conditions

_CONDITIONS = "status.conditions"


@pytest.fixture
def created(admin: RawClient, name: str) -> dict[str, Any]:
    request: dict[str, Any] = admin.post(COLLECTION, signing_request(name)).expect(201)
    return request


def _approve(admin: RawClient, request: dict[str, Any], *conditions: dict[str, str]) -> dict[str, Any]:
    path = f"{COLLECTION}/{request['metadata']['name']}/approval"
    approved: dict[str, Any] = admin.put(path, with_conditions(request, *conditions)).expect(200)
    return approved


@pytest.mark.parametrize("kind", ["Approved", "Denied"])
def test_condition_is_kept_with_its_times_filled(
    admin: RawClient, created: dict[str, Any], name: str, kind: str
) -> None:
    answer = _approve(admin, created, condition(kind, message="why"))
    (found,) = answer["status"]["conditions"]
    for field in ("lastUpdateTime", "lastTransitionTime"):
        written = datetime.datetime.fromisoformat(found[field])
        assert abs(datetime.datetime.now(datetime.UTC) - written) < datetime.timedelta(minutes=5)
    assert {key: found[key] for key in condition(kind)} == condition(kind, message="why")
    assert admin.get(f"{COLLECTION}/{name}").expect(200) == answer


def test_times_that_are_given_stay(admin: RawClient, created: dict[str, Any]) -> None:
    times = {"lastUpdateTime": "2020-01-02T03:04:05Z", "lastTransitionTime": "2020-01-02T03:04:06Z"}
    answer = _approve(admin, created, {**condition("Approved"), **times})
    assert answer["status"]["conditions"] == [{**condition("Approved"), **times}]


def test_annotation_and_condition_survive_in_one_write(admin: RawClient, created: dict[str, Any], name: str) -> None:
    metadata = {**created["metadata"], "annotations": {"challenge": "c"}}
    denied = with_conditions({**created, "metadata": metadata}, condition("Denied", reason="ChallengeIssued"))
    admin.put(f"{COLLECTION}/{name}/approval", denied).expect(200)
    stored = admin.get(f"{COLLECTION}/{name}").expect(200)
    assert stored["metadata"]["annotations"] == {"challenge": "c"}
    assert stored["status"]["conditions"][0]["reason"] == "ChallengeIssued"


_FORGED = {"cluster-x-k8s-io/tpm-endorsement-key": "forged", "theirs": "kept"}


def _annotated(admin: RawClient, name: str) -> dict[str, Any]:
    """A request whose requester wrote annotations."""
    request = signing_request(name)
    request["metadata"]["annotations"] = dict(_FORGED)
    created: dict[str, Any] = admin.post(COLLECTION, request).expect(201)
    assert created["metadata"]["annotations"] == _FORGED
    return created


@pytest.mark.parametrize(
    "written", [{"cluster-x-k8s-io/tpm-endorsement-key": "ours", "theirs": "kept"}, {"theirs": "kept"}, {}]
)
def test_annotations_are_overwritten_and_removed_with_the_approval(
    admin: RawClient, name: str, written: dict[str, str]
) -> None:
    """What a requester wrote need not stand on a request that is approved."""
    request = _annotated(admin, name)
    approved = with_conditions(request, condition("Approved"))
    body = {**approved, "metadata": {**request["metadata"], "annotations": written}}
    answer = admin.put(f"{COLLECTION}/{name}/approval", body).expect(200)
    stored = admin.get(f"{COLLECTION}/{name}").expect(200)
    assert stored == answer
    assert stored["metadata"].get("annotations", {}) == written
    assert [found["type"] for found in stored["status"]["conditions"]] == ["Approved"]


def test_an_approval_that_leaves_annotations_out_removes_them(admin: RawClient, name: str) -> None:
    """A PUT is the whole object."""
    request = _annotated(admin, name)
    metadata = {key: value for key, value in request["metadata"].items() if key != "annotations"}
    approved = with_conditions({**request, "metadata": metadata}, condition("Approved"))
    admin.put(f"{COLLECTION}/{name}/approval", approved).expect(200)
    assert "annotations" not in admin.get(f"{COLLECTION}/{name}").expect(200)["metadata"]


def test_patch_of_approval_sets_a_condition_and_an_annotation(
    admin: RawClient, created: dict[str, Any], name: str
) -> None:
    patch = {
        "metadata": {"resourceVersion": created["metadata"]["resourceVersion"], "annotations": {"a": "b"}},
        "status": {"conditions": [condition("Approved")]},
    }
    patched = admin.patch(f"{COLLECTION}/{name}/approval", patch).expect(200)
    assert [found["type"] for found in patched["status"]["conditions"]] == ["Approved"]
    assert patched["metadata"]["annotations"] == {"a": "b"}


@pytest.mark.parametrize("content_type", [MERGE_PATCH, STRATEGIC_PATCH])
def test_patch_replaces_the_list_of_conditions(
    admin: RawClient, created: dict[str, Any], name: str, content_type: str
) -> None:
    path = f"{COLLECTION}/{name}"
    admin.put(f"{path}/status", with_conditions(created, condition("example.com/Seen"))).expect(200)
    patch = {"status": {"conditions": [condition("Approved")]}}
    patched = admin.patch(f"{path}/approval", patch, content_type).expect(200)
    assert [found["type"] for found in patched["status"]["conditions"]] == ["Approved"]
    refused(admin.patch(f"{path}/status", {"status": {"conditions": []}}, content_type), 422, "Invalid")


@pytest.mark.parametrize("first", ["Approved", "Denied"])
@pytest.mark.parametrize("subresource", ["approval", "status"])
def test_approved_and_denied_exclude_each_other(
    admin: RawClient, created: dict[str, Any], name: str, first: str, subresource: str
) -> None:
    decided = _approve(admin, created, condition(first))
    both = with_conditions(decided, condition("Denied" if first == "Approved" else "Approved"))
    answer = admin.put(f"{COLLECTION}/{name}/{subresource}", both)
    refused(answer, 422, "Invalid")
    assert admin.get(f"{COLLECTION}/{name}").expect(200) == decided


def test_both_at_once_are_refused(admin: RawClient, created: dict[str, Any], name: str) -> None:
    both = with_conditions(created, condition("Approved"), condition("Denied"))
    refused(admin.put(f"{COLLECTION}/{name}/approval", both), 422, "Invalid")


@pytest.mark.parametrize("kind", ["Approved", "Denied"])
def test_decision_cannot_be_removed(admin: RawClient, created: dict[str, Any], name: str, kind: str) -> None:
    decided = _approve(admin, created, condition(kind))
    without = {**decided, "status": {}}
    assert fields(refused(admin.put(f"{COLLECTION}/{name}/approval", without), 422, "Invalid")) == {_CONDITIONS}


def test_status_write_cannot_remove_a_decision(admin: RawClient, created: dict[str, Any], name: str) -> None:
    decided = _approve(admin, created, condition("Approved"))
    answer = admin.put(f"{COLLECTION}/{name}/status", {**decided, "status": {}})
    assert answer.status in {200, 422}
    assert admin.get(f"{COLLECTION}/{name}").expect(200)["status"] == decided["status"]


def test_reason_and_message_of_a_decision_can_change(admin: RawClient, created: dict[str, Any], name: str) -> None:
    decided = _approve(admin, created, condition("Denied", reason="First"))
    (found,) = decided["status"]["conditions"]
    changed = {**decided, "status": {"conditions": [{**found, "reason": "Second"}]}}
    answer = admin.put(f"{COLLECTION}/{name}/approval", changed).expect(200)
    assert answer["status"]["conditions"] == [{**found, "reason": "Second"}]


@pytest.mark.parametrize("kind", ["Approved", "Denied"])
@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_decision_must_be_true(admin: RawClient, created: dict[str, Any], name: str, kind: str, status: str) -> None:
    undecided = with_conditions(created, condition(kind, status))
    answer = admin.put(f"{COLLECTION}/{name}/approval", undecided)
    assert fields(refused(answer, 422, "Invalid")) == {"status.conditions[0].status"}


def test_status_of_a_condition_is_required(admin: RawClient, created: dict[str, Any], name: str) -> None:
    answer = admin.put(f"{COLLECTION}/{name}/approval", with_conditions(created, {"type": "Approved"}))
    assert fields(refused(answer, 422, "Invalid")) == {"status.conditions[0].status"}


def test_type_of_a_condition_is_required(admin: RawClient, created: dict[str, Any], name: str) -> None:
    answer = admin.put(f"{COLLECTION}/{name}/approval", with_conditions(created, {"type": "", "status": "True"}))
    assert fields(refused(answer, 422, "Invalid")) == {"status.conditions[0].type"}


def test_one_condition_per_type(admin: RawClient, created: dict[str, Any], name: str) -> None:
    twice = with_conditions(created, condition("Approved"), condition("Approved", reason="Again"))
    answer = admin.put(f"{COLLECTION}/{name}/approval", twice)
    assert fields(refused(answer, 422, "Invalid")) == {"status.conditions[1].type"}


def test_condition_of_another_type_may_have_any_status(admin: RawClient, created: dict[str, Any], name: str) -> None:
    answer = admin.put(f"{COLLECTION}/{name}/status", with_conditions(created, condition("example.com/Seen", "False")))
    assert [found["type"] for found in answer.expect(200)["status"]["conditions"]] == ["example.com/Seen"]


@pytest.mark.parametrize("kind", ["Approved", "Denied"])
def test_status_write_cannot_add_a_decision(admin: RawClient, created: dict[str, Any], name: str, kind: str) -> None:
    answer = admin.put(f"{COLLECTION}/{name}/status", with_conditions(created, condition(kind)))
    assert answer.status in {200, 422}
    assert admin.get(f"{COLLECTION}/{name}").expect(200)["status"].get("conditions", []) == []


def test_failed_is_added_through_status(admin: RawClient, created: dict[str, Any], name: str) -> None:
    approved = _approve(admin, created, condition("Approved"))
    answer = admin.put(f"{COLLECTION}/{name}/status", with_conditions(approved, condition("Failed")))
    assert [found["type"] for found in answer.expect(200)["status"]["conditions"]] == ["Approved", "Failed"]


def test_failed_cannot_be_removed(admin: RawClient, created: dict[str, Any], name: str) -> None:
    path = f"{COLLECTION}/{name}/status"
    failed = admin.put(path, with_conditions(created, condition("Failed"))).expect(200)
    answer = admin.put(path, {**failed, "status": {}})
    assert fields(refused(answer, 422, "Invalid")) == {_CONDITIONS}


def test_failed_must_be_true(admin: RawClient, created: dict[str, Any], name: str) -> None:
    answer = admin.put(f"{COLLECTION}/{name}/status", with_conditions(created, condition("Failed", "False")))
    assert fields(refused(answer, 422, "Invalid")) == {"status.conditions[0].status"}


def test_approval_write_cannot_set_the_certificate(admin: RawClient, created: dict[str, Any], name: str) -> None:
    forged = with_certificate(with_conditions(created, condition("Approved")), b"forged")
    answer = admin.put(f"{COLLECTION}/{name}/approval", forged).expect(200)
    assert "certificate" not in answer["status"]


def test_approved_request_can_still_be_deleted(admin: RawClient, created: dict[str, Any], name: str) -> None:
    _approve(admin, created, condition("Approved"))
    admin.delete(f"{COLLECTION}/{name}").expect(200)
    refused(admin.get(f"{COLLECTION}/{name}"), 404, "NotFound")
