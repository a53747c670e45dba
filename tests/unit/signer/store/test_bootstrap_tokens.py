"""Tracing of bootstrap tokens: whose they are, when that is not known, and that a refusal is looked at twice."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from signer.kube.backoff import Backoff
from signer.kube.errors import ApiError, Cause, Forbidden, ResourceNotServed, ServerError, Unreachable
from signer.kube.resources import KUBEADM_CONFIGS_V1BETA1, KUBEADM_CONFIGS_V1BETA2
from signer.kube.watch import list_and_watch
from signer.model.bootstrap_token import (
    NodeAsks,
    PoolTokenIDs,
    TokenOwner,
    TracedTo,
    TracingInterrupted,
    TracingOff,
    Untraceable,
)
from signer.model.cluster import ClusterKey
from signer.model.decision import Deferred, Refused
from signer.model.reasons import Reason
from signer.store import bootstrap_tokens, inventory
from tests.unit.signer.store.kubeadm_configs import (
    CONFIGS,
    GROUP,
    KEY,
    M1,
    M2,
    POOL,
    SECRET_HALF,
    V1BETA2,
    World,
    config,
    machine,
    pool,
)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    soon = Backoff(base_seconds=0.001, maximum_seconds=0.005, jitter=0)
    monkeypatch.setattr(bootstrap_tokens, "TRY_AGAIN", soon)
    monkeypatch.setattr(bootstrap_tokens, "ASK_AGAIN", soon)
    monkeypatch.setattr(bootstrap_tokens, "list_and_watch", partial(list_and_watch, backoff=soon))


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
    """Neither by the label, nor where the Machine itself says otherwise than the label."""
    world.inventory.machines.applied(machine("m2", cluster="lab"))
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


async def test_no_secret_half_is_kept(world: World) -> None:
    """Nor is one held while a list arrives."""
    world.api.put(config("m1", "aaa111", M1))
    await world.running()
    assert world.api.handed_on
    assert SECRET_HALF not in repr(world.api.handed_on)
    await world.tokens.trace_live(KEY, "aaa111")
    assert SECRET_HALF not in repr((vars(world.tokens), vars(world.tokens._configs)))


async def test_tokens_of_pools(world: World) -> None:
    """Not of one that is being deleted, of another cluster's (whatever the label says), or of one that is gone."""
    pools = world.inventory.machine_pools
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
    world.inventory.machine_pools.applied(pool("p1"))
    world.api.put(config("p1", "aaa111", POOL))
    await world.running()
    world.api.put(config("p1", "bbb222", POOL))  # rotated
    await world.until(lambda: world.tokens.pool_tokens(KEY) == PoolTokenIDs(frozenset({"bbb222"})))
    world.api.remove("p1")
    await world.until(lambda: world.tokens.pool_tokens(KEY) == PoolTokenIDs(frozenset()))


# Who is woken


async def test_a_token_wakes_who_claims_a_provider_id_of_its_owner(world: World) -> None:
    """A pool's token is rotated every few minutes: nobody else is to be judged again for that."""
    world.inventory.machines.applied(machine("m1", "p:///1"))
    listing = pool("p1")
    listing["spec"]["providerIDList"] = ["p:///2", "p:///3"]
    world.inventory.machine_pools.applied(listing)
    await world.running()
    world.api.put(config("m1", "aaa111", M1))
    await world.until(lambda: bool(world.wakes))
    world.api.put(config("m2", "bbb222", M2))  # m2 has no provider ID: who waits for it is woken by it
    world.api.put(config("p1", "ccc333", POOL))
    await world.until(lambda: len(world.wakes) == 2)
    assert world.wakes == [(KEY, frozenset({"p:///1"})), (KEY, frozenset({"p:///2", "p:///3"}))]


async def test_a_change_that_says_nothing_new_wakes_nobody(world: World) -> None:
    world.inventory.machines.applied(machine("m1", "p:///1"))
    world.api.put(config("m1", "aaa111", M1))
    await world.running()
    world.wakes.clear()
    world.api.put(config("m1", "aaa111", M1))
    world.api.put(config("m2", "bbb222", M2))
    await world.until(lambda: isinstance(world.trace("bbb222"), TracedTo))
    assert world.wakes == []


