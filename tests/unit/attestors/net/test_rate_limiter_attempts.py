"""What is busy is asked again for a while, less and less often."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from attestors.aws.node import deadline as of_aws
from attestors.net import rate_limiter as module
from attestors.net.rate_limiter import attempts
from attestors.tpm.node import deadline as of_a_tpm


class Clock:
    """Stands still but for sleeping."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.sleeps: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def ten_seconds() -> Iterator[bool]:
    return attempts(10.0, first_delay=0.02, longest_delay=0.5)


def test_first_attempt_is_at_once(clock: Clock) -> None:
    assert next(ten_seconds())
    assert clock.sleeps == []


def test_attempts_end(clock: Clock) -> None:
    more = list(ten_seconds())
    assert more[-1] is False
    assert all(more[:-1])
    assert len(clock.sleeps) == len(more) - 1
    assert clock.sleeps[:3] == [0.02, 0.04, 0.08]
    assert max(clock.sleeps) == 0.5
    assert 9 < sum(clock.sleeps) <= 10


def test_slow_commands_use_up_the_time(clock: Clock) -> None:
    left = ten_seconds()
    assert next(left)
    clock.now += 10.0
    assert not next(left)
    assert list(left) == []


def test_a_tpm_is_given_its_time(clock: Clock) -> None:
    assert list(of_a_tpm.attempts())[-1] is False
    assert (clock.sleeps[0], max(clock.sleeps)) == (of_a_tpm.FIRST_DELAY_SECONDS, of_a_tpm.LONGEST_DELAY_SECONDS)
    assert of_a_tpm.BUSY_SECONDS - 1 < sum(clock.sleeps) <= of_a_tpm.BUSY_SECONDS


def test_the_metadata_service_is_given_its_time(clock: Clock) -> None:
    assert list(of_aws.attempts())[-1] is False
    assert (clock.sleeps[0], max(clock.sleeps)) == (of_aws.FIRST_DELAY_SECONDS, of_aws.LONGEST_DELAY_SECONDS)
    assert of_aws.TIMEOUT_SECONDS - 3 < sum(clock.sleeps) <= of_aws.TIMEOUT_SECONDS
