"""The cache: every event of list and watch leads to the same values, and each change is reported once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tracemalloc
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from signer.kube.client import JsonObject, Parameters
from signer.kube.errors import Cause, Forbidden, ResourceNotServed, Unreachable
from signer.kube.watch import list_and_watch
from signer.store import cache as cache_module
from signer.store.cache import Cache, InTouch, ObjectKey, OutOfTouch, object_key
from signer.store.event_history import GONE, ObservedEvent, Order
from tests.unit.signer.store.silent_watch import SilentWatch


def manifest(name: str, value: Any = 0, version: str = "1") -> dict[str, Any]:
    return {"metadata": {"namespace": "ns", "name": name, "resourceVersion": version}, "spec": value}


def parse(item: dict[str, Any]) -> int:
    value = item["spec"]
    if not isinstance(value, int):
        raise ValueError("no number")
    return value


class Told:
    """Records the changes that a cache reports."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, int | None, int | None]] = []
        self.at = 100.0
        self.cache: Cache[int] = Cache("numbers", parse, self, monotonic=lambda: self.at)

    def __call__(self, key: ObjectKey, before: int | None, after: int | None) -> None:
        self.changes.append((key[1], before, after))


def test_it_is_filled_by_the_first_list_only() -> None:
    cache = Told().cache
    cache.applied(manifest("a"))
    assert not cache.filled.is_set()
    cache.replaced([])
    assert cache.filled.is_set()
    assert len(cache) == 0


def test_life_of_an_object() -> None:
    told = Told()
    told.cache.replaced([manifest("a", 1)])
    told.cache.applied(manifest("a", 2, "2"))
    assert told.cache.get("ns", "a") == 2
    assert list(told.cache.values()) == [2]
    told.cache.removed(manifest("a", 2, "3"))
    assert told.cache.get("ns", "a") is None
    assert told.changes == [("a", None, 1), ("a", 1, 2), ("a", 2, None)]


def test_a_new_list_drops_what_it_lacks() -> None:
    told = Told()
    told.cache.replaced([manifest("a", 1), manifest("b", 1)])
    told.cache.replaced([manifest("b", 1), manifest("c", 1)])
    assert sorted(name for name in "abc" if told.cache.get("ns", name)) == ["b", "c"]
    assert ("a", 1, None) in told.changes


def test_names_of_other_namespaces_differ() -> None:
    cache = Told().cache
    cache.applied(manifest("a", 1))
    assert cache.get("other", "a") is None


def test_an_own_write_is_cached_at_once_and_reported_once() -> None:
    told = Told()
    assert told.cache.written(manifest("a", 7)) == 7
    told.cache.applied(manifest("a", 7))  # the watch delivers it too
    assert told.changes == [("a", None, 7)]


def test_an_own_deletion_is_cached_at_once() -> None:
    told = Told()
    told.cache.applied(manifest("a", 7))
    told.cache.forget("ns", "a")
    told.cache.forget("ns", "a")
    assert told.cache.get("ns", "a") is None
    assert told.changes == [("a", None, 7), ("a", 7, None)]


def test_re_created_after_own_deletion() -> None:
    cache = Told().cache
    cache.applied(manifest("a", 7))
    cache.forget("ns", "a")
    cache.applied(manifest("a", 7))
    assert cache.get("ns", "a") == 7


def test_a_late_response_does_not_restore_a_deleted_object() -> None:
    """It would never be removed again: a record that an operator deleted would deny its node name until a restart."""
    told = Told()
    cache = told.cache
    before = manifest("a", 7)
    before["metadata"]["uid"] = "uid-1"
    cache.applied(before)
    cache.removed(before)
    assert cache.written(before) is None
    assert cache.get("ns", "a") is None
    assert told.changes == [("a", None, 7), ("a", 7, None)]
    again = manifest("a", 8, "2")
    again["metadata"]["uid"] = "uid-2"
    assert cache.written(again) == cache.get("ns", "a") == 8


async def test_followers_receive_only_watch_events() -> None:
    cache = Told().cache
    cache.replaced([])
    with cache.event_histories.follow([("ns", "a")]) as event_history:
        cache.written(manifest("a", 1))
        cache.applied(manifest("a", 1))
        cache.written(manifest("a", 3, "3"))
        cache.applied(manifest("b", 2, "2"))
        cache.forget("ns", "a")
        cache.applied(manifest("a", 3, "3"))
        cache.removed(manifest("a", 3, "4"))
        life: list[ObservedEvent] = [(("ns", "a"), "1"), (("ns", "a"), "3"), (("ns", "a"), GONE)]
        assert await event_history.expect(life, 0) is Order.EXACTLY
        cache.replaced([])
        assert await event_history.expect(life, 0) is Order.OTHERWISE