async def test_a_new_owner_wakes_the_old_ones_requests_too(world: World) -> None:
    for name in ("m1", "m2"):
        world.inventory.machines.applied(machine(name, f"p:///{name}"))
    world.api.put(config("m1", "aaa111", M1))
    await world.running()
    world.wakes.clear()
    world.api.put(config("m1", "aaa111", M2))
    await world.until(lambda: len(world.wakes) == 2)
    assert {next(iter(ids)) for _, ids in world.wakes} == {"p:///m1", "p:///m2"}


# Off, and interrupted


async def test_before_the_first_list_it_cannot_be_told() -> None:
    world = World()
    assert isinstance(world.trace(), TracingInterrupted)
    assert isinstance(world.tokens.pool_tokens(KEY), TracingInterrupted)


async def test_without_the_grant_tracing_is_off_and_says_so_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.api.errors[CONFIGS] = Forbidden("may not list kubeadmconfigs", status=403)
    with caplog.at_level(logging.WARNING):
        await world.off()
        listed = len(world.api.listed)
        await world.until(lambda: len(world.api.listed) > listed + 3)
    off = world.trace()
    assert isinstance(off, TracingOff)
    assert "grant" in off.cause
    assert world.tokens.answered.is_set()
    assert [record.getMessage() for record in caplog.records] == ["bootstrap tokens are not traced"]
    assert world.tokens.pool_tokens(KEY) == off


async def test_a_grant_that_comes_later(world: World) -> None:
    world.inventory.machines.applied(machine("m1", "p:///1"))
    world.api.put(config("m1", "aaa111", M1), seen=False)
    world.api.errors[CONFIGS] = Forbidden("may not list kubeadmconfigs", status=403)
    await world.off()
    world.api.errors.clear()
    await world.until(lambda: world.trace() == TracedTo(frozenset({M1})))
    assert world.wakes == [(KEY, frozenset({"p:///1"}))]


async def test_a_grant_that_is_taken_back(world: World) -> None:
    world.api.put(config("m1", "aaa111", M1), seen=False)
    await world.running()
    world.api.errors[CONFIGS] = Forbidden("may not watch kubeadmconfigs", status=403)
    world.api.break_watch(Unreachable("reset", cause=Cause.RESET))
    await world.until(lambda: isinstance(world.trace(), TracingInterrupted))
    await world.off()
    world.api.errors.clear()
    world.api.objects.clear()  # gone while nobody looked
    await world.running()
    assert world.trace() == Untraceable()


@pytest.mark.parametrize("served", [{}, {V1BETA2: ["kthreesconfigs"]}])
async def test_other_bootstrap_providers(world: World, served: dict[str, Any]) -> None:
    world.api.served = served
    await world.off()
    assert world.api.listed == []


async def test_kubeadm_configs_that_are_uninstalled(world: World) -> None:
    world.api.put(config("m1", "aaa111", M1), seen=False)
    await world.running()
    world.api.errors[CONFIGS] = ResourceNotServed("no such resource", status=404)
    world.api.break_watch(Unreachable("reset", cause=Cause.RESET))
    await world.until(lambda: isinstance(world.trace(), TracingInterrupted))
    await world.off()


@pytest.mark.parametrize("error", [ResourceNotServed("not yet", status=404), Forbidden("not yet", status=403)])
async def test_an_api_server_that_starts_lets_no_stolen_token_pass(world: World, error: ApiError) -> None:
    """It says for a moment that there are no KubeadmConfigs, or that nobody may read them."""
    world.inventory.machines.applied(machine("m2", "p:///2"))
    world.api.put(config("m1", "aaa111", M1), seen=False)
    await world.running()
    world.api.errors[CONFIGS] = world.api.errors[GROUP] = error
    asked = world.api.asked
    world.api.break_watch(Unreachable("reset", cause=Cause.RESET))
    await world.until(lambda: world.api.asked >= asked + 3)
    with pytest.raises(Deferred) as caught:
        await world.require("m2")
    assert caught.value.defer.reason == Reason.MANAGEMENT_CLUSTER_UNREACHABLE
    assert world.tokens.pool_tokens(KEY) == world.trace()
    world.api.errors.clear()
    await world.running()
    with pytest.raises(Refused):
        await world.require("m2")


