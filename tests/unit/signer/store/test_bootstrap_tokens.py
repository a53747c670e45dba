"""Tracing of bootstrap tokens: their owners, the requests that are woken, and the live recheck of a refusal."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from signer.kube.errors import ApiError, Forbidden, ServerError
from signer.kube.resources import KUBEADM_CONFIGS_V1BETA2
from signer.model.bootstrap_token import (
    NodeAsks,
    PoolTokenIDs,
    TokenOwner,
    TracedTo,
    Untraceable,
)
from signer.model.cluster import ClusterKey
from signer.model.decision import Deferred, Refused
from signer.model.reasons import Reason
from tests.unit.signer.store.kubeadm_configs import (
    KEY,
    M1,
    M2,
    POOL,
    SECRET_HALF,
    World,
    config,
    machine,
    pool,
    short_waits,
)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    short_waits(monkeypatch)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.stop()


# Whose token it is


async def test_a_token_leads_to_its_machine(world: World) -> None:
    world.api.put(config("m1", "aaa111", M1))
    await world.running()
    assert world.trace() == TracedTo(frozenset({M1}))
    assert world.trace("bbb222") == Untraceable()
    assert world.trace(cluster=ClusterKey("team-b", "prod")) == Untraceable()


async def test_several_kubeadm_configs_with_one_token(world: World) -> None:
    for name, owner in (("m1", M1), ("m2", M2), ("p1", POOL)):
        world.api.put(config(name, "aaa111", owner))
    await world.running()
    assert world.trace() == TracedTo(frozenset({M1, M2, POOL}))


async def test_an_owner_of_another_cluster_does_not_count(world: World) -> None:
    """Neither by the label, nor if the Machine itself is of another Cluster than the label says."""
    world.caches.machines.applied(machine("m2", cluster="lab"))
    world.api.put(config("m1", "aaa111", M1, cluster="lab"))
    world.api.put(config("m2", "aaa111", M2))
    await world.running()
    assert world.trace() == Untraceable()
    assert world.trace(cluster=ClusterKey("team-a", "lab")) == TracedTo(frozenset({M1, M2}))


async def test_it_follows_changes(world: World) -> None:
    await world.running()
    world.api.put(config("m1", "aaa111", M1))
    await world.until(lambda: world.trace() == TracedTo(frozenset({M1})))
    world.api.put(config("m1", "bbb222", M1))
    await world.until(lambda: world.trace("bbb222") == TracedTo(frozenset({M1})))
    assert world.trace() == Untraceable()
    world.api.remove("m1")
    await world.until(lambda: world.trace("bbb222") == Untraceable())


async def test_no_token_secret_is_kept(world: World) -> None:
    """Nor is one held while a list arrives."""
    world.api.put(config("m1", "aaa111", M1))
    await world.running()
    assert world.api.handed_on
    assert SECRET_HALF not in repr(world.api.handed_on)
    await world.tokens.trace_live(KEY, "aaa111")
    assert SECRET_HALF not in repr((vars(world.tokens), vars(world.tokens._configs)))


async def test_tokens_of_pools(world: World) -> None:
    """Not of a pool that is being deleted, of another cluster (whatever the label says), or gone."""
    pools = world.caches.machine_pools
    for item in (pool("p1"), pool("p2", deletionTimestamp="2026-03-01T12:00:00Z"), pool("p3", cluster="lab")):
        pools.applied(item)
    world.api.put(config("m1", "aaa111", M1))
    for number in range(1, 5):
        world.api.put(config(f"p{number}", f"bbb{number}00", TokenOwner("team-a", "MachinePool", f"p{number}")))
    await world.running()
    assert world.tokens.pool_tokens(KEY) == PoolTokenIDs(frozenset({"bbb100"}))
    assert world.trace("bbb300") == Untraceable()
    assert world.trace("bbb400") == TracedTo(frozenset({TokenOwner("team-a", "MachinePool", "p4")}))


async def test_a_pools_tokens_change(world: World) -> None:
    world.caches.machine_pools.applied(pool("p1"))
    world.api.put(config("p1", "aaa111", POOL))
    await world.running()
    world.api.put(config("p1", "bbb222", POOL))  # rotated
    await world.until(lambda: world.tokens.pool_tokens(KEY) == PoolTokenIDs(frozenset({"bbb222"})))
    world.api.remove("p1")
    await world.until(lambda: world.tokens.pool_tokens(KEY) == PoolTokenIDs(frozenset()))


async def test_a_token_that_is_not_only_the_pools_expires_as_it_would(world: World) -> None:
    """A thief of a Machine's token that may write KubeadmConfigs names a pool as the owner of its own."""
    world.caches.machine_pools.applied(pool("p1"))
    world.api.put(config("m1", "aaa111", M1))
    world.api.put(config("forged", "aaa111", POOL))
    world.api.put(config("p1", "bbb222", POOL))
    world.api.put(config("other", "ccc333", POOL))
    world.api.put(config("unowned", "ccc333", TokenOwner("team-a", "Elsewhere", "x")))
    await world.running()
    assert world.tokens.pool_tokens(KEY) == PoolTokenIDs(frozenset({"bbb222"}))
    world.api.remove("m1")  # its Machine is gone, and the token of its KubeadmConfig with it
    world.api.remove("forged")
    await world.until(lambda: world.trace("aaa111") == Untraceable())
    assert world.tokens.pool_tokens(KEY) == PoolTokenIDs(frozenset({"bbb222"}))


