"""CustomResourceDefinitions: schemas, defaults, pruning, the status subresource, generations, and versions."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.conformance.api import Api, fields, refused
from tests.support.processes import wait_until
from tests.support.raw_client import MERGE_PATCH, STRATEGIC_PATCH, Answer, RawClient

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_GROUP = "conformance.example.com"


def _schema() -> dict[str, Any]:
    address = {
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"type": "string"}, "address": {"type": "string"}},
    }
    spec = {
        "type": "object",
        "required": ["mode"],
        "properties": {
            "mode": {"type": "string", "enum": ["Observe", "Enforce"]},
            "clusterName": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 5},
            "count": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 10, "default": 3},
            "ratio": {"type": "number"},
            "names": {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "maxItems": 2,
                "x-kubernetes-list-type": "set",
            },
            "addresses": {
                "type": "array",
                "items": address,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
            "settings": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "port": {"x-kubernetes-int-or-string": True},
            "nullable": {"type": "string", "nullable": True},
            "nested": {
                "type": "object",
                "default": {},
                "properties": {"renew": {"type": "boolean", "default": True}},
            },
        },
    }
    status = {"type": "object", "properties": {"phase": {"type": "string"}, "ready": {"type": "boolean"}}}
    return {"type": "object", "properties": {"spec": spec, "status": status}}


def _definition(plural: str, kind: str, *, scope: str = "Namespaced", group: str = _GROUP) -> dict[str, Any]:
    def version(name: str, *, storage: bool) -> dict[str, Any]:
        return {
            "name": name,
            "served": True,
            "storage": storage,
            "schema": {"openAPIV3Schema": _schema()},
            "subresources": {"status": {}},
        }

    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": [version("v1beta1", storage=False), version("v1beta2", storage=True)],
        },
    }


def _install(admin: RawClient, definition: dict[str, Any]) -> None:
    admin.post(_CRDS, definition).expect(201)
    group, plural = definition["spec"]["group"], definition["spec"]["names"]["plural"]
    wait_until(lambda: admin.get(f"/apis/{group}/v1beta2/{plural}").status == 200, "the resource is served")


@pytest.fixture(scope="module")
def policies(admin: RawClient, namespace: str) -> str:
    """Path of a namespaced custom resource."""
    _install(admin, _definition("policies", "Policy"))
    return f"/apis/{_GROUP}/v1beta2/namespaces/{namespace}/policies"


def _policy(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"{_GROUP}/v1beta2",
        "kind": "Policy",
        "metadata": {"name": name},
        "spec": {"mode": "Observe", **spec},
    }


def test_definition_becomes_established(admin: RawClient, policies: str) -> None:
    assert policies
    found = admin.get(f"{_CRDS}/policies.{_GROUP}").expect(200)
    conditions = {condition["type"]: condition["status"] for condition in found["status"]["conditions"]}
    assert conditions["Established"] == "True"
    assert conditions["NamesAccepted"] == "True"
    assert found["status"]["acceptedNames"]["listKind"] == "PolicyList"
    assert found["status"]["storedVersions"] == ["v1beta2"]


def test_resource_is_discovered(admin: RawClient, policies: str) -> None:
    assert policies
    found = admin.get(f"/apis/{_GROUP}/v1beta2").expect(200)
    resources = {resource["name"]: resource for resource in found["resources"]}
    assert set(resources) == {"policies", "policies/status"}
    assert resources["policies"]["kind"] == "Policy"
    assert resources["policies"]["namespaced"] is True
    assert {"create", "delete", "get", "list", "patch", "update", "watch"} <= set(resources["policies"]["verbs"])
    group = admin.get(f"/apis/{_GROUP}").expect(200)
    assert {version["version"] for version in group["versions"]} == {"v1beta1", "v1beta2"}


def test_defaults_are_filled_in(admin: RawClient, policies: str, name: str) -> None:
    created = admin.post(policies, _policy(name)).expect(201)
    assert created["spec"] == {"mode": "Observe", "count": 3, "nested": {"renew": True}}
    assert created["metadata"]["generation"] == 1


def test_null_takes_the_default(admin: RawClient, policies: str, name: str) -> None:
    spec = admin.post(policies, _policy(name, count=None, nullable=None)).expect(201)["spec"]
    assert spec["count"] == 3
    assert spec["nullable"] is None


def test_unknown_fields_are_pruned(admin: RawClient, policies: str, name: str) -> None:
    body = _policy(name, unknown=1, nested={"renew": False, "other": 2}, settings={"any": {"thing": [1]}})
    created = admin.post(policies, {**body, "more": 1}).expect(201)
    assert created["spec"]["nested"] == {"renew": False}
    assert created["spec"]["settings"] == {"any": {"thing": [1]}}
    assert "unknown" not in created["spec"]
    assert "more" not in created


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        ({"mode": "Ignore"}, "spec.mode", 'Unsupported value: "Ignore": supported values: '),
        ({"mode": 1}, "spec.mode", "must be of type string"),
        ({"clusterName": "UPPER"}, "spec.clusterName", "should match '^[a-z]+$'"),
        ({"clusterName": "a"}, "spec.clusterName", ""),
        ({"clusterName": "abcdef"}, "spec.clusterName", ""),
        ({"count": 0}, "spec.count", "should be greater than or equal to 1"),
        ({"count": 11}, "spec.count", "should be less than or equal to 10"),
        ({"count": "3"}, "spec.count", "must be of type integer"),
        ({"count": 1.5}, "spec.count", ""),
        ({"names": []}, "spec.names", ""),
        ({"names": ["a", "b", "c"]}, "spec.names", ""),
        ({"names": ["a", "a"]}, "spec.names[1]", "Duplicate value"),
        ({"names": [1]}, "spec.names[0]", "must be of type string"),
        ({"names": "a"}, "spec.names", "must be of type array"),
        ({"addresses": [{"type": "a"}, {"type": "a"}]}, "spec.addresses[1]", "Duplicate value"),
        ({"addresses": [{"address": "a"}]}, "spec.addresses[0].type", "Required value"),
        ({"labels": {"a": 1}}, "spec.labels.a", "must be of type string"),
        ({"port": True}, "spec.port", "must be of type"),
        ({"settings": []}, "spec.settings", "must be of type object"),
    ],
)
def test_schema_is_enforced(
    admin: RawClient, policies: str, name: str, spec: dict[str, Any], field: str, words: str
) -> None:
    status = refused(admin.post(policies, _policy(name, **spec)), 422, "Invalid")
    # 1.20 leaves the index out where the value in a list is wrong in itself; later versions tell it.
    assert field in fields(status) or re.sub(r"\[\d+\]", "", field) in fields(status)
    assert words in status["message"]
    assert status["details"]["kind"] == "Policy"
    assert status["details"]["group"] == _GROUP


@pytest.mark.parametrize(
    "spec",
    [
        {"port": 80},
        {"port": "https"},
        {"ratio": 1},
        {"ratio": 1.5},
        {"labels": {"a": "b"}},
        {"addresses": [{"type": "a"}, {"type": "b"}]},
        {"clusterName": "abcde"},
        {"count": 10},
    ],
)
def test_schema_admits(admin: RawClient, policies: str, name: str, spec: dict[str, Any]) -> None:
    created = admin.post(policies, _policy(name, **spec)).expect(201)
    assert {key: created["spec"][key] for key in spec} == spec


def test_required_field_is_required(admin: RawClient, policies: str, name: str) -> None:
    body = _policy(name)
    del body["spec"]["mode"]
    status = refused(admin.post(policies, body), 422, "Invalid")
    assert fields(status) == {"spec.mode"}
    assert "Required value" in status["message"]


def test_schema_is_enforced_on_update_and_patch(admin: RawClient, policies: str, name: str) -> None:
    created = admin.post(policies, _policy(name)).expect(201)
    path = f"{policies}/{name}"
    wrong = {**created, "spec": {"mode": "Ignore"}}
    assert fields(refused(admin.put(path, wrong), 422, "Invalid")) == {"spec.mode"}
    refused(admin.patch(path, {"spec": {"count": 0}}), 422, "Invalid")
    assert admin.get(path).expect(200) == created


def test_status_is_written_through_its_subresource_only(admin: RawClient, policies: str, name: str) -> None:
    path = f"{policies}/{name}"
    created = admin.post(policies, {**_policy(name), "status": {"phase": "Forged"}}).expect(201)
    assert "status" not in created
    assert "status" not in admin.put(path, {**created, "status": {"phase": "Forged"}}).expect(200)
    assert "status" not in admin.patch(path, {"status": {"phase": "Forged"}}).expect(200)
    written = admin.put(f"{path}/status", {**created, "status": {"phase": "Ready", "unknown": 1}}).expect(200)
    assert written["status"] == {"phase": "Ready"}
    patched = admin.patch(f"{path}/status", {"status": {"ready": True}}).expect(200)
    assert patched["status"] == {"phase": "Ready", "ready": True}
    assert admin.get(f"{path}/status").expect(200) == admin.get(path).expect(200) == patched


def test_status_write_changes_neither_spec_nor_metadata(admin: RawClient, policies: str, name: str) -> None:
    created = admin.post(policies, _policy(name)).expect(201)
    metadata = {**created["metadata"], "annotations": {"a": "b"}}
    forged = {**created, "metadata": metadata, "spec": {"mode": "Enforce"}, "status": {"phase": "Ready"}}
    written = admin.put(f"{policies}/{name}/status", forged).expect(200)
    assert written["spec"] == created["spec"]
    assert "annotations" not in written["metadata"]
    assert written["metadata"]["generation"] == 1


def test_status_survives_an_update_of_the_spec(admin: RawClient, policies: str, name: str) -> None:
    created = admin.post(policies, _policy(name)).expect(201)
    path = f"{policies}/{name}"
    written = admin.put(f"{path}/status", {**created, "status": {"phase": "Ready"}}).expect(200)
    without = {key: value for key, value in written.items() if key != "status"}
    updated = admin.put(path, {**without, "spec": {"mode": "Enforce"}}).expect(200)
    assert updated["status"] == {"phase": "Ready"}
    assert updated["spec"]["mode"] == "Enforce"


def test_generation_counts_changes_of_the_spec(admin: RawClient, policies: str, name: str) -> None:
    path = f"{policies}/{name}"
    admin.post(policies, _policy(name)).expect(201)

    def generation_after(answer: Answer) -> int:
        return int(answer.expect(200)["metadata"]["generation"])

    assert generation_after(admin.patch(path, {"metadata": {"labels": {"a": "b"}}})) == 1
    assert generation_after(admin.patch(f"{path}/status", {"status": {"phase": "a"}})) == 1
    assert generation_after(admin.patch(path, {"spec": {"count": 4}})) == 2
    assert generation_after(admin.patch(path, {"spec": {"count": 4}})) == 2


def test_generation_counts_the_beginning_of_a_deletion(admin: RawClient, policies: str, name: str) -> None:
    """Controllers that look at changes of the generation alone see a deletion by it."""
    path = f"{policies}/{name}"
    body = _policy(name)
    body["metadata"]["finalizers"] = [f"{_GROUP}/held"]
    assert admin.post(policies, body).expect(201)["metadata"]["generation"] == 1
    assert admin.delete(path).expect(200)["metadata"]["generation"] == 2
    assert admin.delete(path).expect(200)["metadata"]["generation"] == 2
    admin.patch(path, {"metadata": {"finalizers": None}}).expect(200)


def test_update_needs_a_version(admin: RawClient, policies: str, name: str) -> None:
    admin.post(policies, _policy(name)).expect(201)
    answer = admin.put(f"{policies}/{name}", _policy(name, count=4))
    assert fields(refused(answer, 422, "Invalid")) == {"metadata.resourceVersion"}


def test_update_needs_nothing_that_the_server_fills_in(admin: RawClient, policies: str, name: str) -> None:
    created = admin.post(policies, _policy(name)).expect(201)
    path = f"{policies}/{name}"
    labelled = admin.patch(path, {"metadata": {"labels": {"a": "b"}}}).expect(200)
    given = {key: labelled["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion", "labels")}
    updated = admin.put(path, {**_policy(name, count=4), "metadata": {**given, "managedFields": [{}]}}).expect(200)
    metadata = updated["metadata"]
    assert "managedFields" not in metadata
    assert {key: metadata[key] for key in ("uid", "creationTimestamp", "labels")} == {
        "uid": created["metadata"]["uid"],
        "creationTimestamp": created["metadata"]["creationTimestamp"],
        "labels": {"a": "b"},
    }
    assert metadata["generation"] == 2
    other = {**metadata, "uid": "00000000-0000-4000-8000-000000000000"}
    refused(admin.put(path, {**_policy(name), "metadata": other}), 409, "Conflict")


def test_stale_version_is_a_conflict(admin: RawClient, policies: str, name: str) -> None:
    created = admin.post(policies, _policy(name)).expect(201)
    admin.patch(f"{policies}/{name}", {"spec": {"count": 4}}).expect(200)
    status = refused(admin.put(f"{policies}/{name}", created), 409, "Conflict")
    assert status["details"] == {"name": name, "group": _GROUP, "kind": "policies"}


def test_second_creation_is_refused(admin: RawClient, policies: str, name: str) -> None:
    admin.post(policies, _policy(name)).expect(201)
    refused(admin.post(policies, _policy(name)), 409, "AlreadyExists")


def test_strategic_patch_is_not_supported(admin: RawClient, policies: str, name: str) -> None:
    admin.post(policies, _policy(name)).expect(201)
    answer = admin.patch(f"{policies}/{name}", {"spec": {"count": 4}}, STRATEGIC_PATCH)
    refused(answer, 415, "UnsupportedMediaType")
    admin.patch(f"{policies}/{name}", {"spec": {"count": 4}}, MERGE_PATCH).expect(200)


def test_both_versions_show_one_object(admin: RawClient, policies: str, name: str) -> None:
    older = policies.replace("v1beta2", "v1beta1")
    created = admin.post(policies, _policy(name)).expect(201)
    seen = admin.get(f"{older}/{name}").expect(200)
    assert seen["apiVersion"] == f"{_GROUP}/v1beta1"
    assert seen["metadata"]["uid"] == created["metadata"]["uid"]
    assert seen["spec"] == created["spec"]
    admin.put(f"{older}/{name}", {**seen, "spec": {**seen["spec"], "count": 5}}).expect(200)
    updated = admin.get(f"{policies}/{name}").expect(200)
    assert (updated["apiVersion"], updated["spec"]["count"]) == (f"{_GROUP}/v1beta2", 5)
    (listed,) = admin.get(older, fieldSelector=f"metadata.name={name}").expect(200)["items"]
    assert listed["apiVersion"] == f"{_GROUP}/v1beta1"


def test_body_of_another_kind_or_version_is_refused(admin: RawClient, policies: str, name: str) -> None:
    assert "kind" in fields(refused(admin.post(policies, {**_policy(name), "kind": "Other"}), 422, "Invalid"))
    refused(admin.post(policies, {**_policy(name), "apiVersion": f"{_GROUP}/v1beta1"}), 400, "BadRequest")


def test_list_and_watch(admin: RawClient, policies: str, name: str) -> None:
    listed = admin.get(policies).expect(200)
    assert (listed["kind"], listed["apiVersion"]) == ("PolicyList", f"{_GROUP}/v1beta2")
    version = listed["metadata"]["resourceVersion"]
    with admin.watch(policies, resourceVersion=version, fieldSelector=f"metadata.name={name}") as watch:
        created = admin.post(policies, _policy(name)).expect(201)
        changed = admin.patch(f"{policies}/{name}", {"spec": {"count": 4}}).expect(200)
        admin.delete(f"{policies}/{name}").expect(200)
        events = watch.take(3)
    assert [event.type for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert [event.object for event in events[:2]] == [created, changed]


def test_watch_from_a_forgotten_version_is_expired(admin: RawClient, api: Api, policies: str, name: str) -> None:
    admin.post(policies, _policy(name)).expect(201)
    api.compact()
    # The definition, and with it the history of its objects, is younger than the first version of the server.
    opened = admin.try_watch(policies, resourceVersion="1", timeoutSeconds="5")
    if isinstance(opened, Answer):
        refused(opened, 410, "Expired")
        return
    with opened as watch:
        (event,) = watch.rest()
    assert event.type == "ERROR"
    assert (event.object["kind"], event.object["code"], event.object["reason"]) == ("Status", 410, "Expired")


def test_cluster_scoped_resource(admin: RawClient, name: str) -> None:
    _install(admin, _definition("reservations", "Reservation", scope="Cluster", group="cluster.example.com"))
    path = "/apis/cluster.example.com/v1beta2/reservations"
    body = {**_policy(name), "apiVersion": "cluster.example.com/v1beta2", "kind": "Reservation"}
    created = admin.post(path, body).expect(201)
    assert "namespace" not in created["metadata"]
    assert admin.get(f"{path}/{name}").expect(200) == created
    namespaced = admin.get(f"/apis/cluster.example.com/v1beta2/namespaces/default/reservations/{name}")
    assert namespaced.status == 404


def test_a_resource_that_is_not_served_is_no_object_that_is_missing(admin: RawClient, namespace: str) -> None:
    """kube-apiserver says the same of every object of a custom resource until it has read the definitions."""
    for path in (
        "/apis/nobody.example.com",
        "/apis/nobody.example.com/v1",
        f"/apis/nobody.example.com/v1/namespaces/{namespace}/things",
        f"/apis/nobody.example.com/v1/namespaces/{namespace}/things/one",
    ):
        answer = admin.get(path)
        assert (answer.status, answer.text) == (404, "404 page not found\n"), path


def test_deleted_definition_takes_its_objects_along(admin: RawClient, namespace: str, name: str) -> None:
    definition = _definition("passings", "Passing", group="passing.example.com")
    path = f"/apis/passing.example.com/v1beta2/namespaces/{namespace}/passings"
    _install(admin, definition)
    body = {**_policy(name), "apiVersion": "passing.example.com/v1beta2", "kind": "Passing"}
    admin.post(path, body).expect(201)
    admin.delete(f"{_CRDS}/passings.passing.example.com").expect(200)
    wait_until(lambda: admin.get(path).status == 404, "the resource is gone")
    wait_until(lambda: admin.get(f"{_CRDS}/passings.passing.example.com").status == 404, "the definition is gone")
    _install(admin, definition)
    assert admin.get(path).expect(200)["items"] == []


def test_definition_must_be_named_after_its_resource(admin: RawClient) -> None:
    definition = _definition("wrongs", "Wrong")
    definition["metadata"]["name"] = f"others.{_GROUP}"
    assert "metadata.name" in fields(refused(admin.post(_CRDS, definition), 422, "Invalid"))


def test_definition_stores_one_version(admin: RawClient) -> None:
    definition = _definition("doubles", "Double")
    definition["spec"]["versions"][0]["storage"] = True
    refused(admin.post(_CRDS, definition), 422, "Invalid")
