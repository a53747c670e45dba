"""The mirror: every event of list and watch ends in the same values, and each change is told once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tracemalloc
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from signer.kube.client import JsonObject, Parameters
from signer.kube.errors import Cause, Forbidden, Unreachable
from signer.kube.watch import list_and_watch
from signer.store import cache as mirror_module
from signer.store.cache import InTouch, Mirror, ObjectKey, OutOfTouch, object_key
from signer.store.event_history import GONE, Heard, Order


def manifest(name: str, value: Any = 0, version: str = "1") -> dict[str, Any]:
    return {"metadata": {"namespace": "ns", "name": name, "resourceVersion": version}, "spec": value}


def parse(item: dict[str, Any]) -> int:
    value = item["spec"]
    if not isinstance(value, int):
        raise ValueError("no number")
    return value


class Told:
    """What a mirror tells of changes."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, int | None, int | None]] = []
        self.at = 100.0
        self.mirror: Mirror[int] = Mirror("numbers", parse, self, monotonic=lambda: self.at)

    def __call__(self, key: ObjectKey, before: int | None, after: int | None) -> None:
        self.changes.append((key[1], before, after))


def test_it_is_filled_by_the_first_list_only() -> None:
    mirror = Told().mirror
    mirror.applied(manifest("a"))
    assert not mirror.filled.is_set()
    mirror.replaced([])
    assert mirror.filled.is_set()
    assert len(mirror) == 0


def test_life_of_an_object() -> None:
    told = Told()
    told.mirror.replaced([manifest("a", 1)])
    told.mirror.applied(manifest("a", 2, "2"))
    assert told.mirror.get("ns", "a") == 2
    assert list(told.mirror.values()) == [2]
    told.mirror.removed(manifest("a", 2, "3"))
    assert told.mirror.get("ns", "a") is None
    assert told.changes == [("a", None, 1), ("a", 1, 2), ("a", 2, None)]


def test_a_new_list_drops_what_it_lacks() -> None:
    told = Told()
    told.mirror.replaced([manifest("a", 1), manifest("b", 1)])
    told.mirror.replaced([manifest("b", 1), manifest("c", 1)])
    assert sorted(name for name in "abc" if told.mirror.get("ns", name)) == ["b", "c"]
    assert ("a", 1, None) in told.changes


def test_names_of_other_namespaces_differ() -> None:
    mirror = Told().mirror
    mirror.applied(manifest("a", 1))
    assert mirror.get("other", "a") is None


def test_own_write_is_there_at_once_and_told_once() -> None:
    told = Told()
    assert told.mirror.written(manifest("a", 7)) == 7
    told.mirror.applied(manifest("a", 7))  # the watch brings it back
    assert told.changes == [("a", None, 7)]


def test_own_deletion_is_there_at_once() -> None:
    told = Told()
    told.mirror.applied(manifest("a", 7))
    told.mirror.forget("ns", "a")
    told.mirror.forget("ns", "a")
    assert told.mirror.get("ns", "a") is None
    assert told.changes == [("a", None, 7), ("a", 7, None)]


def test_re_created_after_own_deletion() -> None:
    mirror = Told().mirror
    mirror.applied(manifest("a", 7))
    mirror.forget("ns", "a")
    mirror.applied(manifest("a", 7))
    assert mirror.get("ns", "a") == 7


def test_an_answer_that_is_late_brings_nothing_back() -> None:
    """Nobody would ever take it away again: a record that people deleted would deny its node name until a restart."""
    told = Told()
    mirror = told.mirror
    before = manifest("a", 7)
    before["metadata"]["uid"] = "uid-1"
    mirror.applied(before)
    mirror.removed(before)
    assert mirror.written(before) is None
    assert mirror.get("ns", "a") is None
    assert told.changes == [("a", None, 7), ("a", 7, None)]
    again = manifest("a", 8, "2")
    again["metadata"]["uid"] = "uid-2"
    assert mirror.written(again) == mirror.get("ns", "a") == 8


async def test_only_what_the_watch_says_is_told_to_followers() -> None:
    mirror = Told().mirror
    mirror.replaced([])
    with mirror.followers.follow([("ns", "a")]) as following:
        mirror.written(manifest("a", 1))
        mirror.applied(manifest("a", 1))
        mirror.written(manifest("a", 3, "3"))
        mirror.applied(manifest("b", 2, "2"))
        mirror.forget("ns", "a")
        mirror.applied(manifest("a", 3, "3"))
        mirror.removed(manifest("a", 3, "4"))
        life: list[Heard] = [(("ns", "a"), "1"), (("ns", "a"), "3"), (("ns", "a"), GONE)]
        assert await following.expect(life, 0) is Order.EXACTLY
        mirror.replaced([])
        assert await following.expect(life, 0) is Order.OTHERWISE


