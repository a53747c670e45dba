"""What access grants rely on: writes of status, dry runs, the end by a finalizer, and reviews of a virtual resource."""

from __future__ import annotations

from typing import Any, Final

import pytest

from signer.crds import access_definitions
from tests.conformance.api import refused
from tests.support.access_objects import grant_object
from tests.support.processes import wait_until
from tests.support.raw_client import RawClient
from tests.support.yaml_documents import safe_load

CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
GROUP: Final = "access.cluster.x-k8s.io"


@pytest.fixture
def grants(admin: RawClient, namespace: str) -> str:
    """Path of the collection, once it is served."""
    path = f"/apis/{GROUP}/v1alpha1/namespaces/{namespace}/accessgrants"
    for text in access_definitions():
        admin.post(CRDS, safe_load(text)).expect(201, 409)
    wait_until(lambda: admin.get(path).status == 200, "AccessGrants are served")
    return path


def grant(name: str, **metadata: Any) -> dict[str, Any]:
    found = grant_object(name)
    return {**found, "metadata": {"name": name, **metadata}}


def test_a_dry_run_is_answered_as_it_would_be_stored_and_leaves_nothing(
    admin: RawClient, grants: str, name: str
) -> None:
    answer = admin.post(grants, grant(name), dryRun="All").expect(201)
    assert answer["spec"]["createdBy"]["username"] == "alice"
    refused(admin.get(f"{grants}/{name}"), 404, "NotFound")
    invalid = {**grant(name), "spec": {**grant(name)["spec"], "logins": "root"}}
    refused(admin.post(grants, invalid, dryRun="All"), 422, "Invalid")


def test_a_patch_of_status_names_the_version_that_it_is_about(admin: RawClient, grants: str, name: str) -> None:
    created = admin.post(grants, grant(name)).expect(201)["metadata"]
    first = {
        "metadata": {"resourceVersion": created["resourceVersion"]},
        "status": {"record": {"sequence": 1, "closing": {"cause": "x"}}, "knownHosts": ["a"]},
    }
    answer = admin.patch(f"{grants}/{name}/status", first).expect(200)
    assert answer["metadata"]["generation"] == created["generation"]
    refused(admin.patch(f"{grants}/{name}/status", first), 409, "Conflict")
    other = {"metadata": {"uid": "00000000-0000-4000-8000-000000000000"}, "status": {"knownHosts": []}}
    found = admin.patch(f"{grants}/{name}/status", other).expect(200)
    assert found["metadata"]["uid"] == created["uid"], "a UID is no precondition there; the version is enough"


def test_a_patch_leaves_fields_alone_that_it_does_not_name_and_null_removes(
    admin: RawClient, grants: str, name: str
) -> None:
    admin.post(grants, grant(name)).expect(201)
    status = {"record": {"sequence": 1, "closing": {"cause": "x"}}, "knownHosts": ["a"], "ingress": {"ip": "1.2.3.4"}}
    admin.patch(f"{grants}/{name}/status", {"status": status}).expect(200)
    change = {"record": {"sequence": 2, "closing": None}, "ingress": None}
    found = admin.patch(f"{grants}/{name}/status", {"status": change}).expect(200)["status"]
    assert found == {"record": {"sequence": 2}, "knownHosts": ["a"]}


def test_a_patch_of_the_object_does_not_reach_the_status(admin: RawClient, grants: str, name: str) -> None:
    admin.post(grants, grant(name)).expect(201)
    patch = {"metadata": {"annotations": {f"{GROUP}/heartbeat": "1"}}, "status": {"knownHosts": ["a"]}}
    found = admin.patch(f"{grants}/{name}", patch).expect(200)
    assert "status" not in found
    assert found["metadata"]["generation"] == 1, "a heartbeat is no change of the spec"


def test_a_deleted_grant_waits_for_its_finalizer(admin: RawClient, grants: str, name: str) -> None:
    created = admin.post(grants, grant(name, finalizers=[f"{GROUP}/access-grant"])).expect(201)["metadata"]
    stale = {"preconditions": {"uid": created["uid"], "resourceVersion": "1"}}
    refused(admin.delete(f"{grants}/{name}", stale), 409, "Conflict")
    admin.delete(f"{grants}/{name}", {"preconditions": {"uid": created["uid"]}}).expect(200)
    waiting = admin.get(f"{grants}/{name}").expect(200)
    assert "deletionTimestamp" in waiting["metadata"]
    admin.patch(f"{grants}/{name}/status", {"status": {"knownHosts": ["a"]}}).expect(200)
    version = {"resourceVersion": admin.get(f"{grants}/{name}").expect(200)["metadata"]["resourceVersion"]}
    admin.patch(f"{grants}/{name}", {"metadata": {**version, "finalizers": []}}).expect(200)
    refused(admin.get(f"{grants}/{name}"), 404, "NotFound")


def test_rights_to_a_resource_without_objects_are_reviewed_by_name_and_groups(
    admin: RawClient, namespace: str, name: str
) -> None:
    rule = {"apiGroups": [GROUP], "resources": ["logins"], "resourceNames": ["root"], "verbs": ["use"]}
    admin.post(f"{RBAC}/namespaces/{namespace}/roles", {"metadata": {"name": name}, "rules": [rule]}).expect(201)
    subject = {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": name}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
    admin.post(f"{RBAC}/namespaces/{namespace}/rolebindings", binding).expect(201)

    def allowed(login: str, verb: str = "use", groups: tuple[str, ...] = (name,), place: str = namespace) -> bool:
        attributes = {"group": GROUP, "resource": "logins", "verb": verb, "name": login, "namespace": place}
        spec = {"user": "alice", "uid": "u-1", "groups": list(groups), "resourceAttributes": attributes}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        return admin.post(REVIEWS, review).expect(201)["status"]["allowed"] is True

    wait_until(lambda: allowed("root"), "the binding counts")
    assert not allowed("admin")
    assert not allowed("root", verb="approve")
    assert not allowed("root", groups=())
    assert not allowed("root", place="default")
