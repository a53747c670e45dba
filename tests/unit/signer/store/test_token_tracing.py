"""When tracing of bootstrap tokens is on, off, or interrupted."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from signer.kube.backoff import Backoff
from signer.kube.errors import ApiError, Cause, Forbidden, ResourceNotServed, ServerError, Unreachable
from signer.kube.resources import KUBEADM_CONFIGS_V1BETA1
from signer.model.bootstrap_token import (
    TracedTo,
    TracingInterrupted,
    TracingOff,
    Untraceable,
)
from signer.model.decision import Deferred, Refused
from signer.model.reasons import Reason
from signer.store import bootstrap_tokens, token_tracing
from signer.store import caches as caches
from signer.store.cache import InTouch, OutOfTouch
from tests.unit.signer.store.kubeadm_configs import (
    CONFIGS,
    GROUP,
    KEY,
    M1,
    V1BETA2,
    World,
    config,
    machine,
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


async def test_before_the_first_list_tracing_is_interrupted() -> None:
    world = World()
    assert isinstance(world.trace(), TracingInterrupted)
    assert isinstance(world.tokens.pool_tokens(KEY), TracingInterrupted)


async def test_without_the_grant_tracing_is_off_and_logged_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
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


async def test_a_grant_that_is_added_later(world: World) -> None:
    world.caches.machines.applied(machine("m1", "p:///1"))
    world.api.put(config("m1", "aaa111", M1), seen=False)
    world.api.errors[CONFIGS] = Forbidden("may not list kubeadmconfigs", status=403)
    await world.off()
    world.api.errors.clear()
    await world.until(lambda: world.trace() == TracedTo(frozenset({M1})))
    assert world.wakes == [(KEY, frozenset({"p:///1"}))]


async def test_a_grant_that_is_removed(world: World) -> None:
    world.api.put(config("m1", "aaa111", M1), seen=False)
    await world.running()
    world.api.errors[CONFIGS] = Forbidden("may not watch kubeadmconfigs", status=403)
    world.api.break_watch(Unreachable("reset", cause=Cause.RESET))
    await world.until(lambda: isinstance(world.trace(), TracingInterrupted))
    await world.off()
    world.api.errors.clear()
    world.api.objects.clear()  # deleted between two lists
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
    """For a moment it answers that there are no KubeadmConfigs, or that they may not be read."""
    world.caches.machines.applied(machine("m2", "p:///2"))
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
async def test_an_api_server_that_starts_with_the_controller_lets_no_stolen_token_pass(
    world: World, error: ApiError
) -> None:
    """No decision is made before the refusals count, and one refusal does not."""
    world.caches.machines.applied(machine("m2", "p:///2"))
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


async def test_tracing_that_never_worked_turns_off_soon(world: World) -> None:
    """An installation without the grant, or without KubeadmConfigs, does not wait long at each start."""
    world.api.served = {}
    world.start()
    await world.asked_for(token_tracing.FIRST_REFUSED_SECONDS)
    await world.until(world.tokens.answered.is_set)
    assert isinstance(world.trace(), TracingOff)


async def test_tracing_that_worked_for_long_does_not_turn_off_at_once(world: World) -> None:
    world.api.put(config("m1", "aaa111", M1), seen=False)
    await world.running()
    world.at += 10 * token_tracing.INTERRUPTION_SECONDS
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
async def test_refusals_at_two_starts_do_not_add_up(world: World, path: str, between: ApiError) -> None:
    world.api.put(config("m1", "aaa111", M1), seen=False)
    await world.running()
    world.api.errors[CONFIGS] = Forbidden("not yet", status=403)
    world.api.break_watch(Unreachable("reset", cause=Cause.RESET))
    await world.until(lambda: isinstance(world.trace(), TracingInterrupted))
    del world.api.errors[CONFIGS]
    world.api.errors[path] = between
    asked = world.api.asked
    await world.until(lambda: world.api.asked >= asked + 3 or between.message in str(world.trace()))
    world.at += token_tracing.REFUSED_SECONDS
    world.api.errors[GROUP] = world.api.errors[CONFIGS] = ResourceNotServed("not yet", status=404)
    again = world.api.asked
    await world.until(lambda: world.api.asked >= again + 2)
    assert isinstance(world.trace(), TracingInterrupted)


async def test_refusals_with_a_list_between_them_do_not_add_up(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Each ends a watch that delivered nothing else."""
    world.api.put(config("m1", "aaa111", M1), seen=False)
    for _ in range(5):
        await world.running()
        listed = len(world.api.listed)
        world.at += token_tracing.REFUSED_SECONDS / 2.5
        world.api.break_watch(Forbidden("not yet", status=403))
        await world.until(lambda listed=listed: len(world.api.listed) > listed)  # type: ignore[misc]
    assert "not traced" not in caplog.text