def test_few_of_those_that_are_gone_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_module, "_REMEMBERED_GONE", 2)
    mirror = Told().mirror
    for number in range(3):
        gone = manifest("a", version=str(number))
        gone["metadata"]["uid"] = f"uid-{number}"
        mirror.removed(gone)
    assert list(mirror._gone) == ["uid-1", "uid-2"]


def test_unreadable_object_is_left_out_and_replaces_the_readable_one(caplog: pytest.LogCaptureFixture) -> None:
    told = Told()
    told.mirror.applied(manifest("a", 1))
    with caplog.at_level(logging.WARNING):
        assert told.mirror.written(manifest("a", "garbage", "2")) is None
    assert told.mirror.get("ns", "a") is None
    assert told.changes[-1] == ("a", 1, None)
    assert [record.getMessage() for record in caplog.records] == ["ignored an object that cannot be read"]
    told.mirror.applied(manifest("a", 3, "3"))
    assert told.mirror.get("ns", "a") == 3


def test_failure_is_logged_and_keeps_the_values(caplog: pytest.LogCaptureFixture) -> None:
    mirror = Told().mirror
    mirror.replaced([manifest("a", 1)])
    with caplog.at_level(logging.WARNING):
        mirror.failed(Unreachable("no route", cause=Cause.NETWORK), 2.04)
    assert mirror.get("ns", "a") == 1
    assert vars(caplog.records[0])["retryInSeconds"] == 2.0


def out_of_touch(told: Told) -> None:
    """List and watch fail, twice, three seconds apart."""
    told.mirror.failed(Unreachable("no route", cause=Cause.NETWORK), 1.0)
    told.at += 3
    told.mirror.failed(Forbidden("forbidden", status=403), 1.0)


def test_it_is_out_of_touch_since_the_first_failure_in_a_row() -> None:
    told = Told()
    assert told.mirror.touch() == InTouch()
    told.mirror.replaced([manifest("a", 1)])
    told.at += 1000  # silence is no failure
    assert told.mirror.touch() == InTouch()
    out_of_touch(told)
    told.at += 4
    touch = told.mirror.touch()
    assert isinstance(touch, OutOfTouch)
    assert (touch.seconds, type(touch.error)) == (7.0, Forbidden)


@pytest.mark.parametrize(
    "happens",
    [
        lambda mirror: mirror.replaced([]),
        lambda mirror: mirror.applied(manifest("a", 2, "2")),
        lambda mirror: mirror.applied(manifest("a", 1)),
        lambda mirror: mirror.removed(manifest("a", 1)),
        lambda mirror: mirror.synced(),
        lambda mirror: mirror.standing(),
    ],
    ids=["list", "event", "own write", "deletion", "bookmark", "a watch that stands"],
)
def test_what_puts_it_in_touch_again(happens: Callable[[Mirror[int]], None]) -> None:
    told = Told()
    told.mirror.replaced([manifest("a", 1)])
    out_of_touch(told)
    happens(told.mirror)
    assert told.mirror.touch() == InTouch()
    told.at += 50
    out_of_touch(told)
    touch = told.mirror.touch()
    assert isinstance(touch, OutOfTouch)
    assert touch.seconds == 3.0


def test_calls_that_work_do_not_hide_a_watch_that_does_not() -> None:
    told = Told()
    out_of_touch(told)
    told.mirror.written(manifest("a", 1))
    told.mirror.forget("ns", "a")
    assert isinstance(told.mirror.touch(), OutOfTouch)


@pytest.mark.parametrize("item", [{}, {"metadata": None}, {"metadata": []}])
def test_object_without_metadata_has_an_empty_key(item: dict[str, Any]) -> None:
    assert object_key(item) == ("", "")


# Lists, page by page


def cut(mirror: Mirror[int], *items: dict[str, Any]) -> list[dict[str, Any]]:
    return [item for item in items if mirror.holds_of_list(item)]


def test_of_a_list_only_what_was_parsed_is_held() -> None:
    told = Told()
    (held,) = cut(told.mirror, {**manifest("a", 1), "status": "secret" * 1000})
    assert "secret" not in repr(held)
    assert told.mirror.get("ns", "a") is None  # nothing counts before the list is whole
    told.mirror.replaced([held])
    assert told.changes == [("a", None, 1)]
    told.mirror.applied(manifest("a", 2))
    assert told.mirror.get("ns", "a") == 1  # it is known which version that was


