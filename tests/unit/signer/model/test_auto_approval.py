"""Reading roles and bindings of hostile clusters: what they grant, and what is never taken for harmless."""

from __future__ import annotations

import json
from typing import Any

import pytest

from signer.model.auto_approval import (
    BOTH_SUBRESOURCES,
    RESTORING_ANNOTATION,
    ApprovalSubresource,
    ClusterIdentity,
    RoleScope,
    UnreadableGrant,
    binding_body,
    parse_cluster_role,
    parse_cluster_role_binding,
    saved_size,
    shown,
)
from signer.model.cluster import ClusterKey

FIRST, RENEWAL = frozenset({ApprovalSubresource.NODECLIENT}), frozenset({ApprovalSubresource.SELFNODECLIENT})


def rule(**changed: Any) -> dict[str, Any]:
    return {
        "apiGroups": ["certificates.k8s.io"],
        "resources": ["certificatesigningrequests/nodeclient"],
        "verbs": ["create"],
        **changed,
    }


def role(*rules: Any, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": "role"}, "rules": list(rules), **fields}


def binding(**changed: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "binding", "uid": "uid-1", "resourceVersion": "7"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "role"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}],
        **changed,
    }


@pytest.mark.parametrize(
    ("changed", "subresources"),
    [
        ({}, FIRST),
        ({"resources": ["certificatesigningrequests/selfnodeclient"]}, RENEWAL),
        ({"verbs": ["*"]}, FIRST),
        ({"verbs": ["get", "create"]}, FIRST),
        ({"apiGroups": ["*"]}, FIRST),
        ({"apiGroups": ["", "certificates.k8s.io"]}, FIRST),
        ({"resources": ["*"]}, BOTH_SUBRESOURCES),
        ({"resources": ["certificatesigningrequests/*"]}, BOTH_SUBRESOURCES),
        ({"resources": ["*/nodeclient"]}, FIRST),
        ({"resources": ["*/selfnodeclient"]}, RENEWAL),
        ({"resourceNames": ["", "other"]}, FIRST),
        ({"verbs": ["get", "list", "watch"]}, frozenset()),
        ({"verbs": []}, frozenset()),
        ({"apiGroups": [""]}, frozenset()),
        ({"resources": ["certificatesigningrequests"]}, frozenset()),
        ({"resources": ["certificatesigningrequests/approval", "*/status"]}, frozenset()),
        ({"resourceNames": ["one"]}, frozenset()),
        ({"apiGroups": [], "resources": [], "nonResourceURLs": ["*"]}, frozenset()),
    ],
)
def test_doors_of_a_rule(changed: dict[str, Any], subresources: frozenset[ApprovalSubresource]) -> None:
    assert parse_cluster_role(role(rule(**changed))).subresources == subresources


def test_rules_add_up() -> None:
    both = role(rule(), rule(resources=["certificatesigningrequests/selfnodeclient"]))
    assert parse_cluster_role(both).subresources == BOTH_SUBRESOURCES
    assert parse_cluster_role(both).scope is RoleScope.ONLY_APPROVAL


@pytest.mark.parametrize(
    "more",
    [
        rule(resources=["certificatesigningrequests/nodeclient", "certificatesigningrequests"]),
        rule(resources=["*"]),
        rule(resources=["*/nodeclient"]),
        rule(resources=["certificatesigningrequests/*"]),
        rule(apiGroups=["*"]),
        rule(apiGroups=["", "certificates.k8s.io"]),
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
        rule(apiGroups=[""], resources=["secrets"], verbs=["get"]),
    ],
)
def test_a_role_that_grants_more_is_told_apart(more: dict[str, Any]) -> None:
    assert parse_cluster_role(role(rule(), more)).scope is RoleScope.MORE


def test_any_verb_on_the_doors_is_still_only_the_doors() -> None:
    assert parse_cluster_role(role(rule(verbs=["*"]))).scope is RoleScope.ONLY_APPROVAL


def test_an_aggregated_role_may_be_another_tomorrow() -> None:
    found = parse_cluster_role(role(rule(), aggregationRule={"clusterRoleSelectors": []}))
    assert (found.subresources, found.scope) == (FIRST, RoleScope.AGGREGATED)


@pytest.mark.parametrize(
    "rules",
    ["all", {"verbs": ["create"]}, ["all"], [rule(verbs="create")], [rule(resources=[1])], [rule(apiGroups={"a": 1})]],
)
def test_a_role_that_cannot_be_read_counts_as_both_doors(rules: Any) -> None:
    found = parse_cluster_role({"metadata": {"name": "role"}, "rules": rules})
    assert (found.subresources, found.scope) == (BOTH_SUBRESOURCES, RoleScope.UNREADABLE)