async def test_a_token_of_a_former_pool_of_that_name(world: World) -> None:
    world.caches.machine_pools.applied(pool("p1", uid="made anew"))
    world.api.put(config("p1", "bbb222", POOL))
    await world.running()
    assert world.tokens.pool_tokens(KEY) == PoolTokenIDs(frozenset())


# Who is woken


async def test_a_token_wakes_requests_that_claim_a_provider_id_of_its_owner(world: World) -> None:
    """A pool's token is rotated every few minutes: no other request may be decided again because of it."""
    world.caches.machines.applied(machine("m1", "p:///1"))
    listing = pool("p1")
    listing["spec"]["providerIDList"] = ["p:///2", "p:///3"]
    world.caches.machine_pools.applied(listing)
    await world.running()
    world.api.put(config("m1", "aaa111", M1))
    await world.until(lambda: bool(world.wakes))
    world.api.put(config("m2", "bbb222", M2))  # m2 has no provider ID: who waits for it is woken by it
    world.api.put(config("p1", "ccc333", POOL))
    await world.until(lambda: len(world.wakes) == 2)
    assert world.wakes == [(KEY, frozenset({"p:///1"})), (KEY, frozenset({"p:///2", "p:///3"}))]


async def test_an_irrelevant_change_wakes_no_request(world: World) -> None:
    world.caches.machines.applied(machine("m1", "p:///1"))
    world.api.put(config("m1", "aaa111", M1))
    await world.running()
    world.wakes.clear()
    world.api.put(config("m1", "aaa111", M1))
    world.api.put(config("m2", "bbb222", M2))
    await world.until(lambda: isinstance(world.trace("bbb222"), TracedTo))
    assert world.wakes == []


async def test_a_new_owner_wakes_the_old_ones_requests_too(world: World) -> None:
    for name in ("m1", "m2"):
        world.caches.machines.applied(machine(name, f"p:///{name}"))
    world.api.put(config("m1", "aaa111", M1))
    await world.running()
    world.wakes.clear()
    world.api.put(config("m1", "aaa111", M2))
    await world.until(lambda: len(world.wakes) == 2)
    assert {next(iter(ids)) for _, ids in world.wakes} == {"p:///m1", "p:///m2"}


# The check, with a live recheck


async def test_the_machines_own_token(world: World) -> None:
    world.api.put(config("m1", "aaa111", M1))
    await world.running()
    before = len(world.api.listed)
    await world.require()
    assert len(world.api.listed) == before


async def test_a_stolen_token_is_refused_after_a_live_recheck(world: World) -> None:
    world.api.put(config("m2", "aaa111", M2))
    await world.running()
    with pytest.raises(Refused) as caught:
        await world.require()
    assert caught.value.deny.reason == Reason.BOOTSTRAP_TOKEN_MISMATCH
    assert world.api.listed[-1] == KUBEADM_CONFIGS_V1BETA2.collection("team-a")


@pytest.mark.parametrize("owner", [M1, POOL])
async def test_a_token_whose_owner_has_just_changed(world: World, owner: TokenOwner) -> None:
    """A denial must not depend on an event that the watch has not delivered yet."""
    world.api.put(config("m2", "aaa111", M2))
    await world.running()
    world.api.put(config("m2", "aaa111", owner), seen=False)
    with pytest.raises((Deferred, Refused)) as caught:
        await world.require()
    if owner == M1:
        assert isinstance(caught.value, Deferred)
        assert caught.value.defer.reason == Reason.BOOTSTRAP_TOKEN_UNTRACEABLE
    else:
        assert isinstance(caught.value, Refused)
        assert "MachinePool team-a/p1" in caught.value.deny.message


async def test_a_preset_token_that_has_just_been_shared(world: World) -> None:
    world.api.put(config("m2", "aaa111", M2))
    await world.running()
    world.api.put(config("m1", "aaa111", M1), seen=False)
    with pytest.raises(Deferred):
        await world.require()


@pytest.mark.parametrize("error", [Forbidden("no", status=403), ServerError("no", status=500)])
async def test_a_failed_live_recheck_denies_no_request(world: World, error: ApiError) -> None:
    world.api.put(config("m2", "aaa111", M2))
    await world.running()
    world.api.errors[KUBEADM_CONFIGS_V1BETA2.collection("team-a")] = error
    with pytest.raises(Deferred) as caught:
        await world.require()
    assert caught.value.defer.reason == Reason.MANAGEMENT_CLUSTER_UNREACHABLE


async def test_policy_refuses_an_untraceable_token(world: World) -> None:
    await world.running()
    await world.require()
    with pytest.raises(Deferred) as caught:
        await world.require(untraceable="Refuse")
    assert caught.value.defer.reason == Reason.BOOTSTRAP_TOKEN_UNTRACEABLE


async def test_who_asks(world: World) -> None:
    assert world.tokens.asks(KEY, "system:node:n1") == NodeAsks()
    await world.require(username="system:node:n1", untraceable="Refuse")
    with pytest.raises(Refused) as caught:
        world.tokens.asks(KEY, "system:serviceaccount:x:y")
    assert caught.value.deny.reason == Reason.REQUESTER_NOT_ALLOWED
