"""Ordinary objects: creation, optimistic locking, deletion, and the built-in kinds that the controller writes."""

from __future__ import annotations

import base64
import time
from typing import Any

import pytest

from tests.conformance.api import fields, refused
from tests.support.raw_client import APPLY_PATCH, RawClient

_OTHER_UID = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def config_maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def _config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def test_object_is_created_read_and_deleted(admin: RawClient, config_maps: str, namespace: str, name: str) -> None:
    created = admin.post(config_maps, _config_map(name, a="b")).expect(201)
    assert created["metadata"]["namespace"] == namespace
    assert created["data"] == {"a": "b"}
    assert admin.get(f"{config_maps}/{name}").expect(200) == created
    status = admin.delete(f"{config_maps}/{name}").expect(200)
    assert (status["kind"], status["status"]) == ("Status", "Success")
    assert (status["details"]["name"], status["details"]["uid"]) == (name, created["metadata"]["uid"])
    refused(admin.get(f"{config_maps}/{name}"), 404, "NotFound")
    refused(admin.delete(f"{config_maps}/{name}"), 404, "NotFound")


def test_created_again_is_another_object(admin: RawClient, config_maps: str, name: str) -> None:
    first = admin.post(config_maps, _config_map(name)).expect(201)["metadata"]
    admin.delete(f"{config_maps}/{name}").expect(200)
    second = admin.post(config_maps, _config_map(name)).expect(201)["metadata"]
    assert first["uid"] != second["uid"]
    assert int(first["resourceVersion"]) < int(second["resourceVersion"])


def test_server_sets_its_own_metadata(admin: RawClient, config_maps: str, name: str) -> None:
    body = _config_map(name)
    body["metadata"] |= {"uid": _OTHER_UID, "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 7}
    metadata = admin.post(config_maps, body).expect(201)["metadata"]
    assert metadata["uid"] != _OTHER_UID
    assert not metadata["creationTimestamp"].startswith("2001")


def test_version_at_creation_is_a_bad_request(admin: RawClient, config_maps: str, name: str) -> None:
    body = _config_map(name)
    body["metadata"]["resourceVersion"] = "1"
    assert admin.post(config_maps, body).status in {400, 500}
    refused(admin.get(f"{config_maps}/{name}"), 404, "NotFound")


def test_uid_and_creation_time_survive_an_update(admin: RawClient, config_maps: str, name: str) -> None:
    created = admin.post(config_maps, _config_map(name)).expect(201)["metadata"]
    updated = admin.put(f"{config_maps}/{name}", _config_map(name, a="b")).expect(200)["metadata"]
    for field in ("uid", "creationTimestamp"):
        assert updated[field] == created[field]


def test_racing_updates_have_one_winner(admin: RawClient, config_maps: str, name: str) -> None:
    created = admin.post(config_maps, _config_map(name)).expect(201)
    admin.put(f"{config_maps}/{name}", {**created, "data": {"winner": "a"}}).expect(200)
    status = refused(admin.put(f"{config_maps}/{name}", {**created, "data": {"winner": "b"}}), 409, "Conflict")
    assert status["details"] == {"name": name, "kind": "configmaps"}
    assert admin.get(f"{config_maps}/{name}").expect(200)["data"] == {"winner": "a"}


@pytest.mark.parametrize("bad", ["Upper", "a_b", "-a", "a-", "a..b", "x" * 254, "a b"])
def test_names_are_dns_subdomains(admin: RawClient, config_maps: str, bad: str) -> None:
    assert fields(refused(admin.post(config_maps, _config_map(bad)), 422, "Invalid")) == {"metadata.name"}


def test_name_is_required(admin: RawClient, config_maps: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}
    assert fields(refused(admin.post(config_maps, body), 422, "Invalid")) == {"metadata.name"}


def test_namespace_must_exist(admin: RawClient, name: str) -> None:
    status = refused(admin.post("/api/v1/namespaces/missing/configmaps", _config_map(name)), 404, "NotFound")
    assert status["details"] == {"name": "missing", "kind": "namespaces"}


def test_namespace_in_the_body_must_be_that_of_the_path(admin: RawClient, config_maps: str, name: str) -> None:
    body = _config_map(name)
    body["metadata"]["namespace"] = "default"
    refused(admin.post(config_maps, body), 400, "BadRequest")


def test_list_in_a_missing_namespace_is_empty(admin: RawClient) -> None:
    assert admin.get("/api/v1/namespaces/missing/configmaps").expect(200)["items"] == []


@pytest.mark.parametrize("precondition", ["uid", "resourceVersion"])
def test_delete_with_an_unmet_precondition_is_a_conflict(
    admin: RawClient, config_maps: str, name: str, precondition: str
) -> None:
    created = admin.post(config_maps, _config_map(name)).expect(201)["metadata"]
    admin.put(f"{config_maps}/{name}", _config_map(name, a="b")).expect(200)
    unmet = {"uid": _OTHER_UID, "resourceVersion": created["resourceVersion"]}[precondition]
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {precondition: unmet}}
    refused(admin.delete(f"{config_maps}/{name}", options), 409, "Conflict")
    met = admin.get(f"{config_maps}/{name}").expect(200)["metadata"][precondition]
    admin.delete(f"{config_maps}/{name}", {**options, "preconditions": {precondition: met}}).expect(200)


