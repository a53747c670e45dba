from __future__ import annotations

import asyncio

from signer.controller.requests.informer import BATCH_SIZE, BatchedRequeue

NAMES = tuple(f"name-{number}" for number in range(3 * BATCH_SIZE))


async def test_a_few_names_are_processed_at_once() -> None:
    done: list[str] = []
    BatchedRequeue(done.append).add(NAMES[:BATCH_SIZE])
    assert done == list(NAMES[:BATCH_SIZE])


async def test_many_names_are_processed_in_ordered_batches() -> None:
    done: list[str] = []
    backlog = BatchedRequeue(done.append)
    backlog.add(NAMES)
    for turn in (1, 2, 3):
        assert done == list(NAMES[: turn * BATCH_SIZE])
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (done, len(backlog)) == (list(NAMES), 0)


async def test_a_few_names_do_not_wait_behind_many() -> None:
    done: list[str] = []
    backlog = BatchedRequeue(done.append)
    backlog.add(NAMES)
    backlog.add(["honest"])
    assert done[-1] == "honest"


async def test_a_name_added_twice_is_processed_once() -> None:
    done: list[str] = []
    backlog = BatchedRequeue(done.append)
    backlog.add(NAMES)
    backlog.add(NAMES)
    for _ in range(len(backlog)):
        await asyncio.sleep(0)
    assert sorted(done) == sorted([*NAMES, *NAMES[:BATCH_SIZE]])


async def test_clear_drops_names_and_allows_reuse() -> None:
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
