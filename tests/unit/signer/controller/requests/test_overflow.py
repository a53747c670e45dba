"""Overflowed requests are relisted while the watch continues."""

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


async def test_overflowed_requests_are_logged_once_and_relisted(
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
        assert not cluster._requests.relist_needed.is_set()
        cluster.removed(csr(f"csr-{number}", f"uid-{number}"))
    assert cluster._requests.relist_needed.is_set()
    # The list that follows knows all.
    listing = Listing([csr(f"csr-{number}", f"uid-{number}") for number in range(3, 7)])
    await relist(served, listing)
    assert list(cluster._requests.pending) == ["csr-3", "csr-4", "csr-5", "csr-6"]
    assert (cluster._reachability.condition.met, cluster._reachability.condition.reason) == (True, "Watching")
    assert not cluster._requests.relist_needed.is_set()
    assert not cluster._reconnect.is_set()


class Listing:
    """A client whose lists return these answers in turn, each one page or an error, and the last one from then on."""

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


async def relist(served: Served, listing: Listing, times: int = 1) -> None:
    """Run that many relists, and handle the results."""
    cluster = served.cluster
    cluster._connected.set()
    task = asyncio.create_task(cluster._overflow.run(listing))
    async with asyncio.timeout(10):
        while listing.asked < times:  # noqa: ASYNC110 - the API server's own count
            await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def full(served: Served, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Four requests are kept and a fifth overflows; then the budget is free again."""
    monkeypatch.setattr(pending_module, "MAXIMUM_REQUESTS", 4)
    cluster = served.cluster
    for name in "abcde":
        cluster.applied(csr(name, f"uid-{name}"))
    cluster.synced()
    for name in "abc":
        cluster.removed(csr(name, f"uid-{name}"))
    return cluster


async def test_a_failed_relist_is_retried(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overflow_requests, "RELIST_BACKOFF", Backoff(0.001, 0.001, 0))
    cluster = full(served, monkeypatch)
    expired = Gone("the continue token is too old", status=410)
    await relist(served, Listing(expired, HANGS, [csr("d", "uid-d"), csr("e", "uid-e")]), 3)
    assert list(cluster._requests.pending) == ["d", "e"]
    assert cluster._reachability.condition.reason == "Watching"


async def test_relists_back_off(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """With growing pauses: a hostile server's lists may be endless."""
    paused: list[int] = []

    class Noting:
        def delay(self, attempt: int, random: object) -> float:
            paused.append(attempt)
            return 0.0

    monkeypatch.setattr(overflow_requests, "RELIST_BACKOFF", Noting())
    now = 1000.0
    served.monotonic = lambda: now
    full(served, monkeypatch)
    await relist(served, Listing(HANGS), 5)
    assert paused[:4] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("answer", "attempts"), [([csr("d", "uid-d")], [0, 0, 0, 0]), (HANGS, [0, 1, 2, 3])], ids=["well", "failed"]
)
async def test_the_backoff_of_relists_resets(
    served: Served, monkeypatch: pytest.MonkeyPatch, answer: list[dict[str, Any]] | ApiError, attempts: list[int]
) -> None:
    """Unless it failed, however long it took."""
    paused: list[int] = []

    class Noting:
        def delay(self, attempt: int, random: object) -> float:
            paused.append(attempt)
            served.requests.pending.overflow = True  # and again
            served.requests.relist_needed.set()
            return 0.0

    monkeypatch.setattr(overflow_requests, "RELIST_BACKOFF", Noting())
    times = iter(range(1000, 100_000, int(overflow_requests.STABLE_SECONDS)))
    full(served, monkeypatch)
    served.monotonic = lambda: float(next(times))
    await relist(served, Listing(answer), 5)
    assert paused[:4] == attempts


async def test_a_machine_that_appears_during_a_relist_causes_another(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may belong to a request on a page that was already read."""
    cluster = full(served, monkeypatch)

    class Appearing(Listing):
        async def list_pages(self, path: str, *, limit: int) -> AsyncIterator[dict[str, Any]]:
            async for page in super().list_pages(path, limit=limit):
                yield page
            cluster.machines_changed()
            cluster._overflow.check()

    monkeypatch.setattr(pending_module, "MAXIMUM_REQUESTS", 2)
    await relist(served, Appearing([csr(name, f"uid-{name}") for name in "defg"]))
    assert cluster._requests.pending.overflow
    assert not cluster._requests.relist_needed.is_set()
    cluster._overflow.check()
    assert cluster._requests.relist_needed.is_set()


async def test_a_machine_that_appears_during_the_watchs_list_causes_a_relist(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its request may have been evicted on an earlier page, while no other request has overflowed yet."""
    monkeypatch.setattr(pending_module, "MAXIMUM_REQUESTS", 2)
    cluster = served.cluster
    pending = cluster._requests.pending
    pending.begin_list()
    listed = [one for one in (csr(name, f"uid-{name}") for name in "abc") if pending.add_listed(one)]
    assert not pending.overflow
    cluster.machines_changed()
    cluster.replaced(listed)
    cluster._overflow.check()
    assert cluster._requests.relist_needed.is_set()


async def test_requests_that_overflow_again_are_relisted(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other event may ever trigger it."""
    cluster = full(served, monkeypatch)

    class Emptying(Listing):
        async def list_pages(self, path: str, *, limit: int) -> AsyncIterator[dict[str, Any]]:
            async for page in super().list_pages(path, limit=limit):
                yield page
            for name in "defg":
                cluster.removed(csr(name, f"uid-{name}"))

    listing = Emptying([csr(name, f"uid-{name}") for name in "defgh"], [csr("h", "uid-h")])
    monkeypatch.setattr(overflow_requests, "RELIST_BACKOFF", Backoff(0.001, 0.001, 0))
    await relist(served, listing, 2)
    assert list(cluster._requests.pending) == ["h"]
    assert not cluster._requests.pending.overflow


async def test_an_overflowing_relist_does_not_report_a_failed_watch_as_working(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = full(served, monkeypatch)
    cluster.failed(HANGS, 0.5)
    await relist(served, Listing([csr(name, f"uid-{name}") for name in "defghij"]))
    assert cluster._requests.pending.overflow
    assert (cluster._reachability.condition.met, cluster._reachability.condition.reason) == (False, "Unreachable")


async def test_a_list_of_the_watch_cancels_the_relist(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = full(served, monkeypatch)
    assert cluster._requests.relist_needed.is_set()
    cluster._requests.pending.begin_list()
    cluster.replaced([one for one in [csr("d", "uid-d")] if cluster._requests.pending.add_listed(one)])
    listing = Listing([])
    await relist(served, listing, 0)
    assert listing.asked == 0
    assert not cluster._requests.relist_needed.is_set()