def test_finalizer_holds_a_deleted_object(admin: RawClient, config_maps: str, name: str) -> None:
    body = _config_map(name)
    body["metadata"]["finalizers"] = ["example.com/hold"]
    admin.post(config_maps, body).expect(201)
    deleted = admin.delete(f"{config_maps}/{name}").expect(200)
    assert deleted["kind"] == "ConfigMap"
    held = admin.get(f"{config_maps}/{name}").expect(200)
    assert held["metadata"]["deletionTimestamp"]
    assert held["metadata"]["deletionGracePeriodSeconds"] == 0
    admin.patch(f"{config_maps}/{name}", {"metadata": {"finalizers": None}}).expect(200)
    refused(admin.get(f"{config_maps}/{name}"), 404, "NotFound")


@pytest.mark.parametrize("field", ["controller", "blockOwnerDeletion"])
def test_owner_is_the_controller_by_a_truth_and_no_text(
    admin: RawClient, config_maps: str, name: str, field: str
) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "u", field: "true"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": [owner]}}
    refused(admin.post(config_maps, body), 400, "BadRequest")


@pytest.mark.parametrize(
    ("finalizer", "stands"), [("example", False), ("example.com/held", True), ("foregroundDeletion", True)]
)
def test_finalizer_has_a_domain(admin: RawClient, config_maps: str, name: str, finalizer: str, stands: bool) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "finalizers": [finalizer]}}
    answer = admin.post(config_maps, body)
    if not stands:
        assert fields(refused(answer, 422, "Invalid")) == {"metadata.finalizers[0]"}
        return
    answer.expect(201)
    admin.patch(f"{config_maps}/{name}", {"metadata": {"finalizers": None}}).expect(200)


def test_delete_collection_takes_what_the_selector_names(admin: RawClient, config_maps: str, name: str) -> None:
    for number in range(3):
        body = _config_map(f"{name}-{number}")
        body["metadata"]["labels"] = {"group": name, "odd": str(number % 2)}
        admin.post(config_maps, body).expect(201)
    admin.delete(config_maps, labelSelector=f"group={name},odd=0").expect(200)
    left = admin.get(config_maps, labelSelector=f"group={name}").expect(200)["items"]
    assert [item["metadata"]["name"] for item in left] == [f"{name}-1"]


def test_secret_takes_text_and_keeps_base64(admin: RawClient, namespace: str, name: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"value": "text"}}
    created = admin.post(path, body).expect(201)
    assert created["type"] == "Opaque"
    assert base64.b64decode(created["data"]["value"]) == b"text"
    assert "stringData" not in created


def test_secret_data_must_be_base64(admin: RawClient, namespace: str, name: str) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": {"value": "*"}}
    refused(admin.post(f"/api/v1/namespaces/{namespace}/secrets", body), 400, "BadRequest")


def test_secret_type_never_changes(admin: RawClient, namespace: str, name: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "cluster.x-k8s.io/secret"}
    created = admin.post(path, body).expect(201)
    assert created["type"] == "cluster.x-k8s.io/secret"
    assert fields(refused(admin.put(f"{path}/{name}", {**created, "type": "Opaque"}), 422, "Invalid")) == {"type"}


def _lease(name: str, holder: str) -> dict[str, Any]:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "2020-01-02T03:04:05.123456Z"}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}


def test_lease_is_taken_once(admin: RawClient, namespace: str, name: str) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    created = admin.post(path, _lease(name, "")).expect(201)
    admin.put(f"{path}/{name}", {**created, "spec": _lease(name, "a")["spec"]}).expect(200)
    refused(admin.put(f"{path}/{name}", {**created, "spec": _lease(name, "b")["spec"]}), 409, "Conflict")
    taken = admin.get(f"{path}/{name}").expect(200)["spec"]
    assert (taken["holderIdentity"], taken["renewTime"]) == ("a", "2020-01-02T03:04:05.123456Z")


@pytest.mark.parametrize(
    "time", ["2020-01-02T03:04:05Z", "2020-01-02T03:04:05.123Z", "2020-01-02 03:04:05.123456Z", "now"]
)
def test_lease_is_taken_at_a_time_with_microseconds(admin: RawClient, namespace: str, name: str, time: str) -> None:
    lease = _lease(name, "a")
    lease["spec"]["renewTime"] = time
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    refused(admin.post(path, lease), 400, "BadRequest")


