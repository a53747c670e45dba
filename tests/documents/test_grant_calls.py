"""The table of grants in ``docs/operating.md`` has exactly the rules of the roles, and names calls that exist."""

from __future__ import annotations

import ast

from signer.cli.check.roles import ACCESS, BASE, CONTAINERS, ROTATION, SSH, Scope
from tests.documents.grant_calls import CALLS, granted_rules
from tests.documents.markdown import ROOT
from tests.support.yaml_documents import safe_load_all

_METHODS = {
    "get": ("get",),
    "list": ("list_pages", "get", "list_and_watch", "register"),
    "watch": ("list_and_watch", "watch", "register"),
    "create": ("create",),
    "update": ("replace", "update"),
    "patch": ("patch",),
    "delete": ("delete",),
}
"""The methods of :class:`signer.kube.client.Client`, and what calls them, by verb."""


def test_the_table_has_exactly_the_rules_of_the_roles() -> None:
    needed = {rule: {verb for call in calls for verb in call.verbs.split()} for rule, calls in CALLS.items()}
    assert needed == granted_rules()


def test_each_call_is_in_the_code() -> None:
    for calls in CALLS.values():
        for call in calls:
            tree = ast.parse((ROOT / call.module).read_text(encoding="utf-8"))
            names = {
                node.name
                for node in tree.body
                if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            }
            assert call.name in names, call
            called = {
                node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                for node in ast.walk(tree)
                if isinstance(node, ast.Call)
            }
            for verb in call.verbs.split():
                assert called.intersection(_METHODS[verb]), (call, verb)


OPTIONAL = {
    "node-attestation-policy-owner",
    "node-attestation-controller-key-creation",
    "node-attestation-bootstrap-tokens",
    "node-attestation-machine-condition",
    "node-attestation-control-plane-names",
    "node-attestation-infrastructure-status",
    "node-attestation-infrastructure-machines",
    "node-attestation-bare-metal-hosts",
    "node-attestation-byo-hosts",
    "node-attestation-infrastructure-definitions",
    "node-attestation-inventories",
    "node-attestation-diagnostics",
}
"""Roles whose function is off without them; ``docs/operating.md`` lists them."""


def test_check_asks_for_exactly_the_roles_that_a_controller_needs() -> None:
    asked = {
        (role.file, role.name, role.scope in {Scope.OWN, Scope.GATEWAY}, rule.group, resource, verb, name)
        for role in (*BASE, *ROTATION, *SSH, *ACCESS, *CONTAINERS)
        for rule in role.rules
        for resource in rule.resources
        for verb in rule.verbs
        for name in rule.names or ("",)
    }
    granted = {
        (file, role["metadata"]["name"], role["kind"] == "Role", group, resource, verb, name)
        for file in ("management.yaml", "rotation.yaml", "ssh.yaml", "access.yaml", "containers.yaml")
        for role in safe_load_all((ROOT / "deploy/rbac" / file).read_text(encoding="utf-8"))
        if role["kind"] in {"Role", "ClusterRole"} and role["metadata"]["name"] not in OPTIONAL
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", ("",))
    }
    assert asked == granted