@pytest.mark.parametrize("error", [ResourceNotServed("not yet", status=404), Forbidden("not yet", status=403)])
async def test_nor_does_one_that_starts_together_with_the_controller(world: World, error: ApiError) -> None:
    """No request is judged before the answer is believed, and one refusal is none."""
    world.inventory.machines.applied(machine("m2", "p:///2"))
    world.api.put(config("m1", "aaa111", M1), seen=False)
    world.api.errors[GROUP] = world.api.errors[CONFIGS] = error
    world.start()
    await world.until(lambda: world.api.asked >= 3)
    assert not world.tokens.answered.is_set()
    assert isinstance(world.trace(), TracingInterrupted)
    world.api.errors.clear()
    await world.until(world.tokens.answered.is_set)
    with pytest.raises(Refused):
        await world.require("m2")


async def test_what_was_never_traced_is_off_soon(world: World) -> None:
    """Who grants nothing, or has no KubeadmConfigs, does not wait long at each start."""
    world.api.served = {}
    world.start()
    await world.asked_for(bootstrap_tokens.FIRST_REFUSED_SECONDS)
    await world.until(world.tokens.answered.is_set)
    assert isinstance(world.trace(), TracingOff)


async def test_one_that_has_been_traced_for_long_is_not_off_at_once(world: World) -> None:
    world.api.put(config("m1", "aaa111", M1), seen=False)
    await world.running()
    world.at += 10 * bootstrap_tokens.INTERRUPTION_SECONDS
    world.api.errors[CONFIGS] = ResourceNotServed("not yet", status=404)
    world.api.break_watch(Unreachable("reset", cause=Cause.RESET))
    asked = world.api.asked
    await world.until(lambda: world.api.asked >= asked + 3)
    assert world.trace() == TracingInterrupted("the management cluster serves no KubeadmConfigs")


@pytest.mark.parametrize(
    ("path", "between"),
    [
        (GROUP, Unreachable("nothing listens there", cause=Cause.REFUSED)),
        (CONFIGS, ServerError("etcd has another leader", status=500)),
    ],
)
async def test_two_starts_far_apart_are_no_refusal(world: World, path: str, between: ApiError) -> None:
    world.api.put(config("m1", "aaa111", M1), seen=False)
    await world.running()
    world.api.errors[CONFIGS] = Forbidden("not yet", status=403)
    world.api.break_watch(Unreachable("reset", cause=Cause.RESET))
    await world.until(lambda: isinstance(world.trace(), TracingInterrupted))
    del world.api.errors[CONFIGS]
    world.api.errors[path] = between
    asked = world.api.asked
    await world.until(lambda: world.api.asked >= asked + 3 or between.message in str(world.trace()))
    world.at += bootstrap_tokens.REFUSED_SECONDS
    world.api.errors[GROUP] = world.api.errors[CONFIGS] = ResourceNotServed("not yet", status=404)
    again = world.api.asked
    await world.until(lambda: world.api.asked >= again + 2)
    assert isinstance(world.trace(), TracingInterrupted)


