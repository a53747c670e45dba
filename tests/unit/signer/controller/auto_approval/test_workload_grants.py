"""The exact calls to a workload cluster."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, Iterable
from typing import Any

import pytest

from signer.controller.auto_approval import workload_grants
from signer.controller.auto_approval.workload_grants import (
    CannotBeProven,
    TokensUnread,
    openings_of,
    read_grants,
    read_token_groups,
)
from signer.kube.client import JsonObject, Parameters
from signer.kube.errors import ApiError, Forbidden
from signer.model.auto_approval import ApprovalSubresource, ClusterRoleBinding
from signer.rules.auto_approval import AllowedReview, Grant, RemovableGrant, ReviewedIdentity, granting_bindings
from tests.unit.signer.store.removed_bindings_fixtures import binding_manifest, role_manifest

NODES = ReviewedIdentity("Group system:nodes", "", ("system:nodes",), may_be_administrator=False)
ALICE = ReviewedIdentity("User alice", "alice", (), may_be_administrator=True)


class Scripted:
    """A workload cluster with lists of ``pages``, whose reviews allow ``allowed``."""

    def __init__(self, *allowed: str, **pages: list[list[JsonObject]]) -> None:
        self._allowed = allowed
        self._pages = pages
        self.reviews: list[JsonObject] = []
        self.lists: list[tuple[str, Parameters | None]] = []
        self.failure: ApiError | None = None

    async def list_pages(
        self, path: str, params: Parameters | None = None, *arguments: Any, **options: Any
    ) -> AsyncGenerator[JsonObject, None]:
        self.lists.append((path, params))
        if self.failure is not None:
            raise self.failure
        for page in self._pages[path.rpartition("/")[2]]:
            yield {"items": page}

    async def create(self, path: str, body: JsonObject) -> JsonObject:
        assert path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        self.reviews.append(body["spec"])
        wanted = body["spec"]["resourceAttributes"]
        return {"status": {"allowed": wanted.get("subresource", wanted["resource"]) in self._allowed, "reason": "RBAC"}}


async def test_reviews_match_those_of_kube_controller_manager() -> None:
    api = Scripted()
    assert await openings_of(api, [NODES], [ApprovalSubresource.NODECLIENT]) == ()
    assert api.reviews == [
        {
            "groups": ["system:nodes"],
            "resourceAttributes": {
                "verb": "create",
                "group": "certificates.k8s.io",
                "version": "*",
                "resource": "certificatesigningrequests",
                "subresource": "nodeclient",
            },
        }
    ]


async def test_every_yes_is_an_opening() -> None:
    api = Scripted("selfnodeclient", "nodeclient")
    assert await openings_of(api, [NODES, ALICE]) == tuple(
        AllowedReview(auto_approval, identity, "RBAC")
        for identity in (NODES, ALICE)
        for auto_approval in ApprovalSubresource
    )
    assert [spec.get("user") for spec in api.reviews] == [None, None, "alice", "alice", "alice"]


async def test_an_administrator_is_reviewed_once() -> None:
    api = Scripted("*", "nodeclient")
    assert await openings_of(api, [ALICE]) == ()
    assert [spec["resourceAttributes"]["verb"] for spec in api.reviews] == ["*"]


async def test_roles_and_bindings_of_all_pages() -> None:
    versioned: dict[str, Any] = {"uid": "u", "resourceVersion": "1"}
    bindings = [[binding_manifest(f"b{number}", **versioned)] for number in range(3)]
    roles = [[role_manifest("other")], [role_manifest()]]
    grants = await read_grants(Scripted(clusterroles=roles, clusterrolebindings=bindings))
    assert [grant.binding.name for grant in grants] == ["b0", "b1", "b2"]
    assert all(isinstance(grant, RemovableGrant) for grant in grants)


async def test_irrelevant_bindings_are_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a hostile API server could fill the shared memory with 2 GiB of bindings of ``view``."""
    monkeypatch.setattr(workload_grants, "MAXIMUM_GRANT_BYTES", 10_000)
    held: list[str] = []

    def granting(roles: Any, bindings: Iterable[ClusterRoleBinding]) -> tuple[Grant, ...]:
        page = list(bindings)
        assert len(page) == 1, held
        held.extend(binding.name for binding in page)
        return granting_bindings(roles, page)

    monkeypatch.setattr(workload_grants, "granting_bindings", granting)
    versioned: dict[str, Any] = {"uid": "u", "resourceVersion": "1"}
    large = {"note": "x" * 9_000}
    pages = [[binding_manifest(f"b{n}", "view", annotations=large, **versioned)] for n in range(5)]
    pages.append([binding_manifest("grants", annotations=large, **versioned)])
    roles = [[role_manifest("view", "pods"), role_manifest()]]
    grants = await read_grants(Scripted(clusterroles=roles, clusterrolebindings=pages))
    assert [grant.binding.name for grant in grants] == ["grants"]
    assert len(held) == 6


async def test_too_large_grants_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload_grants, "MAXIMUM_GRANT_BYTES", 10_000)
    versioned: dict[str, Any] = {"uid": "u", "resourceVersion": "1", "annotations": {"note": "x" * 6_000}}
    pages = [[binding_manifest(f"b{number}", **versioned)] for number in range(2)]
    assert len(await read_grants(Scripted(clusterroles=[[role_manifest()]], clusterrolebindings=pages[:1]))) == 1
    with pytest.raises(CannotBeProven, match="clusterrolebindings take more than 9 KiB") as told:
        await read_grants(Scripted(clusterroles=[[role_manifest()]], clusterrolebindings=pages))
    assert told.value.reason == "TooManyGrants"


async def test_too_large_role_names_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload_grants, "MAXIMUM_ROLE_BYTES", 10_000)
    roles = [[role_manifest("a" * 6_000)], [role_manifest("b" * 6_000)]]
    with pytest.raises(CannotBeProven, match="clusterroles take more than 9 KiB"):
        await read_grants(Scripted(clusterroles=roles, clusterrolebindings=[]))
    assert await read_grants(Scripted(clusterroles=roles[:1], clusterrolebindings=[])) == ()


async def test_token_secrets_are_selected_by_type_and_their_groups_read() -> None:
    groups = base64.b64encode(b"system:bootstrappers:a, system:bootstrappers:b,other").decode()
    api = Scripted(secrets=[[{"data": {"auth-extra-groups": groups}}, {"data": {}}], [{}]])
    assert await read_token_groups(api) == frozenset(
        {
            frozenset({"system:bootstrappers", "system:bootstrappers:a", "system:bootstrappers:b"}),
            frozenset({"system:bootstrappers"}),
        }
    )
    assert api.lists == [
        ("/api/v1/namespaces/kube-system/secrets", {"fieldSelector": "type=bootstrap.kubernetes.io/token"})
    ]


async def test_forbidden_token_secrets() -> None:
    api = Scripted(secrets=[[]])
    api.failure = Forbidden("no", status=403)
    found = await read_token_groups(api)
    assert isinstance(found, TokensUnread)
    assert "may not list secrets" in found.cause
