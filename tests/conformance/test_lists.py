"""Lists: order, versions, selectors, and pages."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api import Api, fields, refused, version_of
from tests.support.raw_client import RawClient
from tests.support.signing_requests import COLLECTION, signing_request

SINCE_SNAPSHOTS = (1, 34)
"""The version from which kube-apiserver keeps former lists for a while (ListFromCacheSnapshot)."""


@pytest.fixture
def config_maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def _create(admin: RawClient, path: str, name: str, **labels: str) -> dict[str, Any]:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}}
    created: dict[str, Any] = admin.post(path, body).expect(201)
    return created


def _names(document: dict[str, Any]) -> list[str]:
    return [item["metadata"]["name"] for item in document["items"]]


def test_list_has_a_version_and_items_in_order(admin: RawClient, config_maps: str, name: str) -> None:
    created = [_create(admin, config_maps, f"{name}-{suffix}", run=name) for suffix in ("c", "a", "b")]
    found = admin.get(config_maps, labelSelector=f"run={name}").expect(200)
    assert (found["apiVersion"], found["kind"]) == ("v1", "ConfigMapList")
    assert int(found["metadata"]["resourceVersion"]) >= int(created[-1]["metadata"]["resourceVersion"])
    assert _names(found) == [f"{name}-{suffix}" for suffix in "abc"]
    assert all("kind" not in item and "apiVersion" not in item for item in found["items"])


def test_list_of_all_namespaces(admin: RawClient, config_maps: str, name: str) -> None:
    _create(admin, config_maps, name, run=name)
    _create(admin, "/api/v1/namespaces/default/configmaps", name, run=name)
    found = admin.get("/api/v1/configmaps", labelSelector=f"run={name}").expect(200)
    assert [item["metadata"]["namespace"] for item in found["items"]] == ["conformance", "default"]
    (one,) = admin.get(
        "/api/v1/configmaps", labelSelector=f"run={name}", fieldSelector="metadata.namespace=default"
    ).expect(200)["items"]
    assert one["metadata"]["namespace"] == "default"


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("color=red", "a"),
        ("color==red", "a"),
        ("color!=red", "bc"),
        ("color in (red,blue)", "ab"),
        ("color notin (red,blue)", "c"),
        ("color", "ab"),
        ("!color", "c"),
        ("color=red,size=big", ""),
        ("color,size=small", "a"),
        ("number>3", "b"),
        ("number<3", "a"),
        ("number>3,number<4", ""),
    ],
)
def test_label_selectors(admin: RawClient, config_maps: str, name: str, selector: str, expected: str) -> None:
    _create(admin, config_maps, f"{name}-a", run=name, color="red", size="small", number="2")
    _create(admin, config_maps, f"{name}-b", run=name, color="blue", size="big", number="10")
    _create(admin, config_maps, f"{name}-c", run=name)
    found = admin.get(config_maps, labelSelector=f"run={name},{selector}").expect(200)
    assert "".join(found_name[-1] for found_name in _names(found)) == expected


@pytest.mark.parametrize(
    "selector",
    [
        "a in",
        "-a=b",
        "a/b/c",
        "a=-b",
        "a in (b,-c)",
        "a>b",
        f"cluster.x-k8s.io/cluster-name={'long-' * 12}name",
    ],
)
def test_label_selector_that_no_label_can_match_is_a_bad_request(
    admin: RawClient, config_maps: str, selector: str
) -> None:
    refused(admin.get(config_maps, labelSelector=selector), 400, "BadRequest")


def test_field_selector_of_the_name(admin: RawClient, config_maps: str, name: str) -> None:
    _create(admin, config_maps, name)
    assert _names(admin.get(config_maps, fieldSelector=f"metadata.name={name}").expect(200)) == [name]
    assert name not in _names(admin.get(config_maps, fieldSelector=f"metadata.name!={name}").expect(200))
    assert _names(admin.get(config_maps, fieldSelector="metadata.name=missing").expect(200)) == []


def test_field_selector_of_an_unknown_field_is_a_bad_request(admin: RawClient, config_maps: str) -> None:
    refused(admin.get(config_maps, fieldSelector="data.a=b"), 400, "BadRequest")


def test_field_selector_of_the_signer_name(admin: RawClient, name: str) -> None:
    signer = f"conformance.example.com/{name}"
    admin.post(COLLECTION, signing_request(f"{name}-a", signer=signer)).expect(201)
    admin.post(COLLECTION, signing_request(f"{name}-b")).expect(201)
    assert _names(admin.get(COLLECTION, fieldSelector=f"spec.signerName={signer}").expect(200)) == [f"{name}-a"]
    refused(admin.get(COLLECTION, fieldSelector="spec.username=system:admin"), 400, "BadRequest")


def test_field_selector_of_the_secret_type(admin: RawClient, namespace: str, name: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    for suffix, kind in (("a", "cluster.x-k8s.io/secret"), ("b", "Opaque")):
        metadata = {"name": f"{name}-{suffix}", "labels": {"run": name}}
        admin.post(path, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind}).expect(201)
    query = {"labelSelector": f"run={name}", "fieldSelector": "type=cluster.x-k8s.io/secret"}
    assert _names(admin.get(path, **query).expect(200)) == [f"{name}-a"]


def test_pages_together_are_the_list(admin: RawClient, config_maps: str, name: str) -> None:
    for number in range(5):
        _create(admin, config_maps, f"{name}-{number}", run=name)
    query = {"labelSelector": f"run={name}", "limit": "2"}
    pages = [admin.get(config_maps, **query).expect(200)]
    # Written between two pages: a list is of one version.
    _create(admin, config_maps, f"{name}-9", run=name)
    while proceed := pages[-1]["metadata"].get("continue"):
        pages.append(admin.get(config_maps, **query, **{"continue": proceed}).expect(200))
    assert [len(page["items"]) for page in pages] == [2, 2, 1]
    assert [found for page in pages for found in _names(page)] == [f"{name}-{number}" for number in range(5)]
    assert len({page["metadata"]["resourceVersion"] for page in pages}) == 1


def test_remaining_items_are_told_without_a_selector(admin: RawClient, name: str) -> None:
    path = f"/api/v1/namespaces/{name}/configmaps"
    admin.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}).expect(201)
    for number in range(3):
        _create(admin, path, f"a{number}")
    page = admin.get(path, limit="2").expect(200)
    assert page["metadata"]["remainingItemCount"] == 1


def test_expired_page_is_gone(admin: RawClient, api: Api, config_maps: str, name: str) -> None:
    for number in range(3):
        _create(admin, config_maps, f"{name}-{number}", run=name)
    query = {"labelSelector": f"run={name}", "limit": "1"}
    proceed = admin.get(config_maps, **query).expect(200)["metadata"]["continue"]
    _create(admin, config_maps, f"{name}-later", run=name)
    api.compact()
    answer = admin.get(config_maps, **query, **{"continue": proceed})
    if answer.status == 200 and version_of(admin) >= SINCE_SNAPSHOTS:
        assert _names(answer.body) == [f"{name}-1"]
        return
    refused(answer, 410, "Expired")


def test_page_of_a_broken_token_is_a_bad_request(admin: RawClient, config_maps: str) -> None:
    refused(admin.get(config_maps, limit="1", **{"continue": "broken"}), 400, "BadRequest")


@pytest.mark.parametrize(
    "query",
    [
        {"resourceVersionMatch": "Exact"},
        {"resourceVersionMatch": "Newest", "resourceVersion": "1"},
        {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
    ],
)
def test_version_match_that_says_nothing_is_refused(admin: RawClient, config_maps: str, query: dict[str, str]) -> None:
    assert fields(refused(admin.get(config_maps, **query), 422, "Invalid")) == {"resourceVersionMatch"}


def test_a_page_has_the_version_of_its_list(admin: RawClient, config_maps: str, name: str) -> None:
    for number in range(2):
        _create(admin, config_maps, f"{name}-{number}", run=name)
    first = admin.get(config_maps, labelSelector=f"run={name}", limit="1").expect(200)["metadata"]
    query = {"labelSelector": f"run={name}", "continue": first["continue"]}
    refused(admin.get(config_maps, **query, resourceVersion=first["resourceVersion"]), 400, "BadRequest")
    assert len(admin.get(config_maps, **query, resourceVersion="0").expect(200)["items"]) == 1


def test_list_at_version_zero_is_answered(admin: RawClient, config_maps: str) -> None:
    assert admin.get(config_maps, resourceVersion="0").expect(200)["kind"] == "ConfigMapList"


def test_list_not_older_than_a_version(admin: RawClient, config_maps: str, name: str) -> None:
    created = _create(admin, config_maps, name)
    version = created["metadata"]["resourceVersion"]
    found = admin.get(config_maps, resourceVersion=version).expect(200)
    assert name in _names(found)
    assert int(found["metadata"]["resourceVersion"]) >= int(version)


def test_version_that_is_no_number_is_refused(admin: RawClient, config_maps: str) -> None:
    # 1.20 calls it its own fault, later versions the client's.
    assert admin.get(config_maps, resourceVersion="new").status in {400, 422, 500}
