"""The live recheck at a refusal: how often KubeadmConfigs are listed, how much is read, and what a list proves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from signer.kube.client import JsonObject
from signer.kube.errors import Cause, ServerError, Unreachable
from signer.kube.resources import KUBEADM_CONFIGS_V1BETA2
from signer.model.bootstrap_token import InvalidBootstrapConfig, TokenOwner, TracedTo, Untraceable
from signer.model.cluster import ClusterKey
from signer.model.decision import Deferred, Refused
from signer.model.reasons import Reason
from signer.store import bootstrap_configs
from signer.store.bootstrap_configs import (
    LIVE_LIST_BYTES,
    LIVE_LIST_SECONDS,
    LIVE_LISTS_AT_ONCE,
    LIVE_PAGE_OBJECTS,
    LiveConfigs,
    LiveList,
    NotListed,
    bounded_view,
)
from tests.unit.signer.store.kubeadm_configs import CONFIGS, KEY, M1, M2, World, config

NAMESPACE = KUBEADM_CONFIGS_V1BETA2.collection("team-a")
OWN = "system:bootstrap:bbb222"
"""Machine m1's own token; ``aaa111`` is that of m2."""


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.stop()


async def stolen(world: World) -> None:
    """Machine m2's token was stolen; no live list has been made yet."""
    world.api.put(config("m2", "aaa111", M2))
    world.api.put(config("m1", "bbb222", M1))
    await world.running()
    await world.until(lambda: len(world.tokens._configs) == 2)
    world.api.listed.clear()


async def deferred(world: World) -> Deferred:
    with pytest.raises(Deferred) as caught:
        await world.require()
    return caught.value


async def interrupted(world: World) -> None:
    assert (await deferred(world)).defer.reason == Reason.MANAGEMENT_CLUSTER_UNREACHABLE


async def refused(world: World) -> None:
    with pytest.raises(Refused):
        await world.require()


# How often


async def test_copies_of_a_refused_request_cost_one_list(world: World) -> None:
    """Between them, requests with their own tokens pass without a list."""
    await stolen(world)
    for _ in range(60):
        await refused(world)
        await world.require(username=OWN)
    assert world.api.listed == [NAMESPACE]
    world.at += LIVE_LIST_SECONDS
    for _ in range(60):
        await refused(world)
    assert world.api.listed == [NAMESPACE] * 2


async def test_copies_that_arrive_during_a_list_share_it(world: World) -> None:
    await stolen(world)
    world.api.lists_may_go_on.clear()
    first = [asyncio.create_task(world.require()) for _ in range(30)]
    await world.until(lambda: bool(world.api.listed))
    later = [asyncio.create_task(world.require()) for _ in range(30)]
    await asyncio.sleep(0)
    world.api.lists_may_go_on.set()
    results = await asyncio.gather(*first, *later, return_exceptions=True)
    assert all(isinstance(result, Refused) for result in results)
    assert world.api.listed == [NAMESPACE]


async def test_a_failed_list_is_not_repeated_at_once(world: World) -> None:
    await stolen(world)
    world.api.errors[NAMESPACE] = ServerError("no", status=500)
    for _ in range(20):
        await interrupted(world)
    world.api.errors.clear()
    await interrupted(world)
    assert world.api.listed == [NAMESPACE]
    world.at += LIVE_LIST_SECONDS
    await refused(world)


async def test_an_interrupted_list_is_not_repeated_at_once(world: World) -> None:
    """A workload cluster that breaks its connection cancels the calls of its workers."""
    await stolen(world)
    world.api.lists_may_go_on.clear()
    for _ in range(5):
        asking = asyncio.create_task(world.require())
        await asyncio.wait({asking}, timeout=0.01)
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError, Deferred):
            await asking
    assert world.api.listed == [NAMESPACE]
    await interrupted(world)


async def test_a_namespace_does_not_wait_for_the_interval_of_another(world: World) -> None:
    await stolen(world)
    await world.tokens.trace_live(ClusterKey("team-b", "prod"), "aaa111")
    await refused(world)
    assert world.api.listed == [KUBEADM_CONFIGS_V1BETA2.collection("team-b"), NAMESPACE]


async def test_few_namespaces_are_listed_at_once(world: World) -> None:
    world.api.lists_may_go_on.clear()
    asking = [
        asyncio.create_task(world.tokens.trace_live(ClusterKey(f"team-{number}", "prod"), "aaa111"))
        for number in range(5)
    ]
    await world.until(lambda: len(world.api.listed) == LIVE_LISTS_AT_ONCE)
    await asyncio.sleep(0)
    assert len(world.api.listed) == LIVE_LISTS_AT_ONCE
    world.api.lists_may_go_on.set()
    assert await asyncio.gather(*asking) == [Untraceable()] * 5


