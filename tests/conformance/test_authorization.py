"""Who may do what: bootstrap tokens, nodes, RBAC rules, and the reviews that ask about it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api import ACCESS_REVIEWS, Clients, allowed, fields, grant, refused
from tests.support.kubeadm import NODE_TOKEN_GROUP, NODES_GROUP, RBAC, cluster_role_binding
from tests.support.processes import wait_until
from tests.support.raw_client import JSON_PATCH, RawClient
from tests.support.signing_requests import COLLECTION, condition, signing_request, with_conditions

_CERTIFICATES = "certificates.k8s.io"
_NODE_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_NODES = "/api/v1/nodes"


# What a bootstrap token may do.


def test_token_may_create_and_read_signing_requests(clients: Clients, token: str, name: str) -> None:
    client = clients.bearer(token)
    created = client.post(COLLECTION, signing_request(name)).expect(201)
    assert client.get(f"{COLLECTION}/{name}").expect(200) == created
    assert name in {item["metadata"]["name"] for item in client.get(COLLECTION).expect(200)["items"]}
    before = str(int(created["metadata"]["resourceVersion"]) - 1)
    with client.watch(COLLECTION, resourceVersion=before, fieldSelector=f"metadata.name={name}") as watch:
        assert watch.take(1)[0].object == created


def test_token_may_not_change_signing_requests(admin: RawClient, clients: Clients, token: str, name: str) -> None:
    client = clients.bearer(token)
    created = client.post(COLLECTION, signing_request(name)).expect(201)
    approved = with_conditions(created, condition("Approved"))
    path = f"{COLLECTION}/{name}"
    for answer in (
        client.put(path, created),
        client.put(f"{path}/approval", approved),
        client.put(f"{path}/status", approved),
        client.patch(path, {"metadata": {"annotations": {"a": "b"}}}),
        client.delete(path),
        client.delete(COLLECTION),
    ):
        refused(answer, 403, "Forbidden")
    assert admin.get(path).expect(200) == created


@pytest.mark.parametrize(
    "path", ["/api/v1/secrets", "/api/v1/nodes", "/api/v1/namespaces/kube-system/configmaps", "/api/v1/pods"]
)
def test_token_may_not_list_other_objects(clients: Clients, token: str, path: str) -> None:
    status = refused(clients.bearer(token).get(path), 403, "Forbidden")
    assert status["details"]["kind"] == path.rpartition("/")[2]


def test_token_may_get_a_node_but_not_write_it(admin: RawClient, clients: Clients, token: str, name: str) -> None:
    admin.post(_NODES, _node(name)).expect(201)
    client = clients.bearer(token)
    assert client.get(f"{_NODES}/{name}").expect(200)["metadata"]["name"] == name
    refused(client.post(_NODES, _node(f"{name}-2")), 403, "Forbidden")


# What a node may do.


def _node(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {}}


def test_node_may_register_and_change_itself(clients: Clients, name: str) -> None:
    node = clients.node(name)
    created = node.post(_NODES, _node(name)).expect(201)
    assert created["metadata"]["name"] == name
    patched = node.patch(f"{_NODES}/{name}", {"metadata": {"annotations": {"a": "b"}}}).expect(200)
    assert patched["metadata"]["annotations"] == {"a": "b"}
    status = {"status": {"nodeInfo": {"machineID": "m"}}}
    assert node.patch(f"{_NODES}/{name}/status", status).expect(200)["status"]["nodeInfo"]["machineID"] == "m"


def test_node_may_choose_its_provider_id_when_it_registers(clients: Clients, name: str) -> None:
    body = {**_node(name), "spec": {"providerID": "aws:///eu-west-1a/i-forged"}}
    assert clients.node(name).post(_NODES, body).expect(201)["spec"]["providerID"] == "aws:///eu-west-1a/i-forged"


def test_node_may_not_register_or_change_another(admin: RawClient, clients: Clients, name: str) -> None:
    node = clients.node(f"{name}-1")
    other = f"{name}-2"
    refused(node.post(_NODES, _node(other)), 403, "Forbidden")
    admin.post(_NODES, _node(other)).expect(201)
    patch = {"metadata": {"annotations": {"a": "b"}}}
    refused(node.patch(f"{_NODES}/{other}", patch), 403, "Forbidden")
    refused(node.patch(f"{_NODES}/{other}/status", patch), 403, "Forbidden")
    refused(node.put(f"{_NODES}/{other}", _node(other)), 403, "Forbidden")


def test_node_may_not_delete_itself(clients: Clients, name: str) -> None:
    node = clients.node(name)
    node.post(_NODES, _node(name)).expect(201)
    refused(node.delete(f"{_NODES}/{name}"), 403, "Forbidden")


def test_node_may_not_change_its_taints(clients: Clients, name: str) -> None:
    node = clients.node(name)
    node.post(_NODES, _node(name)).expect(201)
    taints = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    refused(node.patch(f"{_NODES}/{name}", taints), 403, "Forbidden")


def test_node_may_not_set_restricted_labels(clients: Clients, name: str) -> None:
    label = {"node-restriction.kubernetes.io/zone": "a"}
    refused(clients.node(name).post(_NODES, _node(name, **label)), 403, "Forbidden")
    clients.node(name).post(_NODES, _node(name, zone="a")).expect(201)


def test_node_may_not_read_secrets_or_config_maps_at_large(clients: Clients) -> None:
    node = clients.node("n1")
    for path in (
        "/api/v1/secrets",
        "/api/v1/namespaces/kube-system/secrets",
        "/api/v1/namespaces/kube-system/secrets/bootstrap-token-abcdef",
        "/api/v1/configmaps",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    ):
        refused(node.get(path), 403, "Forbidden")


def test_node_keeps_its_own_lease_only(clients: Clients, name: str) -> None:
    def lease(of: str) -> dict[str, Any]:
        spec = {"holderIdentity": of, "leaseDurationSeconds": 40}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": of}, "spec": spec}

    node = clients.node(name)
    created = node.post(_NODE_LEASES, lease(name)).expect(201)
    node.put(f"{_NODE_LEASES}/{name}", created).expect(200)
    refused(node.post(_NODE_LEASES, lease(f"{name}-2")), 403, "Forbidden")


def test_node_may_ask_and_read_signing_requests_but_not_decide(clients: Clients, name: str) -> None:
    node = clients.node("n1")
    created = node.post(COLLECTION, signing_request(name)).expect(201)
    node.get(f"{COLLECTION}/{name}").expect(200)
    approved = with_conditions(created, condition("Approved"))
    refused(node.put(f"{COLLECTION}/{name}/approval", approved), 403, "Forbidden")
    refused(node.put(f"{COLLECTION}/{name}/status", approved), 403, "Forbidden")


def test_node_may_create_events(clients: Clients, name: str) -> None:
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": "n1"},
        "reason": "Starting",
        "type": "Normal",
    }
    clients.node("n1").post("/api/v1/namespaces/default/events", event).expect(201)


def test_node_user_outside_the_nodes_group_is_nobody(clients: Clients, name: str) -> None:
    refused(clients.user(f"system:node:{name}").post(_NODES, _node(name)), 403, "Forbidden")


# What RBAC says.


@pytest.mark.parametrize(
    ("group", "subresource", "expected"),
    [
        (NODE_TOKEN_GROUP, "nodeclient", True),
        (NODE_TOKEN_GROUP, "selfnodeclient", False),
        (NODES_GROUP, "selfnodeclient", True),
        (NODES_GROUP, "nodeclient", False),
        ("system:masters", "nodeclient", True),
        ("system:bootstrappers", "nodeclient", False),
        ("system:authenticated", "selfnodeclient", False),
    ],
)
def test_review_of_kubeadms_grants(admin: RawClient, group: str, subresource: str, expected: bool) -> None:
    attributes = {
        "group": _CERTIFICATES,
        "resource": "certificatesigningrequests",
        "subresource": subresource,
        "verb": "create",
    }
    assert allowed(admin, "anybody", [group], **attributes) is expected


def test_review_follows_the_binding(admin: RawClient, name: str) -> None:
    role = "system:certificates.k8s.io:certificatesigningrequests:nodeclient"
    attributes = {
        "group": _CERTIFICATES,
        "resource": "certificatesigningrequests",
        "subresource": "nodeclient",
        "verb": "create",
    }
    group = f"system:bootstrappers:{name}"
    assert not allowed(admin, "system:bootstrap:abcdef", [group], **attributes)
    admin.post(f"{RBAC}/clusterrolebindings", cluster_role_binding(name, role, group)).expect(201)
    wait_until(lambda: allowed(admin, "system:bootstrap:abcdef", [group], **attributes), "the binding counts")
    admin.delete(f"{RBAC}/clusterrolebindings/{name}").expect(200)
    wait_until(lambda: not allowed(admin, "system:bootstrap:abcdef", [group], **attributes), "its end counts")


def test_review_says_what_was_asked_and_why(admin: RawClient) -> None:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": "anybody",
            "groups": ["system:nodes"],
            "resourceAttributes": {
                "group": _CERTIFICATES,
                "resource": "certificatesigningrequests",
                "subresource": "selfnodeclient",
                "verb": "create",
            },
        },
    }
    answer = admin.post(ACCESS_REVIEWS, review).expect(201)
    assert answer["kind"] == "SubjectAccessReview"
    assert answer["spec"] == review["spec"]
    assert answer["status"]["allowed"] is True
    assert "kubeadm:node-autoapprove-certificate-rotation" in answer["status"]["reason"]


def test_review_needs_a_subject_and_attributes(admin: RawClient) -> None:
    attributes = {"verb": "get", "resource": "pods"}
    refused(admin.post(ACCESS_REVIEWS, {"spec": {"resourceAttributes": attributes}}), 422, "Invalid")
    refused(admin.post(ACCESS_REVIEWS, {"spec": {"user": "anybody"}}), 422, "Invalid")


def test_review_of_a_path(admin: RawClient) -> None:
    review: dict[str, Any] = {"spec": {"user": "a", "groups": ["system:authenticated"]}}
    for path, expected in (("/version", True), ("/metrics", False)):
        review["spec"]["nonResourceAttributes"] = {"path": path, "verb": "get"}
        assert admin.post(ACCESS_REVIEWS, review).expect(201)["status"]["allowed"] is expected


def test_resource_names_limit_a_rule(admin: RawClient, name: str) -> None:
    rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["one"], "verbs": ["get"]}
    grant(admin, name, name, rule)
    common = {"resource": "secrets", "namespace": "default"}
    assert allowed(admin, "anybody", [name], **common, verb="get", name="one")
    assert not allowed(admin, "anybody", [name], **common, verb="get", name="two")
    assert not allowed(admin, "anybody", [name], **common, verb="get")
    assert not allowed(admin, "anybody", [name], **common, verb="delete", name="one")
    assert not allowed(admin, "anybody", [name], **common, verb="get", name="one", group="apps")


def test_wildcards_and_subresources_in_rules(admin: RawClient, name: str) -> None:
    rule = {"apiGroups": ["*"], "resources": ["*/scale", "nodes/*"], "verbs": ["*"]}
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [rule],
    }
    admin.post(f"{RBAC}/clusterroles", role).expect(201)
    admin.post(f"{RBAC}/clusterrolebindings", cluster_role_binding(name, name, name)).expect(201)
    scale = {"group": "apps", "resource": "deployments", "subresource": "scale", "verb": "update"}
    wait_until(lambda: allowed(admin, "anybody", [name], **scale), "the grant counts")
    assert not allowed(admin, "anybody", [name], group="apps", resource="deployments", verb="update")
    # Only a resource's own name before the slash is a wildcard; one behind it is no rule.
    assert not allowed(admin, "anybody", [name], resource="nodes", subresource="status", verb="get")
    assert not allowed(admin, "anybody", [name], resource="nodes", verb="get")


def test_role_counts_in_its_namespace_only(admin: RawClient, clients: Clients, namespace: str, name: str) -> None:
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "create"]}]
    metadata = {"name": name, "namespace": namespace}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": rules}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
    }
    admin.post(f"{RBAC}/namespaces/{namespace}/roles", role).expect(201)
    admin.post(f"{RBAC}/namespaces/{namespace}/rolebindings", binding).expect(201)
    client = clients.user(name)
    wait_until(lambda: client.get(f"/api/v1/namespaces/{namespace}/configmaps").status == 200, "the role counts")
    refused(client.get("/api/v1/namespaces/default/configmaps"), 403, "Forbidden")
    refused(client.get("/api/v1/configmaps"), 403, "Forbidden")
    refused(client.delete(f"/api/v1/namespaces/{namespace}/configmaps/{name}"), 403, "Forbidden")


def test_binding_keeps_its_role(admin: RawClient, name: str) -> None:
    path = f"{RBAC}/clusterrolebindings"
    created = admin.post(path, cluster_role_binding(name, "view", name)).expect(201)
    changed = {**created, "roleRef": {**created["roleRef"], "name": "edit"}}
    assert fields(refused(admin.put(f"{path}/{name}", changed), 422, "Invalid")) == {"roleRef"}


def test_subject_of_a_binding_can_be_taken_out(admin: RawClient, name: str) -> None:
    path = f"{RBAC}/clusterrolebindings/{name}"
    admin.post(f"{RBAC}/clusterrolebindings", cluster_role_binding(name, "view", name)).expect(201)
    admin.patch(path, [{"op": "remove", "path": "/subjects/0"}], JSON_PATCH).expect(200)
    assert admin.get(path).expect(200).get("subjects", []) == []


def test_nobody_grants_more_than_he_has(admin: RawClient, clients: Clients, name: str) -> None:
    writer = {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["create"]}
    grant(admin, name, name, writer)
    client = clients.user("somebody", name)
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": f"{name}-2"},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}],
    }
    refused(client.post(f"{RBAC}/clusterroles", role), 403, "Forbidden")
    client.post(f"{RBAC}/clusterroles", {**role, "rules": [writer]}).expect(201)
