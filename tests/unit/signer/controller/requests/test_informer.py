"""Requests as the watch tells of them, also while they are judged."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from signer.controller.requests.batched_requeue import AT_ONCE
from signer.controller.requests.bounded_request import MAXIMUM_OBJECT_BYTES
from signer.controller.requests.publisher import Publisher
from signer.kube import scheduling as cooperative_yield
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
async def test_what_changes_while_it_is_judged(
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


async def test_a_list_is_newer_than_what_was_held_back() -> None:
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


async def test_what_is_too_large_is_dropped_also_while_it_is_judged() -> None:
    """A hostile API server may send anything under the name of what a worker has: it is measured all the same."""
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


async def test_a_change_of_a_machine_is_a_reason_to_peek_again_and_one_of_the_cluster_is_none() -> None:
    """A glance reads the whole request; thousands of them in one go hold up all other clusters."""
    judge = Judge()
    handling = holding(judge, 2)
    assert judge.glances == 2
    handling.informer.wake(ALL_PROVIDER_IDS)
    assert judge.glances == 2
    handling.informer.wake(frozenset({"node-1"}))
    assert judge.glances == 3


@pytest.mark.parametrize("woken", [frozenset({"one"}), ALL_PROVIDER_IDS])
async def test_thousands_that_wait_for_one_machine_are_woken_a_few_at_a_time(woken: frozenset[str]) -> None:
    """A thief knows the provider ID of a Machine that is yet to come; a tenant's Machines and policy come and go."""
    informer = holding(Judge(), 3 * AT_ONCE).informer
    names = tuple(informer.pending)
    for name in names:
        informer.pending.waits_for(name, ["one"])
        await informer.queue.get()
        informer.queue.done(name)
    informer.wake(woken)
    assert len(informer.queue) == AT_ONCE
    informer.removed(csr(names[-1], f"uid-{len(names) - 1}"))  # before its turn
    await turns(3)
    assert [await informer.queue.get() for _ in range(len(informer.queue))] == list(names[:-1])


async def test_nobody_is_woken_when_the_cluster_is_no_longer_served() -> None:
    judge = Judge()
    informer = holding(judge, 3 * AT_ONCE).informer
    for name in tuple(informer.pending):
        informer.pending.waits_for(name, ["one"])
    informer.wake(frozenset({"one"}))
    informer.close()
    glances = judge.glances
    await turns(3)
    assert judge.glances == glances


LISTED = [f"node-{number}" for number in range(2 * AT_ONCE)]


def listed() -> list[JsonObject]:
    return [csr(name, f"uid-{name}") for name in LISTED]


async def test_a_large_list_is_kept_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packing thousands in one go would hold up all other clusters; so would letting go of those that are gone."""
    monkeypatch.setattr(cooperative_yield, "SLICE_SECONDS", -1.0)
    informer = handling_by(Judge()).informer
    informer.replaced(listed())
    assert len(informer.pending) == AT_ONCE
    settling = asyncio.create_task(informer.settle())
    await turns(2)
    assert AT_ONCE < len(informer.pending) < AT_ONCE + 5
    await settling
    assert list(informer.pending) == LISTED
    informer.replaced(listed()[:1])
    assert len(informer.pending) == AT_ONCE
    await informer.settle()
    assert list(informer.pending) == LISTED[:1]


async def test_what_was_left_out_of_a_large_list_is_told_when_it_is_settled() -> None:
    """Else those that go make room, and the list is asked for again while it is still being kept."""
    informer = handling_by(Judge()).informer
    objects = listed()
    for manifest in objects:
        assert informer.pending.holds_of_list(manifest)
    informer.pending._list.overflow = True
    informer.replaced(objects)
    told = [informer.pending.overflow]
    await informer.settle()
    assert [*told, informer.pending.overflow] == [False, True]
    assert len(informer.pending) == len(LISTED)


async def test_of_a_list_whose_connection_ends_nothing_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
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
