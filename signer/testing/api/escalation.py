"""RBAC escalation check: a user may grant only its own permissions (Kubernetes ``pkg/registry/rbac``, policybased).

Writing a role needs every permission in it, or the verb ``escalate`` on it; binding one needs the same of the role that
is bound, or the verb ``bind``.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from .status import Target, forbidden
from .strategy import Attributes, Context

_RBAC = "rbac.authorization.k8s.io"
_PLURALS = {
    "Role": "roles",
    "ClusterRole": "clusterroles",
    "RoleBinding": "rolebindings",
    "ClusterRoleBinding": "clusterrolebindings",
}


def _permissions(rule: dict[str, Any], namespace: str) -> Iterator[Attributes]:
    """Each single permission of a rule; only a wildcard grants a wildcard."""
    verbs = rule.get("verbs") or ()
    for verb, url in product(verbs, rule.get("nonResourceURLs") or ()):
        yield Attributes(verb, path=url)
    groups, resources = rule.get("apiGroups") or (), rule.get("resources") or ()
    for verb, group, resource, name in product(verbs, groups, resources, rule.get("resourceNames") or ("",)):
        plural, _, subresource = resource.partition("/")
        yield Attributes(verb, group, plural, subresource, name, namespace)


def _require(context: Context, rules: list[dict[str, Any]], namespace: str, target: Target) -> None:
    for rule in rules:
        for wanted in _permissions(rule, namespace):
            if not context.authorizer.authorize(context.user, wanted).allowed:
                text = f'user "{context.user.name}" is attempting to grant RBAC permissions not currently held'
                raise forbidden(target, text)


def admit_role(value: dict[str, Any], context: Context) -> None:
    """Raises APIError 403."""
    kind, found = value["kind"], value["metadata"]
    target = Target(_RBAC, _PLURALS[kind], kind, found["name"])
    namespace = found.get("namespace", "")
    escalate = Attributes("escalate", _RBAC, target.plural, name=target.name, namespace=namespace)
    if not context.authorizer.authorize(context.user, escalate).allowed:
        _require(context, value.get("rules") or [], namespace, target)


def admit_binding(value: dict[str, Any], context: Context) -> None:
    """Raises APIError 403, or 404 when the role is absent (its rules are unknown then)."""
    kind, found, reference = value["kind"], value["metadata"], value["roleRef"]
    target = Target(_RBAC, _PLURALS[kind], kind, found["name"])
    namespace = found.get("namespace", "")
    bind = Attributes("bind", _RBAC, _PLURALS[reference["kind"]], name=reference["name"], namespace=namespace)
    if not context.authorizer.authorize(context.user, bind).allowed:
        rules = context.authorizer.role_rules(reference["kind"], reference["name"], namespace)
        _require(context, rules, namespace, target)
