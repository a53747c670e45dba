from __future__ import annotations

import asyncio

import pytest

from signer.kube.errors import Cause, Unreachable
from signer.kube.resource_limits import (
    CALL_THROTTLE_SECONDS,
    LONGEST_THROTTLE_SECONDS,
    RateLimiter,
    ResourceLimits,
    Throttle,
)
from tests.unit.signer.kube.support import run_in_virtual_time


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Returns the given pauses one after the other, then none."""
    asked: list[float] = []
    monkeypatch.setattr(RateLimiter, "pause_after", lambda self, cpu_seconds: asked.pop(0) if asked else 0.0)
    return asked


def throttle() -> Throttle:
    return Throttle(ResourceLimits().rate_limiter(), "production.example:6443")


def now() -> float:
    return asyncio.get_running_loop().time()


def test_without_charges_there_is_no_pause(pauses: list[float]) -> None:
    async def main() -> None:
        pauses.append(5.0)
        taken = throttle()
        assert await taken.after() == await taken.before() == 0
        assert now() == 0

    run_in_virtual_time(main())


def test_charged_time_is_paused_for_once_by_all_callers(pauses: list[float]) -> None:
    """Otherwise each of eight workers could do a handshake while the first one pauses for the earlier ones."""

    async def main() -> None:
        pauses.append(5.0)
        taken = throttle()
        taken.charge(0.1)

        async def call() -> float:
            await taken.before()
            return now()

        assert await asyncio.gather(*(call() for _ in range(4))) == [5.0] * 4
        assert await taken.before() == 0

    run_in_virtual_time(main())


def test_a_pause_of_the_watch_delays_no_call(pauses: list[float]) -> None:
    """An honest API server's watch is throttled during a flood; its nodes' certificates are written meanwhile."""

    async def main() -> None:
        taken = throttle()
        pauses.append(5.0)
        resting = asyncio.create_task(taken.after(0.1))
        await asyncio.sleep(0)
        assert await taken.before() == 0
        assert await resting == 5.0
        pauses.append(5.0)
        taken.charge(0.1)
        resting = asyncio.create_task(taken.after(0.1))
        await asyncio.sleep(0)
        assert await taken.before() == 5.0, "a handshake was owed"
        assert await resting == 5.0

    run_in_virtual_time(main())


def test_pauses_are_bounded_and_a_call_that_would_wait_longer_fails(pauses: list[float]) -> None:
    async def main() -> None:
        taken = throttle()
        pauses[:] = [1000.0, 1000.0]
        assert await taken.after(0.1, maximum=CALL_THROTTLE_SECONDS) == CALL_THROTTLE_SECONDS
        taken.charge(0.1)
        for _ in range(2):
            with pytest.raises(Unreachable, match=r"production\.example:6443") as raised:
                await taken.before(maximum=CALL_THROTTLE_SECONDS)
            assert raised.value.cause is Cause.TIMEOUT
        assert await taken.before() == LONGEST_THROTTLE_SECONDS
        assert await taken.before(maximum=CALL_THROTTLE_SECONDS) == 0

    run_in_virtual_time(main())
