"""A relist recovers overflowed requests, while the watch has the newer state."""

from __future__ import annotations

import asyncio
import itertools
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from signer.controller.requests import informer as informer_module
from signer.controller.requests import pending as pending_module
from signer.controller.requests.informer import ListOvertaken, Relist, RequestInformer
from signer.kube import scheduling as cooperative_yield
from signer.kube.client import JsonObject
from signer.kube.errors import Gone, UnexpectedAnswer
from signer.model.flow import Flow, PriorityLevel
from tests.unit.signer.controller.requests.handling_fixtures import handler_with
from tests.unit.signer.requests import APPROVED, csr

KEPT = 4


class FakeDecider:
    """A fake decider: every request is plausible, and none is decided."""

    def peek(self, manifest: JsonObject) -> Flow:
        return Flow(PriorityLevel.PLAUSIBLE, "system:bootstrap:abcdef")

    pre_filter = peek


@pytest.fixture
async def informer(monkeypatch: pytest.MonkeyPatch) -> RequestInformer:
    """Four requests are kept; ``csr-4`` and ``csr-5`` overflowed."""
    monkeypatch.setattr(pending_module, "MAXIMUM_REQUESTS", KEPT)
    made = handler_with(FakeDecider()).informer
    for number in range(KEPT + 2):
        made.applied(numbered(number))
    assert made.pending.overflow
    return made


def numbered(number: int, **changes: Any) -> JsonObject:
    manifest: JsonObject = csr(f"csr-{number}", f"uid-{number}", **changes)
    return manifest


def names(informer: RequestInformer) -> list[str]:
    return sorted(informer.pending)


async def pages(*listed: list[Any], before: Callable[[int], object] = lambda page: None) -> AsyncIterator[JsonObject]:
    """Pages, with ``before`` called while a page is awaited."""
    for number, items in enumerate(listed):
        before(number)
        yield {"items": items}


class Forgotten(dict[str, Any]):
    """An object whose deletion can be observed."""


async def test_a_processed_page_holds_no_memory(informer: RequestInformer) -> None:
    """A hostile API server may send the largest possible page and delay the next."""
    left: list[object] = []

    async def slow() -> AsyncIterator[JsonObject]:
        for number in range(2):
            page = Forgotten(items=[Forgotten(numbered(KEPT + number))])
            about = weakref.ref(page), weakref.ref(page["items"][0])
            yield page
            del page
            left.extend(reference() for reference in about)

    await informer.add_overflow(slow())
    assert left == [None] * 4


async def test_overflowed_requests_are_added(informer: RequestInformer) -> None:
    for number in (0, 1, 2):
        informer.removed(numbered(number))
    await informer.add_overflow(pages([numbered(3), numbered(4)], [numbered(5)]))
    assert names(informer) == ["csr-3", "csr-4", "csr-5"]
    assert not informer.pending.overflow
    assert len(informer.queue) == 3
    informer.applied(numbered(6))
    assert not informer._relist._observed, "nothing is remembered any more"


async def test_requests_that_still_do_not_fit_overflow_again(informer: RequestInformer) -> None:
    informer.removed(numbered(0))
    await informer.add_overflow(pages([numbered(number) for number in range(1, 6)]))
    assert names(informer) == ["csr-1", "csr-2", "csr-3", "csr-4"]
    assert informer.pending.overflow


async def test_overflow_of_the_watch_during_a_relist_is_remembered(informer: RequestInformer) -> None:
    informer.removed(numbered(0))
    await informer.add_overflow(
        pages([numbered(4)], [], before=lambda page: informer.applied(numbered(6)) if page else None)
    )
    assert names(informer) == ["csr-1", "csr-2", "csr-3", "csr-4"]
    assert informer.pending.overflow


async def test_kept_requests_are_not_replaced(informer: RequestInformer) -> None:
    informer.removed(numbered(0))
    kept = informer.pending.get("csr-1")
    await informer.add_overflow(pages([numbered(1, labels={"older": "yes"}), numbered(4)]))
    assert informer.pending.get("csr-1") == kept
    assert "csr-4" in informer.pending


