"""The objects in a workload cluster, on an API with RBAC and real tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, TypeVar

import pytest

from signer.access.containers.objects import GATEWAY, NAMESPACE, PEOPLE, WANTED
from signer.access.containers.workload import ForeignObject, ensure_objects, remove_objects
from signer.kube.client import Client
from signer.kube.errors import Conflict, Forbidden
from signer.model.tools_image import NoToolsImage, ToolsImage
from signer.testing.api import EmbeddedAPI
from tests.unit.signer.access.containers.world import WorkloadMemory
from tests.unit.signer.ssh.world import START

T = TypeVar("T")
PLURALS: Final = {
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "ServiceAccount": "serviceaccounts",
}


@pytest.fixture
def api() -> Iterator[EmbeddedAPI]:
    with EmbeddedAPI() as made:
        yield made


def ask(api: EmbeddedAPI, work: Callable[[Client], Awaitable[T]]) -> T:
    async def asked() -> T:
        async with Client(api.connection()) as client:
            return await work(client)

    return asyncio.run(asked())


async def ensured(client: Any) -> str:
    """With one creator."""
    return await ensure_objects(client, ("alice",), NoToolsImage())


def stored(api: EmbeddedAPI) -> list[tuple[Any, ...]]:
    """What is kept of each object, and its UID and version."""
    found = []
    for wanted in WANTED:
        one = api.get(PLURALS[wanted.body["kind"]], wanted.name, wanted.namespace or "")
        metadata = one["metadata"]
        found.append((*(one.get(name) for name in wanted.kept), metadata["uid"], metadata["resourceVersion"]))
    return found


def test_they_are_made_once(api: EmbeddedAPI) -> None:
    uid = ask(api, ensured)
    before = stored(api)
    assert uid == api.get("serviceaccounts", GATEWAY, NAMESPACE)["metadata"]["uid"]
    assert ask(api, ensured) == uid
    assert stored(api) == before, "what is stored is what is wanted"
    rules = {one["metadata"]["name"]: one["rules"] for one in api.objects("clusterroles") if "rules" in one}
    assert rules[GATEWAY] == [
        {
            "verbs": ["impersonate"],
            "apiGroups": [""],
            "resources": ["users"],
            "resourceNames": ["node-access:alice"],
        },
        {
            "verbs": ["impersonate"],
            "apiGroups": [""],
            "resources": ["groups"],
            "resourceNames": ["node-access:containers"],
        },
    ]
    allowed = {(resource, verb) for rule in rules[PEOPLE] for resource in rule["resources"] for verb in rule["verbs"]}
    workloads = ("deployments", "statefulsets", "daemonsets", "replicasets", "jobs", "pods")
    assert allowed == {(one, verb) for one in workloads for verb in ("get", "list")} | {
        (f"pods/{one}", verb) for one in ("exec", "portforward") for verb in ("get", "create")
    }


def test_people_add_containers_only_while_the_operator_names_an_image(api: EmbeddedAPI) -> None:
    tools = [{"verbs": ["patch"], "apiGroups": [""], "resources": ["pods/ephemeralcontainers"]}]
    for image, expected in ((NoToolsImage(), []), (ToolsImage("tools:1"), tools), (NoToolsImage(), [])):
        ask(api, lambda client, image=image: ensure_objects(client, ("alice",), image))  # type: ignore[misc]
        rules = api.get("clusterroles", PEOPLE)["rules"]
        assert [one for one in rules if "pods/ephemeralcontainers" in one["resources"]] == expected


def test_the_gateway_acts_as_the_creators_of_live_grants_alone(api: EmbeddedAPI) -> None:
    """Without creators, there is no rule for users: an empty ``resourceNames`` would mean all of them."""
    for creators in (("alice", "bob"), ("bob",), (), ("*",)):
        ask(api, lambda client, creators=creators: ensure_objects(client, creators, NoToolsImage()))  # type: ignore[misc]
        rules = api.get("clusterroles", GATEWAY)["rules"]
        users = [rule["resourceNames"] for rule in rules if rule["resources"] == ["users"]]
        assert users == ([[f"node-access:{one}" for one in creators]] if creators else [])
        assert all(rule["resourceNames"] for rule in rules)


@pytest.mark.parametrize(
    ("plural", "name", "change"),
    [
        ("clusterroles", GATEWAY, {"rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]}),
        ("clusterroles", GATEWAY, {"metadata": {"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}}),
        ("clusterroles", PEOPLE, {"rules": []}),
        ("clusterroles", PEOPLE, {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}),
        ("clusterrolebindings", GATEWAY, {"subjects": [{"kind": "User", "name": "eve"}]}),
        ("clusterrolebindings", PEOPLE, {"subjects": None}),
        ("serviceaccounts", GATEWAY, {"automountServiceAccountToken": True}),
    ],
)
def test_what_somebody_changed_is_put_back(api: EmbeddedAPI, plural: str, name: str, change: dict[str, Any]) -> None:
    ask(api, ensured)
    before = stored(api)
    namespace = NAMESPACE if plural == "serviceaccounts" else ""
    for subject in change.get("subjects") or ():
        subject["apiGroup"] = "rbac.authorization.k8s.io"
    api.patch(plural, name, change, namespace)
    assert stored(api) != before
    ask(api, ensured)
    assert [one[:-1] for one in stored(api)] == [one[:-1] for one in before]
    found = api.get(plural, name, namespace)
    assert found["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "node-attestation-controller"}
    assert "aggregationRule" not in found


def test_a_binding_of_another_role_is_replaced(api: EmbeddedAPI) -> None:
    """API servers let nobody change a binding's role, so somebody made the binding again."""
    ask(api, ensured)
    found = api.get("clusterrolebindings", GATEWAY)
    api.delete("clusterrolebindings", GATEWAY)
    role = {**found["roleRef"], "name": "cluster-admin"}
    metadata = {"name": GATEWAY, "labels": found["metadata"]["labels"]}
    api.create({**found, "metadata": metadata, "roleRef": role})
    ask(api, ensured)
    assert api.get("clusterrolebindings", GATEWAY)["roleRef"] == found["roleRef"]


