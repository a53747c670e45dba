"""What was left out because there was no room is listed beside the watch, when there is room."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from signer.controller.requests import overflow as overflow_requests
from signer.controller.requests import pending as pending_module
from signer.kube.backoff import Backoff
from signer.kube.errors import ApiError, Gone
from tests.unit.signer.controller.cluster.served_cluster import HANGS, Served, csr


@pytest.fixture
async def served() -> Served:
    return Served()


async def test_what_does_not_fit_is_left_out_said_once_and_listed_again(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pending_module, "MAXIMUM_REQUESTS", 4)
    cluster = served.cluster
    with caplog.at_level(logging.WARNING):
        for number in range(10):
            cluster.applied(csr(f"csr-{number}", f"uid-{number}"))
        cluster.synced()
    assert len(cluster._requests.pending) == len(cluster._requests.queue) == 4
    assert [record.__dict__["reason"] for record in caplog.records] == ["RequestsOverflowed"]
    assert (cluster._reachability.condition.met, cluster._reachability.condition.reason) == (True, "RequestsOverflowed")
    for number in range(3):
        assert not cluster._requests.relist_wanted.is_set()
        cluster.removed(csr(f"csr-{number}", f"uid-{number}"))
    assert cluster._requests.relist_wanted.is_set()
    # The list that follows knows all.
    listing = Listing([csr(f"csr-{number}", f"uid-{number}") for number in range(3, 7)])
    await listed_beside(served, listing)
    assert list(cluster._requests.pending) == ["csr-3", "csr-4", "csr-5", "csr-6"]
    assert (cluster._reachability.condition.met, cluster._reachability.condition.reason) == (True, "Watching")
    assert not cluster._requests.relist_wanted.is_set()
    assert not cluster._reconnect.is_set()


class Listing:
    """A client that lists; the answers in turn, each a list of one page or an error, and then always the last."""

    def __init__(self, *answers: list[dict[str, Any]] | ApiError) -> None:
        self._answers = answers
        self.asked = 0

    async def list_pages(self, path: str, *, limit: int) -> AsyncIterator[dict[str, Any]]:
        assert limit <= 100, "a page is kept in one go"
        answer = self._answers[min(self.asked, len(self._answers) - 1)]
        self.asked += 1
        if isinstance(answer, ApiError):
            raise answer
        yield {"items": answer}


async def listed_beside(served: Served, listing: Listing, times: int = 1) -> None:
    """Let it be listed so many times beside the watch, and what comes of it be done."""
    cluster = served.cluster
    cluster._proven.set()
    task = asyncio.create_task(cluster._overflow.keep(listing))
    async with asyncio.timeout(10):
        while listing.asked < times:  # noqa: ASYNC110 - the API server's own count
            await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def full(served: Served, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Four are kept, a fifth is left out, and then there is room."""
    monkeypatch.setattr(pending_module, "MAXIMUM_REQUESTS", 4)
    cluster = served.cluster
    for name in "abcde":
        cluster.applied(csr(name, f"uid-{name}"))
    cluster.synced()
    for name in "abc":
        cluster.removed(csr(name, f"uid-{name}"))
    return cluster


async def test_a_list_of_what_was_left_out_that_fails_is_tried_again(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overflow_requests, "LIST_AGAIN", Backoff(0.001, 0.001, 0))
    cluster = full(served, monkeypatch)
    expired = Gone("the continue token is too old", status=410)
    await listed_beside(served, Listing(expired, HANGS, [csr("d", "uid-d"), csr("e", "uid-e")]), 3)
    assert list(cluster._requests.pending) == ["d", "e"]
    assert cluster._reachability.condition.reason == "Watching"


