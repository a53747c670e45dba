"""Requests from lists and watch events, also during decisions."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from signer.controller.requests.bounded_request import MAXIMUM_OBJECT_BYTES
from signer.controller.requests.informer import BATCH_SIZE
from signer.controller.requests.publisher import Publisher
from signer.kube import scheduling as cooperative_yield
from signer.kube.client import Client, JsonObject
from signer.store.caches import ALL_PROVIDER_IDS
from tests.unit.signer.controller.requests.handling_fixtures import (
    FakeDecider,
    Panic,
    SlowDecider,
    handler_with,
    holding,
    loop_iterations,
)
from tests.unit.signer.requests import csr


@pytest.mark.parametrize(
    ("fault", "watched", "decisions", "peeks"),
    [
        (None, "uid-0", 1, 0),  # settled: the watch event of its own write is ignored
        (OSError(), "uid-0", 2, 1),  # not settled: decided in its current state
        (Panic(), "uid-0", 2, 1),  # and by the same worker
        (None, "uid-1", 2, 1),  # another one under its name
    ],
    ids=["settled", "not settled", "panic", "re-created"],
)
async def test_a_change_during_a_decision(
    fault: BaseException | None, watched: str, decisions: int, peeks: int
) -> None:
    fake_decider = SlowDecider(fault)
    handling = holding(fake_decider, 1)
    worker = asyncio.create_task(handling.work(cast("Client", None), cast("Publisher", None)))
    await fake_decider.begun.wait()
    handling.informer.applied(csr("node-0", watched))
    fake_decider.may_go_on.set()
    for _ in range(20):
        await asyncio.sleep(0)
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    assert (len(fake_decider.decided_names), fake_decider.peeks, len(handling.informer.pending)) == (
        decisions,
        peeks,
        0,
    )


async def test_a_list_replaces_a_postponed_change() -> None:
    fake_decider = SlowDecider(OSError())
    handling = holding(fake_decider, 1)
    worker = asyncio.create_task(handling.work(cast("Client", None), cast("Publisher", None)))
    await fake_decider.begun.wait()
    handling.informer.applied(csr("node-0", "uid-0", labels={"version": "2"}))
    handling.informer.replaced([csr("node-0", "uid-0", labels={"version": "3"})])
    fake_decider.begun.clear()
    fake_decider.may_go_on.set()
    await fake_decider.begun.wait()
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    assert [manifest["metadata"].get("labels") for manifest in fake_decider.seen] == [None, {"version": "3"}]


async def test_an_oversized_change_drops_the_request_during_a_decision() -> None:
    """A hostile API server may send anything under the name of a request in progress, so it is measured too."""
    fake_decider = SlowDecider()
    handling = holding(fake_decider, 1)
    worker = asyncio.create_task(handling.work(cast("Client", None), cast("Publisher", None)))
    await fake_decider.begun.wait()
    changed = csr("node-0", "uid-0")
    changed["spec"]["extra"] = {"x": ["y" * MAXIMUM_OBJECT_BYTES]}
    handling.informer.applied(changed)
    assert len(handling.informer.pending) == 0
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)


async def test_only_a_change_of_a_machine_refreshes_flows() -> None:
    """A peek parses the whole request; thousands at once would block all other clusters."""
    fake_decider = FakeDecider()
    handling = holding(fake_decider, 2)
    assert fake_decider.peeks == 1, "the first one had no other beside it"
    for _ in range(2):
        handling.informer.wake(ALL_PROVIDER_IDS)
        assert fake_decider.peeks == 2
    handling.informer.wake(frozenset({"node-1"}))
    assert fake_decider.peeks == 3


@pytest.mark.parametrize("woken", [frozenset({"one"}), ALL_PROVIDER_IDS])
async def test_thousands_of_waiting_requests_are_woken_in_batches(woken: frozenset[str]) -> None:
    """A thief may know the provider ID of a future Machine, and a tenant can change Machines and policy at will."""
    informer = holding(FakeDecider(), 3 * BATCH_SIZE).informer
    names = tuple(informer.pending)
    for name in names:
        informer.pending.set_awaited(name, ["one"])
        await informer.queue.get()
        informer.queue.done(name)
    informer.wake(woken)
    assert len(informer.queue) == BATCH_SIZE
    informer.removed(csr(names[-1], f"uid-{len(names) - 1}"))  # before its turn
    await loop_iterations(3)
    assert [await informer.queue.get() for _ in range(len(informer.queue))] == list(names[:-1])


async def test_no_request_is_woken_once_the_cluster_is_closed() -> None:
    fake_decider = FakeDecider()
    informer = holding(fake_decider, 3 * BATCH_SIZE).informer
    for name in tuple(informer.pending):
        informer.pending.set_awaited(name, ["one"])
    informer.wake(frozenset({"one"}))
    informer.close()
    peeks = fake_decider.peeks
    await loop_iterations(3)
    assert fake_decider.peeks == peeks


LISTED = [f"node-{number}" for number in range(2 * BATCH_SIZE)]


def listed() -> list[JsonObject]:
    return [csr(name, f"uid-{name}") for name in LISTED]


async def test_a_large_list_is_applied_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packing or dropping thousands at once would block all other clusters."""
    monkeypatch.setattr(cooperative_yield, "SLICE_SECONDS", -1.0)
    informer = handler_with(FakeDecider()).informer
    informer.replaced(listed())
    assert len(informer.pending) == BATCH_SIZE
    settling = asyncio.create_task(informer.settle())
    await loop_iterations(2)
    assert BATCH_SIZE < len(informer.pending) < BATCH_SIZE + 5
    await settling
    assert list(informer.pending) == LISTED
    informer.replaced(listed()[:1])
    assert len(informer.pending) == BATCH_SIZE
    await informer.settle()
    assert list(informer.pending) == LISTED[:1]


async def test_overflow_of_a_large_list_is_reported_once_it_is_applied() -> None:
    """Otherwise dropped requests would free the budget and cause a relist while the list is still applied."""
    informer = handler_with(FakeDecider()).informer
    objects = listed()
    for manifest in objects:
        assert informer.pending.add_listed(manifest)
    informer.pending._list.overflow = True
    informer.replaced(objects)
    overflows = [informer.pending.overflow]
    await informer.settle()
    assert [*overflows, informer.pending.overflow] == [False, True]
    assert len(informer.pending) == len(LISTED)


async def test_an_interrupted_list_holds_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooperative_yield, "SLICE_SECONDS", -1.0)
    informer = handler_with(FakeDecider()).informer
    informer.replaced(listed())
    settling = asyncio.create_task(informer.settle())
    await loop_iterations(1)
    settling.cancel()
    await asyncio.gather(settling, return_exceptions=True)
    kept = len(informer.pending)
    await informer.settle()
    assert len(informer.pending) == kept < len(LISTED)