@pytest.mark.parametrize("gone_at", [0, 1], ids=["before its page", "behind its page"])
async def test_requests_that_the_watch_removed_are_not_added(informer: RequestInformer, gone_at: int) -> None:
    """No further event would report it."""
    informer.removed(numbered(0))
    listed = pages([numbered(4)], [], before=lambda page: informer.removed(numbered(4)) if page == gone_at else None)
    await informer.add_overflow(listed)
    assert "csr-4" not in informer.pending


async def test_requests_that_the_watch_settled_are_not_added(informer: RequestInformer) -> None:
    informer.removed(numbered(0))
    denied = numbered(4, status={"conditions": [{**APPROVED, "type": "Denied"}]})
    await informer.add_overflow(pages([numbered(4)], before=lambda page: informer.applied(denied)))
    assert "csr-4" not in informer.pending


async def test_requests_that_we_settled_are_not_added(informer: RequestInformer) -> None:
    informer.removed(numbered(0))
    informer.pending.mark_settled(numbered(4))
    await informer.add_overflow(pages([numbered(4), numbered(5)]))
    assert names(informer) == ["csr-1", "csr-2", "csr-3", "csr-5"]


async def test_a_restarted_watch_expires_the_relist(informer: RequestInformer) -> None:
    def anew(page: int) -> None:
        if page == 1:
            informer.pending.begin_list()
            listed = [numbered(number) for number in (3, 6, 7, 8, 9)]
            informer.replaced([one for one in listed if informer.pending.add_listed(one)])

    informer.removed(numbered(0))
    with pytest.raises(ListOvertaken):
        await informer.add_overflow(pages([], [], [numbered(5)], before=anew))
    assert names(informer) == ["csr-3", "csr-6", "csr-7", "csr-8"]
    assert informer.pending.overflow, "of the watch's own list"


async def test_a_restarted_watch_expires_the_relist_after_the_last_page(informer: RequestInformer) -> None:
    def anew(page: int) -> None:
        informer.pending.begin_list()
        listed = [numbered(number) for number in (3, 6, 7, 8, 9)]
        informer.replaced([one for one in listed if informer.pending.add_listed(one)])

    with pytest.raises(ListOvertaken):
        await informer.add_overflow(pages([], before=anew))
    assert informer.pending.overflow


async def test_a_failed_relist_keeps_the_overflow(informer: RequestInformer) -> None:
    def expired(page: int) -> None:
        if page == 1:
            raise Gone("the continue token is too old", status=410)

    for number in range(KEPT):
        informer.removed(numbered(number))
    with pytest.raises(Gone):
        await informer.add_overflow(pages([numbered(4)], [], before=expired))
    assert names(informer) == ["csr-4"]
    assert informer.pending.overflow


async def test_an_item_that_is_not_an_object(informer: RequestInformer) -> None:
    with pytest.raises(UnexpectedAnswer):
        await informer.add_overflow(pages([numbered(4), "text"]))
    assert informer.pending.overflow


async def test_adding_a_page_yields_to_other_tasks(informer: RequestInformer, monkeypatch: pytest.MonkeyPatch) -> None:
    """An item may take long, because many others may have to be pre-filtered for it."""
    for number in range(KEPT):
        informer.removed(numbered(number))
    monkeypatch.setattr(pending_module, "MAXIMUM_REQUESTS", 100)
    monkeypatch.setattr(cooperative_yield, "SLICE_SECONDS", -1.0)
    kept: list[int] = []

    async def count() -> None:
        while True:
            kept.append(len(informer.pending))
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await informer.add_overflow(pages([numbered(number) for number in range(50)]))
    counting.cancel()
    assert max(later - earlier for earlier, later in itertools.pairwise(kept)) == 1


def test_too_many_observed_names_expire_the_relist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informer_module, "MAXIMUM_OBSERVED", 2)
    relist = Relist()
    relist.observe("a")
    relist.observe("b")
    assert (relist.is_newest("a"), relist.is_newest("c")) == (False, True)
    relist.observe("c")
    with pytest.raises(ListOvertaken):
        relist.is_newest("d")


def test_without_a_relist_nothing_is_observed() -> None:
    relist = Relist(overtaken=True)
    relist.observe("a")
    assert not relist._observed
