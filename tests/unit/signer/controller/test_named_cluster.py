"""``require_cluster`` suggests Clusters with similar names."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from signer.controller.named_cluster import NoSuchCluster, require_cluster
from signer.kube.client import JsonObject
from signer.kube.errors import Forbidden, NotFound, ServerError
from signer.kube.resources import CLUSTERS_V1BETA2
from signer.model.cluster import ClusterKey


class API:
    """Clusters in two pages."""

    def __init__(self, *clusters: str, lists: tuple[str, ...] = ("",)) -> None:
        self._keys = [ClusterKey(*one.split("/")) for one in clusters]
        self._lists = [CLUSTERS_V1BETA2.collection(namespace or None) for namespace in lists]
        self.calls: list[str] = []

    async def get(self, path: str) -> JsonObject:
        self.calls.append("get")
        if path not in [CLUSTERS_V1BETA2.object(key.name, key.namespace) for key in self._keys]:
            raise NotFound(path)
        return {}

    async def list_pages(self, path: str, *arguments: Any, **options: Any) -> AsyncGenerator[JsonObject, None]:
        self.calls.append("list")
        if path not in self._lists:
            raise Forbidden(path)
        found = [key for key in self._keys if CLUSTERS_V1BETA2.collection(key.namespace).startswith(path[:-9])]
        for part in (found[:1], found[1:]):
            yield {"items": [{"metadata": {"namespace": key.namespace, "name": key.name}} for key in part]}


async def said(api: API, cluster: str) -> str:
    with pytest.raises(NoSuchCluster) as refused:
        await require_cluster(api, CLUSTERS_V1BETA2, ClusterKey(*cluster.split("/")))
    return str(refused.value)


async def test_an_existing_cluster_costs_one_call() -> None:
    api = API("default/production")
    await require_cluster(api, CLUSTERS_V1BETA2, ClusterKey("default", "production"))
    assert api.calls == ["get"]


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("default/prod", "team-a/production"),
        ("default/production", "team-a/production"),
        ("team-a/prodcution", "team-a/production"),
        ("default/production-md-0-x7k2p", "team-a/production"),
        ("team-a/stage", "team-a/staging"),
    ],
)
async def test_similar_names_are_suggested(asked: str, near: str) -> None:
    api = API("team-b/other", "team-a/production", "team-a/staging")
    assert await said(api, asked) == f"Cluster {asked} does not exist: there is {near}"


async def test_the_same_name_comes_first_of_three_suggestions() -> None:
    api = API("a/production-1", "b/production-2", "c/production-3", "z/production")
    assert (await said(api, "d/production")).endswith(": there is z/production, a/production-1, b/production-2")


@pytest.mark.parametrize("lists", [("",), ("default",), ()])
async def test_without_suggestions_the_kubeconfig_is_questioned(lists: tuple[str, ...]) -> None:
    assert "is --kubeconfig that of their management cluster?" in await said(API("default/x", lists=lists), "default/y")


async def test_without_a_similar_name_those_that_exist_are_named() -> None:
    api = API("default/b", "default/a", "default/d", "default/c")
    lists_them = "`kubectl get clusters --all-namespaces` lists them"
    assert f": there is default/a, default/b, default/c; {lists_them}" in await said(api, "default/xyz")
    assert f"does not exist: {lists_them}" in await said(API(), "default/xyz")


async def test_suggestions_are_limited_to_the_namespace_that_may_be_listed() -> None:
    api = API("team-b/production-1", "team-a/production-2", lists=("team-a",))
    assert (await said(api, "team-a/production")).endswith(": there is team-a/production-2")


async def test_a_failed_read_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(path: str) -> JsonObject:
        raise ServerError(path, status=500)

    api = API()
    monkeypatch.setattr(api, "get", broken)
    with pytest.raises(ServerError):
        await require_cluster(api, CLUSTERS_V1BETA2, ClusterKey("default", "production"))
