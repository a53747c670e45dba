"""The table of grants in ``docs/operating.md`` has exactly the rules of the roles, and names calls that exist."""

from __future__ import annotations

import ast

from tests.documents.grant_calls import CALLS, granted_rules
from tests.documents.markdown import ROOT

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
