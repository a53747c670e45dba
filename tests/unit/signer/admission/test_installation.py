"""Installing and removing a policy, at an embedded API that stores such objects and applies none."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest

from signer.admission.discovery import NotServed
from signer.admission.installation import (
    RIGHTS,
    Installed,
    NotAllowed,
    NotInstalled,
    NotOurs,
    Presence,
    Written,
    install,
    presence,
    remove,
    try_install,
)
from signer.admission.manifests import AdmissionVersion, binding_manifest, policy_manifest
from signer.kube.client import Client, JsonObject
from signer.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound
from signer.testing.api import EmbeddedAPI
from tests.support.admission_definitions import serve_admission_policies
from tests.unit.signer.admission.policies import POLICY

MANIFESTS: Final = tuple(render(POLICY, AdmissionVersion.V1) for render in (policy_manifest, binding_manifest))
OTHER: Final = dataclasses.replace(POLICY, match_conditions=())
CREATED: Final = Installed(Written.CREATED, Written.CREATED)
UNCHANGED: Final = Installed(Written.UNCHANGED, Written.UNCHANGED)


@pytest.fixture
def api() -> Iterator[EmbeddedAPI]:
    with EmbeddedAPI() as embedded:
        serve_admission_policies(embedded)
        yield embedded


@pytest.fixture
async def client(api: EmbeddedAPI) -> AsyncIterator[Client]:
    async with Client(api.connection()) as opened:
        yield opened


def writes(api: EmbeddedAPI) -> list[str]:
    return [request.method for request in api.requests.matching() if request.method != "GET"]


async def test_it_is_written_once(api: EmbeddedAPI, client: Client) -> None:
    assert await install(POLICY, client) == CREATED
    for manifest in MANIFESTS:
        found = await client.get(manifest.path)
        assert found["spec"] == manifest.body["spec"]
        assert found["metadata"]["labels"] == manifest.body["metadata"]["labels"]
    before = writes(api)
    assert await install(POLICY, client) == UNCHANGED
    assert writes(api) == before


async def test_another_version_of_it_is_replaced(client: Client) -> None:
    await install(OTHER, client)
    assert await install(POLICY, client) == Installed(Written.UPDATED, Written.UNCHANGED)
    assert await install(POLICY, client) == UNCHANGED


@pytest.mark.parametrize(
    ("number", "change"),
    [
        (0, {"spec": {"failurePolicy": "Ignore"}}),
        (0, {"spec": {"paramKind": {"kind": "ConfigMap"}}}),
        (0, {"spec": None}),
        (0, {"metadata": {"annotations": {"attestation.cluster.x-k8s.io/digest": None}}}),
        (1, {"spec": {"validationActions": ["Audit"]}}),
        (1, {"spec": {"matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}}),
    ],
)
async def test_what_somebody_changed_is_restored(client: Client, number: int, change: dict[str, Any]) -> None:
    await install(POLICY, client)
    manifest = MANIFESTS[number]
    await client.patch(manifest.path, change)
    outcome = await install(POLICY, client)
    assert isinstance(outcome, Installed)
    assert (outcome.policy, outcome.binding)[number] is Written.RESTORED
    assert (await client.get(manifest.path))["spec"] == manifest.body["spec"]
    assert await install(POLICY, client) == UNCHANGED


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("labels", [None, {}, {"app.kubernetes.io/managed-by": "Helm"}])
async def test_what_belongs_to_somebody_else_stays(client: Client, number: int, labels: dict[str, str] | None) -> None:
    manifest = MANIFESTS[number]
    foreign = {**manifest.body, "metadata": {"name": manifest.name, "labels": labels}, "spec": {"theirs": True}}
    await client.create(manifest.resource.collection(), foreign)
    before = await client.get(manifest.path)
    with pytest.raises(NotOurs, match=f"{manifest.body['kind']} colours .*delete or rename"):
        await install(POLICY, client)
    await remove(POLICY, client)
    assert await client.get(manifest.path) == before


async def test_it_is_removed(client: Client) -> None:
    await install(POLICY, client)
    await remove(POLICY, client)
    for manifest in MANIFESTS:
        with pytest.raises(NotFound):
            await client.get(manifest.path)
    await remove(POLICY, client)


async def test_the_binding_goes_first(api: EmbeddedAPI, client: Client) -> None:
    """A policy that is gone and still bound would refuse requests for lack of it (``failurePolicy``)."""
    await install(POLICY, client)
    await remove(POLICY, client)
    deleted = [request.path for request in api.requests.matching() if request.method == "DELETE"]
    assert deleted == [manifest.path for manifest in reversed(MANIFESTS)]


class Late(Client):
    """Somebody else writes between the read and the write."""

    change: JsonObject | None = None

    async def get(self, path: str, params: Any = None) -> JsonObject:
        try:
            found = await super().get(path, params)
        except NotFound:
            if self.change is not None:
                await super().create(path.rpartition("/")[0], MANIFESTS[0].body)
            raise
        if path == MANIFESTS[0].path and self.change is not None:
            await super().patch(path, self.change)
        return found


@pytest.mark.parametrize("call", [install, remove])
async def test_a_change_in_between_is_not_overwritten(api: EmbeddedAPI, client: Client, call: Any) -> None:
    await install(OTHER, client)
    async with Late(api.connection()) as late:
        late.change = {"metadata": {"labels": {"app.kubernetes.io/managed-by": "somebody"}}}
        with pytest.raises(Conflict):
            await call(POLICY, late)
    found = await client.get(MANIFESTS[0].path)
    assert found["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "somebody"
    assert found["spec"] == policy_manifest(OTHER, AdmissionVersion.V1).body["spec"]


async def test_a_creation_in_between_is_not_overwritten(api: EmbeddedAPI) -> None:
    async with Late(api.connection()) as late:
        late.change = {}
        with pytest.raises(AlreadyExists):
            await install(POLICY, late)


async def test_an_api_that_does_not_serve_them() -> None:
    with EmbeddedAPI() as embedded:
        async with Client(embedded.connection()) as client:
            assert await install(POLICY, client) == NotServed()
            await remove(POLICY, client)
        assert writes(embedded) == []


async def test_it_needs_its_rights_and_no_others(api: EmbeddedAPI, client: Client) -> None:
    rules = [{"apiGroups": [group], "resources": [name], "verbs": list(verbs)} for group, name, verbs in RIGHTS]
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "r"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "somebody"}],
    }
    async with Client(api.connection("somebody", ())) as somebody:
        with pytest.raises(Forbidden):
            await install(POLICY, somebody)
        await client.create(f"{rbac}/clusterroles", {**role, "rules": rules})
        await client.create(f"{rbac}/clusterrolebindings", binding)
        await install(OTHER, somebody)
        await install(POLICY, somebody)
        await remove(POLICY, somebody)


async def test_whether_it_is_there(client: Client) -> None:
    assert await presence(POLICY, client) is Presence.ABSENT
    await install(POLICY, client)
    await client.patch(MANIFESTS[0].path, {"spec": {"failurePolicy": "Ignore"}})
    assert await presence(POLICY, client) is Presence.PRESENT
    await client.patch(MANIFESTS[0].path, {"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"}}})
    assert await presence(POLICY, client) is Presence.ABSENT


async def test_errors_as_values(api: EmbeddedAPI, client: Client) -> None:
    api.faults.inject("POST */validatingadmissionpolicies", status=403)
    assert isinstance(await try_install(POLICY, client), NotAllowed)
    api.faults.inject("POST */validatingadmissionpolicies", status=409)
    assert isinstance(await try_install(POLICY, client), NotInstalled)
    api.faults.inject("POST */validatingadmissionpolicies", status=500)
    assert isinstance(await try_install(POLICY, client), NotInstalled)
    assert await try_install(POLICY, client) == CREATED