def test_the_number_of_remembered_deletions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "_REMEMBERED_DELETIONS", 2)
    cache = Told().cache
    for number in range(3):
        gone = manifest("a", version=str(number))
        gone["metadata"]["uid"] = f"uid-{number}"
        cache.removed(gone)
    assert list(cache._gone) == ["uid-1", "uid-2"]


def test_unreadable_object_is_left_out_and_replaces_the_readable_one(caplog: pytest.LogCaptureFixture) -> None:
    told = Told()
    told.cache.applied(manifest("a", 1))
    with caplog.at_level(logging.WARNING):
        assert told.cache.written(manifest("a", "garbage", "2")) is None
    assert told.cache.get("ns", "a") is None
    assert told.changes[-1] == ("a", 1, None)
    assert [record.getMessage() for record in caplog.records] == ["ignored an object that cannot be read"]
    told.cache.applied(manifest("a", 3, "3"))
    assert told.cache.get("ns", "a") == 3


def test_failure_is_logged_and_keeps_the_values(caplog: pytest.LogCaptureFixture) -> None:
    cache = Told().cache
    cache.replaced([manifest("a", 1)])
    with caplog.at_level(logging.WARNING):
        cache.failed(Unreachable("no route", cause=Cause.NETWORK), 2.04)
    assert cache.get("ns", "a") == 1
    assert vars(caplog.records[0])["retryInSeconds"] == 2.0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("identityreservations", "404: apply what `node-attestation-controller crds` prints"),
        ("machines", "404"),  # which Cluster API defines
    ],
)
def test_a_missing_definition_is_logged_with_what_to_do(name: str, said: str, caplog: pytest.LogCaptureFixture) -> None:
    cache: Cache[int] = Cache(name, parse)
    cache.failed(ResourceNotServed("404", status=404), 1.0)
    assert vars(caplog.records[0])["error"] == f"{ResourceNotServed('404', status=404)}{said.removeprefix('404')}"


def out_of_touch(told: Told) -> None:
    """List and watch fail, twice, three seconds apart."""
    told.cache.failed(Unreachable("no route", cause=Cause.NETWORK), 1.0)
    told.at += 3
    told.cache.failed(Forbidden("forbidden", status=403), 1.0)


def test_it_is_out_of_touch_since_the_first_consecutive_failure() -> None:
    told = Told()
    assert told.cache.touch() == InTouch()
    told.cache.replaced([manifest("a", 1)])
    told.at += 1000  # silence is no failure
    assert told.cache.touch() == InTouch()
    out_of_touch(told)
    told.at += 4
    touch = told.cache.touch()
    assert isinstance(touch, OutOfTouch)
    assert (touch.seconds, type(touch.error)) == (7.0, Forbidden)


@pytest.mark.parametrize(
    "happens",
    [
        lambda cache: cache.replaced([]),
        lambda cache: cache.applied(manifest("a", 2, "2")),
        lambda cache: cache.applied(manifest("a", 1)),
        lambda cache: cache.removed(manifest("a", 1)),
        lambda cache: cache.synced(),
        lambda cache: cache.established(),
    ],
    ids=["list", "event", "own write", "deletion", "bookmark", "a watch that stands"],
)
def test_what_puts_it_in_touch_again(happens: Callable[[Cache[int]], None]) -> None:
    told = Told()
    told.cache.replaced([manifest("a", 1)])
    out_of_touch(told)
    happens(told.cache)
    assert told.cache.touch() == InTouch()
    told.at += 50
    out_of_touch(told)
    touch = told.cache.touch()
    assert isinstance(touch, OutOfTouch)
    assert touch.seconds == 3.0


def test_calls_that_work_do_not_hide_a_watch_that_does_not() -> None:
    told = Told()
    out_of_touch(told)
    told.cache.written(manifest("a", 1))
    told.cache.forget("ns", "a")
    assert isinstance(told.cache.touch(), OutOfTouch)


@pytest.mark.parametrize("item", [{}, {"metadata": None}, {"metadata": []}])
def test_object_without_metadata_has_an_empty_key(item: dict[str, Any]) -> None:
    assert object_key(item) == ("", "")


# Lists, page by page


def cut(cache: Cache[int], *items: dict[str, Any]) -> list[dict[str, Any]]:
    return [item for item in items if cache.parse_list_item(item)]


