"""Each difference that a found object may have, and what becomes of it."""

from __future__ import annotations

from typing import Any, Final

import pytest

from signer.kube.resources import CLUSTER_ROLE_BINDINGS, ROLES
from signer.kube.wanted_object import OWNER, OWNER_LABEL, WantedObject, uid_of

RULES: Final = [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]
METADATA: Final[dict[str, Any]] = {"name": "r", "namespace": "n", "labels": {OWNER_LABEL: OWNER}}
ROLE: Final = WantedObject(ROLES, "n", "r", {"kind": "Role", "metadata": METADATA, "rules": RULES}, ("rules",))
STORED: Final[dict[str, Any]] = {"metadata": {**METADATA, "uid": "u", "resourceVersion": "7"}, "rules": RULES}
BINDING: Final = WantedObject(
    CLUSTER_ROLE_BINDINGS,
    None,
    "b",
    {"kind": "ClusterRoleBinding", "metadata": {}, "roleRef": {"name": "r"}},
    ("roleRef",),
)


def test_what_is_stored_as_wanted_stays() -> None:
    assert ROLE.is_as_wanted(STORED)
    assert (ROLE.is_ours(STORED), ROLE.title, uid_of(STORED)) == (True, "Role n/r", "u")
    assert ROLE.path.endswith("/namespaces/n/roles/r")
    assert ROLE.collection.endswith("/namespaces/n/roles")


@pytest.mark.parametrize(
    "change",
    [
        {"rules": [*RULES, {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]},
        {"rules": None},
        {"metadata": {**METADATA, "labels": {}}},
        {
            "metadata": {
                **METADATA,
                "labels": {**METADATA["labels"], "rbac.authorization.k8s.io/aggregate-to-view": "true"},
            }
        },
        {"aggregationRule": {"clusterRoleSelectors": [{}]}},
    ],
    ids=["more rules", "no rules", "no label", "aggregated by a label", "aggregates others"],
)
def test_what_somebody_changed_is_not_as_wanted(change: dict[str, Any]) -> None:
    assert not ROLE.is_as_wanted({**STORED, **change})


def test_a_replacement_is_for_what_was_read_alone() -> None:
    assert ROLE.replacement(STORED)["metadata"] == {**METADATA, "resourceVersion": "7"}
    assert ROLE.body["metadata"] == METADATA


def test_another_role_needs_a_new_binding() -> None:
    assert BINDING.needs_new_object({"roleRef": {"name": "cluster-admin"}})
    assert not BINDING.needs_new_object({"roleRef": {"name": "r"}})
    assert not ROLE.needs_new_object({"roleRef": {"name": "r"}})


def test_an_object_of_somebody_else_is_not_ours() -> None:
    assert not ROLE.is_ours({"metadata": {"labels": {OWNER_LABEL: "Helm"}}})
    assert not ROLE.is_ours({})