async def test_refusals_with_a_hanging_call_between_them_do_not_add_up(world: World) -> None:
    world.api.put(config("m1", "aaa111", M1), seen=False)
    await world.running()
    world.api.errors[CONFIGS] = world.api.errors[GROUP] = Forbidden("not yet", status=403)
    world.api.break_watch(Unreachable("reset", cause=Cause.RESET))
    await world.until(lambda: isinstance(world.trace(), TracingInterrupted))
    await world.asked_again()
    world.at += token_tracing.REFUSED_SECONDS
    await world.asked_again()
    assert isinstance(world.trace(), TracingInterrupted)
    await world.off()


async def test_slow_refusals_count_all_the_same(world: World) -> None:
    world.api.served = {}
    world.step = 0.4
    world.start()
    await world.until(world.tokens.answered.is_set)
    assert isinstance(world.trace(), TracingOff)


async def test_a_refusal_is_retried_several_times_before_tracing_turns_off(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap_tokens, "DISCOVERY_BACKOFF", Backoff(base_seconds=600, maximum_seconds=600, jitter=0))
    monkeypatch.setattr(token_tracing, "REFUSED_SECONDS", 0.02)
    world.api.put(config("m1", "aaa111", M1), seen=False)
    await world.running()
    world.api.errors[CONFIGS] = ResourceNotServed("not yet", status=404)
    world.api.break_watch(Unreachable("reset", cause=Cause.RESET))
    asked = world.api.asked
    await world.until(lambda: world.api.asked >= asked + 3)