@pytest.mark.parametrize("plural", ["clusterroles", "clusterrolebindings", "serviceaccounts"])
def test_an_object_of_somebody_else_stays(api: EmbeddedAPI, plural: str) -> None:
    ask(api, ensured)
    namespace = NAMESPACE if plural == "serviceaccounts" else ""
    theirs = {"metadata": {"labels": {"app.kubernetes.io/managed-by": "somebody"}}}
    version = api.patch(plural, GATEWAY, theirs, namespace)["metadata"]["resourceVersion"]
    with pytest.raises(ForeignObject, match=f"{GATEWAY}.*delete it"):
        ask(api, ensured)
    assert ask(api, remove_objects)
    assert api.get(plural, GATEWAY, namespace)["metadata"]["resourceVersion"] == version


def test_a_namespace_of_somebody_else_will_do(api: EmbeddedAPI) -> None:
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": {"a": "b"}}})
    ask(api, ensured)
    assert api.get("namespaces", NAMESPACE)["metadata"]["labels"]["a"] == "b"


def test_they_are_removed_and_the_namespace_stays(api: EmbeddedAPI) -> None:
    assert not ask(api, remove_objects)
    ask(api, ensured)
    assert ask(api, remove_objects)
    for wanted in WANTED:
        plural = PLURALS[wanted.body["kind"]]
        names = [one["metadata"]["name"] for one in api.objects(plural)]
        assert wanted.name not in names
    assert api.get("namespaces", NAMESPACE)


def test_the_rights_come_last_and_go_first() -> None:
    """A fault in between leaves no ServiceAccount with rights that nobody looks after."""
    memory: Any = WorkloadMemory(lambda: START)
    memory.faults.of["POST /apis/rbac.authorization.k8s.io/v1/clusterrolebindings"] = Forbidden("no", status=403)
    with pytest.raises(Forbidden):
        asyncio.run(ensured(memory))
    assert not memory.found("serviceaccounts", GATEWAY)
    memory.faults.of.clear()
    asyncio.run(ensured(memory))
    made = [call.path for call in memory.calls if call.method == "POST"]
    asyncio.run(remove_objects(memory))
    removed = [call.path for call in memory.calls if call.method == "DELETE"]
    assert made[-1].endswith("clusterrolebindings")
    assert removed[0].endswith(f"clusterrolebindings/{GATEWAY}")


def test_a_change_between_look_and_write_is_not_overwritten() -> None:
    memory: Any = WorkloadMemory(lambda: START)
    asyncio.run(ensured(memory))
    path = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{GATEWAY}"
    memory.api.edit(path, {"rules": []})
    read = memory.get

    async def meddle(asked: str) -> Any:
        found = await read(asked)
        if asked == path:
            memory.api.edit(path, {"rules": [{"verbs": ["get"]}]})
        return found

    memory.get = meddle
    with pytest.raises(Conflict):
        asyncio.run(ensured(memory))
