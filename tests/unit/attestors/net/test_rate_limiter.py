from __future__ import annotations

import pytest

from attestors.net.rate_limiter import TokenBucket, TokenBuckets
from signer.controller.telemetry import recorder
from signer.kube.resource_limits import BURST_SECONDS, LOOP_SHARE, OWN_SHARE, ResourceLimits


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_some_at_once_and_then_one_each_so_often() -> None:
    clock = Clock()
    bucket = TokenBucket(3, 10.0, clock)
    for _ in range(3):
        assert bucket.wait_seconds() == 0
        bucket.take()
    assert bucket.wait_seconds() == 10.0
    clock.now += 4.0
    assert bucket.wait_seconds() == pytest.approx(6.0)
    bucket.take()
    assert bucket.wait_seconds() == pytest.approx(16.0), "it was taken beforehand"
    clock.now += 16.0
    assert bucket.wait_seconds() == 0
    bucket.take()
    assert bucket.wait_seconds() == 10.0


@pytest.mark.parametrize(("idle", "saved"), [(10.0, 1), (25.0, 2), (1e6, 3)])
def test_what_is_not_used_is_saved_up_to_a_bound(idle: float, saved: int) -> None:
    clock = Clock()
    bucket = TokenBucket(3, 10.0, clock)
    for _ in range(3):
        bucket.take()
    clock.now += idle
    for _ in range(saved):
        assert bucket.wait_seconds() == 0
        bucket.take()
    assert bucket.wait_seconds() > 0


def test_what_is_taken_beforehand_has_to_be_waited_for() -> None:
    clock = Clock()
    bucket = TokenBucket(2, 10.0, clock)
    assert [bucket.take() for _ in range(4)] == [0.0, 0.0, 10.0, 20.0]
    clock.now += 20.0
    assert bucket.wait_seconds(0) == 0
    assert bucket.wait_seconds() == 10.0


def test_what_is_taken_only_if_it_is_there_leaves_the_rest() -> None:
    clock = Clock()
    bucket = TokenBucket(2, 10.0, clock)
    assert [bucket.take_if_there() for _ in range(3)] == [True, True, False]
    assert bucket.wait_seconds() == 10.0, "what was not there was not taken"
    clock.now += 10.0
    assert bucket.take_if_there()
    assert not bucket.take_if_there()


def test_more_than_there_can_be_is_never_there() -> None:
    clock = Clock()
    bucket = TokenBucket(2, 10.0, clock)
    for _ in range(3):
        assert not bucket.take_if_there(3)
        clock.now += 1e6
    assert bucket.take(3) == 10.0


def test_parts_of_a_token() -> None:
    """CPU time, of which a quarter of a second may be saved up and half of each second used."""
    clock = Clock()
    bucket = TokenBucket(0.25, 2.0, clock)
    assert bucket.take(0.2) == 0.0
    assert not bucket.take_if_there(0.0625)
    assert bucket.take(0.175) == pytest.approx(0.25)
    clock.now += 1e6
    assert bucket.take_if_there(0.25)
    assert bucket.wait_seconds(0.125) == pytest.approx(0.25)


def test_the_bounds_are_those_of_the_parts_that_have_one() -> None:
    """What each consumer may do at once and then each second: a figure that a change of the bucket would change."""
    clock = Clock()
    shared = ResourceLimits(clock=clock)
    crowd = [shared.rate_limiter().pause_after(1.0) for _ in range(2)]
    assert crowd == pytest.approx([(1 - BURST_SECONDS) / LOOP_SHARE, (2 - BURST_SECONDS) / LOOP_SHARE])
    assert (BURST_SECONDS, LOOP_SHARE, OWN_SHARE) == (0.25, 0.5, 0.002)
    assert (recorder.BURST, recorder.REFILL_SECONDS) == (25, 300.0)
    assert (recorder.NORMAL_BURST, recorder.NORMAL_PER_SECOND) == (100, 5.0)


def test_each_key_has_a_bucket_of_its_own() -> None:
    buckets: TokenBuckets[str] = TokenBuckets(1, 10.0, Clock())
    assert [buckets.of(key).take_if_there() for key in ("a", "a", "b")] == [True, False, True]


def test_of_many_keys_the_used_ones_are_remembered_and_the_full_ones_forgotten() -> None:
    clock = Clock()
    buckets: TokenBuckets[int] = TokenBuckets(1, 10.0, clock)
    assert all(buckets.of(key).take_if_there() for key in range(3000)), "each begins full"
    assert not any(buckets.of(key).take_if_there() for key in range(3000)), "a used one is renewed by time alone"
    clock.now += 10.0
    for key in range(3000, 20_000):
        buckets.of(key)
    assert len(buckets._buckets) <= 6000 + 1
