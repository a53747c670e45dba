"""The limits that clients of possibly hostile servers share."""

from __future__ import annotations

import pytest

from signer.kube.resource_limits import (
    BURST_SECONDS,
    LARGE_BYTES,
    LOOP_SHARE,
    NAMESPACE_BURST_SECONDS,
    NAMESPACE_SHARE,
    OWN_SHARE,
    SMALL_BYTES,
    MemoryQuotaExceeded,
    ResourceLimits,
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def busy_share(resource_limits: ResourceLimits, clock: Clock, watches: int, seconds: float = 100.0) -> float:
    """The share of time that so many watches work, each of which always has a millisecond of work."""
    worked = 0.0
    free_at = {resource_limits.rate_limiter(): 0.0 for _ in range(watches)}
    while clock.now < seconds:
        rate_limiter = min(free_at, key=free_at.__getitem__)
        clock.now = max(clock.now, free_at[rate_limiter]) + 0.001
        worked += 0.001
        free_at[rate_limiter] = clock.now + rate_limiter.pause_after(0.001)
    return worked / clock.now


@pytest.mark.parametrize("watches", [1, 3, 30])
def test_endless_watches_get_no_more_than_their_share_together(watches: int) -> None:
    clock = Clock()
    resource_limits = ResourceLimits(clock=clock)
    at_first = (watches + 1) * BURST_SECONDS / 100.0
    share = busy_share(resource_limits, clock, watches)
    assert LOOP_SHARE * 0.9 <= share <= LOOP_SHARE * 1.1 + watches * OWN_SHARE + at_first


def test_an_honest_server_is_read_without_pause_beside_them() -> None:
    clock = Clock()
    resource_limits = ResourceLimits(clock=clock)
    busy_share(resource_limits, clock, 30)
    rate_limiter = resource_limits.rate_limiter()
    assert sum(rate_limiter.pause_after(0.0001) for _ in range(2000)) == 0, "two thousand events at once"
    for _ in range(1000):
        clock.now += 0.1
        assert rate_limiter.pause_after(0.0001) == 0, "and ten in each second"


def test_a_busy_cluster_alone_is_read_without_pause() -> None:
    clock = Clock()
    rate_limiter = ResourceLimits(clock=clock).rate_limiter()
    for _ in range(10_000):
        clock.now += 0.001
        assert rate_limiter.pause_after(0.0002) == 0, "a thousand events in each second"


def test_large_responses_are_bounded_together_and_small_ones_are_not() -> None:
    resource_limits = ResourceLimits()
    with (
        resource_limits.memory_quota() as first,
        resource_limits.memory_quota() as second,
        resource_limits.memory_quota() as third,
    ):
        first.hold(LARGE_BYTES // 2)
        second.hold(LARGE_BYTES // 2 + 2 * SMALL_BYTES)
        with pytest.raises(MemoryQuotaExceeded):
            third.hold(SMALL_BYTES + 1)
        third.hold(SMALL_BYTES)
        second.hold(0)
        third.hold(LARGE_BYTES // 2)
    assert resource_limits.bytes_left == LARGE_BYTES


def test_the_clusters_of_one_namespace_have_a_share_together() -> None:
    """Three hundred Clusters of one tenant would take all of a core by their own shares."""
    clock = Clock()
    resource_limits = ResourceLimits(clock=clock)
    share = busy_share(resource_limits.of_namespace("evil"), clock, 300)
    at_first = (NAMESPACE_BURST_SECONDS + BURST_SECONDS) / 100.0
    assert share <= LOOP_SHARE * 1.1 + NAMESPACE_SHARE + at_first
    rate_limiter = resource_limits.of_namespace("honest").rate_limiter()
    assert sum(rate_limiter.pause_after(0.0001) for _ in range(2000)) == 0, "two thousand events at once"


def test_a_client_that_is_made_anew_renews_nothing() -> None:
    """A tenant that changes a policy, or its kubeconfig, four times a second has each handshake take a quarter of a
    second.
    """
    clock = Clock()
    resource_limits = ResourceLimits(clock=clock)
    free = 0
    for _ in range(100):
        clock.now += 0.25
        free += resource_limits.of_namespace("evil").rate_limiter().pause_after(0.25) == 0
    assert free <= (NAMESPACE_BURST_SECONDS + 25 * (NAMESPACE_SHARE + LOOP_SHARE) + BURST_SECONDS) / 0.25


def test_a_namespace_is_forgotten_only_when_it_has_rested() -> None:
    clock = Clock()
    resource_limits = ResourceLimits(loop_share=1e-9, clock=clock)
    for _ in range(20):  # its own share, and the shared one
        resource_limits.of_namespace("evil").rate_limiter().pause_after(0.25)
    for number in range(3000):
        resource_limits.of_namespace(f"n{number}")
    assert resource_limits.of_namespace("evil").rate_limiter().pause_after(0.25) > 0


def test_memory_is_shared_by_all_namespaces() -> None:
    resource_limits = ResourceLimits()
    with (
        resource_limits.of_namespace("one").memory_quota() as first,
        resource_limits.of_namespace("two").memory_quota() as second,
    ):
        first.hold(LARGE_BYTES)
        with pytest.raises(MemoryQuotaExceeded):
            second.hold(2 * SMALL_BYTES + 1)
