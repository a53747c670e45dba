"""A flood of requests costs a few calls, and a change takes effect a moment later."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Coroutine

import pytest

from signer.kube import coalescing_cache as fresh_answers
from signer.kube.coalescing_cache import CALLS_AT_ONCE, FRESH_SECONDS, CoalescingCache
from signer.kube.errors import ServerError
from tests.unit.signer.controller.support import Clock


class Server:
    """Answers with ``text``, when it is allowed to."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.fresh: CoalescingCache[str] = CoalescingCache(self.clock.monotonic, len)
        self.text = "first"
        self.failure: ServerError | None = None
        self.calls = self.under_way = self.most_under_way = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def look(self) -> str:
        self.calls += 1
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await self.may_answer.wait()
        finally:
            self.under_way -= 1
        if self.failure is not None:
            raise self.failure
        return self.text

    def ask(self, about: str = "x", answers: str = "server") -> Coroutine[None, None, str]:
        return self.fresh.ask(about, answers, self.look)


async def settle(rounds: int = 200) -> None:
    """Let every task run as far as it can."""
    for _ in range(rounds):
        await asyncio.sleep(0)


async def test_a_flood_costs_one_call() -> None:
    server = Server()
    server.may_answer.clear()
    asking = [asyncio.ensure_future(server.ask()) for _ in range(1000)]
    await settle()
    server.may_answer.set()
    assert set(await asyncio.gather(*asking)) == {"first"}
    assert server.calls == 1
    assert not server.fresh._asking


async def test_a_result_is_shared_for_a_second_and_no_longer() -> None:
    server = Server()
    assert await server.ask() == "first"
    server.text = "second"
    server.clock.pass_by(FRESH_SECONDS)
    assert await server.ask() == "first"
    server.clock.pass_by(0.001)
    assert await server.ask() == "second"
    assert server.calls == 2


async def test_sharing_a_result_does_not_extend_its_life() -> None:
    server = Server()
    for _ in range(5):
        await server.ask()
        server.clock.pass_by(0.9 * FRESH_SECONDS)
    assert server.calls == 3


async def test_other_keys_have_their_own_calls() -> None:
    server = Server()
    await asyncio.gather(server.ask("x"), server.ask("y"))
    assert server.calls == 2


async def test_an_error_is_shared_too() -> None:
    server = Server()
    server.failure = ServerError("away", status=503, retry_after_seconds=7)
    found = [(await asyncio.gather(server.ask(), return_exceptions=True))[0] for _ in range(20)]
    assert all(each is server.failure for each in found)
    assert server.calls == 1
    assert len(traceback.extract_tb(server.failure.__traceback__)) < 5
    server.clock.pass_by(FRESH_SECONDS + 0.001)
    server.failure = None
    assert await server.ask() == "first"


async def test_a_cancelled_request_does_not_cancel_others() -> None:
    server = Server()
    server.may_answer.clear()
    impatient, patient = (asyncio.ensure_future(server.ask()) for _ in range(2))
    await settle()
    impatient.cancel()
    await settle()
    server.may_answer.set()
    assert await patient == "first"
    assert impatient.cancelled()
    assert not server.fresh._asking


async def test_few_calls_are_under_way_at_once() -> None:
    server = Server()
    server.may_answer.clear()
    asking = [asyncio.ensure_future(server.ask(str(number))) for number in range(3 * CALLS_AT_ONCE)]
    await settle()
    server.may_answer.set()
    await asyncio.gather(*asking)
    assert (server.most_under_way, server.calls) == (CALLS_AT_ONCE, 3 * CALLS_AT_ONCE)
    assert not server.fresh._slots


async def test_a_hanging_server_delays_no_result_of_another() -> None:
    hanging = Server()
    hanging.may_answer.clear()
    asking = [asyncio.ensure_future(hanging.ask(str(number), "webhook")) for number in range(3 * CALLS_AT_ONCE)]
    await settle()
    assert hanging.under_way == CALLS_AT_ONCE
    other = asyncio.ensure_future(hanging.ask("other", "another webhook"))
    await settle()
    assert hanging.under_way == CALLS_AT_ONCE + 1
    hanging.may_answer.set()
    await asyncio.gather(other, *asking)


@pytest.mark.parametrize(("bound", "value"), [("MAXIMUM_RESULTS", 3), ("MAXIMUM_BYTES", 3 * len("first"))])
async def test_cached_results_are_bounded(monkeypatch: pytest.MonkeyPatch, bound: str, value: int) -> None:
    monkeypatch.setattr(fresh_answers, bound, value)
    server = Server()
    for number in range(10):
        await server.ask(str(number))
    assert list(server.fresh._kept) == ["7", "8", "9"]
    await server.ask("9")
    assert server.calls == 10
    await server.ask("0")
    assert server.calls == 11


async def test_old_results_are_dropped() -> None:
    """It may be a Secret."""
    server = Server()
    for number in range(10):
        await server.ask(str(number))
    server.clock.pass_by(FRESH_SECONDS + 0.001)
    await server.ask("new")
    assert list(server.fresh._kept) == ["new"]
    assert server.fresh._kept_bytes == len("first")
    assert "first" not in repr(server.fresh._kept)
