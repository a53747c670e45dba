"""Roles and bindings: which of them there may be. What they grant: ``test_authorization``."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api import fields, refused
from tests.support import kubeadm
from tests.support.raw_client import RawClient

_GROUP = "rbac.authorization.k8s.io"
_URLS = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}


def _role(kind: str, name: str, rule: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": f"{_GROUP}/v1", "kind": kind, "metadata": {"name": name}, "rules": [rule]}


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        ({"resources": ["pods"], "verbs": ["get"]}, {"rules[0].apiGroups"}),
        ({"apiGroups": [""], "verbs": ["get"]}, {"rules[0].resources"}),
        ({"apiGroups": [""], "resources": ["pods"]}, {"rules[0].verbs"}),
        ({**_URLS, "apiGroups": [""], "resources": ["pods"]}, {"rules[0].nonResourceURLs"}),
    ],
)
def test_rule_that_is_not_complete_is_refused(
    admin: RawClient, name: str, rule: dict[str, Any], wanted: set[str]
) -> None:
    answer = admin.post(f"{kubeadm.RBAC}/clusterroles", _role("ClusterRole", name, rule))
    assert fields(refused(answer, 422, "Invalid")) == wanted


def test_paths_are_granted_in_all_namespaces_only(admin: RawClient, namespace: str, name: str) -> None:
    admin.post(f"{kubeadm.RBAC}/clusterroles", _role("ClusterRole", name, _URLS)).expect(201)
    answer = admin.post(f"{kubeadm.RBAC}/namespaces/{namespace}/roles", _role("Role", name, _URLS))
    assert fields(refused(answer, 422, "Invalid")) == {"rules[0].nonResourceURLs"}


def _binding(name: str, subject: dict[str, str], **reference: str) -> dict[str, Any]:
    role = {"apiGroup": _GROUP, "kind": "ClusterRole", "name": "some", **reference}
    return {**kubeadm.cluster_role_binding(name, "some", "some"), "subjects": [subject], "roleRef": role}


@pytest.mark.parametrize(
    ("subject", "wanted"),
    [
        ({"kind": "Robot", "name": "x"}, {"subjects[0].kind"}),
        ({"kind": "User", "name": ""}, {"subjects[0].name"}),
        ({"kind": "User", "name": "x", "apiGroup": "example.com"}, {"subjects[0].apiGroup"}),
        ({"kind": "ServiceAccount", "name": "x"}, {"subjects[0].namespace"}),
        ({"kind": "ServiceAccount", "name": "X_", "namespace": "n"}, {"subjects[0].name"}),
        ({"kind": "ServiceAccount", "name": "x", "namespace": "n", "apiGroup": _GROUP}, {"subjects[0].apiGroup"}),
    ],
)
def test_subject_that_nobody_can_be_is_refused(
    admin: RawClient, name: str, subject: dict[str, str], wanted: set[str]
) -> None:
    answer = admin.post(f"{kubeadm.RBAC}/clusterrolebindings", _binding(name, subject))
    assert fields(refused(answer, 422, "Invalid")) == wanted


def test_service_account_of_a_bindings_own_namespace(admin: RawClient, namespace: str, name: str) -> None:
    body = {**_binding(name, {"kind": "ServiceAccount", "name": "x"}), "kind": "RoleBinding"}
    admin.post(f"{kubeadm.RBAC}/namespaces/{namespace}/rolebindings", body).expect(201)


@pytest.mark.parametrize(
    ("reference", "wanted"),
    [
        ({"kind": "Role"}, {"roleRef.kind"}),
        ({"apiGroup": "example.com"}, {"roleRef.apiGroup"}),
    ],
)
def test_role_that_cannot_be_bound_is_refused(
    admin: RawClient, name: str, reference: dict[str, str], wanted: set[str]
) -> None:
    body = _binding(name, {"kind": "User", "name": "x"}, **reference)
    assert fields(refused(admin.post(f"{kubeadm.RBAC}/clusterrolebindings", body), 422, "Invalid")) == wanted
