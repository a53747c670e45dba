"""Paths, methods, media types, and the shape of failures."""

from __future__ import annotations

import pytest

from tests.conformance.api import refused
from tests.support.raw_client import JSON_PATCH, RawClient
from tests.support.signing_requests import COLLECTION, signing_request


def test_missing_object_is_told_with_its_kind(admin: RawClient) -> None:
    status = refused(admin.get(f"{COLLECTION}/missing"), 404, "NotFound")
    assert status["message"] == 'certificatesigningrequests.certificates.k8s.io "missing" not found'
    assert status["details"] == {
        "name": "missing",
        "group": "certificates.k8s.io",
        "kind": "certificatesigningrequests",
    }
    assert status["metadata"] == {}


@pytest.mark.parametrize(
    "path",
    [
        "/apis/missing.example.com/v1/things",
        "/apis/certificates.k8s.io/v1/things",
        "/apis/certificates.k8s.io/v9/certificatesigningrequests",
        "/api/v1/things",
        "/apis/missing.example.com",
        "/nowhere",
    ],
)
def test_unknown_path_is_not_found(admin: RawClient, path: str) -> None:
    admin.get(path)
    assert admin.get(path).status == 404


def test_unknown_subresource_is_not_found(admin: RawClient, name: str) -> None:
    admin.post(COLLECTION, signing_request(name)).expect(201)
    assert admin.put(f"{COLLECTION}/{name}/other", signing_request(name)).status == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", f"{COLLECTION}/name"), ("PUT", COLLECTION), ("PATCH", COLLECTION), ("PUT", "/version")],
)
def test_method_that_a_path_has_not_is_told(admin: RawClient, method: str, path: str) -> None:
    answer = admin.request(method, path, signing_request("name"))
    if path == "/version":
        assert answer.status == 405
    else:
        refused(answer, 405, "MethodNotAllowed")


def test_body_of_another_media_type_is_refused(admin: RawClient) -> None:
    answer = admin.request("POST", COLLECTION, b"<a/>", content_type="application/xml")
    refused(answer, 415, "UnsupportedMediaType")


def test_patch_of_another_media_type_is_refused(admin: RawClient, name: str) -> None:
    admin.post(COLLECTION, signing_request(name)).expect(201)
    answer = admin.request("PATCH", f"{COLLECTION}/{name}", b"{}", content_type="application/json")
    refused(answer, 415, "UnsupportedMediaType")


def test_answer_of_another_media_type_is_not_acceptable(admin: RawClient) -> None:
    answer = admin.request("GET", COLLECTION, headers={"Accept": "application/xml"})
    assert answer.status == 406


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"text"'])
def test_body_that_is_no_object_is_a_bad_request(admin: RawClient, body: bytes) -> None:
    answer = admin.request("POST", COLLECTION, body)
    refused(answer, 400, "BadRequest")


def test_body_of_another_kind_is_a_bad_request(admin: RawClient, name: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    refused(admin.post(COLLECTION, body), 400, "BadRequest")


def test_body_of_another_version_is_a_bad_request(admin: RawClient, name: str) -> None:
    body = {**signing_request(name), "apiVersion": "certificates.k8s.io/v9"}
    refused(admin.post(COLLECTION, body), 400, "BadRequest")


def test_kind_and_version_may_be_left_out(admin: RawClient, name: str) -> None:
    body = signing_request(name)
    del body["apiVersion"], body["kind"]
    assert admin.post(COLLECTION, body).expect(201)["kind"] == "CertificateSigningRequest"


def test_field_of_another_type_is_a_bad_request(admin: RawClient, name: str) -> None:
    body = signing_request(name)
    body["spec"]["usages"] = "client auth"
    refused(admin.post(COLLECTION, body), 400, "BadRequest")


def test_unknown_field_is_dropped(admin: RawClient, name: str) -> None:
    body = signing_request(name)
    body["spec"]["unknown"] = 1
    assert "unknown" not in admin.post(COLLECTION, body).expect(201)["spec"]


def test_json_patch_that_does_not_apply_is_refused(admin: RawClient, name: str) -> None:
    admin.post(COLLECTION, signing_request(name)).expect(201)
    path = f"{COLLECTION}/{name}"
    missing = [{"op": "remove", "path": "/metadata/annotations/missing"}]
    refused(admin.patch(path, missing, JSON_PATCH), 422, "Invalid")
    refused(admin.patch(path, {"op": "remove"}, JSON_PATCH), 400, "BadRequest")


def test_version_is_told(admin: RawClient) -> None:
    answer = admin.get("/version").expect(200)
    assert answer["major"] == "1"
    assert answer["gitVersion"].startswith("v1.")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/livez"])
def test_health_is_told(admin: RawClient, path: str) -> None:
    answer = admin.get(path)
    assert (answer.status, answer.text) == (200, "ok")


def test_groups_are_discovered(admin: RawClient) -> None:
    found = admin.get("/apis").expect(200)
    assert found["kind"] == "APIGroupList"
    groups = {group["name"]: group["preferredVersion"]["groupVersion"] for group in found["groups"]}
    assert groups["certificates.k8s.io"] == "certificates.k8s.io/v1"
    assert {"rbac.authorization.k8s.io", "coordination.k8s.io", "apiextensions.k8s.io"} <= set(groups)
    assert "v1" in admin.get("/api").expect(200)["versions"]


def test_resources_are_discovered(admin: RawClient) -> None:
    found = admin.get("/apis/certificates.k8s.io/v1").expect(200)
    assert (found["kind"], found["groupVersion"]) == ("APIResourceList", "certificates.k8s.io/v1")
    resources = {resource["name"]: resource for resource in found["resources"]}
    assert {f"certificatesigningrequests{part}" for part in ("", "/approval", "/status")} <= set(resources)
    whole = resources["certificatesigningrequests"]
    assert (whole["kind"], whole["namespaced"], whole["shortNames"]) == ("CertificateSigningRequest", False, ["csr"])
    core = {resource["name"]: resource for resource in admin.get("/api/v1").expect(200)["resources"]}
    assert core["secrets"]["namespaced"] is True
    assert core["nodes"]["namespaced"] is False