async def test_lists_of_what_was_left_out_are_pauses_apart(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer ones each time: a hostile server's lists have no end."""
    paused: list[int] = []

    class Noting:
        def delay(self, attempt: int, random: object) -> float:
            paused.append(attempt)
            return 0.0

    monkeypatch.setattr(overflow_requests, "LIST_AGAIN", Noting())
    now = 1000.0
    served.monotonic = lambda: now
    full(served, monkeypatch)
    await listed_beside(served, Listing(HANGS), 5)
    assert paused[:4] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("answer", "attempts"), [([csr("d", "uid-d")], [0, 0, 0, 0]), (HANGS, [0, 1, 2, 3])], ids=["well", "failed"]
)
async def test_after_a_while_the_next_list_is_not_paused_for(
    served: Served, monkeypatch: pytest.MonkeyPatch, answer: list[dict[str, Any]] | ApiError, attempts: list[int]
) -> None:
    """But for one that failed, however long that took."""
    paused: list[int] = []

    class Noting:
        def delay(self, attempt: int, random: object) -> float:
            paused.append(attempt)
            served.requests.pending.overflow = True  # and again
            served.requests.relist_wanted.set()
            return 0.0

    monkeypatch.setattr(overflow_requests, "LIST_AGAIN", Noting())
    times = iter(range(1000, 100_000, int(overflow_requests.PROVEN_SECONDS)))
    full(served, monkeypatch)
    served.monotonic = lambda: float(next(times))
    await listed_beside(served, Listing(answer), 5)
    assert paused[:4] == attempts


async def test_a_machine_that_appears_while_it_is_listed_is_not_forgotten(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be that of a request on a page that was read before."""
    cluster = full(served, monkeypatch)

    class Appearing(Listing):
        async def list_pages(self, path: str, *, limit: int) -> AsyncIterator[dict[str, Any]]:
            async for page in super().list_pages(path, limit=limit):
                yield page
            cluster.wake(frozenset({"test:///m"}))
            cluster._overflow.look()

    monkeypatch.setattr(pending_module, "MAXIMUM_REQUESTS", 2)
    await listed_beside(served, Appearing([csr(name, f"uid-{name}") for name in "defg"]))
    assert cluster._requests.pending.overflow
    assert not cluster._requests.relist_wanted.is_set()
    cluster._overflow.look()
    assert cluster._requests.relist_wanted.is_set()


async def test_a_machine_that_appears_while_the_watch_lists_by_itself_is_not_forgotten(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its request may have had to make way on a page that was read before, and nothing is left out yet otherwise."""
    monkeypatch.setattr(pending_module, "MAXIMUM_REQUESTS", 2)
    cluster = served.cluster
    pending = cluster._requests.pending
    pending.list_begins()
    listed = [one for one in (csr(name, f"uid-{name}") for name in "abc") if pending.holds_of_list(one)]
    assert not pending.overflow
    cluster.wake(frozenset({"test:///m"}))
    cluster.replaced(listed)
    cluster._overflow.look()
    assert cluster._requests.relist_wanted.is_set()


async def test_what_is_left_out_again_is_listed_when_there_is_room_by_then(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else may ever happen that says so."""
    cluster = full(served, monkeypatch)

    class Emptying(Listing):
        async def list_pages(self, path: str, *, limit: int) -> AsyncIterator[dict[str, Any]]:
            async for page in super().list_pages(path, limit=limit):
                yield page
            for name in "defg":
                cluster.removed(csr(name, f"uid-{name}"))

    listing = Emptying([csr(name, f"uid-{name}") for name in "defgh"], [csr("h", "uid-h")])
    monkeypatch.setattr(overflow_requests, "LIST_AGAIN", Backoff(0.001, 0.001, 0))
    await listed_beside(served, listing, 2)
    assert list(cluster._requests.pending) == ["h"]
    assert not cluster._requests.pending.overflow


async def test_what_is_left_out_of_a_list_beside_the_watch_does_not_say_that_the_watch_is_well(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = full(served, monkeypatch)
    cluster.failed(HANGS, 0.5)
    await listed_beside(served, Listing([csr(name, f"uid-{name}") for name in "defghij"]))
    assert cluster._requests.pending.overflow
    assert (cluster._reachability.condition.met, cluster._reachability.condition.reason) == (False, "Unreachable")


async def test_what_the_watch_has_listed_itself_is_not_listed_beside_it(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = full(served, monkeypatch)
    assert cluster._requests.relist_wanted.is_set()
    cluster._requests.pending.list_begins()
    cluster.replaced([one for one in [csr("d", "uid-d")] if cluster._requests.pending.holds_of_list(one)])
    listing = Listing([])
    await listed_beside(served, listing, 0)
    assert listing.asked == 0
    assert not cluster._requests.relist_wanted.is_set()
