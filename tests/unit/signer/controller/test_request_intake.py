"""Requests as the watch tells of them, also while they are judged."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from signer.controller.bounded_request import MAXIMUM_OBJECT_BYTES
from signer.controller.publisher import Publisher
from signer.kube.client import Client
from signer.store.inventory import ALL_PROVIDER_IDS
from tests.unit.signer.controller.handling_house import Judge, Panic, SlowJudge, holding
from tests.unit.signer.controller.requests import csr


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
    handling.intake.applied(csr("node-0", meanwhile))
    judge.may_go_on.set()
    for _ in range(20):
        await asyncio.sleep(0)
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    assert (len(judge.judged), judge.glances, len(handling.intake.pending)) == (judged, glances, 0)


async def test_a_list_is_newer_than_what_was_held_back() -> None:
    judge = SlowJudge(OSError())
    handling = holding(judge, 1)
    worker = asyncio.create_task(handling.work(cast("Client", None), cast("Publisher", None)))
    await judge.begun.wait()
    handling.intake.applied(csr("node-0", "uid-0", labels={"version": "2"}))
    handling.intake.replaced([csr("node-0", "uid-0", labels={"version": "3"})])
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
    handling.intake.applied(changed)
    assert len(handling.intake.pending) == 0
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)


async def test_a_change_of_a_machine_is_a_reason_to_glance_again_and_one_of_the_cluster_is_none() -> None:
    """A glance reads the whole request; thousands of them in one go hold up all other clusters."""
    judge = Judge()
    handling = holding(judge, 2)
    assert judge.glances == 2
    handling.intake.wake(ALL_PROVIDER_IDS)
    assert judge.glances == 2
    handling.intake.wake(frozenset({"node-1"}))
    assert judge.glances == 3
