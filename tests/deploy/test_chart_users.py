"""The chart's roles for people: a viewer and a policy editor, which add to Kubernetes' own roles."""

from __future__ import annotations

from typing import Any, Final

import pytest

from signer.crds import custom_resource_definitions
from tests.deploy.packages import USERS
from tests.deploy.test_chart import objects, of_kind
from tests.deploy.test_packages import components, grants
from tests.support.helm import HelmFailed, render_chart
from tests.support.yaml_documents import safe_load, safe_load_all

pytestmark = pytest.mark.slow

VIEWER: Final = "node-attestation-view"
EDITOR: Final = "node-attestation-policy-editor"
AGGREGATE: Final = "rbac.authorization.k8s.io/aggregate-to-"


def user_roles(**values: Any) -> dict[str, dict[str, Any]]:
    found = of_kind("ClusterRole", {"rbac": {"userRoles": values}})
    return {one["metadata"]["name"]: one for one in found if one["metadata"]["name"] in (VIEWER, EDITOR)}


def adds_to(role: dict[str, Any]) -> set[str]:
    return {label.removeprefix(AGGREGATE) for label in role["metadata"]["labels"] if AGGREGATE in label}


def test_the_viewer_reads_every_resource_of_the_group_and_nothing_else() -> None:
    [rule] = user_roles()[VIEWER]["rules"]
    plurals = {safe_load(text)["spec"]["names"]["plural"] for text in custom_resource_definitions()}
    assert rule["apiGroups"] == ["attestation.cluster.x-k8s.io"]
    assert set(rule["resources"]) == plurals
    assert rule["verbs"] == ["get", "list", "watch"]


def test_the_policy_editor_writes_policies_alone() -> None:
    assert user_roles()[EDITOR]["rules"] == [
        {
            "apiGroups": ["attestation.cluster.x-k8s.io"],
            "resources": ["nodeattestationpolicies"],
            "verbs": ["create", "get", "list", "watch", "update", "patch", "delete"],
        }
    ]


def test_they_add_to_kubernetes_roles() -> None:
    """Who may only edit a namespace cannot decide which machines join its Clusters, unless the operator says so."""
    assert {name: adds_to(role) for name, role in user_roles().items()} == {
        VIEWER: {"view", "edit", "admin"},
        EDITOR: {"admin"},
    }
    assert adds_to(user_roles(policyEditorOf=["edit", "admin"])[EDITOR]) == {"edit", "admin"}
    assert [adds_to(role) for role in user_roles(aggregate=False).values()] == [set(), set()]


def test_they_are_bound_to_nobody_and_can_be_left_out() -> None:
    bindings = [one for one in objects() if one["kind"].endswith("Binding")]
    assert not {one["roleRef"]["name"] for one in bindings} & {VIEWER, EDITOR}
    assert user_roles(create=False) == {}
    assert not {one["metadata"]["name"] for one in of_kind("ClusterRole", {"rbac": {"create": False}})} & {
        VIEWER,
        EDITOR,
    }


def test_the_packages_have_them() -> None:
    file = grants(list(safe_load_all(USERS.read_text(encoding="utf-8"))))
    assert {name for name, _ in file} == {VIEWER, EDITOR}
    assert file <= grants(components())


def test_no_role_of_viewers_can_write() -> None:
    with pytest.raises(HelmFailed, match=r"[./]rbac[./]userRoles[./]policyEditorOf"):
        render_chart({"rbac": {"userRoles": {"policyEditorOf": ["view"]}}})