def test_an_object_that_cannot_be_read_is_cut_down_too(caplog: pytest.LogCaptureFixture) -> None:
    told = Told()
    told.mirror.replaced([manifest("a", 1)])
    with caplog.at_level(logging.WARNING):
        listed = cut(told.mirror, manifest("a", "secret" * 1000, "2"), manifest("b", 1))
        assert caplog.records == []
        assert "secret" not in repr(listed)
        told.mirror.replaced(listed)
        told.mirror.replaced(cut(told.mirror, manifest("a", "secret" * 1000, "2"), manifest("b", 1)))
    assert told.mirror.get("ns", "a") is None
    assert told.mirror.get("ns", "b") == 1
    assert [vars(record)["error"] for record in caplog.records] == ["no number"]


def test_what_is_known_already_is_not_parsed_again() -> None:
    told, parsed = Told(), []

    def counting(item: dict[str, Any]) -> int:
        parsed.append(item["metadata"]["name"])
        return parse(item)

    told.mirror = Mirror("numbers", counting, told)
    for _ in range(2):
        told.mirror.replaced(cut(told.mirror, manifest("a", 1), manifest("b", 2)))
    assert parsed == ["a", "b"]
    assert told.changes == [("a", None, 1), ("b", None, 2)]


@pytest.mark.parametrize("is_cut", [False, True])
def test_what_changes_while_a_list_arrives(is_cut: bool) -> None:
    """The list has the last word, as the watch that follows begins there; whether it was cut down or not."""
    told = Told()
    told.mirror.replaced([manifest("a", 1), manifest("b", 1)])
    items = [manifest("a", 1), manifest("b", 1), manifest("c", 1)]
    listed = cut(told.mirror, *items) if is_cut else items
    told.mirror.written(manifest("a", 7, "9"))
    told.mirror.forget("ns", "b")
    told.mirror.written(manifest("c", 7, "9"))
    told.mirror.replaced(listed)
    assert [told.mirror.get("ns", name) for name in "abc"] == [1, 1, 1]


def test_no_server_can_say_what_was_parsed() -> None:
    mirror = Told().mirror
    mirror.applied({**manifest("a", 1), "read": {"value": 7}})
    assert mirror.get("ns", "a") == 1


class LargePages:
    """A source whose list has ten pages of a megabyte each, and then a watch that says nothing."""

    async def list_pages(
        self, path: str, params: Parameters | None = None, limit: int = 500
    ) -> AsyncGenerator[JsonObject, None]:
        for number in range(10):
            items = [{**manifest(f"{number}-{index}", 1), "status": f"{index}" * 100_000} for index in range(10)]
            yield {"metadata": {"resourceVersion": "1"}, "items": items}

    async def watch(
        self,
        path: str,
        params: Parameters | None = None,
        *,
        timeout_seconds: float,
        accepted: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[JsonObject, None]:
        await asyncio.Event().wait()
        yield {}


async def test_a_large_list_is_never_held_whole() -> None:
    """Tenants write the objects, and the controller's memory is everybody's."""
    mirror = Told().mirror
    tracemalloc.start()
    try:
        watching = asyncio.create_task(list_and_watch(LargePages(), "/x", sink=mirror, keep=mirror.holds_of_list))
        await mirror.filled.wait()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    assert len(mirror) == 100
    assert peak < 4_000_000


@pytest.mark.parametrize(
    "well",
    [
        lambda mirror: mirror.replaced([]),
        lambda mirror: mirror.synced(),
        lambda mirror: mirror.standing(),
        lambda mirror: mirror.applied(manifest("a", 1)),
        lambda mirror: mirror.removed(manifest("a", 1, "2")),
    ],
    ids=["list", "bookmark", "standing", "applied", "removed"],
)
def test_that_it_works_again_is_told_once(well: Callable[[Mirror[int]], None]) -> None:
    told: list[str] = []
    mirror: Mirror[int] = Mirror("numbers", parse, in_touch_again=lambda: told.append("again"))
    well(mirror)
    mirror.failed(Forbidden("403", status=403), 1.0)
    mirror.failed(Forbidden("403", status=403), 1.0)
    assert told == []
    well(mirror)
    well(mirror)
    assert told == ["again"]


def test_it_is_in_touch_when_it_says_so() -> None:
    touch: list[InTouch | OutOfTouch] = []
    mirror: Mirror[int] = Mirror("numbers", parse, in_touch_again=lambda: touch.append(mirror.touch()))
    mirror.failed(Forbidden("403", status=403), 1.0)
    mirror.synced()
    assert touch == [InTouch()]