@pytest.mark.parametrize("manifest", [{}, {"metadata": []}, {"metadata": {"name": ""}}, {"metadata": {"name": 1}}])
def test_a_role_or_binding_without_a_name_is_refused(manifest: dict[str, Any]) -> None:
    with pytest.raises(UnreadableGrant, match="ClusterRole cannot"):
        parse_cluster_role(manifest)
    with pytest.raises(UnreadableGrant, match="ClusterRoleBinding cannot"):
        parse_cluster_role_binding(manifest)


def test_a_role_without_rules_grants_nothing() -> None:
    found = parse_cluster_role({"metadata": {"name": "role"}, "rules": None})
    assert (found.subresources, found.scope) == (frozenset(), RoleScope.ONLY_APPROVAL)


@pytest.mark.parametrize(
    "changed",
    [
        {"roleRef": None},
        {"roleRef": {"kind": "Role", "name": "role"}},
        {"roleRef": {"kind": "ClusterRole"}},
        {"subjects": "everybody"},
        {"subjects": ["everybody"]},
        {"subjects": [{"kind": "Group"}]},
        {"subjects": [{"name": "system:nodes"}]},
        {"subjects": [{"kind": "Group", "name": "a", "namespace": 1}]},
        {"metadata": {"name": "binding", "resourceVersion": "7"}},
        {"metadata": {"name": "binding", "uid": "uid-1"}},
        {"metadata": {"name": "binding", "uid": "uid-1", "resourceVersion": "7", "labels": {"a": 1}}},
        {"metadata": {"name": "binding", "uid": "uid-1", "resourceVersion": "7", "annotations": []}},
    ],
)
def test_a_binding_that_cannot_be_read_is_refused_by_name(changed: dict[str, Any]) -> None:
    with pytest.raises(UnreadableGrant, match="ClusterRoleBinding binding cannot be read"):
        parse_cluster_role_binding(binding(**changed))


def test_a_binding_comes_back_as_it_was() -> None:
    subjects = [
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"},
        {"kind": "ServiceAccount", "name": "robot", "namespace": "kube-system"},
    ]
    metadata = {
        "name": "binding",
        "uid": "uid-1",
        "resourceVersion": "7",
        "labels": {"team": "a"},
        "annotations": {"note": "b"},
        "managedFields": [{"manager": "kubeadm"}],
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    found = parse_cluster_role_binding(binding(metadata=metadata, subjects=subjects))
    assert binding_body(found) == {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "binding", "labels": {"team": "a"}, "annotations": {"note": "b"}},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "role"},
        "subjects": subjects,
    }
    assert saved_size(found) == len(json.dumps([binding_body(found), "uid-1", "7"]))


def test_our_mark_is_not_given_back() -> None:
    metadata = {"name": "binding", "uid": "u", "resourceVersion": "7", "annotations": {RESTORING_ANNOTATION: "true"}}
    assert binding_body(parse_cluster_role_binding(binding(metadata=metadata)))["metadata"] == {"name": "binding"}


@pytest.mark.parametrize("name", ["a" * 254, "a\nb", ".", "..", "a/b", "a%2Fb", "a\\b"])
@pytest.mark.parametrize("where", ["metadata", "roleRef"])
def test_names_that_no_path_can_have(name: str, where: str) -> None:
    """RBAC bounds no length and forbids only two characters, so such bindings exist."""
    manifest = binding()
    manifest[where] = {**manifest[where], "name": name}
    found = parse_cluster_role_binding(manifest)
    assert not found.is_addressable
    assert shown(name).isprintable()
    assert len(shown(name)) <= 253


def test_kubeadms_names_are_addressable() -> None:
    name = "system:certificates.k8s.io:certificatesigningrequests:nodeclient"
    manifest = binding(metadata={"name": "kubeadm:x", "uid": "u", "resourceVersion": "1"})
    manifest["roleRef"]["name"] = name
    assert parse_cluster_role_binding(manifest).is_addressable


@pytest.mark.parametrize(
    "parts", [("", "one", "u", "h"), ("team-a", "", "u", "h"), ("team-a", "one", "", "h"), ("team-a", "one", "u", "")]
)
def test_a_cluster_is_not_identified_by_less_than_all(parts: tuple[str, str, str, str]) -> None:
    with pytest.raises(ValueError, match="identified"):
        ClusterIdentity(ClusterKey(parts[0], parts[1]), parts[2], parts[3])
