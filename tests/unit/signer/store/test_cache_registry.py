"""Caches that other components register: a component's ConfigMaps, besides the collections that decisions need."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from signer.controller.diagnostics.health import Health, State
from signer.controller.run import _process_gauges
from signer.kube.client import Client, JsonObject, Parameters
from signer.kube.errors import Forbidden
from signer.kube.resources import CLUSTERS_V1BETA2, CONFIG_MAPS, MACHINES_V1BETA2
from signer.kube.watch import MAXIMUM_OBJECTS as WORKLOAD_OBJECTS
from signer.kube.watch import Sink
from signer.model.decision import Deferred
from signer.model.fields import mapping_of
from signer.model.floors import NO_FLOORS
from signer.model.seal import ControllerKeys
from signer.store import cache_registry
from signer.store.cache import Cache, InTouch, ObjectKey
from signer.store.cache_registry import AlreadyRegistered, CacheDeclaration, CacheRegistry, Scope
from signer.store.caches import OUT_OF_TOUCH_SECONDS, REACHED_AGAIN, Caches, ProviderIDs
from signer.store.cluster_api import ClusterAPIVersion, NotServed
from tests.unit.signer.store.silent_watch import SilentWatch

LABEL = {"labelSelector": "wing.example.org/grant"}


def grant(manifest: JsonObject) -> str:
    text = mapping_of(manifest, "data").get("grant")
    if not isinstance(text, str):
        raise ValueError("data.grant is no text")
    return text


def config_map(name: str, **data: str) -> JsonObject:
    return {"metadata": {"namespace": "own", "name": name, "uid": name, "resourceVersion": "1"}, "data": data}


class Wing:
    """A component that needs ConfigMaps with a label, and no other collection."""

    def __init__(self, *, needed: bool = False, scope: Scope = Scope.OWN) -> None:
        self.at = 0.0
        version = ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2)
        self.caches = Caches(
            version, own_namespace="own", watch_namespace="team-a", monotonic=lambda: self.at, floors=NO_FLOORS
        )
        self.caches.authentic.use_keys(ControllerKeys(bytes(32)))
        self.changes: list[tuple[ObjectKey, str | None, str | None]] = []
        self.wakes: list[ProviderIDs] = []
        self.caches.on_change(lambda cluster, provider_ids: self.wakes.append(provider_ids))
        self.declaration = CacheDeclaration(
            CONFIG_MAPS,
            grant,
            scope,
            needed_by_decisions=needed,
            changed=lambda key, before, after: self.changes.append((key, before, after)),
            selectors=LABEL,
        )
        self.cache: Cache[str] = self.caches.registry.register(self.declaration)

    def fails(self) -> None:
        self.cache.failed(Forbidden("403: may not watch", status=403), 1.0)
        self.at += OUT_OF_TOUCH_SECONDS + 0.1


async def watched_paths(
    wing: Wing, monkeypatch: pytest.MonkeyPatch, lists: dict[str, list[JsonObject]]
) -> dict[str, dict[str, Any]]:
    """Run the caches against one list each; returns the watched paths with their selectors."""
    begun: dict[str, dict[str, Any]] = {}

    async def list_once(client: Client, path: str, *, sink: Sink, params: dict[str, Any], **options: object) -> None:
        begun[path] = dict(params)
        sink.replaced(lists.get(path, []))

    async def no_key(client: Client) -> None:
        """The controller key has tests of its own."""

    monkeypatch.setattr(cache_registry, "list_and_watch", list_once)
    monkeypatch.setattr(wing.caches.controller_key, "run", no_key)
    await wing.caches.run(cast("Client", None))
    return begun


async def test_it_is_watched_with_its_label_and_in_its_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    wing = Wing()
    path = CONFIG_MAPS.collection("own")
    begun = await watched_paths(wing, monkeypatch, {path: [config_map("a", grant="one"), config_map("b")]})
    assert begun[path] == LABEL
    assert {selectors == {} for other, selectors in begun.items() if other != path} == {True}
    assert wing.cache.get("own", "a") == "one"
    assert len(wing.cache) == 1, "what cannot be read is left out"
    assert wing.changes == [(("own", "a"), None, "one")]


async def test_one_of_the_clusters_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = await watched_paths(Wing(scope=Scope.WATCHED), monkeypatch, {})
    assert CONFIG_MAPS.collection("team-a") in begun


async def test_filling_once_lists_it_too() -> None:
    class Source:
        async def list_pages(
            self, path: str, params: Any = None, *arguments: Any, **options: Any
        ) -> AsyncGenerator[dict[str, Any], None]:
            ours = path == CONFIG_MAPS.collection("own")
            assert params == (LABEL if ours else None)
            yield {"items": [config_map("a", grant="one")] if ours else []}

    wing = Wing()
    await wing.caches.fill(Source())
    assert wing.cache.get("own", "a") == "one"


def test_out_of_touch_it_stops_no_decision_that_does_not_need_it() -> None:
    wing = Wing()
    wing.fails()
    wing.caches.require_in_touch()
    wing.caches.clusters.applied({"metadata": {"namespace": "team-a", "name": "prod", "uid": "c"}})
    wing.wakes.clear()
    wing.cache.synced()
    assert wing.wakes == [], "nobody waits for it"


def test_out_of_touch_it_stops_decisions_that_need_it() -> None:
    wing = Wing(needed=True)
    wing.fails()
    with pytest.raises(Deferred, match="configmaps"):
        wing.caches.require_in_touch()
    wing.caches.clusters.applied({"metadata": {"namespace": "team-a", "name": "prod", "uid": "c"}})
    wing.wakes.clear()
    wing.cache.synced()
    wing.caches.require_in_touch()
    assert wing.wakes == [REACHED_AGAIN]


@pytest.mark.parametrize("needed", [True, False])
async def test_decisions_wait_for_its_first_list_only_if_they_need_it(needed: bool) -> None:
    wing = Wing(needed=needed)
    wing.caches.controller_key.attempted.set()
    for cache in wing.caches.watched():
        if cache is not wing.cache:
            cache.replaced([])
    filled = asyncio.ensure_future(wing.caches.filled())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert filled.done() is not needed
    wing.cache.replaced([])
    await asyncio.wait_for(filled, 5)


@pytest.mark.parametrize("needed", [True, False])
def test_readiness_and_metrics_know_it(needed: bool) -> None:
    wing, health = Wing(needed=needed), Health()
    health.watch(wing.caches, tuple)
    health.started()
    gauges = _process_gauges(health, wing.caches, cast("Any", type("Recorder", (), {"dropped": 0})()))
    assert gauges.watched["configmaps"] is True
    wing.fails()
    gauges = _process_gauges(health, wing.caches, cast("Any", type("Recorder", (), {"dropped": 0})()))
    assert gauges.watched["configmaps"] is False
    assert health.state() is (State.OUT_OF_TOUCH if needed else State.READY)


def test_liveness_includes_it() -> None:
    wing, health = Wing(), Health()
    health.watch(wing.caches, tuple)
    health.started()
    wing.at = 1e6
    for cache in wing.caches.watched():
        if cache is not wing.cache:
            cache.established()
    assert "configmaps" in health.alive().verbose()


def test_two_of_one_name_are_refused() -> None:
    wing = Wing()
    with pytest.raises(AlreadyRegistered, match="configmaps"):
        wing.caches.registry.register(wing.declaration)
    with pytest.raises(AlreadyRegistered):
        wing.caches.registry.register(
            CacheDeclaration(CONFIG_MAPS, grant, Scope.OWN, needed_by_decisions=False, name="machines")
        )


async def test_late_registration_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would never be listed, and silently stay empty."""
    wing = Wing()
    await watched_paths(wing, monkeypatch, {})
    with pytest.raises(RuntimeError, match="grants"):
        wing.caches.registry.register(
            CacheDeclaration(CONFIG_MAPS, grant, Scope.OWN, needed_by_decisions=False, name="grants")
        )


