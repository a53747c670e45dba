"""Authorization: RBAC over the stored objects, and the Node authorizer's most visible effects.

Follows Kubernetes ``plugin/pkg/auth/authorizer/rbac`` and ``plugin/pkg/auth/authorizer/node``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from .identity import MASTERS, User
from .node_authorizer import NodeAuthorizer
from .status import Target, not_found
from .store import Store
from .strategy import Answer, Attributes

RBAC = "rbac.authorization.k8s.io"
Mode = Literal["RBAC", "AlwaysAllow"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One PolicyRule."""

    verbs: frozenset[str]
    groups: frozenset[str]
    resources: frozenset[str]
    names: frozenset[str]
    urls: tuple[str, ...]

    @classmethod
    def parse(cls, source: dict[str, Any]) -> Rule:
        return cls(
            frozenset(source.get("verbs") or ()),
            frozenset(source.get("apiGroups") or ()),
            frozenset(source.get("resources") or ()),
            frozenset(source.get("resourceNames") or ()),
            tuple(source.get("nonResourceURLs") or ()),
        )

    def allows(self, wanted: Attributes) -> bool:
        if not ("*" in self.verbs or wanted.verb in self.verbs):
            return False
        if wanted.path:
            return any(
                url in ("*", wanted.path) or (url.endswith("*") and wanted.path.startswith(url.rstrip("*")))
                for url in self.urls
            )
        if not ("*" in self.groups or wanted.group in self.groups):
            return False
        combined = f"{wanted.resource}/{wanted.subresource}" if wanted.subresource else wanted.resource
        if not (
            "*" in self.resources
            or combined in self.resources
            or (wanted.subresource and f"*/{wanted.subresource}" in self.resources)
        ):
            return False
        return not self.names or wanted.name in self.names


@dataclass(frozen=True, slots=True)
class Grant:
    """The rules that one binding grants to a user, with a description."""

    rules: tuple[Rule, ...]
    namespace: str
    """Empty for the whole cluster."""
    reason: str


class Authorization:
    """The authorizers of a kubeadm cluster: Node, then RBAC. ``system:masters`` may do anything."""

    def __init__(self, store: Store, mode: Mode = "RBAC") -> None:
        self.mode = mode
        self._store = store
        self._node = NodeAuthorizer(store)
        self._grants: dict[tuple[str, tuple[str, ...]], list[Grant]] = {}
        self._seen = -1

    def authorize(self, user: User, attributes: Attributes) -> Answer:
        if self.mode == "AlwaysAllow" or MASTERS in user.groups:
            return Answer(True)
        reason = ""
        if user.node_name:
            answer = self._node.authorize(user.node_name, attributes)
            if answer.allowed:
                return answer
            reason = answer.reason
        for grant in self.grants(user):
            if grant.namespace and grant.namespace != attributes.namespace:
                continue
            if any(rule.allows(attributes) for rule in grant.rules):
                return Answer(True, grant.reason)
        return Answer(False, reason)

    def role_rules(self, kind: str, name: str, namespace: str) -> list[dict[str, Any]]:
        """The rules of a Role or ClusterRole. Raises APIError 404."""
        plural, key = ("roles", (namespace, name)) if kind == "Role" else ("clusterroles", ("", name))
        role = self._store.collection(RBAC, plural).objects.get(key)
        if role is None:
            raise not_found(Target(RBAC, plural, kind, name))
        return list(role.value.get("rules") or [])

    def _collections(self) -> tuple[Any, Any, Any, Any]:
        kinds = ("clusterrolebindings", "rolebindings", "clusterroles", "roles")
        first, second, third, fourth = (self._store.collection(RBAC, kind) for kind in kinds)
        return first, second, third, fourth

    def grants(self, user: User) -> list[Grant]:
        """The user's rules from bindings; cached until an RBAC object changes."""
        writes = sum(collection.writes for collection in self._collections())
        if writes != self._seen:
            self._grants.clear()
            self._seen = writes
        key = (user.name, user.groups)
        found = self._grants.get(key)
        if found is None:
            found = self._grants[key] = list(self._find(user))
        return found

    def _find(self, user: User) -> Iterator[Grant]:
        cluster_bindings, bindings, cluster_roles, roles = self._collections()
        for stored in (*cluster_bindings.objects.values(), *bindings.objects.values()):
            binding = stored.value
            namespace = binding["metadata"].get("namespace", "")
            subject = next((s for s in binding.get("subjects") or () if _is(s, user, namespace)), None)
            if subject is None:
                continue
            reference = binding["roleRef"]
            if reference["kind"] == "ClusterRole":
                role = cluster_roles.objects.get(("", reference["name"]))
            else:
                role = roles.objects.get((namespace, reference["name"]))
            if role is None:
                continue
            rules = tuple(Rule.parse(rule) for rule in role.value.get("rules") or ())
            named = f"{namespace}/{binding['metadata']['name']}" if namespace else binding["metadata"]["name"]
            reason = (
                f'RBAC: allowed by {binding["kind"]} "{named}" of {reference["kind"]} "{reference["name"]}" '
                f'to {subject["kind"]} "{subject["name"]}"'
            )
            yield Grant(rules, namespace, reason)


def _is(subject: dict[str, Any], user: User, namespace: str) -> bool:
    name = subject.get("name", "")
    match subject.get("kind"):
        case "User":
            return bool(user.name == name)
        case "Group":
            return name in user.groups
        case "ServiceAccount":
            owner = subject.get("namespace") or namespace
            return user.name == f"system:serviceaccount:{owner}:{name}"
        case _:
            return False


def describe(user: User, attributes: Attributes) -> str:
    """The text of a refusal, as k8s.io/apiserver ``responsewriters.forbiddenMessage``."""
    who = f'User "{user.name}" cannot {attributes.verb}'
    if attributes.path:
        return f'{who} path "{attributes.path}"'
    resource = f"{attributes.resource}/{attributes.subresource}" if attributes.subresource else attributes.resource
    where = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    return f'{who} resource "{resource}" in API group "{attributes.group}" {where}'