def test_only_parsed_values_of_a_list_are_held() -> None:
    told = Told()
    (held,) = cut(told.cache, {**manifest("a", 1), "status": "secret" * 1000})
    assert "secret" not in repr(held)
    assert told.cache.get("ns", "a") is None  # nothing counts before the list is complete
    told.cache.replaced([held])
    assert told.changes == [("a", None, 1)]
    told.cache.applied(manifest("a", 2))
    assert told.cache.get("ns", "a") == 1  # its version is known


def test_an_unreadable_object_is_cut_down_too(caplog: pytest.LogCaptureFixture) -> None:
    told = Told()
    told.cache.replaced([manifest("a", 1)])
    with caplog.at_level(logging.WARNING):
        listed = cut(told.cache, manifest("a", "secret" * 1000, "2"), manifest("b", 1))
        assert caplog.records == []
        assert "secret" not in repr(listed)
        told.cache.replaced(listed)
        told.cache.replaced(cut(told.cache, manifest("a", "secret" * 1000, "2"), manifest("b", 1)))
    assert told.cache.get("ns", "a") is None
    assert told.cache.get("ns", "b") == 1
    assert [vars(record)["error"] for record in caplog.records] == ["no number"]


def test_a_known_version_is_not_parsed_again() -> None:
    told, parsed = Told(), []

    def counting(item: dict[str, Any]) -> int:
        parsed.append(item["metadata"]["name"])
        return parse(item)

    told.cache = Cache("numbers", counting, told)
    for _ in range(2):
        told.cache.replaced(cut(told.cache, manifest("a", 1), manifest("b", 2)))
    assert parsed == ["a", "b"]
    assert told.changes == [("a", None, 1), ("b", None, 2)]


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_change_while_a_list_arrives(is_cut: bool) -> None:
    """The list decides, because the watch that follows begins there, whether it was cut down or not."""
    told = Told()
    told.cache.replaced([manifest("a", 1), manifest("b", 1)])
    items = [manifest("a", 1), manifest("b", 1), manifest("c", 1)]
    listed = cut(told.cache, *items) if is_cut else items
    told.cache.written(manifest("a", 7, "9"))
    told.cache.forget("ns", "b")
    told.cache.written(manifest("c", 7, "9"))
    told.cache.replaced(listed)
    assert [told.cache.get("ns", name) for name in "abc"] == [1, 1, 1]


def test_no_server_can_inject_a_parse_result() -> None:
    cache = Told().cache
    cache.applied({**manifest("a", 1), "read": {"value": 7}})
    assert cache.get("ns", "a") == 1


class LargePages(SilentWatch):
    """A source whose list has ten pages of a megabyte each, and then a silent watch."""

    async def list_pages(
        self, path: str, params: Parameters | None = None, limit: int = 500, **options: Any
    ) -> AsyncGenerator[JsonObject, None]:
        for number in range(10):
            items = [{**manifest(f"{number}-{index}", 1), "status": f"{index}" * 100_000} for index in range(10)]
            yield {"metadata": {"resourceVersion": "1"}, "items": items}


async def test_a_large_list_is_never_held_whole() -> None:
    """Tenants write the objects, and all clusters share the controller's memory."""
    cache = Told().cache
    tracemalloc.start()
    try:
        watching = asyncio.create_task(list_and_watch(LargePages(), "/x", sink=cache, keep=cache.parse_list_item))
        await cache.filled.wait()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    assert len(cache) == 100
    assert peak < 4_000_000


@pytest.mark.parametrize(
    "well",
    [
        lambda cache: cache.replaced([]),
        lambda cache: cache.synced(),
        lambda cache: cache.established(),
        lambda cache: cache.applied(manifest("a", 1)),
        lambda cache: cache.removed(manifest("a", 1, "2")),
    ],
    ids=["list", "bookmark", "established", "applied", "removed"],
)
def test_recovery_is_reported_once(well: Callable[[Cache[int]], None]) -> None:
    told: list[str] = []
    cache: Cache[int] = Cache("numbers", parse, in_touch_again=lambda: told.append("again"))
    well(cache)
    cache.failed(Forbidden("403", status=403), 1.0)
    cache.failed(Forbidden("403", status=403), 1.0)
    assert told == []
    well(cache)
    well(cache)
    assert told == ["again"]


def test_it_is_in_touch_when_it_reports_recovery() -> None:
    touch: list[InTouch | OutOfTouch] = []
    cache: Cache[int] = Cache("numbers", parse, in_touch_again=lambda: touch.append(cache.touch()))
    cache.failed(Forbidden("403", status=403), 1.0)
    cache.synced()
    assert touch == [InTouch()]
