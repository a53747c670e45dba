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
from signer.kube.workqueue import CROWD
from signer.model.decision import Defer, Ignore
from signer.model.flow import Flow
from signer.model.reasons import Reason
from signer.model.signing_request import AttestedCSRHeader, Malformed, NotOurs
from tests.unit.signer.controller.requests.handling_fixtures import (
    WORKERS,
    FakeDecider,
    Panic,
    SlowDecider,
    holding,
    loop_iterations,
)
from tests.unit.signer.requests import csr


async def decided_at_once(requests: int) -> int:
    """How many of that many requests are decided before a pause is over."""
    fake_decider = FakeDecider()
    handling = holding(fake_decider, requests)
    no_connection = cast("Client", None), cast("Publisher", None)
    workers = [asyncio.create_task(handling.work(*no_connection)) for _ in range(WORKERS)]
    for _ in range(20 * requests):
        await asyncio.sleep(0)
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    return len(fake_decider.decided_names)


@pytest.fixture(autouse=True)
def _pauses_that_never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_handling, "_UNKNOWN_MACHINE_SECONDS", 3600)


async def test_a_crowd_of_unknown_machines_is_throttled() -> None:
    """Otherwise the watch, which delivers honest nodes' requests, falls behind."""
    assert await decided_at_once(CROWD + WORKERS + 1) == 0


async def test_a_few_requests_are_decided_at_once() -> None:
    assert await decided_at_once(CROWD) == CROWD


async def test_a_malformed_request_of_an_unknown_machine_waits_for_it() -> None:
    """Its denial need not wait behind a crowd."""
    fake_decider = FakeDecider()
    handling = holding(fake_decider, 1)
    parsed = Malformed(cast("AttestedCSRHeader", None), Reason.UNSUPPORTED_VERSION, "newer")
    handling._set_awaited("node-0", parsed, Defer(Reason.MACHINE_NOT_FOUND, "none yet"))
    assert handling.informer.pending.names_waiting_for(["node-0"]) == ["node-0"]


async def test_attestor_deferrals_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_decider = FakeDecider()
    handling = holding(fake_decider, 1)
    waited: list[float] = []
    monkeypatch.setattr(handling._queue, "add_after", lambda name, seconds: waited.append(seconds))
    decided_request = DecidedRequest(NotOurs(), Ignore())
    for grows in (True, False):
        for _ in range(10):
            calls = Defer("InstanceNotRunning", "it starts", timedelta(seconds=10), grows=grows)
            handling._wait("node-0", decided_request, calls)
    first, *_, last = waited[:10]
    assert (10 <= first <= 11, last > 60) == (True, True)
    assert waited[10:] == [10.0] * 10, "an API server's own word is not made longer"
    handling.informer.drop("node-0")
    assert len(handling._backoff) == 0


async def test_workers_start_on_demand_and_one_stays() -> None:
    fake_decider = SlowDecider()
    handling = holding(fake_decider, 1)
    workers = handling.workers_over(cast("Client", None), cast("Publisher", None))
    await loop_iterations(5)
    assert (len(workers), len(fake_decider.decided_names)) == (1, 1)  # what waited already
    for number in range(1, WORKERS + 3):
        handling.informer.applied(csr(f"node-{number}", f"uid-{number}"))
    await loop_iterations(20)
    assert (len(workers), len(fake_decider.decided_names)) == (WORKERS, WORKERS)  # and no more at once
    fake_decider.may_go_on.set()
    await loop_iterations(100)
    assert len(fake_decider.decided_names) == WORKERS + 3
    assert len(workers) == 1  # an idle cluster has one worker
    fake_decider.begun.clear()
    handling.informer.applied(csr("later", "uid-later"))
    await fake_decider.begun.wait()
    assert len(fake_decider.decided_names) == WORKERS + 4
    handling.informer.stop()
    await workers.finished()
    await workers.end()


async def test_a_new_connection_starts_workers_for_the_queue() -> None:
    fake_decider = SlowDecider()
    handling = holding(fake_decider, WORKERS + 1)
    first = handling.workers_over(cast("Client", None), cast("Publisher", None))
    assert len(first) == WORKERS
    await first.end()
    assert not fake_decider.decided_names
    second = handling.workers_over(cast("Client", None), cast("Publisher", None))
    await fake_decider.begun.wait()
    fake_decider.may_go_on.set()
    await loop_iterations(100)
    assert len(fake_decider.decided_names) == WORKERS + 1
    await second.end()


async def test_a_defect_after_a_decision_requeues_the_request(caplog: pytest.LogCaptureFixture) -> None:
    """A change makes the peek panic, which is not an ``Exception``: the worker continues."""
    fake_decider = SlowDecider(OSError())
    handling = holding(fake_decider, 1)
    handling.informer.queue._backoff = Backoff(3600.0, 3600.0, 0)  # a pause may be next to nothing otherwise
    workers = handling.workers_over(cast("Client", None), cast("Publisher", None))
    await fake_decider.begun.wait()
    handling.informer.applied(csr("node-0", "uid-0", labels={"version": "2"}))

    def panics(manifest: JsonObject) -> Flow:
        raise Panic

    handling.informer.pending._peek = panics
    fake_decider.may_go_on.set()
    await loop_iterations(20)
    assert [record.message for record in caplog.records] == ["unexpected fault"] * 2
    assert (len(workers), handling.informer.queue.delayed) == (1, 1)
    await workers.end()


async def test_a_busy_worker_starts_another_once_the_pool_has_one() -> None:
    """Other clusters used the worker pool when the requests came."""
    fake_decider, worker_pool = SlowDecider(), SharedWorkerPool(0)
    handling = holding(fake_decider, 4 * OWN_WORKERS, workers=OWN_WORKERS + 3, worker_pool=worker_pool)
    workers = handling.workers_over(cast("Client", None), cast("Publisher", None))
    await fake_decider.begun.wait()
    assert len(workers) == OWN_WORKERS
    worker_pool.available = 3
    fake_decider.may_go_on.set()
    fake_decider.may_go_on.clear()
    await loop_iterations(20)
    assert (len(workers), worker_pool.available) == (OWN_WORKERS + 3, 0)
    await workers.end()


async def test_another_worker_takes_over_from_a_cancelled_one() -> None:
    """Until it has ended it still holds the only slot."""
    fake_decider = SlowDecider()
    handling = holding(fake_decider, 0, workers=1)
    workers = handling.workers_over(cast("Client", None), cast("Publisher", None))
    await loop_iterations(5)
    handling.informer.applied(csr("node-0", "uid-0"))
    (woken,) = workers._tasks
    woken.cancel()
    await loop_iterations(10)
    assert (fake_decider.decided_names, len(workers)) == (["node-0"], 1)
    await workers.end()


async def test_a_worker_ends_although_an_attestor_swallows_the_cancellation() -> None:
    """Otherwise the cluster could not reconnect or be handed over, nor the controller end."""

    class Deaf(SlowDecider):
        async def decide(self, manifest: JsonObject) -> DecidedRequest:
            with contextlib.suppress(asyncio.CancelledError):
                return await super().decide(manifest)
            return DecidedRequest(NotOurs(), Ignore())

    fake_decider = Deaf()
    handling = holding(fake_decider, 1)
    workers = handling.workers_over(cast("Client", None), cast("Publisher", None))
    await fake_decider.begun.wait()
    async with asyncio.timeout(10):
        await workers.end()
    assert len(workers) == 0
