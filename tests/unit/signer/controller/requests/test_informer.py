"""Requests from lists and watch events, also during decisions."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from signer.controller.requests.batched_requeue import BATCH_SIZE
from signer.controller.requests.bounded_request import MAXIMUM_OBJECT_BYTES
from signer.controller.requests.publisher import Publisher
from signer.kube import cooperative_yield as cooperative_yield
from signer.kube.client import Client, JsonObject
from signer.store.caches import ALL_PROVIDER_IDS
from tests.unit.signer.controller.requests.handling_fixtures import Judge, Panic, SlowJudge, handling_by, holding, turns
from tests.unit.signer.requests import csr


@pytest.mark.parametrize(
    ("fault", "meanwhile", "judged", "glances"),
    [
        (None, "uid-0", 1, 1),  # settled: what came back through the watch is not looked at
        (OSError(), "uid-0", 2, 2),  # not settled: judged as it is by now
        (Panic(), "uid-0", 2, 2),  # and by the same worker
        (None, "uid-1", 2, 2),  # another one under its name
    ],
    ids=["settled", "not settled", "panic", "re-created"],
)
async def test_a_change_during_a_decision(
    fault: BaseException | None, meanwhile: str, judged: int, glances: int
) -> None:
    judge = SlowJudge(fault)
    handling = holding(judge, 1)
    worker = asyncio.create_task(handling.work(cast("Client", None), cast("Publisher", None)))
    await judge.begun.wait()
    handling.informer.applied(csr("node-0", meanwhile))
    judge.may_go_on.set()
    for _ in range(20):
        await asyncio.sleep(0)
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    assert (len(judge.judged), judge.glances, len(handling.informer.pending)) == (judged, glances, 0)


async def test_a_list_replaces_a_postponed_change() -> None:
    judge = SlowJudge(OSError())
    handling = holding(judge, 1)
    worker = asyncio.create_task(handling.work(cast("Client", None), cast("Publisher", None)))
    await judge.begun.wait()
    handling.informer.applied(csr("node-0", "uid-0", labels={"version": "2"}))
    handling.informer.replaced([csr("node-0", "uid-0", labels={"version": "3"})])
    judge.begun.clear()
    judge.may_go_on.set()
    await judge.begun.wait()
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    assert [manifest["metadata"].get("labels") for manifest in judge.seen] == [None, {"version": "3"}]


async def test_an_oversized_change_drops_the_request_during_a_decision() -> None:
    """A hostile API server may send anything under the name of a request in progress, so it is measured too."""
    judge = SlowJudge()
    handling = holding(judge, 1)
    worker = asyncio.create_task(handling.work(cast("Client", None), cast("Publisher", None)))
    await judge.begun.wait()
    changed = csr("node-0", "uid-0")
    changed["spec"]["extra"] = {"x": ["y" * MAXIMUM_OBJECT_BYTES]}
    handling.informer.applied(changed)
    assert len(handling.informer.pending) == 0
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)


async def test_only_a_change_of_a_machine_refreshes_flows() -> None:
    """A peek parses the whole request; thousands at once would block all other clusters."""
    judge = Judge()
    handling = holding(judge, 2)
    assert judge.glances == 2
    handling.informer.wake(ALL_PROVIDER_IDS)
    assert judge.glances == 2
    handling.informer.wake(frozenset({"node-1"}))
    assert judge.glances == 3


@pytest.mark.parametrize("woken", [frozenset({"one"}), ALL_PROVIDER_IDS])
async def test_thousands_of_waiting_requests_are_woken_in_batches(woken: frozenset[str]) -> None:
    """A thief may know the provider ID of a future Machine, and a tenant can change Machines and policy at will."""
    informer = holding(Judge(), 3 * BATCH_SIZE).informer
    names = tuple(informer.pending)
    for name in names:
        informer.pending.set_awaited(name, ["one"])
        await informer.queue.get()
        informer.queue.done(name)
    informer.wake(woken)
    assert len(informer.queue) == BATCH_SIZE
    informer.removed(csr(names[-1], f"uid-{len(names) - 1}"))  # before its turn
    await turns(3)
    assert [await informer.queue.get() for _ in range(len(informer.queue))] == list(names[:-1])


async def test_no_request_is_woken_once_the_cluster_is_closed() -> None:
    judge = Judge()
    informer = holding(judge, 3 * BATCH_SIZE).informer
    for name in tuple(informer.pending):
        informer.pending.set_awaited(name, ["one"])
    informer.wake(frozenset({"one"}))
    informer.close()
    glances = judge.glances
    await turns(3)
    assert judge.glances == glances


LISTED = [f"node-{number}" for number in range(2 * BATCH_SIZE)]


def listed() -> list[JsonObject]:
    return [csr(name, f"uid-{name}") for name in LISTED]


async def test_a_large_list_is_applied_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packing or dropping thousands at once would block all other clusters."""
    monkeypatch.setattr(cooperative_yield, "SLICE_SECONDS", -1.0)
    informer = handling_by(Judge()).informer
    informer.replaced(listed())
    assert len(informer.pending) == BATCH_SIZE
    settling = asyncio.create_task(informer.settle())
    await turns(2)
    assert BATCH_SIZE < len(informer.pending) < BATCH_SIZE + 5
    await settling
    assert list(informer.pending) == LISTED
    informer.replaced(listed()[:1])
    assert len(informer.pending) == BATCH_SIZE
    await informer.settle()
    assert list(informer.pending) == LISTED[:1]


async def test_overflow_of_a_large_list_is_reported_once_it_is_applied() -> None:
    """Otherwise dropped requests would free the budget and cause a relist while the list is still applied."""
    informer = handling_by(Judge()).informer
    objects = listed()
    for manifest in objects:
        assert informer.pending.add_listed(manifest)
    informer.pending._list.overflow = True
    informer.replaced(objects)
    told = [informer.pending.overflow]
    await informer.settle()
    assert [*told, informer.pending.overflow] == [False, True]
    assert len(informer.pending) == len(LISTED)


async def test_an_interrupted_list_holds_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooperative_yield, "SLICE_SECONDS", -1.0)
    informer = handling_by(Judge()).informer
    informer.replaced(listed())
    settling = asyncio.create_task(informer.settle())
    await turns(1)
    settling.cancel()
    await asyncio.gather(settling, return_exceptions=True)
    kept = len(informer.pending)
    await informer.settle()
    assert len(informer.pending) == kept < len(LISTED)
