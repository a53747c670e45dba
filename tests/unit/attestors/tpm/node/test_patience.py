"""A busy TPM is asked again for a while, less and less often."""

from __future__ import annotations

import pytest

from attestors.tpm.node import patience


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
    monkeypatch.setattr(patience, "time", clock)
    return clock


def test_first_attempt_is_at_once(clock: Clock) -> None:
    assert next(patience.attempts())
    assert clock.sleeps == []


def test_attempts_end(clock: Clock) -> None:
    more = list(patience.attempts())
    assert more[-1] is False
    assert all(more[:-1])
    assert len(clock.sleeps) == len(more) - 1
    assert clock.sleeps[:3] == [0.02, 0.04, 0.08]
    assert max(clock.sleeps) == patience.LONGEST_DELAY_SECONDS
    assert patience.BUSY_SECONDS - 1 < sum(clock.sleeps) <= patience.BUSY_SECONDS


def test_slow_commands_use_up_the_time(clock: Clock) -> None:
    attempts = patience.attempts()
    assert next(attempts)
    clock.now += patience.BUSY_SECONDS
    assert not next(attempts)
    assert list(attempts) == []
