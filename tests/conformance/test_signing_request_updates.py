"""What can change on a CertificateSigningRequest through its main resource."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api import fields, refused
from tests.support.raw_client import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, RawClient
from tests.support.signing_requests import (
    COLLECTION,
    condition,
    request_pem,
    signing_request,
    with_certificate,
    with_conditions,
)


@pytest.fixture
def created(admin: RawClient, name: str) -> dict[str, Any]:
    request: dict[str, Any] = admin.post(COLLECTION, signing_request(name)).expect(201)
    return request


def _with_other_spec(created: dict[str, Any]) -> dict[str, Any]:
    other = signing_request("any", request_pem("system:node:n2"), signer="example.com/other", usages=["any"])
    return {**created, "spec": {**other["spec"], "username": "eve", "groups": ["system:masters"]}}


@pytest.mark.parametrize("subresource", ["", "/approval", "/status"])
def test_spec_never_changes_by_an_update(
    admin: RawClient, created: dict[str, Any], name: str, subresource: str
) -> None:
    answer = admin.put(f"{COLLECTION}/{name}{subresource}", _with_other_spec(created))
    assert answer.expect(200)["spec"] == created["spec"]
    assert admin.get(f"{COLLECTION}/{name}").expect(200)["spec"] == created["spec"]


@pytest.mark.parametrize("subresource", ["", "/approval", "/status"])
@pytest.mark.parametrize("content_type", [MERGE_PATCH, STRATEGIC_PATCH])
def test_spec_never_changes_by_a_patch(
    admin: RawClient, created: dict[str, Any], name: str, subresource: str, content_type: str
) -> None:
    patch = {"spec": {"username": "eve", "signerName": "example.com/other", "groups": ["system:masters"]}}
    answer = admin.patch(f"{COLLECTION}/{name}{subresource}", patch, content_type)
    assert answer.expect(200)["spec"] == created["spec"]


def test_status_never_changes_by_an_update_of_the_main_resource(
    admin: RawClient, created: dict[str, Any], name: str
) -> None:
    forged = with_certificate(with_conditions(created, condition("Approved")), b"forged")
    assert admin.put(f"{COLLECTION}/{name}", forged).expect(200)["status"] == {}
    assert admin.patch(f"{COLLECTION}/{name}", {"status": forged["status"]}).expect(200)["status"] == {}


def test_update_that_changes_nothing_writes_nothing(admin: RawClient, created: dict[str, Any], name: str) -> None:
    version = created["metadata"]["resourceVersion"]
    for answer in (
        admin.put(f"{COLLECTION}/{name}", created),
        admin.put(f"{COLLECTION}/{name}/approval", created),
        admin.put(f"{COLLECTION}/{name}/status", created),
        admin.patch(f"{COLLECTION}/{name}", {"metadata": {"annotations": {}}}),
    ):
        assert answer.expect(200)["metadata"]["resourceVersion"] == version


@pytest.mark.parametrize("subresource", ["", "/approval", "/status"])
def test_annotations_and_labels_change_through_every_path(
    admin: RawClient, created: dict[str, Any], name: str, subresource: str
) -> None:
    metadata = {**created["metadata"], "annotations": {"a.example.com/b": "c"}, "labels": {"d": "e"}}
    answer = admin.put(f"{COLLECTION}/{name}{subresource}", {**created, "metadata": metadata})
    updated = answer.expect(200)["metadata"]
    assert (updated["annotations"], updated["labels"]) == ({"a.example.com/b": "c"}, {"d": "e"})
    assert int(updated["resourceVersion"]) > int(created["metadata"]["resourceVersion"])
    assert admin.get(f"{COLLECTION}/{name}").expect(200)["metadata"]["annotations"] == {"a.example.com/b": "c"}


def test_null_in_a_merge_patch_removes_an_annotation(admin: RawClient, created: dict[str, Any], name: str) -> None:
    path = f"{COLLECTION}/{name}"
    admin.patch(path, {"metadata": {"annotations": {"a": "1", "b": "2"}}}).expect(200)
    patched = admin.patch(path, {"metadata": {"annotations": {"a": None}}}).expect(200)
    assert patched["metadata"]["annotations"] == {"b": "2"}
    assert patched["metadata"]["uid"] == created["metadata"]["uid"]


def test_json_patch_of_an_annotation(admin: RawClient, created: dict[str, Any], name: str) -> None:
    path = f"{COLLECTION}/{name}"
    operations = [
        {"op": "test", "path": "/metadata/uid", "value": created["metadata"]["uid"]},
        {"op": "add", "path": "/metadata/annotations", "value": {"a/b": "c"}},
    ]
    patched = admin.patch(path, operations, JSON_PATCH).expect(200)
    assert patched["metadata"]["annotations"] == {"a/b": "c"}
    operations[0]["value"] = "another"
    refused(admin.patch(path, operations, JSON_PATCH), 422, "Invalid")


@pytest.mark.parametrize("subresource", ["", "/approval", "/status"])
def test_stale_version_is_a_conflict(admin: RawClient, created: dict[str, Any], name: str, subresource: str) -> None:
    admin.patch(f"{COLLECTION}/{name}", {"metadata": {"labels": {"a": "b"}}}).expect(200)
    stale = with_conditions(created, condition("Approved"))
    status = refused(admin.put(f"{COLLECTION}/{name}{subresource}", stale), 409, "Conflict")
    assert status["details"] == {"name": name, "group": "certificates.k8s.io", "kind": "certificatesigningrequests"}


def test_stale_version_in_a_patch_is_a_conflict(admin: RawClient, created: dict[str, Any], name: str) -> None:
    path = f"{COLLECTION}/{name}"
    admin.patch(path, {"metadata": {"labels": {"a": "b"}}}).expect(200)
    version = created["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": version, "labels": {"a": "c"}}}
    refused(admin.patch(path, patch), 409, "Conflict")


def test_update_without_a_version_overwrites(admin: RawClient, created: dict[str, Any], name: str) -> None:
    path = f"{COLLECTION}/{name}"
    admin.patch(path, {"metadata": {"labels": {"a": "b"}}}).expect(200)
    metadata = {"name": name, "labels": {"a": "c"}}
    assert admin.put(path, {**created, "metadata": metadata}).expect(200)["metadata"]["labels"] == {"a": "c"}


def test_another_uid_is_a_conflict(admin: RawClient, created: dict[str, Any], name: str) -> None:
    metadata = {**created["metadata"], "uid": "00000000-0000-4000-8000-000000000000"}
    refused(admin.put(f"{COLLECTION}/{name}", {**created, "metadata": metadata}), 409, "Conflict")


def test_another_name_in_the_body_is_a_bad_request(admin: RawClient, created: dict[str, Any], name: str) -> None:
    metadata = {**created["metadata"], "name": "another"}
    refused(admin.put(f"{COLLECTION}/{name}", {**created, "metadata": metadata}), 400, "BadRequest")


@pytest.mark.parametrize("subresource", ["", "/approval", "/status"])
def test_update_of_a_missing_request_is_not_found(admin: RawClient, name: str, subresource: str) -> None:
    path = f"{COLLECTION}/{name}{subresource}"
    refused(admin.put(path, signing_request(name)), 404, "NotFound")
    refused(admin.patch(path, {"metadata": {"labels": {"a": "b"}}}), 404, "NotFound")


@pytest.mark.parametrize(
    ("annotations", "labels", "field"),
    [
        ({"bad key": "v"}, {}, "metadata.annotations"),
        ({"a/b/c": "v"}, {}, "metadata.annotations"),
        ({"a": "x" * (256 * 1024 + 1)}, {}, "metadata.annotations"),
        ({}, {"bad key": "v"}, "metadata.labels"),
        ({}, {"a": "not a label value"}, "metadata.labels"),
        ({}, {"a": "x" * 64}, "metadata.labels"),
    ],
)
@pytest.mark.usefixtures("created")
def test_metadata_is_validated(
    admin: RawClient, name: str, annotations: dict[str, str], labels: dict[str, str], field: str
) -> None:
    patch = {"metadata": {"annotations": annotations, "labels": labels}}
    assert fields(refused(admin.patch(f"{COLLECTION}/{name}", patch), 422, "Invalid")) == {field}


@pytest.mark.usefixtures("created")
def test_approval_and_status_can_be_read(admin: RawClient, name: str) -> None:
    whole = admin.get(f"{COLLECTION}/{name}").expect(200)
    assert admin.get(f"{COLLECTION}/{name}/approval").expect(200) == whole
    assert admin.get(f"{COLLECTION}/{name}/status").expect(200) == whole