async def test_a_watch_that_worked_for_long_is_retried_soon(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[int] = []

    class Noting:
        def delay(self, attempt: int, random: object) -> float:
            attempts.append(attempt)
            return 0.001

    monkeypatch.setattr(bootstrap_tokens, "DISCOVERY_BACKOFF", Noting())
    world.api.put(config("m1", "aaa111", M1), seen=False)
    for _ in range(3):
        await world.running()
        world.at += 86_400
        world.api.errors[CONFIGS] = ResourceNotServed("not yet", status=404)
        world.api.break_watch(Unreachable("reset", cause=Cause.RESET))
        await world.until(lambda: isinstance(world.trace(), TracingInterrupted))
        world.api.errors.clear()
    assert attempts.count(0) >= 3


async def test_cluster_api_up_to_1_10(world: World) -> None:
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


async def test_a_fault_while_it_is_off_makes_no_request_wait(world: World) -> None:
    world.api.served = {}
    await world.off()
    world.api.errors[GROUP] = ServerError("etcd is gone", status=500)
    failed = world.api.asked + 1
    await world.until(lambda: world.api.asked > failed)
    assert isinstance(world.trace(), TracingOff)


async def test_a_failed_first_list_ends_the_wait(world: World) -> None:
    world.api.errors[CONFIGS] = ServerError("conversion webhook for KubeadmConfig failed", status=500)
    world.start()
    await world.until(world.tokens.answered.is_set)
    assert isinstance(world.trace(), TracingInterrupted)


async def test_a_first_list_that_fails_for_minutes_leaves_it_to_the_policy(world: World) -> None:
    """Tenants write KubeadmConfigs: no tenant may stop all nodes from joining."""
    world.api.errors[CONFIGS] = ServerError("conversion webhook for KubeadmConfig failed", status=500)
    world.start()
    await world.until(lambda: "webhook" in str(world.trace()))
    world.at += token_tracing.INTERRUPTION_SECONDS / 2
    with pytest.raises(Deferred) as caught:
        await world.require()
    assert caught.value.defer.reason == Reason.MANAGEMENT_CLUSTER_UNREACHABLE
    world.at += token_tracing.INTERRUPTION_SECONDS / 2
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


async def test_it_counts_from_the_start_and_not_from_construction(world: World) -> None:
    world.at += 2 * token_tracing.INTERRUPTION_SECONDS
    world.api.lists_may_go_on.clear()
    world.start()
    await world.until(lambda: bool(world.api.listed))
    assert isinstance(world.trace(), TracingInterrupted)


async def test_an_endless_first_list_blocks_no_request_for_ever(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_tracing, "INTERRUPTION_SECONDS", 0.01)
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
    world.at += token_tracing.INTERRUPTION_SECONDS - 1
    assert isinstance(world.trace(), TracingInterrupted)
    world.at += 1
    off = world.trace()
    assert isinstance(off, TracingOff)
    assert world.tokens.pool_tokens(KEY) == off
    world.api.errors.clear()
    await world.until(lambda: world.trace() == TracedTo(frozenset({M1})))


async def test_out_of_touch_for_too_long_interrupts_tracing(world: World) -> None:
    """Neither Untraceable, which a policy may allow, nor an owner, which may cause a denial."""
    world.api.put(config("m1", "aaa111", M1), seen=False)
    await world.running()
    world.api.errors[CONFIGS] = ServerError("conversion webhook for KubeadmConfig failed", status=500)
    world.api.break_watch(Unreachable("reset", cause=Cause.RESET))
    await world.until(lambda: len(world.api.listed) > 2)
    assert world.trace() == TracedTo(frozenset({M1}))  # within the bound
    world.at += caches.OUT_OF_TOUCH_SECONDS
    for token_id in ("aaa111", "bbb222"):
        interrupted = world.trace(token_id)
        assert isinstance(interrupted, TracingInterrupted)
        assert "webhook" in interrupted.cause
    assert isinstance(world.tokens.pool_tokens(KEY), TracingInterrupted)
    world.api.errors.clear()
    await world.running()


# By the clock alone

REFUSED = TracingOff("refused")


class Clock:
    def __init__(self) -> None:
        self.at = 1000.0
        self.tracing = token_tracing.TokenTracing(lambda: self.at)

    def refused(self, after: float) -> bool:
        self.at += after
        return self.tracing.is_lasting(REFUSED)


def test_tracing_that_worked_needs_refusals_for_longer() -> None:
    clock = Clock()
    assert clock.tracing.refused_seconds == token_tracing.FIRST_REFUSED_SECONDS
    clock.tracing.listed(1)
    assert clock.tracing.refused_seconds == token_tracing.REFUSED_SECONDS > token_tracing.FIRST_REFUSED_SECONDS
    assert not clock.refused(0)
    assert not clock.refused(token_tracing.REFUSED_SECONDS / 2 - 1)
    assert not clock.refused(token_tracing.REFUSED_SECONDS / 2)
    assert clock.refused(1)


def test_an_interruption_counts_from_the_first_refusal() -> None:
    """Not from later ones: otherwise it would never end."""
    clock = Clock()
    clock.tracing.begins()
    clock.at += 10 * token_tracing.INTERRUPTION_SECONDS
    clock.tracing.listed(1)
    assert not clock.refused(0)
    clock.at += token_tracing.INTERRUPTION_SECONDS
    assert isinstance(clock.tracing.now(InTouch()), TracingInterrupted)
    assert not clock.refused(0)
    clock.at += 1
    assert isinstance(clock.tracing.now(InTouch()), TracingOff)


def test_the_cache_is_trusted_until_it_is_out_of_touch_for_too_long() -> None:
    clock = Clock()
    clock.tracing.listed(1)
    error = ServerError("etcd", status=500)
    at_the_bound = OutOfTouch(caches.OUT_OF_TOUCH_SECONDS, error)
    assert isinstance(clock.tracing.now(at_the_bound), token_tracing.TracingOn)
    beyond = clock.tracing.now(OutOfTouch(caches.OUT_OF_TOUCH_SECONDS + 0.1, error))
    assert isinstance(beyond, TracingInterrupted)
    assert isinstance(clock.tracing.now(OutOfTouch(token_tracing.INTERRUPTION_SECONDS + 0.1, error)), TracingOff)


@pytest.mark.parametrize(("apart", "lasting"), [(5.0, True), (5.1, False)])
def test_refusals_add_up_unless_far_apart(apart: float, lasting: bool) -> None:
    clock = Clock()
    assert not clock.refused(0)
    assert clock.refused(apart) is lasting
