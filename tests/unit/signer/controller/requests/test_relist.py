"""Requests that were left out are found again in a list beside the watch, which knows what is newer."""

from __future__ import annotations

import asyncio
import itertools
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from signer.controller.requests import pending as pending_module
from signer.controller.requests import relist as list_beside_module
from signer.controller.requests.informer import RequestInformer
from signer.controller.requests.relist import ListOvertaken, Relist
from signer.kube import scheduling as cooperative_yield
from signer.kube.client import JsonObject
from signer.kube.errors import Gone, UnexpectedAnswer
from signer.model.flow import Flow, PriorityLevel
from tests.unit.signer.controller.requests.handling_fixtures import handling_by
from tests.unit.signer.requests import APPROVED, csr

KEPT = 4


class Judge:
    """Stands for the adjudicator: everything is plausible, and nothing is judged here."""

    def peek(self, manifest: JsonObject) -> Flow:
        return Flow(PriorityLevel.PLAUSIBLE, "system:bootstrap:abcdef")

    pre_filter = peek


@pytest.fixture
async def informer(monkeypatch: pytest.MonkeyPatch) -> RequestInformer:
    """Four are kept; ``csr-4`` and ``csr-5`` were left out."""
    monkeypatch.setattr(pending_module, "MAXIMUM_REQUESTS", KEPT)
    made = handling_by(Judge()).informer
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
    """``before`` happens while a page is waited for."""
    for number, items in enumerate(listed):
        before(number)
        yield {"items": items}


class Forgotten(dict[str, Any]):
    """One that can be seen to be gone."""


async def test_of_a_page_nothing_is_held_while_the_next_is_waited_for(informer: RequestInformer) -> None:
    """A hostile API server makes it as large as it may be, and then takes its time."""
    left: list[object] = []

    async def slow() -> AsyncIterator[JsonObject]:
        for number in range(2):
            page = Forgotten(items=[Forgotten(numbered(KEPT + number))])
            about = weakref.ref(page), weakref.ref(page["items"][0])
            yield page
            del page
            left.extend(reference() for reference in about)

    await informer.keep_overflow(slow())
    assert left == [None] * 4


async def test_what_was_left_out_is_kept(informer: RequestInformer) -> None:
    for number in (0, 1, 2):
        informer.removed(numbered(number))
    await informer.keep_overflow(pages([numbered(3), numbered(4)], [numbered(5)]))
    assert names(informer) == ["csr-3", "csr-4", "csr-5"]
    assert not informer.pending.overflow
    assert len(informer.queue) == 3
    informer.applied(numbered(6))
    assert not informer._beside._told, "nothing is remembered any more"


async def test_what_does_not_fit_is_left_out_again(informer: RequestInformer) -> None:
    informer.removed(numbered(0))
    await informer.keep_overflow(pages([numbered(number) for number in range(1, 6)]))
    assert names(informer) == ["csr-1", "csr-2", "csr-3", "csr-4"]
    assert informer.pending.overflow


async def test_what_is_left_out_of_the_watch_meanwhile_is_not_forgotten(informer: RequestInformer) -> None:
    informer.removed(numbered(0))
    await informer.keep_overflow(
        pages([numbered(4)], [], before=lambda page: informer.applied(numbered(6)) if page else None)
    )
    assert names(informer) == ["csr-1", "csr-2", "csr-3", "csr-4"]
    assert informer.pending.overflow


async def test_what_is_kept_stays_as_it_is(informer: RequestInformer) -> None:
    informer.removed(numbered(0))
    kept = informer.pending.get("csr-1")
    await informer.keep_overflow(pages([numbered(1, labels={"older": "yes"}), numbered(4)]))
    assert informer.pending.get("csr-1") == kept
    assert "csr-4" in informer.pending


@pytest.mark.parametrize("gone_at", [0, 1], ids=["before its page", "behind its page"])
async def test_what_the_watch_says_to_be_gone_is_not_kept(informer: RequestInformer, gone_at: int) -> None:
    """Nobody would ever say so again."""
    informer.removed(numbered(0))
    listed = pages([numbered(4)], [], before=lambda page: informer.removed(numbered(4)) if page == gone_at else None)
    await informer.keep_overflow(listed)
    assert "csr-4" not in informer.pending


async def test_what_the_watch_says_to_be_settled_is_not_kept(informer: RequestInformer) -> None:
    informer.removed(numbered(0))
    denied = numbered(4, status={"conditions": [{**APPROVED, "type": "Denied"}]})
    await informer.keep_overflow(pages([numbered(4)], before=lambda page: informer.applied(denied)))
    assert "csr-4" not in informer.pending


async def test_what_we_have_settled_is_not_kept(informer: RequestInformer) -> None:
    informer.removed(numbered(0))
    informer.pending.settled(numbered(4))
    await informer.keep_overflow(pages([numbered(4), numbered(5)]))
    assert names(informer) == ["csr-1", "csr-2", "csr-3", "csr-5"]


async def test_a_watch_that_begins_anew_knows_better(informer: RequestInformer) -> None:
    def anew(page: int) -> None:
        if page == 1:
            informer.pending.list_begins()
            listed = [numbered(number) for number in (3, 6, 7, 8, 9)]
            informer.replaced([one for one in listed if informer.pending.holds_of_list(one)])

    informer.removed(numbered(0))
    with pytest.raises(ListOvertaken):
        await informer.keep_overflow(pages([], [], [numbered(5)], before=anew))
    assert names(informer) == ["csr-3", "csr-6", "csr-7", "csr-8"]
    assert informer.pending.overflow, "of the watch's own list"


async def test_also_behind_the_last_page(informer: RequestInformer) -> None:
    def anew(page: int) -> None:
        informer.pending.list_begins()
        listed = [numbered(number) for number in (3, 6, 7, 8, 9)]
        informer.replaced([one for one in listed if informer.pending.holds_of_list(one)])

    with pytest.raises(ListOvertaken):
        await informer.keep_overflow(pages([], before=anew))
    assert informer.pending.overflow


async def test_a_list_that_fails_leaves_it_open(informer: RequestInformer) -> None:
    def expired(page: int) -> None:
        if page == 1:
            raise Gone("the continue token is too old", status=410)

    for number in range(KEPT):
        informer.removed(numbered(number))
    with pytest.raises(Gone):
        await informer.keep_overflow(pages([numbered(4)], [], before=expired))
    assert names(informer) == ["csr-4"]
    assert informer.pending.overflow


async def test_an_item_that_is_no_object(informer: RequestInformer) -> None:
    with pytest.raises(UnexpectedAnswer):
        await informer.keep_overflow(pages([numbered(4), "text"]))
    assert informer.pending.overflow


async def test_others_have_their_turns_within_a_page(
    informer: RequestInformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where an item takes long: many others may have to be pre-filtered for it."""
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
    await informer.keep_overflow(pages([numbered(number) for number in range(50)]))
    counting.cancel()
    assert max(later - earlier for earlier, later in itertools.pairwise(kept)) == 1


def test_more_than_can_be_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_beside_module, "MAXIMUM_TOLD", 2)
    beside = Relist()
    beside.tell("a")
    beside.tell("b")
    assert (beside.is_newest("a"), beside.is_newest("c")) == (False, True)
    beside.tell("c")
    with pytest.raises(ListOvertaken):
        beside.is_newest("d")


def test_where_no_list_is_read_nothing_is_remembered() -> None:
    beside = Relist(overtaken=True)
    beside.tell("a")
    assert not beside._told