async def test_refusals_with_a_list_between_them_are_none(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Each ends a watch of which nothing else was heard."""
    world.api.put(config("m1", "aaa111", M1), seen=False)
    for _ in range(5):
        await world.running()
        listed = len(world.api.listed)
        world.at += bootstrap_tokens.REFUSED_SECONDS / 2.5
        world.api.break_watch(Forbidden("not yet", status=403))
        await world.until(lambda listed=listed: len(world.api.listed) > listed)  # type: ignore[misc]
    assert "not traced" not in caplog.text


async def test_two_refusals_with_a_call_that_hung_between_them_are_no_refusal(world: World) -> None:
    world.api.put(config("m1", "aaa111", M1), seen=False)
    await world.running()
    world.api.errors[CONFIGS] = world.api.errors[GROUP] = Forbidden("not yet", status=403)
    world.api.break_watch(Unreachable("reset", cause=Cause.RESET))
    await world.until(lambda: isinstance(world.trace(), TracingInterrupted))
    await world.asked_again()
    world.at += bootstrap_tokens.REFUSED_SECONDS
    await world.asked_again()
    assert isinstance(world.trace(), TracingInterrupted)
    await world.off()


async def test_where_answers_take_long_they_are_believed_all_the_same(world: World) -> None:
    world.api.served = {}
    world.step = 0.4
    world.start()
    await world.until(world.tokens.answered.is_set)
    assert isinstance(world.trace(), TracingOff)


async def test_what_is_refused_is_asked_again_several_times_before_that_is_believed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap_tokens, "ASK_AGAIN", Backoff(base_seconds=600, maximum_seconds=600, jitter=0))
    monkeypatch.setattr(bootstrap_tokens, "REFUSED_SECONDS", 0.02)
    world.api.put(config("m1", "aaa111", M1), seen=False)
    await world.running()
    world.api.errors[CONFIGS] = ResourceNotServed("not yet", status=404)
    world.api.break_watch(Unreachable("reset", cause=Cause.RESET))
    asked = world.api.asked
    await world.until(lambda: world.api.asked >= asked + 3)


async def test_what_was_well_for_long_is_asked_again_soon(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[int] = []

    class Noting:
        def delay(self, attempt: int, random: object) -> float:
            attempts.append(attempt)
            return 0.001

    monkeypatch.setattr(bootstrap_tokens, "ASK_AGAIN", Noting())
    world.api.put(config("m1", "aaa111", M1), seen=False)
    for _ in range(3):
        await world.running()
        world.at += 86_400
        world.api.errors[CONFIGS] = ResourceNotServed("not yet", status=404)
        world.api.break_watch(Unreachable("reset", cause=Cause.RESET))
        await world.until(lambda: isinstance(world.trace(), TracingInterrupted))
        world.api.errors.clear()
    assert attempts.count(0) >= 3


async def test_what_cluster_api_up_to_1_10_serves(world: World) -> None:
    del world.api.served[V1BETA2]
    world.api.put(config("m1", "aaa111", M1))
    await world.running()
    assert set(world.api.listed) == {KUBEADM_CONFIGS_V1BETA1.collection()}


async def test_a_fault_at_the_start_is_an_interruption(world: World) -> None:
    world.api.errors[GROUP] = ServerError("etcd is gone", status=500)
    world.start()
    await world.until(world.tokens.answered.is_set)
    assert isinstance(world.trace(), TracingInterrupted)
    world.api.errors.clear()
    await world.running()


async def test_a_fault_while_it_is_off_lets_nobody_wait(world: World) -> None:
    world.api.served = {}
    await world.off()
    world.api.errors[GROUP] = ServerError("etcd is gone", status=500)
    failed = world.api.asked + 1
    await world.until(lambda: world.api.asked > failed)
    assert isinstance(world.trace(), TracingOff)


async def test_a_first_list_that_fails_is_an_answer(world: World) -> None:
    world.api.errors[CONFIGS] = ServerError("conversion webhook for KubeadmConfig failed", status=500)
    world.start()
    await world.until(world.tokens.answered.is_set)
    assert isinstance(world.trace(), TracingInterrupted)


async def test_a_first_list_that_fails_for_minutes_leaves_it_to_the_policy(world: World) -> None:
    """Tenants write KubeadmConfigs: one of them may not keep everybody's nodes from joining."""
    world.api.errors[CONFIGS] = ServerError("conversion webhook for KubeadmConfig failed", status=500)
    world.start()
    await world.until(lambda: "webhook" in str(world.trace()))
    world.at += bootstrap_tokens.INTERRUPTION_SECONDS / 2
    with pytest.raises(Deferred) as caught:
        await world.require()
    assert caught.value.defer.reason == Reason.MANAGEMENT_CLUSTER_UNREACHABLE
    world.at += bootstrap_tokens.INTERRUPTION_SECONDS / 2
    off = world.trace()
    assert isinstance(off, TracingOff)
    assert "5 minutes" in off.cause
    assert "webhook" in off.cause
    await world.require()
    with pytest.raises(Deferred) as caught:
        await world.require(untraceable="Refuse")
    assert caught.value.defer.reason == Reason.BOOTSTRAP_TOKEN_UNTRACEABLE
    world.api.errors.clear()
    await world.running()


async def test_it_counts_from_the_start_and_not_from_the_making(world: World) -> None:
    world.at += 2 * bootstrap_tokens.INTERRUPTION_SECONDS
    world.api.lists_may_go_on.clear()
    world.start()
    await world.until(lambda: bool(world.api.listed))
    assert isinstance(world.trace(), TracingInterrupted)


async def test_a_first_list_that_takes_for_ever_holds_up_nobody(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap_tokens, "INTERRUPTION_SECONDS", 0.01)
    world.api.lists_may_go_on.clear()
    world.start()
    await world.until(world.tokens.answered.is_set)
    world.at += 1
    assert isinstance(world.trace(), TracingOff)


async def test_an_interruption_that_lasts_leaves_it_to_the_policy(world: World) -> None:
    world.api.put(config("m1", "aaa111", M1), seen=False)
    await world.running()
    world.api.errors[CONFIGS] = ServerError("conversion webhook for KubeadmConfig failed", status=500)
    world.api.break_watch(Unreachable("reset", cause=Cause.RESET))
    await world.until(lambda: len(world.api.listed) > 2)
    world.at += bootstrap_tokens.INTERRUPTION_SECONDS - 1
    assert isinstance(world.trace(), TracingInterrupted)
    world.at += 1
    off = world.trace()
    assert isinstance(off, TracingOff)
    assert world.tokens.pool_tokens(KEY) == off
    world.api.errors.clear()
    await world.until(lambda: world.trace() == TracedTo(frozenset({M1})))


async def test_out_of_touch_for_too_long_is_no_ground_for_anything(world: World) -> None:
    """Neither Untraceable, which a policy may allow, nor an owner, which may deny."""
    world.api.put(config("m1", "aaa111", M1), seen=False)
    await world.running()
    world.api.errors[CONFIGS] = ServerError("conversion webhook for KubeadmConfig failed", status=500)
    world.api.break_watch(Unreachable("reset", cause=Cause.RESET))
    await world.until(lambda: len(world.api.listed) > 2)
    assert world.trace() == TracedTo(frozenset({M1}))  # within the bound
    world.at += inventory.OUT_OF_TOUCH_SECONDS
    for token_id in ("aaa111", "bbb222"):
        interrupted = world.trace(token_id)
        assert isinstance(interrupted, TracingInterrupted)
        assert "webhook" in interrupted.cause
    assert isinstance(world.tokens.pool_tokens(KEY), TracingInterrupted)
    world.api.errors.clear()
    await world.running()


# The check, with a second look


async def test_the_machines_own_token(world: World) -> None:
    world.api.put(config("m1", "aaa111", M1))
    await world.running()
    before = len(world.api.listed)
    await world.require()
    assert len(world.api.listed) == before


async def test_a_stolen_token_is_refused_after_a_second_look(world: World) -> None:
    world.api.put(config("m2", "aaa111", M2))
    await world.running()
    with pytest.raises(Refused) as caught:
        await world.require()
    assert caught.value.deny.reason == Reason.BOOTSTRAP_TOKEN_MISMATCH
    assert world.api.listed[-1] == KUBEADM_CONFIGS_V1BETA2.collection("team-a")


@pytest.mark.parametrize("owner", [M1, POOL])
async def test_a_token_that_was_given_away_a_moment_ago(world: World, owner: TokenOwner) -> None:
    """A denial must not rest on what the watch has not brought yet."""
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


async def test_a_preset_token_that_was_shared_a_moment_ago(world: World) -> None:
    world.api.put(config("m2", "aaa111", M2))
    await world.running()
    world.api.put(config("m1", "aaa111", M1), seen=False)
    with pytest.raises(Deferred):
        await world.require()


@pytest.mark.parametrize("error", [Forbidden("no", status=403), ServerError("no", status=500)])
async def test_a_second_look_that_fails_denies_nobody(world: World, error: ApiError) -> None:
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
