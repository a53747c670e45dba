"""Connections of the controller to a real kube-apiserver with exactly the grants of ``deploy/rbac``.

In the management cluster the controller is its ServiceAccount, with a token from the TokenRequest API; in the workload
cluster it is the user of a restricted kubeconfig.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

from attestors.wire.names import Purpose, SignerName
from signer.kube.connection import ClusterConnection
from signer.testing.world import CONTROLLER_NAMESPACE, WorldCluster
from tests.support.control_plane import ControlPlane
from tests.support.processes import wait_until
from tests.support.raw_client import RawClient
from tests.support.yaml_documents import safe_load_all

SERVICE_ACCOUNT: Final = "node-attestation-controller"
WORKLOAD_USER: Final = "node-attestation-controller"
PROVIDERS: Final = ("aws", "gcp", "insecure", "keyed-mac", "tpm")
"""Attestors for whose signers the restricted user may sign; the file names one as an example."""

_FOLDER: Final = Path(__file__).parents[2] / "deploy/rbac"
_TOKEN_SECONDS: Final = 3600
_PATHS: Final = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
}


def as_service_account(plane: ControlPlane, *namespaces: str, shards: bool = False) -> ClusterConnection:
    """The controller's connection to the management cluster; it may read Secrets in these existing namespaces.

    With ``shards``, add the grants of the chart for ``shards``. Returns when the API server applies the grants.
    """
    objects = _objects("management.yaml")
    if shards:
        _grant_leases_without_names(objects)
    everywhere = [one for one in objects if one["metadata"].get("namespace") != "default"]
    by_namespace = [one for one in objects if one["metadata"].get("namespace") == "default"]
    bound = [_moved(one, namespace) for one in by_namespace for namespace in namespaces]
    with RawClient(plane.connection()) as administrator:
        _apply(administrator, [*everywhere, *bound])
    connection = plane.token_connection(service_account_token(plane, CONTROLLER_NAMESPACE, SERVICE_ACCOUNT))
    _wait_until_granted(connection, [*everywhere, *bound])
    return connection


def _grant_leases_without_names(objects: list[dict[str, Any]]) -> None:
    """Grant Leases of any name, because a replica's Lease has a new name each time."""
    for role in objects:
        rules = [rule for rule in role.get("rules", ()) if rule["resources"] != ["leases"]]
        if len(rules) < len(role.get("rules", ())):
            verbs = ["create", "get", "list", "update", "delete"]
            role["rules"] = [*rules, {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs}]


def service_account_token(plane: ControlPlane, namespace: str, name: str) -> str:
    """A token as the kubelet mounts it into a Pod, from the TokenRequest API."""
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": _TOKEN_SECONDS},
    }
    with RawClient(plane.connection()) as administrator:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        token: str = administrator.post(path, body).expect(201)["status"]["token"]
    return token


def restrict_in_workload_cluster(cluster: WorldCluster, plane: ControlPlane) -> None:
    """Replace the kubeconfig in the cluster's Secret by one of the restricted user."""
    connection = plane.connection(WORKLOAD_USER, ())
    grant_in_workload_cluster(plane.connection(), connection)
    cluster.put_secret("kubeconfig", {"value": plane.kubeconfig(cluster.name, connection=connection).encode()})


def grant_in_workload_cluster(administrator: ClusterConnection, grantee: ClusterConnection, group: str = "") -> None:
    """Apply ``deploy/rbac/workload.yaml`` for its user and ``group``; returns when ``grantee`` has the grants."""
    objects = _objects("workload.yaml")
    for one in objects:
        for rule in one.get("rules", ()):
            if rule["resources"] == ["signers"] and rule["verbs"] == ["approve", "sign"]:
                rule["resourceNames"] = [
                    str(SignerName(purpose, provider)) for provider in PROVIDERS for purpose in Purpose
                ]
        if group and "subjects" in one:
            one["subjects"].append({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group})
    with RawClient(administrator) as client:
        _apply(client, objects)
    _wait_until_granted(grantee, objects)


def _objects(name: str) -> list[dict[str, Any]]:
    return list(safe_load_all((_FOLDER / name).read_text(encoding="utf-8")))


def _moved(binding: dict[str, Any], namespace: str) -> dict[str, Any]:
    return {**binding, "metadata": {**binding["metadata"], "namespace": namespace}}


def _apply(administrator: RawClient, objects: Iterable[dict[str, Any]]) -> None:
    """Create the objects; existing roles are replaced, other existing objects stay."""
    for one in objects:
        collection = _PATHS[one["kind"]].format(namespace=one["metadata"].get("namespace"))
        answer = administrator.post(collection, one)
        if answer.status == 409 and one["kind"] in {"ClusterRole", "Role"}:
            answer = administrator.put(f"{collection}/{one['metadata']['name']}", one)
        answer.expect(200, 201, 409)


def _wait_until_granted(connection: ClusterConnection, objects: Iterable[dict[str, Any]]) -> None:
    """Wait until the authorizer has seen new roles and bindings."""
    objects = list(objects)
    bindings = [one for one in objects if one["kind"].endswith("RoleBinding")]
    roles = {(one["kind"], one["metadata"]["name"]): one["rules"] for one in objects if "rules" in one}
    with RawClient(connection) as client:
        for binding in bindings:
            role = binding["roleRef"]["kind"], binding["roleRef"]["name"]
            questions = list(_questions(roles[role], binding["metadata"].get("namespace")))
            wait_until(partial(_may_all, client, questions), f"{role[1]} is in force")


def _questions(rules: list[dict[str, Any]], namespace: str | None) -> Iterable[dict[str, str]]:
    """One question per rule, about its last verb."""
    for rule in rules:
        resource, _, subresource = rule["resources"][-1].partition("/")
        yield {
            "group": rule["apiGroups"][-1],
            "resource": resource,
            "subresource": subresource,
            "verb": rule["verbs"][-1],
            "namespace": namespace or "",
            "name": rule.get("resourceNames", [""])[-1],
        }


def _may_all(client: RawClient, questions: Iterable[dict[str, str]]) -> bool:
    return all(_may(client, attributes) for attributes in questions)


def _may(client: RawClient, attributes: dict[str, str]) -> bool:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = client.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review).expect(201)
    return bool(answer["status"]["allowed"])
