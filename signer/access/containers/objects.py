"""The objects in the workload cluster: who the gateway is there, and what people may do in containers.

Every field that an API server defaults is written out, so that what is stored equals what is wanted, unless somebody
changed it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from signer.kube.client import JsonObject
from signer.kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, NAMESPACES, SERVICE_ACCOUNTS, Resource
from signer.kube.wanted_object import OWNER, OWNER_LABEL, WantedObject
from signer.model.tools_image import NamedToolsImage, NoToolsImage, ToolsImage

NAMESPACE: Final = "node-access"
GATEWAY: Final = "node-access-gateway"
"""Name of the gateway's ServiceAccount, of its ClusterRole and of the binding of the two."""
PEOPLE: Final = "node-access-containers"
"""Name of the ClusterRole of the people whom the gateway impersonates, and of its binding."""
PEOPLE_GROUP: Final = "node-access:containers"
"""The one group that the gateway may impersonate."""
USER_PREFIX: Final = "node-access:"
"""The gateway impersonates users whose names begin so. RBAC has no prefixes, so its role names each of them."""
_RBAC: Final = "rbac.authorization.k8s.io"
_READ: Final = ["get", "list"]
_LABELS: Final = {OWNER_LABEL: OWNER}


NAMESPACE_BODY: Final[JsonObject] = {
    "apiVersion": NAMESPACES.api_version,
    "kind": "Namespace",
    "metadata": {"name": NAMESPACE, "labels": dict(_LABELS)},
}
"""It grants nothing, so one that somebody else made will do."""


def _cluster_scoped(resource: Resource, kind: str, name: str, fields: JsonObject) -> WantedObject:
    metadata = {"name": name, "labels": dict(_LABELS)}
    body = {"apiVersion": resource.api_version, "kind": kind, "metadata": metadata, **fields}
    return WantedObject(resource, None, name, body, tuple(fields))


def _role(name: str, *rules: JsonObject) -> WantedObject:
    return _cluster_scoped(CLUSTER_ROLES, "ClusterRole", name, {"rules": list(rules)})


def _binding(name: str, subject: JsonObject) -> WantedObject:
    reference = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name}
    fields = {"roleRef": reference, "subjects": [subject]}
    return _cluster_scoped(CLUSTER_ROLE_BINDINGS, "ClusterRoleBinding", name, fields)


SERVICE_ACCOUNT: Final = WantedObject(
    SERVICE_ACCOUNTS,
    NAMESPACE,
    GATEWAY,
    {
        "apiVersion": SERVICE_ACCOUNTS.api_version,
        "kind": "ServiceAccount",
        "metadata": {"name": GATEWAY, "namespace": NAMESPACE, "labels": dict(_LABELS)},
        "automountServiceAccountToken": False,
    },
    ("automountServiceAccountToken",),
)


def gateway_role(creators: Sequence[str]) -> WantedObject:
    """The gateway's own role. Without creators it has no rule for users: one with no names would mean every user."""
    names = [USER_PREFIX + creator for creator in creators]
    users = {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": names}
    group = {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["groups"], "resourceNames": [PEOPLE_GROUP]}
    return _role(GATEWAY, *((users,) if names else ()), group)


_PEOPLE_RULES: Final[tuple[JsonObject, ...]] = (
    {"verbs": _READ, "apiGroups": [""], "resources": ["pods"]},
    {"verbs": ["get", "create"], "apiGroups": [""], "resources": ["pods/exec", "pods/portforward"]},
    {
        "verbs": _READ,
        "apiGroups": ["apps"],
        "resources": ["deployments", "statefulsets", "daemonsets", "replicasets"],
    },
    {"verbs": _READ, "apiGroups": ["batch"], "resources": ["jobs"]},
)
_TOOLS_RULE: Final[JsonObject] = {"verbs": ["patch"], "apiGroups": [""], "resources": ["pods/ephemeralcontainers"]}
_PEOPLE_BINDING: Final = _binding(PEOPLE, {"kind": "Group", "apiGroup": _RBAC, "name": PEOPLE_GROUP})
_ACCOUNT: Final = (
    SERVICE_ACCOUNT,
    _binding(GATEWAY, {"kind": "ServiceAccount", "name": GATEWAY, "namespace": NAMESPACE}),
)


def people_role(tools: NamedToolsImage) -> WantedObject:
    """What people may do through the gateway. They may add tools containers only while the operator names an image."""
    return _role(PEOPLE, *_PEOPLE_RULES, *((_TOOLS_RULE,) if isinstance(tools, ToolsImage) else ()))


def wanted_objects(creators: Sequence[str], tools: NamedToolsImage) -> tuple[WantedObject, ...]:
    """In the order in which they are made: the gateway gets its rights last. They are removed in the opposite order."""
    return (people_role(tools), _PEOPLE_BINDING, gateway_role(creators), *_ACCOUNT)


WANTED: Final = wanted_objects((), NoToolsImage())
"""As they are while nobody has a grant for a container, without tools containers."""


__all__ = [
    "GATEWAY",
    "NAMESPACE",
    "NAMESPACE_BODY",
    "PEOPLE",
    "PEOPLE_GROUP",
    "SERVICE_ACCOUNT",
    "USER_PREFIX",
    "WANTED",
    "WantedObject",
    "gateway_role",
    "people_role",
    "wanted_objects",
]
