"""The Node authorizer (Kubernetes ``plugin/pkg/auth/authorizer/node``), as far as a kubelet's start shows it."""

from __future__ import annotations

from typing import Any

from .store import Store
from .strategy import Answer, Attributes

_READ = frozenset({"get", "list", "watch"})
_WRITE = frozenset({"update", "patch"})
_CORE = ""
_CERTIFICATES = "certificates.k8s.io"
_RULES: tuple[tuple[str, frozenset[str], frozenset[str]], ...] = (
    (_CORE, frozenset({"nodes"}), _READ | _WRITE | {"create"}),
    (_CORE, frozenset({"nodes/status"}), _WRITE),
    (_CORE, frozenset({"services"}), _READ),
    (_CORE, frozenset({"pods"}), _READ | {"create", "delete"}),
    (_CORE, frozenset({"pods/status"}), _WRITE),
    (_CORE, frozenset({"pods/eviction"}), frozenset({"create"})),
    (_CORE, frozenset({"events"}), _WRITE | {"create"}),
    ("events.k8s.io", frozenset({"events"}), _WRITE | {"create"}),
    (_CERTIFICATES, frozenset({"certificatesigningrequests"}), _READ | {"create"}),
    ("authentication.k8s.io", frozenset({"tokenreviews"}), frozenset({"create"})),
    ("authorization.k8s.io", frozenset({"subjectaccessreviews", "localsubjectaccessreviews"}), frozenset({"create"})),
    ("storage.k8s.io", frozenset({"csidrivers", "csinodes", "volumeattachments"}), _READ),
    ("node.k8s.io", frozenset({"runtimeclasses"}), _READ),
)
_LEASE_VERBS = _WRITE | {"get", "create", "delete"}


class NodeAuthorizer:
    """Answers for a user ``system:node:<name>`` in ``system:nodes``; refusing is no opinion, RBAC is asked next."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def authorize(self, node: str, wanted: Attributes) -> Answer:
        if wanted.path:
            return Answer(False)
        if (wanted.group, wanted.resource) in {("", "secrets"), ("", "configmaps")}:
            return self._referenced(node, wanted)
        if (wanted.group, wanted.resource) == ("coordination.k8s.io", "leases"):
            return _own_lease(node, wanted)
        combined = f"{wanted.resource}/{wanted.subresource}" if wanted.subresource else wanted.resource
        for group, resources, verbs in _RULES:
            if wanted.group == group and combined in resources and wanted.verb in verbs:
                return Answer(True)
        return Answer(False)

    def _referenced(self, node: str, wanted: Attributes) -> Answer:
        """Secrets and ConfigMaps only one by one, and only what a pod on this node mounts."""
        if wanted.verb not in _READ:
            return Answer(False, "can only read resources of this type")
        if not wanted.name or wanted.subresource:
            return Answer(False, "can only read namespaced object of this type")
        for stored in self._store.collection("", "pods").objects.values():
            spec = stored.value.get("spec") or {}
            same = stored.value["metadata"].get("namespace") == wanted.namespace and spec.get("nodeName") == node
            if same and _mentions(spec, wanted):
                return Answer(True)
        return Answer(False, f"no relationship found between node '{node}' and this object")


def _own_lease(node: str, wanted: Attributes) -> Answer:
    if wanted.verb not in _LEASE_VERBS or wanted.subresource:
        return Answer(False, "can only get, create, update, patch, or delete a node lease")
    if wanted.namespace != "kube-node-lease":
        return Answer(False, 'can only access leases in the "kube-node-lease" system namespace')
    if wanted.verb != "create" and wanted.name != node:
        return Answer(False, "can only access node lease with the same name as the requesting node")
    return Answer(True)


def _mentions(spec: dict[str, Any], wanted: Attributes) -> bool:
    for volume in spec.get("volumes") or ():
        secret, config = volume.get("secret") or {}, volume.get("configMap") or {}
        found = secret.get("secretName") if wanted.resource == "secrets" else config.get("name")
        if found == wanted.name:
            return True
    pulls = spec.get("imagePullSecrets") or ()
    return wanted.resource == "secrets" and any(pull.get("name") == wanted.name for pull in pulls)
