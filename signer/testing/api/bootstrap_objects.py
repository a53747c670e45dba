"""Initial objects of a cluster: namespaces, RBAC policy, and kubeadm's objects.

Follows Kubernetes ``plugin/pkg/auth/authorizer/rbac/bootstrappolicy`` and
``cmd/kubeadm/app/phases/bootstraptoken/node``.
"""

from __future__ import annotations

from typing import Any

_RBAC = "rbac.authorization.k8s.io"
_CERTIFICATES = "certificates.k8s.io"
_READ = ["get", "list", "watch"]
BOOTSTRAP_GROUP = "system:bootstrappers:kubeadm:default-node-token"
NODECLIENT = "system:certificates.k8s.io:certificatesigningrequests:nodeclient"
SELFNODECLIENT = "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"
NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


def _rule(group: str, resources: str, verbs: list[str]) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": resources.split(), "verbs": verbs}


def _role(name: str, *rules: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}
    return {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": list(rules)}


def _binding(name: str, role: str, kind: str, *subjects: str, default: bool = True) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name}
    if default:
        metadata["labels"] = {"kubernetes.io/bootstrapping": "rbac-defaults"}
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": _RBAC, "kind": kind, "name": subject} for subject in subjects],
    }


def _node_rules() -> tuple[dict[str, Any], ...]:
    return (
        _rule("authentication.k8s.io", "tokenreviews", ["create"]),
        _rule("authorization.k8s.io", "localsubjectaccessreviews subjectaccessreviews", ["create"]),
        _rule("", "services", _READ),
        _rule("", "nodes", ["create", *_READ, "patch", "update"]),
        _rule("", "nodes/status", ["patch", "update"]),
        _rule("", "events", ["create", "patch", "update"]),
        _rule("", "pods", [*_READ, "create", "delete"]),
        _rule("", "pods/status", ["patch", "update"]),
        _rule(_CERTIFICATES, "certificatesigningrequests", ["create", *_READ]),
        _rule("coordination.k8s.io", "leases", ["create", "delete", "get", "patch", "update"]),
    )


def default_objects() -> list[dict[str, Any]]:
    """The objects that every kube-apiserver creates."""
    everything = _rule("*", "*", ["*"])
    health = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
    discovery = [*health, "/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"]
    reviews = "selfsubjectaccessreviews selfsubjectrulesreviews"
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in NAMESPACES
    ]
    objects += [
        _role("cluster-admin", everything, {"nonResourceURLs": ["*"], "verbs": ["*"]}),
        _role("system:discovery", {"nonResourceURLs": discovery, "verbs": ["get"]}),
        _role(
            "system:basic-user",
            _rule("authorization.k8s.io", reviews, ["create"]),
            _rule("authentication.k8s.io", "selfsubjectreviews", ["create"]),
        ),
        _role("system:public-info-viewer", {"nonResourceURLs": health, "verbs": ["get"]}),
        _role("system:node-bootstrapper", _rule(_CERTIFICATES, "certificatesigningrequests", ["create", *_READ])),
        _role(NODECLIENT, _rule(_CERTIFICATES, "certificatesigningrequests/nodeclient", ["create"])),
        _role(SELFNODECLIENT, _rule(_CERTIFICATES, "certificatesigningrequests/selfnodeclient", ["create"])),
        _role("system:node", *_node_rules()),
        _role(
            "system:auth-delegator", _node_rules()[0], _rule("authorization.k8s.io", "subjectaccessreviews", ["create"])
        ),
        _binding("cluster-admin", "cluster-admin", "Group", "system:masters"),
        _binding("system:discovery", "system:discovery", "Group", "system:authenticated"),
        _binding("system:basic-user", "system:basic-user", "Group", "system:authenticated"),
        _binding("system:public-info-viewer", "system:public-info-viewer", "Group", "system:authenticated"),
    ]
    return objects


def kubeadm_objects() -> list[dict[str, Any]]:
    """The bindings of ``kubeadm init phase bootstrap-token``."""
    get_nodes = _role("kubeadm:get-nodes", _rule("", "nodes", ["get"]))
    del get_nodes["metadata"]["labels"]
    bootstrap, rotation = "kubeadm:node-autoapprove-bootstrap", "kubeadm:node-autoapprove-certificate-rotation"
    return [
        get_nodes,
        _binding("kubeadm:get-nodes", "kubeadm:get-nodes", "Group", BOOTSTRAP_GROUP, default=False),
        _binding("kubeadm:kubelet-bootstrap", "system:node-bootstrapper", "Group", BOOTSTRAP_GROUP, default=False),
        _binding(bootstrap, NODECLIENT, "Group", BOOTSTRAP_GROUP, default=False),
        _binding(rotation, SELFNODECLIENT, "Group", "system:nodes", default=False),
    ]
