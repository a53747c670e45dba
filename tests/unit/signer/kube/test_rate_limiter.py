from __future__ import annotations

import pytest

from signer.kube.rate_limiter import TokenBucket


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_some_at_once_and_then_one_each_so_often() -> None:
    clock = Clock()
    bucket = TokenBucket(3, 10.0, clock)
    for _ in range(3):
        assert bucket.wait_seconds == 0
        bucket.take()
    assert bucket.wait_seconds == 10.0
    clock.now += 4.0
    assert bucket.wait_seconds == 6.0
    bucket.take()
    assert bucket.wait_seconds == 16.0, "it was taken beforehand"
    clock.now += 16.0
    assert bucket.wait_seconds == 0
    bucket.take()
    assert bucket.wait_seconds == 10.0


@pytest.mark.parametrize(("idle", "saved"), [(10.0, 1), (25.0, 2), (1e6, 3)])
def test_what_is_not_used_is_saved_up_to_a_bound(idle: float, saved: int) -> None:
    clock = Clock()
    bucket = TokenBucket(3, 10.0, clock)
    for _ in range(3):
        bucket.take()
    clock.now += idle
    for _ in range(saved):
        assert bucket.wait_seconds == 0
        bucket.take()
    assert bucket.wait_seconds > 0