def test_a_cache_of_an_unserved_resource_stays_empty_and_blocks_nothing() -> None:
    wing = Wing()
    before = list(wing.caches.watched())
    empty = wing.caches.registry.register(CacheDeclaration(NotServed(), grant, Scope.OWN, needed_by_decisions=True))
    assert list(wing.caches.watched()) == before
    assert len(empty) == 0


def test_the_built_in_caches_are_all_needed_by_decisions() -> None:
    wing = Wing()
    names = [cache.name for cache in wing.caches.registry.needed_by_decisions]
    assert names == ["clusters", "machines", "nodeattestationpolicies", "attestednodes", "identityreservations"]


class Crowded(SilentWatch):
    """A management API with more objects than any list of a workload cluster may hold, all of one tenant."""

    count = WORKLOAD_OBJECTS + 1

    async def list_pages(
        self, path: str, params: Parameters | None = None, limit: int = 500, *, maximum_bytes: int | None = None
    ) -> AsyncGenerator[JsonObject, None]:
        for begin in range(0, self.count, limit):
            items = [config_map(f"m{number}", grant="") for number in range(begin, min(begin + limit, self.count))]
            yield {"metadata": {"resourceVersion": "1"}, "items": items}


async def test_a_tenant_with_a_hundred_thousand_objects_stops_nobody_elses_decisions() -> None:
    """After a restart, or whenever the watch must list again. The reservations of 50,000 nodes are as many."""
    registry = CacheRegistry({Scope.WATCHED: None}, in_touch_again=lambda: None)
    cache = registry.register(CacheDeclaration(CONFIG_MAPS, grant, Scope.WATCHED, needed_by_decisions=True))

    async def watch() -> None:
        async with asyncio.TaskGroup() as tasks:
            registry.start(tasks, Crowded())

    watching = asyncio.create_task(watch())
    try:
        async with asyncio.timeout(30):
            await cache.filled.wait()
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    assert isinstance(cache.touch(), InTouch)
    assert len(cache) == Crowded.count
