from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from typing import cast

import pytest

from signer.controller.requests import handler as request_handling
from signer.controller.requests.publisher import Publisher
from signer.controller.requests.workers import OWN_WORKERS, SharedWorkerPool
from signer.decision.decider import DecidedRequest
from signer.kube.backoff import Backoff
from signer.kube.client import Client, JsonObject
from signer.kube.fair_queue import CROWD
from signer.model.csr_header import AttestedCSRHeader, NotOurs
from signer.model.decision import Defer, Ignore
from signer.model.flow import Flow
from signer.model.reasons import Reason
from signer.model.signing_request import Malformed
from tests.unit.signer.controller.requests.handling_fixtures import WORKERS, Judge, Panic, SlowJudge, holding, turns
from tests.unit.signer.requests import csr


async def judged_at_once(requests: int) -> int:
    """How many of so many requests are judged before a pause is over."""
    judge = Judge()
    handling = holding(judge, requests)
    nobody = cast("Client", None), cast("Publisher", None)
    workers = [asyncio.create_task(handling.work(*nobody)) for _ in range(WORKERS)]
    for _ in range(20 * requests):
        await asyncio.sleep(0)
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    return len(judge.judged)


@pytest.fixture(autouse=True)
def _pauses_that_never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_handling, "_UNKNOWN_EVERY_SECONDS", 3600)


async def test_a_crowd_that_no_machine_has_is_held_back() -> None:
    """Else the watch, behind which honest nodes' requests wait, falls behind."""
    assert await judged_at_once(CROWD + WORKERS + 1) == 0


async def test_a_few_are_judged_at_once() -> None:
    assert await judged_at_once(CROWD) == CROWD


async def test_what_no_machine_has_waits_for_it_also_where_it_cannot_be_read() -> None:
    """Its denial says what is wrong, and need not wait behind a crowd."""
    judge = Judge()
    handling = holding(judge, 1)
    parsed = Malformed(cast("AttestedCSRHeader", None), Reason.UNSUPPORTED_VERSION, "newer")
    handling._awaits("node-0", parsed, Defer(Reason.MACHINE_NOT_FOUND, "none yet"))
    assert handling.informer.pending.waiting_for(["node-0"]) == ["node-0"]


async def test_what_an_attestor_has_wait_is_judged_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Judge()
    handling = holding(judge, 1)
    waited: list[float] = []
    monkeypatch.setattr(handling._queue, "add_after", lambda name, seconds: waited.append(seconds))
    decided_request = DecidedRequest(NotOurs(), Ignore())
    for grows in (True, False):
        for _ in range(10):
            asks = Defer("InstanceNotRunning", "it starts", timedelta(seconds=10), grows=grows)
            handling._wait("node-0", decided_request, asks)
    first, *_, last = waited[:10]
    assert (10 <= first <= 11, last > 60) == (True, True)
    assert waited[10:] == [10.0] * 10, "an API server's own word is not made longer"
    handling.informer.drop("node-0")
    assert len(handling._backoff) == 0


async def test_workers_come_as_they_are_needed_and_one_stays() -> None:
    judge = SlowJudge()
    handling = holding(judge, 1)
    workers = handling.workers_over(cast("Client", None), cast("Publisher", None))
    await turns(5)
    assert (len(workers), len(judge.judged)) == (1, 1)  # what waited already
    for number in range(1, WORKERS + 3):
        handling.informer.applied(csr(f"node-{number}", f"uid-{number}"))
    await turns(20)
    assert (len(workers), len(judge.judged)) == (WORKERS, WORKERS)  # and no more at once
    judge.may_go_on.set()
    await turns(100)
    assert len(judge.judged) == WORKERS + 3
    assert len(workers) == 1  # an idle cluster has one worker
    judge.begun.clear()
    handling.informer.applied(csr("later", "uid-later"))
    await judge.begun.wait()
    assert len(judge.judged) == WORKERS + 4
    handling.informer.stop()
    await workers.finished()
    await workers.end()


async def test_what_waits_when_a_connection_begins_has_as_many_workers_as_it_needs() -> None:
    judge = SlowJudge()
    handling = holding(judge, WORKERS + 1)
    first = handling.workers_over(cast("Client", None), cast("Publisher", None))
    assert len(first) == WORKERS
    await first.end()
    assert not judge.judged
    second = handling.workers_over(cast("Client", None), cast("Publisher", None))
    await judge.begun.wait()
    judge.may_go_on.set()
    await turns(100)
    assert len(judge.judged) == WORKERS + 1
    await second.end()


async def test_what_cannot_be_looked_at_after_it_was_judged_is_judged_again(caplog: pytest.LogCaptureFixture) -> None:
    """What changed meanwhile makes the glance panic, which is no ``Exception``: the worker goes on."""
    judge = SlowJudge(OSError())
    handling = holding(judge, 1)
    handling.informer.queue._backoff = Backoff(3600.0, 3600.0, 0)  # a pause may be next to nothing otherwise
    workers = handling.workers_over(cast("Client", None), cast("Publisher", None))
    await judge.begun.wait()
    handling.informer.applied(csr("node-0", "uid-0", labels={"version": "2"}))

    def panics(manifest: JsonObject) -> Flow:
        raise Panic

    handling.informer.pending._peek = panics
    judge.may_go_on.set()
    await turns(20)
    assert [record.message for record in caplog.records] == ["unexpected fault"] * 2
    assert (len(workers), handling.informer.queue.delayed) == (1, 1)
    await workers.end()


async def test_who_takes_one_calls_another_where_there_is_room_by_now() -> None:
    """The crew was with other clusters when the requests came."""
    judge, worker_pool = SlowJudge(), SharedWorkerPool(0)
    handling = holding(judge, 4 * OWN_WORKERS, workers=OWN_WORKERS + 3, worker_pool=worker_pool)
    workers = handling.workers_over(cast("Client", None), cast("Publisher", None))
    await judge.begun.wait()
    assert len(workers) == OWN_WORKERS
    worker_pool.left = 3
    judge.may_go_on.set()
    judge.may_go_on.clear()
    await turns(20)
    assert (len(workers), worker_pool.left) == (OWN_WORKERS + 3, 0)
    await workers.end()


async def test_another_takes_what_one_was_woken_for_that_goes_away() -> None:
    """While it goes it still has its place, which is the only one."""
    judge = SlowJudge()
    handling = holding(judge, 0, workers=1)
    workers = handling.workers_over(cast("Client", None), cast("Publisher", None))
    await turns(5)
    handling.informer.applied(csr("node-0", "uid-0"))
    (woken,) = workers._tasks
    woken.cancel()
    await turns(10)
    assert (judge.judged, len(workers)) == (["node-0"], 1)
    await workers.end()


async def test_a_worker_ends_also_where_an_attestor_keeps_that_to_itself() -> None:
    """Else its cluster would never be connected to again, nor be handed over, nor the controller end."""

    class Deaf(SlowJudge):
        async def decide(self, manifest: JsonObject) -> DecidedRequest:
            with contextlib.suppress(asyncio.CancelledError):
                return await super().decide(manifest)
            return DecidedRequest(NotOurs(), Ignore())

    judge = Deaf()
    handling = holding(judge, 1)
    workers = handling.workers_over(cast("Client", None), cast("Publisher", None))
    await judge.begun.wait()
    async with asyncio.timeout(10):
        await workers.end()
    assert len(workers) == 0