def test_lease_needs_a_version_for_an_update(admin: RawClient, namespace: str, name: str) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    admin.post(path, _lease(name, "a")).expect(201)
    answer = admin.put(f"{path}/{name}", _lease(name, "b"))
    assert fields(refused(answer, 422, "Invalid")) == {"metadata.resourceVersion"}


def test_lease_that_exists_is_not_created_again(admin: RawClient, namespace: str, name: str) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    admin.post(path, _lease(name, "a")).expect(201)
    refused(admin.post(path, _lease(name, "b")), 409, "AlreadyExists")


def test_released_lease_has_no_holder_and_can_be_taken(admin: RawClient, namespace: str, name: str) -> None:
    """As client-go releases it, with all that leader election writes."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    held = {**_lease(name, "a")["spec"], "acquireTime": "2020-01-02T03:04:05.000001Z", "leaseTransitions": 3}
    created = admin.post(path, {**_lease(name, "a"), "spec": held}).expect(201)
    assert created["spec"] == held
    free = {**held, "holderIdentity": "", "leaseDurationSeconds": 1}
    released = admin.put(f"{path}/{name}", {**created, "spec": free}).expect(200)
    assert released["spec"].get("holderIdentity", "") == ""
    assert {**released["spec"], "holderIdentity": ""} == free
    taken = admin.put(f"{path}/{name}", {**released, "spec": {**held, "holderIdentity": "b"}}).expect(200)
    assert taken["spec"]["holderIdentity"] == "b"


def test_lease_that_is_gone_is_not_brought_back_by_an_update(admin: RawClient, namespace: str, name: str) -> None:
    """An update of what was read carries a UID, which an object that is not there does not have."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    created = admin.post(path, _lease(name, "a")).expect(201)
    admin.delete(f"{path}/{name}").expect(200)
    refused(admin.put(f"{path}/{name}", created), 409, "Conflict")
    refused(admin.get(f"{path}/{name}"), 404, "NotFound")


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("leaseDurationSeconds", 0, 422),
        ("leaseTransitions", -1, 422),
        ("renewTime", "", 400),
        ("renewTime", "2020-01-02 03:04:05", 400),
        ("leaseDurationSeconds", "15", 400),
    ],
)
def test_lease_that_no_leader_writes(
    admin: RawClient, namespace: str, name: str, field: str, value: object, code: int
) -> None:
    body = _lease(name, "a")
    body["spec"][field] = value
    answer = admin.post(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases", body)
    status = refused(answer, code, "Invalid" if code == 422 else "BadRequest")
    if code == 422:
        assert fields(status) == {f"spec.{field}"}


def test_event_is_created(admin: RawClient, namespace: str, name: str) -> None:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": {"kind": "ConfigMap", "namespace": namespace, "name": name, "apiVersion": "v1"},
        "type": "Warning",
        "reason": "Tried",
        "message": "a message",
        "source": {"component": "conformance"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    path = f"/api/v1/namespaces/{namespace}/events"
    created = admin.post(path, body).expect(201)
    assert (created["type"], created["reason"], created["count"]) == ("Warning", "Tried", 1)
    assert name in {item["metadata"]["name"] for item in admin.get(path).expect(200)["items"]}


def test_event_must_be_in_the_namespace_of_its_object(admin: RawClient, namespace: str, name: str) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name},
        "involvedObject": {"kind": "ConfigMap", "namespace": "default", "name": name},
        "reason": "Tried",
    }
    refused(admin.post(f"/api/v1/namespaces/{namespace}/events", body), 422, "Invalid")


def test_dry_run_stores_nothing(admin: RawClient, config_maps: str, name: str) -> None:
    admin.post(config_maps, _config_map(name), dryRun="All").expect(201)
    refused(admin.get(f"{config_maps}/{name}"), 404, "NotFound")


def test_deleted_namespace_takes_no_new_objects(admin: RawClient, name: str) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    assert admin.post("/api/v1/namespaces", body).expect(201)["status"]["phase"] == "Active"
    admin.delete(f"/api/v1/namespaces/{name}").expect(200)
    # With a controller that empties namespaces it is gone (404), without one it stays in deletion (403).
    answer = admin.post(f"/api/v1/namespaces/{name}/configmaps", _config_map("a"))
    assert (answer.status, answer.reason) in {(403, "Forbidden"), (404, "NotFound")}


def test_applied_object_is_created_then_changed(admin: RawClient, config_maps: str, name: str) -> None:
    path = f"{config_maps}/{name}"
    for data in ({"a": "b"}, {"a": "c"}):
        answer = admin.patch(path, _config_map(name, **data), APPLY_PATCH, fieldManager="conformance", force="true")
        assert answer.expect(200, 201)["data"] == data
    assert admin.get(path).expect(200)["data"] == {"a": "c"}
