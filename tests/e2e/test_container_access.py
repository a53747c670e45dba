"""The gateway's credential at a real kube-apiserver: what it may do in a person's name, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from random import SystemRandom
from typing import Any, Final

import pytest

from signer.access.containers.credential import Credential, render_kubeconfig, request_credential
from signer.access.containers.objects import GATEWAY, NAMESPACE, PEOPLE, WANTED
from signer.access.containers.workload import ensure_objects, remove_objects
from signer.kube.client import Client
from signer.kube.kubeconfig import parse_kubeconfig
from signer.model.tools_image import NamedToolsImage, NoToolsImage
from tests.support.control_plane import ControlPlane
from tests.support.processes import wait_until
from tests.support.raw_client import Answer, RawClient

pytestmark = [pytest.mark.real, pytest.mark.slow]
PODS: Final = "/api/v1/namespaces/default/pods"
REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
ALICE: Final = {"Impersonate-User": "node-access:alice"}
PERSON: Final = {**ALICE, "Impersonate-Group": "node-access:containers"}
ALLOWED: Final = {
    *(("", "pods", verb) for verb in ("get", "list")),
    *(("", f"pods/{subresource}", verb) for subresource in ("exec", "portforward") for verb in ("get", "create")),
    *(
        ("apps", plural, verb)
        for plural in ("deployments", "statefulsets", "daemonsets", "replicasets")
        for verb in ("get", "list")
    ),
    *(("batch", "jobs", verb) for verb in ("get", "list")),
}
CREATORS: Final = ("alice",)
NO_TOOLS: Final = NoToolsImage()
REFUSED: Final = {
    ("", "secrets", "get"),
    ("", "pods", "create"),
    ("", "pods", "delete"),
    ("", "pods", "watch"),
    ("", "pods/attach", "create"),
    ("", "pods/log", "get"),
    ("", "pods/ephemeralcontainers", "patch"),
    ("", "users", "impersonate"),
    ("", "serviceaccounts/token", "create"),
    ("apps", "deployments", "patch"),
    ("rbac.authorization.k8s.io", "clusterroles", "update"),
}


async def _prepare(plane: ControlPlane) -> tuple[Credential, bytes]:
    async with Client(plane.connection()) as client:
        uid = await ensure_objects(client, CREATORS, NoToolsImage())
        credential = await request_credential(client, uid, datetime.now(UTC), SystemRandom())
        return credential, render_kubeconfig(client.server, credential)


@pytest.fixture(scope="module")
def prepared(real_control_plane: ControlPlane) -> tuple[Credential, bytes]:
    """What the controller makes, and the kubeconfig that the gateway gets."""
    found = asyncio.run(_prepare(real_control_plane))
    with RawClient(parse_kubeconfig(found[1])) as gateway:
        wait_until(lambda: _ask(gateway, PERSON).status == 200, "the roles are in force")
    return found


@pytest.fixture(scope="module")
def gateway(prepared: tuple[Credential, bytes]) -> Iterator[RawClient]:
    with RawClient(parse_kubeconfig(prepared[1])) as client:
        yield client


def _ask(gateway: RawClient, headers: dict[str, str], path: str = PODS) -> Answer:
    with gateway.with_headers(headers) as client:
        return client.get(path)


def _may(gateway: RawClient, headers: dict[str, str], group: str, resource: str, verb: str) -> bool:
    plural, _, subresource = resource.partition("/")
    attributes = {"group": group, "resource": plural, "subresource": subresource, "verb": verb, "namespace": "default"}
    body: dict[str, Any] = {"spec": {"resourceAttributes": {k: v for k, v in attributes.items() if v}}}
    with gateway.with_headers(headers) as client:
        return client.post(REVIEWS, body).expect(201)["status"]["allowed"] is True


def test_the_token_lives_for_a_day(prepared: tuple[Credential, bytes]) -> None:
    lifetime = prepared[0].expires - datetime.now(UTC)
    assert timedelta(hours=23) < lifetime <= timedelta(hours=24)


def test_in_a_persons_name_it_may_what_the_role_says_and_nothing_else(gateway: RawClient) -> None:
    asked = ALLOWED | REFUSED
    assert {one for one in asked if _may(gateway, PERSON, *one)} == ALLOWED


@pytest.mark.parametrize(
    "user",
    ["node-access:bob", "node-access:", "node-access:alice2", "alice", "admin", "system:kube-controller-manager", "*"],
)
def test_a_stolen_token_acts_as_no_user_without_a_live_grant(gateway: RawClient, user: str) -> None:
    assert _ask(gateway, {**PERSON, "Impersonate-User": user}).status == 403


def test_without_a_live_grant_a_stolen_token_acts_as_nobody(
    real_control_plane: ControlPlane, gateway: RawClient
) -> None:
    """The rule for users goes with the last creator, and comes with the next one."""
    asyncio.run(_ensure(real_control_plane, ()))
    wait_until(lambda: _ask(gateway, PERSON).status == 403, "the last grant has ended")
    assert _ask(gateway, {"Impersonate-User": "system:kube-controller-manager"}).status == 403
    asyncio.run(_ensure(real_control_plane))
    wait_until(lambda: _ask(gateway, PERSON).status == 200, "the next grant is live")


def test_without_the_group_a_person_may_nothing(gateway: RawClient) -> None:
    assert _ask(gateway, ALICE).status == 403


@pytest.mark.parametrize(
    "group", ["system:masters", "system:nodes", "node-access:containers2", "kubeadm:cluster-admins"]
)
def test_it_impersonates_no_other_group(gateway: RawClient, group: str) -> None:
    assert _ask(gateway, {**ALICE, "Impersonate-Group": group}).status == 403


def test_it_impersonates_no_service_account_and_no_extra(gateway: RawClient) -> None:
    for headers in (
        {"Impersonate-User": f"system:serviceaccount:{NAMESPACE}:{GATEWAY}"},
        {"Impersonate-User": "system:serviceaccount:kube-system:generic-garbage-collector"},
        {**PERSON, "Impersonate-Extra-Scopes": "all"},
    ):
        assert _ask(gateway, headers).status == 403, headers


def test_by_itself_it_may_nothing(gateway: RawClient) -> None:
    assert gateway.get(PODS).status == 403
    assert {one for one in ALLOWED | REFUSED if _may(gateway, {}, *one)} == set()


def test_what_is_stored_is_what_is_wanted(real_control_plane: ControlPlane, prepared: tuple[Credential, bytes]) -> None:
    """Else each look would write."""
    with RawClient(real_control_plane.connection()) as admin:
        before = [admin.get(one.path).expect(200)["metadata"]["resourceVersion"] for one in WANTED]
        asyncio.run(_ensure(real_control_plane))
        assert [admin.get(one.path).expect(200)["metadata"]["resourceVersion"] for one in WANTED] == before
        role = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{PEOPLE}"
        rules = admin.get(role).expect(200)["rules"]
        admin.patch(role, {"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}).expect(200)
        asyncio.run(_ensure(real_control_plane))
        assert admin.get(role).expect(200)["rules"] == rules


async def _ensure(plane: ControlPlane, creators: Sequence[str] = CREATORS, tools: NamedToolsImage = NO_TOOLS) -> None:
    async with Client(plane.connection()) as client:
        await ensure_objects(client, creators, tools)


def test_taken_away_the_token_opens_nothing(real_control_plane: ControlPlane, gateway: RawClient) -> None:
    """The last test: it takes the objects from the others."""

    async def remove() -> bool:
        async with Client(real_control_plane.connection()) as client:
            return await remove_objects(client)

    assert asyncio.run(remove())
    wait_until(lambda: _ask(gateway, PERSON).status == 401, "the token is refused")
