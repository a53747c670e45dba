from __future__ import annotations

import asyncio

from signer.controller.requests.batched_requeue import BATCH_SIZE, BatchedRequeue

NAMES = tuple(f"name-{number}" for number in range(3 * BATCH_SIZE))


async def test_few_are_done_at_once() -> None:
    done: list[str] = []
    BatchedRequeue(done.append).add(NAMES[:BATCH_SIZE])
    assert done == list(NAMES[:BATCH_SIZE])


async def test_of_many_a_few_are_done_in_each_turn_in_their_order() -> None:
    done: list[str] = []
    backlog = BatchedRequeue(done.append)
    backlog.add(NAMES)
    for turn in (1, 2, 3):
        assert done == list(NAMES[: turn * BATCH_SIZE])
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (done, len(backlog)) == (list(NAMES), 0)


async def test_few_do_not_wait_behind_many() -> None:
    done: list[str] = []
    backlog = BatchedRequeue(done.append)
    backlog.add(NAMES)
    backlog.add(["honest"])
    assert done[-1] == "honest"


async def test_what_is_added_again_before_its_turn_is_done_once() -> None:
    done: list[str] = []
    backlog = BatchedRequeue(done.append)
    backlog.add(NAMES)
    backlog.add(NAMES)
    for _ in range(len(backlog)):
        await asyncio.sleep(0)
    assert sorted(done) == sorted([*NAMES, *NAMES[:BATCH_SIZE]])


async def test_nothing_is_done_any_more_when_it_is_cleared_and_it_can_be_used_again() -> None:
    done: list[str] = []
    backlog = BatchedRequeue(done.append)
    backlog.add(NAMES)
    backlog.clear()
    await asyncio.sleep(0)
    assert done == list(NAMES[:BATCH_SIZE])
    backlog.add(NAMES)
    await asyncio.sleep(0)
    assert done == [*NAMES[:BATCH_SIZE], *NAMES[: 2 * BATCH_SIZE]]
    backlog.clear()
