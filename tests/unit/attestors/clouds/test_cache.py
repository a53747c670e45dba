from __future__ import annotations

import asyncio
import gc
import traceback

import pytest

from attestors.clouds.cache import SingleFlightCache


class Clock:
    """A monotonic clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Oracle:
    """Answers with the number of times it was asked; waits at a gate."""

    def __init__(self) -> None:
        self.asked = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None

    async def __call__(self) -> int:
        self.asked += 1
        answer = self.asked
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return answer


def cache(clock: Clock, *, maximum: int = 4, failure: float = 2.0) -> SingleFlightCache[str, int]:
    return SingleFlightCache(lifetime_seconds=5.0, failure_seconds=failure, maximum_entries=maximum, clock=clock)


async def test_concurrent_callers_share_one_call() -> None:
    kept, oracle = cache(Clock()), Oracle()
    oracle.gate.clear()
    waiting = [asyncio.create_task(kept.get("a", oracle)) for _ in range(100)]
    await asyncio.sleep(0)
    oracle.gate.set()
    assert await asyncio.gather(*waiting) == [1] * 100
    assert oracle.asked == 1


async def test_an_answer_is_kept_for_its_lifetime_and_no_longer() -> None:
    clock, oracle = Clock(), Oracle()
    kept = cache(clock)
    assert await kept.get("a", oracle) == 1
    clock.now += 4.999
    assert await kept.get("a", oracle) == 1
    clock.now += 0.001
    assert await kept.get("a", oracle) == 2


async def test_the_age_counts_from_the_question() -> None:
    clock, oracle = Clock(), Oracle()
    kept = cache(clock)
    oracle.gate.clear()
    first = asyncio.create_task(kept.get("a", oracle))
    await asyncio.sleep(0)
    clock.now += 5.0
    oracle.gate.set()
    assert await first == 1
    assert await kept.get("a", oracle) == 2


async def test_keys_do_not_share_answers() -> None:
    kept, oracle = cache(Clock()), Oracle()
    assert [await kept.get(key, oracle) for key in ("a", "b", "a")] == [1, 2, 1]


async def test_a_failure_is_kept_for_a_shorter_time() -> None:
    clock, oracle = Clock(), Oracle()
    kept = cache(clock)
    oracle.error = ConnectionError("away")
    for _ in range(50):
        with pytest.raises(ConnectionError) as caught:
            await kept.get("a", oracle)
        assert len(traceback.extract_tb(caught.value.__traceback__)) < 10
    assert oracle.asked == 1
    oracle.error = None
    clock.now += 2.0
    assert await kept.get("a", oracle) == 2


async def test_failures_need_not_be_kept() -> None:
    kept, oracle = cache(Clock(), failure=0.0), Oracle()
    oracle.error = ConnectionError("away")
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await kept.get("a", oracle)
    assert oracle.asked == 2
    assert len(kept) == 0


async def test_a_cancelled_caller_does_not_affect_the_others() -> None:
    kept, oracle = cache(Clock()), Oracle()
    oracle.gate.clear()
    first, second = (asyncio.create_task(kept.get("a", oracle)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    oracle.gate.set()
    assert await second == 1
    assert oracle.asked == 1


async def test_a_cancelled_call_is_not_kept() -> None:
    kept = cache(Clock())

    async def cancelled() -> int:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await kept.get("a", cancelled)
    assert len(kept) == 0
    assert await kept.get("a", Oracle()) == 1


async def test_an_error_that_is_no_exception_is_not_kept() -> None:
    class Panic(BaseException):
        pass

    async def panics() -> int:
        raise Panic

    kept = cache(Clock())
    with pytest.raises(Panic):
        await kept.get("a", panics)
    assert len(kept) == 0
    assert await kept.get("a", Oracle()) == 1


async def test_an_answer_is_kept_before_its_callers_go_on() -> None:
    kept, oracle = cache(Clock()), Oracle()

    async def ask_twice() -> tuple[int, int]:
        return await kept.get("a", oracle), await kept.get("a", oracle)

    first, second = await asyncio.gather(ask_twice(), ask_twice())
    assert first == second == (1, 1)


async def test_a_failure_without_waiting_callers_is_silent() -> None:
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    kept, oracle = cache(Clock()), Oracle()
    oracle.gate.clear()
    oracle.error = ConnectionError("away")
    alone = asyncio.create_task(kept.get("a", oracle))
    await asyncio.sleep(0)
    alone.cancel()
    await asyncio.wait([alone])
    oracle.gate.set()
    for _ in range(5):
        await asyncio.sleep(0)
    gc.collect()
    await asyncio.sleep(0)
    assert complaints == []


async def test_it_holds_no_more_than_its_maximum_and_forgets_the_oldest() -> None:
    clock, oracle = Clock(), Oracle()
    kept = cache(clock, maximum=4)
    for key in "abcdefgh":
        await kept.get(key, oracle)
    assert len(kept) == 4
    assert await kept.get("h", oracle) == 8
    assert await kept.get("a", oracle) == 9


async def test_what_has_expired_is_forgotten_when_something_else_is_asked() -> None:
    clock, oracle = Clock(), Oracle()
    kept = cache(clock)
    for key in "abc":
        await kept.get(key, oracle)
    clock.now += 5.0
    await kept.get("d", oracle)
    assert len(kept) == 1
