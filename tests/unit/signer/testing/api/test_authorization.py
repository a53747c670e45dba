"""RBAC and the Node authorizer over stored objects."""

from __future__ import annotations

from typing import Any

import pytest

from signer.testing.api import EmbeddedAPI, User
from signer.testing.api.authorization import Rule, describe
from signer.testing.api.strategy import Attributes


def _rule(**fields: Any) -> Rule:
    return Rule.parse({"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], **fields})


@pytest.mark.parametrize(
    ("rule", "wanted", "allowed"),
    [
        (_rule(), Attributes("get", "", "secrets"), True),
        (_rule(), Attributes("list", "", "secrets"), False),
        (_rule(), Attributes("get", "x", "secrets"), False),
        (_rule(), Attributes("get", "", "secrets", "status"), False),
        (_rule(verbs=["*"], apiGroups=["*"], resources=["*"]), Attributes("a", "b", "c", "d"), True),
        (_rule(resources=["*/status"]), Attributes("get", "", "secrets", "status"), True),
        (_rule(resourceNames=["a"]), Attributes("get", "", "secrets", name="a"), True),
        (_rule(resourceNames=["a"]), Attributes("get", "", "secrets"), False),
        (_rule(nonResourceURLs=["/api/*"]), Attributes("get", path="/api/v1"), True),
        (_rule(nonResourceURLs=["/api/*"]), Attributes("get", path="/apis"), False),
    ],
)
def test_rule(rule: Rule, wanted: Attributes, allowed: bool) -> None:
    assert rule.allows(wanted) is allowed


def _review(api: EmbeddedAPI, user: User, wanted: Attributes) -> bool:
    return api.authorization.authorize(user, wanted).allowed


def test_node_reads_only_what_its_pods_mount() -> None:
    api = EmbeddedAPI()
    node = User("system:node:n1", ("system:nodes",))
    wanted = Attributes("get", "", "secrets", name="s", namespace="default")
    assert not _review(api, node, wanted)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"nodeName": "n1", "volumes": []}}
    pod["spec"]["volumes"].append({"name": "v", "secret": {"secretName": "s"}})  # type: ignore[index]
    api.create(pod)
    assert _review(api, node, wanted)
    assert not _review(api, User("system:node:n2", ("system:nodes",)), wanted)
    assert not _review(api, User("system:node:n1", ()), wanted)
    assert not _review(api, node, Attributes("list", "", "secrets", namespace="default"))


def test_service_account_in_its_namespace() -> None:
    api = EmbeddedAPI()
    rbac = "rbac.authorization.k8s.io"
    rules = [{"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}]
    api.create({"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": {"name": "r"}, "rules": rules})
    api.create(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "b"},
            "roleRef": {"kind": "Role", "name": "r"},
            "subjects": [{"kind": "ServiceAccount", "name": "robot"}],
        }
    )
    robot = User("system:serviceaccount:default:robot")
    assert _review(api, robot, Attributes("get", "", "configmaps", namespace="default"))
    assert not _review(api, robot, Attributes("get", "", "configmaps", namespace="kube-system"))
    api.delete("rolebindings", "b", "default")
    assert not _review(api, robot, Attributes("get", "", "configmaps", namespace="default"))


def test_refusal_names_user_verb_and_resource() -> None:
    text = describe(User("u"), Attributes("list", "g", "things", "status", namespace="n"))
    assert text == 'User "u" cannot list resource "things/status" in API group "g" in the namespace "n"'