# What a list proves that began before somebody asked


async def test_a_list_confirms_only_what_the_cache_agrees_with(world: World) -> None:
    """The token is m1's now, and the watch has not delivered it: neither state causes a denial."""
    await stolen(world)
    world.api.put(config("m2", "aaa111", M1), seen=False)
    assert (await deferred(world)).defer.reason == Reason.BOOTSTRAP_TOKEN_UNTRACEABLE  # a list of its own
    await interrupted(world)
    assert world.api.listed == [NAMESPACE]
    world.api.put(config("m2", "aaa111", M1))
    await world.until(lambda: str(world.trace()).count("m1") == 1)
    await world.require()


async def test_a_list_confirms_nothing_while_the_cache_is_out_of_touch(world: World) -> None:
    await stolen(world)
    await refused(world)
    world.api.errors[CONFIGS] = ServerError("no", status=500)
    world.api.break_watch(Unreachable("reset", cause=Cause.RESET))
    await world.until(lambda: world.tokens._configs._failing_since is not None)
    await interrupted(world)
    assert world.api.listed.count(NAMESPACE) == 1


async def test_a_list_that_took_long_confirms_nothing(world: World) -> None:
    await stolen(world)
    world.api.lists_may_go_on.clear()
    asking = asyncio.create_task(world.require())
    await world.until(lambda: bool(world.api.listed))
    world.at += LIVE_LIST_SECONDS
    world.api.lists_may_go_on.set()
    with pytest.raises(Refused):  # it began after this one asked
        await asking
    await interrupted(world)
    assert world.api.listed == [NAMESPACE]


# How much


async def test_a_list_is_bounded_in_bytes(world: World) -> None:
    await stolen(world)
    world.api.bounds.clear()
    await refused(world)
    assert world.api.bounds == [(LIVE_PAGE_OBJECTS, LIVE_LIST_BYTES)]


async def test_each_page_is_dropped_before_the_next(world: World) -> None:
    pages = [{"metadata": {}, "items": [config(f"m{number}", "aaa111", M2)]} for number in range(3)]
    held: list[int] = []

    async def list_pages(*arguments: object, **options: object) -> AsyncIterator[JsonObject]:
        for page in pages:
            yield page
            held.append(sum(len(each["items"]) for each in pages[: len(held) + 1]))

    world.api.list_pages = list_pages  # type: ignore[assignment, method-assign]
    assert await world.tokens.trace_live(KEY, "aaa111") == TracedTo(frozenset({M2}))
    assert held == [0, 0, 0]


async def test_a_list_is_bounded_in_objects(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap_configs, "LIVE_LIST_OBJECTS", 1)
    await stolen(world)
    await interrupted(world)


async def test_a_list_result_is_not_kept_for_ever(world: World) -> None:
    live = LiveConfigs(world.api, world._tick)
    assert isinstance(await live.look(KUBEADM_CONFIGS_V1BETA2, "team-a"), LiveList)
    world.at += LIVE_LIST_SECONDS
    await live.look(KUBEADM_CONFIGS_V1BETA2, "team-b")
    assert isinstance(live._last["team-a"].answer, NotListed)


@pytest.mark.parametrize("length", [253, 254])
def test_a_view_holds_no_more_than_names(length: int) -> None:
    """An owner reference's name may be as long as the object."""
    manifest = config("m1", "aaa111", TokenOwner("team-a", "Machine", "m" * length))
    if length == 253:
        assert bounded_view(manifest).token_id == "aaa111"
        return
    with pytest.raises(InvalidBootstrapConfig):
        bounded_view(manifest)


@pytest.mark.parametrize("length", [253, 254])
def test_a_view_holds_no_more_of_a_uid(length: int) -> None:
    manifest = config("m1", "aaa111", TokenOwner("team-a", "Machine", "m1"))
    manifest["metadata"]["ownerReferences"][0]["uid"] = "u" * length
    if length == 253:
        assert bounded_view(manifest).token_id == "aaa111"
        return
    with pytest.raises(InvalidBootstrapConfig):
        bounded_view(manifest)


async def test_objects_left_out_of_the_cache_are_left_out_of_a_list(world: World) -> None:
    world.api.put(config("m2", "aaa111", TokenOwner("team-a", "Machine", "m" * 254)))
    assert await world.tokens.trace_live(KEY, "aaa111") == Untraceable()
    await world.running()
    assert len(world.tokens._configs) == 0
