"""The chart's admission policies for the controller's own ServiceAccount, at a real API server: its token gives no more
than the controller's own writes, whatever the roles allow.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from signer.crds import custom_resource_definitions
from signer.kube.resources import MACHINES_V1BETA2, NODE_ATTESTATION_POLICIES, Resource
from signer.testing.cluster_api import capi_crds
from tests.conformance.api import version_of
from tests.support.control_plane import ControlPlane
from tests.support.helm import render_chart
from tests.support.infra_cluster import INFRASTRUCTURE, SIGNER_FIELD, infrastructure_definition
from tests.support.processes import wait_until
from tests.support.raw_client import RawClient
from tests.support.yaml_documents import safe_load, safe_load_all

pytestmark = [pytest.mark.real, pytest.mark.slow]

SINCE: Final = (1, 30)
SERVICE_ACCOUNT: Final = "system:serviceaccount:own:controller"
"""A certificate has no room for a longer name."""
NAME: Final = "own-admission"
ORDER: Final = "attestation.cluster.x-k8s.io/operation"
VALUES: Final = {
    "rbac": {"admissionPolicies": True, "infrastructureStatus": True},
    "serviceAccount": {"name": "controller"},
}
OTHER: Final = {"type": "Ready", "status": "True", "reason": "Fine", "lastTransitionTime": "2026-01-01T00:00:00Z"}
OURS: Final = {**OTHER, "type": "NodeAttested"}
OWNER: Final = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": NAME, "uid": "c-1"}
FOREIGN: Final = {"apiVersion": "v1", "kind": "ConfigMap", "name": "set-by-somebody", "uid": "f-1"}

Object = dict[str, Any]
Change = Callable[[Object], None]


def _object(resource: Resource, kind: str, spec: Object, status: Object) -> tuple[Resource, Object]:
    metadata: Object = {
        "name": NAME,
        "namespace": "default",
        "annotations": {ORDER: "x", "kept": "x"},
        "labels": {"a": "b"},
    }
    metadata["ownerReferences"] = [FOREIGN]
    content = {"apiVersion": resource.api_version, "kind": kind, "metadata": metadata, "spec": spec}
    return resource, {**content, "status": status} if status else content


OBJECTS: Final = {
    "policy": _object(
        NODE_ATTESTATION_POLICIES, "NodeAttestationPolicy", {"authorizedAttestors": [{"name": "tpm"}]}, {}
    ),
    "machine": _object(
        MACHINES_V1BETA2,
        "Machine",
        {
            "clusterName": NAME,
            "bootstrap": {"dataSecretName": "x"},
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Test", "name": NAME},
        },
        {"phase": "Running", "conditions": [OTHER], "v1beta2": {"conditions": [OTHER], "more": "x"}},
    ),
    "infrastructure": _object(INFRASTRUCTURE, "Test", {}, {"phase": "Running"}),
}


@pytest.fixture(scope="module")
def admin(real_control_plane: ControlPlane) -> Iterator[RawClient]:
    """The objects are there."""
    with RawClient(real_control_plane.connection()) as client:
        if version_of(client) < SINCE:
            pytest.skip("ValidatingAdmissionPolicies need Kubernetes 1.30")
        for text in (*custom_resource_definitions(), *capi_crds()):
            real_control_plane.install_crd(safe_load(text))
        real_control_plane.install_crd(infrastructure_definition(SIGNER_FIELD))
        for resource, manifest in OBJECTS.values():
            client.post(resource.collection("default"), manifest).expect(201)
            if "status" in manifest:
                path = f"{resource.object(NAME, 'default')}/status"
                client.patch(path, {"status": manifest["status"]}).expect(200)
        yield client
        for resource, _ in OBJECTS.values():
            client.delete(resource.object(NAME, "default"))


@pytest.fixture(scope="module")
def controller(real_control_plane: ControlPlane, admin: RawClient) -> Iterator[RawClient]:
    """The ServiceAccount, which RBAC allows everything, under the policies."""
    version = "{}.{}.0".format(*version_of(admin))
    rendered = render_chart(VALUES, namespace="own", kube_version=version, templates=["admission.yaml"])
    made = []
    for manifest in filter(None, safe_load_all(rendered)):
        plural = "validatingadmissionpolicies" if "Binding" not in manifest["kind"] else ""
        plural = plural or "validatingadmissionpolicybindings"
        collection = f"/apis/admissionregistration.k8s.io/v1/{plural}"
        admin.post(collection, manifest).expect(201)
        made.append(f"{collection}/{manifest['metadata']['name']}")
    assert len(made) == 6
    with RawClient(real_control_plane.connection(SERVICE_ACCOUNT, ["system:masters"])) as client:
        for name, change in (
            ("policy", lambda it: it["metadata"].update(labels={})),
            ("machine", lambda it: it["status"].update(phase="Failed")),
            ("infrastructure", lambda it: it["status"].update(phase="Failed")),
        ):
            wait_until(lambda name=name, change=change: _put(client, name, change) == 403, f"{name} is guarded")  # type: ignore[misc]
        yield client
    for path in made:
        admin.delete(path)


def _put(client: RawClient, name: str, change: Change) -> int:
    """The status of the answer to a write that is only tried."""
    resource, _ = OBJECTS[name]
    path = resource.object(NAME, "default")
    found = copy.deepcopy(client.get(path).expect(200))
    change(found)
    answer = client.put(path if name == "policy" else f"{path}/status", found, dryRun="All")
    return answer.status


def _changed(*path: str, value: Any) -> Change:
    def change(it: Object) -> None:
        for key in path[:-1]:
            it = it.setdefault(key, {})
        it[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("policy", _changed("metadata", "ownerReferences", value=[FOREIGN, OWNER])),
        ("policy", _changed("metadata", "annotations", value={"kept": "x"})),
        ("machine", _changed("status", "conditions", value=[OTHER, OURS])),
        ("machine", _changed("status", "conditions", value=[OURS, OTHER])),
        ("machine", _changed("status", "v1beta2", "conditions", value=[OTHER, OURS])),
        ("infrastructure", _changed("status", SIGNER_FIELD, value="x/y")),
    ],
)
def test_what_the_controller_writes(controller: RawClient, name: str, change: Change) -> None:
    assert _put(controller, name, change) == 200


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("policy", _changed("metadata", "ownerReferences", value=[FOREIGN, {**OWNER, "kind": "ConfigMap"}])),
        ("policy", _changed("metadata", "ownerReferences", value=[FOREIGN, {**OWNER, "apiVersion": "example.org/v1"}])),
        ("policy", _changed("metadata", "ownerReferences", value=[FOREIGN, {**OWNER, "name": "another"}])),
        ("policy", _changed("metadata", "ownerReferences", value=[OWNER])),
        ("policy", _changed("spec", "mode", value="Enforce")),
        ("policy", _changed("spec", "authorizedAttestors", value=[{"name": "insecure"}])),
        ("policy", _changed("metadata", "labels", value={"a": "c"})),
        ("policy", _changed("metadata", "finalizers", value=["x.org/y"])),
        ("policy", _changed("metadata", "annotations", value={"kept": "x", ORDER: "y"})),
        ("policy", _changed("metadata", "annotations", value={ORDER: "x"})),
        ("policy", _changed("metadata", "annotations", value={ORDER: "x", "kept": "x", "more": "x"})),
        ("machine", _changed("status", "nodeRef", value={"name": "x"})),
        ("machine", _changed("status", "addresses", value=[{"type": "InternalIP", "address": "10.0.0.1"}])),
        ("machine", _changed("status", "phase", value="Failed")),
        ("machine", lambda it: it["status"].pop("phase")),
        ("machine", _changed("status", "conditions", value=[OURS])),
        ("machine", _changed("status", "conditions", value=[{**OTHER, "status": "False"}])),
        ("machine", _changed("status", "v1beta2", "conditions", value=[OURS])),
        ("machine", _changed("status", "v1beta2", "more", value="y")),
        ("machine", lambda it: it["status"]["v1beta2"].pop("more")),
        ("infrastructure", _changed("status", "phase", value="Failed")),
        ("infrastructure", lambda it: it["status"].pop("phase")),
    ],
)
def test_what_it_never_writes(controller: RawClient, admin: RawClient, name: str, change: Change) -> None:
    assert _put(controller, name, change) == 403
    assert _put(admin, name, change) == 200, "others may"


def test_it_deletes_no_policy(controller: RawClient, admin: RawClient) -> None:
    """With ``rbac.ownerReferences`` its role allows that. Enforce would end with the policy."""
    path = NODE_ATTESTATION_POLICIES.object(NAME, "default")
    answer = controller.delete(path, dryRun="All")
    assert answer.status == 403
    assert "the controller deletes no policy" in str(answer.body)
    assert admin.delete(path, dryRun="All").status == 200
