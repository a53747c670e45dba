from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from signer.kube import scheduling as cooperative_yield
from signer.kube.client import JsonObject, Parameters
from signer.kube.errors import (
    ApiError,
    Cause,
    Forbidden,
    Gone,
    Invalid,
    ServerError,
    TooManyRequests,
    Unauthorized,
    UnexpectedAnswer,
    Unreachable,
)
from signer.kube.watch import DEFAULT_BACKOFF, STABLE_SECONDS, list_and_watch
from tests.unit.signer.kube.support import run_in_virtual_time
from tests.unit.signer.kube.watching import LEAST_DELAY, Recorder, error_event, event, item, page

PATH = "/api/v1/secrets"


Step = JsonObject | ApiError | float
"""An event or page, an error to raise, or seconds of silence."""


class Stop(Exception):
    """The script has ended."""


class Scripted:
    """A source with scripted responses; each list takes one entry, each watch another."""

    def __init__(self, lists: Sequence[Sequence[Step]], watches: Sequence[Sequence[Step]]) -> None:
        self.lists = list(lists)
        self.watches = list(watches)
        self.log: list[str] = []
        self.limits: list[int] = []
        self.at: list[float] = []
        self.watch_seconds: list[float] = []
        self.idle_seconds: list[float] = []

    async def _play(self, scripts: list[Sequence[Step]], entry: str) -> AsyncGenerator[JsonObject, None]:
        if not scripts:
            raise Stop
        self.log.append(entry)
        self.at.append(asyncio.get_running_loop().time())
        for step in scripts.pop(0):
            if isinstance(step, ApiError):
                raise step
            if isinstance(step, float):
                await asyncio.sleep(step)
            else:
                yield step

    def list_pages(
        self, path: str, params: Parameters | None = None, limit: int = 500, **options: Any
    ) -> AsyncGenerator[JsonObject, None]:
        self.limits.append(limit)
        return self._play(self.lists, "list")

    def watch(
        self,
        path: str,
        params: Parameters | None = None,
        *,
        timeout_seconds: float,
        idle_seconds: float = 0.0,
        accepted: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[JsonObject, None]:
        assert params is not None
        assert params["allowWatchBookmarks"] is True
        self.watch_seconds.append(timeout_seconds)
        self.idle_seconds.append(idle_seconds)
        if self.watches and not (self.watches[0] and isinstance(self.watches[0][0], ApiError)):
            accepted()
        return self._play(self.watches, f"watch {params['resourceVersion']}")


def play(
    lists: Sequence[Sequence[Step]], watches: Sequence[Sequence[Step]], **options: Any
) -> tuple[Scripted, Recorder]:
    """Run the loop in virtual time until the script has ended."""
    source, sink = Scripted(lists, watches), Recorder()

    async def main() -> None:
        with pytest.raises(Stop):
            await list_and_watch(source, PATH, sink=sink, random=Random(7), **options)

    run_in_virtual_time(main())
    return source, sink


def gaps(source: Scripted, of: Callable[[str], bool] = lambda entry: entry.startswith("watch")) -> list[float]:
    times = [at for entry, at in zip(source.log, source.at, strict=True) if of(entry)]
    return [later - earlier for earlier, later in itertools.pairwise(times)]


def test_list_watch_and_watch_again_from_the_last_version() -> None:
    source, sink = play(
        [[page(3, "a"), page(4, "b")]],
        [
            [event("ADDED", "c", 5), event("MODIFIED", "a", 6), event("DELETED", "b", 7), 290.0],
            [event("BOOKMARK", "", 9), 290.0],
            [],
        ],
    )
    assert source.log == ["list", "watch 4", "watch 7", "watch 9"]
    assert sink.calls == [
        ("replaced", ["a", "b"]),
        ("synced", None),
        ("applied", "c"),
        ("applied", "a"),
        ("removed", "b"),
        ("synced", None),
    ]
    assert all(261 <= seconds <= 319 for seconds in source.watch_seconds)
    assert len(set(source.watch_seconds)) == len(source.watch_seconds)


def test_other_tasks_run_while_a_page_is_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooperative_yield, "SLICE_SECONDS", -1.0)
    order: list[str] = []

    def keep(item: JsonObject) -> bool:
        name = item["metadata"]["name"]
        order.append(name)
        asyncio.get_running_loop().call_soon(order.append, f"after {name}")
        return True

    play([[page(3, "a", "b")]], [[]], keep=keep)
    assert order == ["a", "after a", "b", "after b"]


def test_nothing_is_watched_before_a_list_is_settled() -> None:
    async def settle() -> None:
        await asyncio.sleep(7)

    source, sink = play([[page(3, "a")]], [[]], settle=settle)
    assert source.log == ["list", "watch 3"]
    assert gaps(source, of=lambda entry: True) == [7]
    assert sink.calls == [("replaced", ["a"]), ("synced", None)]


SILENT: list[Step] = [120.0, Unreachable("silent", cause=Cause.SILENCE)]
"""What a watch says that is accepted and has neither events nor bookmarks: ``WATCH_IDLE_SECONDS`` of silence."""


@pytest.mark.parametrize(
    ("watch", "log", "failures"),
    [
        (SILENT, ["list", "watch 3", "list", "watch 5"], 0),
        ([119.0, Unreachable("overdue", cause=Cause.TIMEOUT)], ["list", "watch 3", "list", "watch 5"], 1),
        ([event("BOOKMARK", "", 4), *SILENT], ["list", "watch 3", "watch 4"], 1),
        ([119.0, Unreachable("cut", cause=Cause.RESET)], ["list", "watch 3", "watch 3"], 1),
        ([Unreachable("not accepted", cause=Cause.TIMEOUT)], ["list", "watch 3", "watch 3"], 1),
    ],
    ids=["silent", "silent, and does not end when it should", "not silent", "cut", "not accepted"],
)
def test_after_an_accepted_silent_watch_the_collection_is_listed_again(
    watch: list[Step], log: list[str], failures: int
) -> None:
    """Otherwise events that a man in the middle holds back would be missed for ever, without a message.

    Kubernetes 1.20 sends no bookmarks for a quiet collection, so the silence alone is no failure.
    """
    source, sink = play([[page(3, "a")], [page(5, "a", "b")]], [watch, []])
    assert source.log == log
    assert len(sink.failures) == failures


def test_a_quiet_collection_is_listed_every_two_minutes_for_ever() -> None:
    source, sink = play([[page(3, "a")]] * 20, [SILENT] * 20)
    assert source.log == ["list", "watch 3"] * 20
    assert sink.of("failed", "synced") == [("synced", None)] * 20
    assert all(120 < gap < 121 for gap in gaps(source))
    assert set(source.idle_seconds) == {120.0}


def test_silent_watches_of_an_earlier_minute_excuse_no_server_that_hangs() -> None:
    """The controller asks workload clusters for watches of 40 seconds, and gives one that hangs up after 50."""
    quiet: list[Step] = [40.0]
    source, sink = play(
        [[page(3)]], [quiet, quiet, [50.0, Unreachable("hangs", cause=Cause.TIMEOUT)]], timeout_seconds=40.0
    )
    assert source.log == ["list", "watch 3", "watch 3", "watch 3"]
    assert [str(error) for error, _ in sink.failures] == ["Unreachable: hangs"]


class Timed(Recorder):
    """Remembers when it was told of failures, too."""

    def __init__(self) -> None:
        super().__init__()
        self.failed_at: list[float] = []

    def failed(self, error: ApiError, retry_in_seconds: float) -> None:
        super().failed(error, retry_in_seconds)
        self.failed_at.append(asyncio.get_running_loop().time())


@pytest.mark.parametrize(
    "list_after_it",
    [[3600.0], [10.0, page(5, "a"), 14.9, page(5, "b"), 3600.0], [Unreachable("no list", cause=Cause.REFUSED)]],
    ids=["hangs", "comes too slowly", "fails"],
)
def test_a_server_that_hangs_is_reported_within_two_and_a_half_minutes(list_after_it: list[Step]) -> None:
    """The time for which decisions still rely on the objects (``OUT_OF_TOUCH_SECONDS``) begins then."""
    source, sink = Scripted([[page(3)], list_after_it, [60.0, page(7, "late")]], [SILENT, []]), Timed()

    async def main() -> None:
        with pytest.raises(Stop):
            await list_and_watch(source, PATH, sink=sink, random=Random(7))

    run_in_virtual_time(main())
    assert len(sink.failed_at) == 1
    assert sink.failed_at[0] - source.at[1] < 150
    assert isinstance(sink.failures[0][0], Unreachable)
    assert source.log == ["list", "watch 3", "list", "list", "watch 7"], "the next list has all the time that it needs"
    assert sink.of("replaced") == [("replaced", []), ("replaced", ["late"])]


@pytest.mark.parametrize(
    ("then", "watched"),
    [
        ([], ["watch 3"] * 4),
        ([[Unreachable("not accepted", cause=Cause.TIMEOUT)]], ["watch 3"] * 5),
        ([[40.0, event("BOOKMARK", "", 4)], *[[40.0]] * 3], ["watch 3"] * 4 + ["watch 4"] * 4),
    ],
    ids=["nothing", "one is not accepted", "one says something"],
)
@pytest.mark.parametrize("end", [[], [Unreachable("cut", cause=Cause.RESET)]], ids=["ended", "cut"])
def test_short_silent_watches_lead_to_a_list_like_a_long_one(
    end: list[Step], then: list[list[Step]], watched: list[str]
) -> None:
    """A server that was restored from a backup accepts a version of its future: nothing new would ever be received."""
    silent: list[Step] = [40.0, *end]
    watches = [silent, silent, silent, *then, silent, []]
    source, _ = play([[page(3, "a")], [page(5, "a", "b")]], watches, timeout_seconds=40.0)
    assert source.log == ["list", *watched, "list", "watch 5"]


def test_items_that_are_not_kept_are_neither_counted_nor_reported() -> None:
    _, sink = play(
        [[page(3, "ours", "b", "c")]], [[]], keep=lambda item: item["metadata"]["name"] == "ours", maximum_objects=1
    )
    assert sink.of("replaced") == [("replaced", ["ours"])]
    assert not sink.failures


def test_streams_that_end_at_once_back_off_and_are_reported() -> None:
    source, sink = play([[page(1)]], [[]] * 12)
    assert source.log == ["list"] + ["watch 1"] * 12
    delays = gaps(source)
    assert delays[0] >= LEAST_DELAY
    assert all(delay >= 15 for delay in delays[8:])
    assert {kind for kind, _ in sink.of("failed")} == {"failed"}
    assert "ends every watch" in str(sink.failures[0][0])
    assert len(sink.failures) == 10


def test_backoff_resets_after_a_stream_that_lived() -> None:
    source, _ = play([[page(1)]], [*[[]] * 8, [60.0], []])
    assert gaps(source)[-1] <= 60 + DEFAULT_BACKOFF.base_seconds


def test_streams_that_make_progress_never_spin() -> None:
    source, sink = play([[page(1)]], [[event("ADDED", "a", n)] for n in range(2, 52)])
    assert all(LEAST_DELAY <= delay <= DEFAULT_BACKOFF.base_seconds for delay in gaps(source))
    assert sink.failures == []


@pytest.mark.parametrize("gone", [Gone("old", status=410), error_event(410, reason="Expired")])
def test_gone_lists_again(gone: Step) -> None:
    source, sink = play([[page(1, "a")], [page(9, "b")]], [[event("ADDED", "x", 2), gone], []])
    assert source.log == ["list", "watch 1", "list", "watch 9"]
    assert sink.of("replaced", "failed") == [("replaced", ["a"]), ("failed", "Gone"), ("replaced", ["b"])]


def test_events_and_then_gone_for_ever_back_off() -> None:
    """The official client sends a thousand requests in two seconds here."""
    source, sink = play([[page(1)]] * 10, [[event("ADDED", "a", 2), error_event(410)]] * 10)
    delays = gaps(source)
    assert delays[0] >= LEAST_DELAY
    assert delays[-1] >= 15
    assert len(sink.failures) == 10


def test_gone_while_listing_lists_again() -> None:
    source, sink = play([[page(1, "a"), Gone("token", status=410)], [page(2, "b")]], [[]])
    assert source.log == ["list", "list", "watch 2"]
    assert sink.of("replaced") == [("replaced", ["b"])]


@pytest.mark.parametrize(
    "error",
    [
        Unreachable("down", cause=Cause.REFUSED),
        TooManyRequests("slow", status=429),
        ServerError("down", status=503),
        Unauthorized("who", status=401),
        Forbidden("no", status=403),
    ],
)
def test_errors_without_loss_watch_again_from_the_same_version(error: ApiError) -> None:
    source, sink = play([[page(1)]], [[event("ADDED", "a", 5), error], []])
    assert source.log == ["list", "watch 1", "watch 5"]
    assert sink.failures[0][0] is error
    assert gaps(source)[0] == pytest.approx(sink.failures[0][1])


@pytest.mark.parametrize(
    "ending",
    [
        UnexpectedAnswer("malformed"),
        Invalid("bad version", status=400),
        error_event(500, reason="InternalError", message="etcd"),
        error_event(429, details={"retryAfterSeconds": 3}),
        error_event("500"),
        error_event(True),
        {"type": "ERROR", "object": {}},
        {"type": "ERROR"},
        {"type": "ADDED"},
        {"type": "ADDED", "object": []},
        {"type": "NEW", "object": item("a", 2)},
        {"object": item("a", 2)},
        {"type": ["ADDED"], "object": item("a", 2)},
        {"type": "ADDED", "object": {"metadata": None}},
        {"type": "ADDED", "object": item("a", "")},
        {"type": "ADDED", "object": item("a", "9" * 200)},
        {"type": "ADDED", "object": item("a", "9\udc00")},
        {"type": "ADDED", "object": {"metadata": {"resourceVersion": 7}}},
    ],
)
def test_errors_with_possible_loss_list_again(ending: Step) -> None:
    source, sink = play([[page(1)], [page(2)]], [[ending], []])
    assert source.log == ["list", "watch 1", "list", "watch 2"]
    assert len(sink.failures) == 1
    assert sink.of("applied") == []
    assert sink.failures[0][1] >= LEAST_DELAY


def test_retry_after_is_honoured() -> None:
    pause = TooManyRequests("slow", status=429, retry_after_seconds=42.0)
    source, sink = play([[pause], [page(1)]], [[error_event(503, details={"retryAfterSeconds": 17})]])
    assert sink.failures[0] == (pause, 42.0)
    assert source.at[1] >= 42
    assert sink.failures[1][1] == 17


def test_a_server_from_the_past_is_listed_again() -> None:
    """Restored from a backup, it answers 504 to a version of its future and never 410."""
    error = ServerError("Too large resource version", status=504, reason="Timeout")
    source, _ = play([[page(90)], [page(5)]], [[error]] * 5 + [[]])
    assert source.log == ["list"] + ["watch 90"] * 5 + ["list", "watch 5"]


@pytest.mark.parametrize(
    "pages",
    [
        [{"metadata": {}, "items": []}],
        [{"metadata": {"resourceVersion": ""}, "items": []}],
        [{"metadata": {"resourceVersion": "1"}, "items": ["x"]}],
        [page(1, "a", "b", "c"), page(1, "d")],
    ],
)
def test_malformed_or_too_long_lists(pages: list[JsonObject]) -> None:
    source, sink = play([pages, [page(2)]], [[]], maximum_objects=3)
    assert source.log == ["list", "list", "watch 2"]
    assert isinstance(sink.failures[0][0], UnexpectedAnswer)
    assert sink.of("replaced") == [("replaced", [])]


def test_cancelling_ends_the_watch() -> None:
    source = Scripted([[page(1)]], [[3600.0]])

    async def main() -> None:
        task = asyncio.create_task(list_and_watch(source, PATH, sink=Recorder()))
        await asyncio.sleep(5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_in_virtual_time(main())
    assert source.log == ["list", "watch 1"]


steps = st.one_of(
    st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]).flatmap(
        lambda kind: st.integers(1, 9).map(lambda version: event(kind, "a", version))
    ),
    st.sampled_from([error_event(410), error_event(500), error_event(None), {"type": "?"}, {}]),
    st.builds(Gone, st.just("g")),
    st.builds(Unauthorized, st.just("u")),
    st.builds(lambda: Unreachable("x", cause=Cause.RESET)),
    st.builds(lambda: ServerError("s", status=500, retry_after_seconds=0.0)),
    st.floats(0.0, 400.0),
)
pages_or_errors = st.lists(st.one_of(st.integers(1, 9).map(page), steps), max_size=3)


@settings(max_examples=60, deadline=None)
@given(
    lists=st.lists(pages_or_errors, min_size=1, max_size=30),
    watches=st.lists(st.lists(steps, max_size=4), max_size=30),
    seed=st.integers(),
)
def test_no_behaviour_makes_it_spin(lists: list[list[Step]], watches: list[list[Step]], seed: int) -> None:
    """An iteration is at most one list and one watch, and between two iterations it always waits."""

    def is_page(entry: Step) -> bool:
        return isinstance(entry, (ApiError, float)) or "items" in entry

    source = Scripted([[step for step in steps if is_page(step)] for steps in lists], watches)
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.sleep(seconds)

    async def main() -> None:
        with pytest.raises(Stop):
            await list_and_watch(source, PATH, sink=Recorder(), sleep=sleep, random=Random(seed))

    run_in_virtual_time(main())
    assert all(seconds >= LEAST_DELAY * 0.999 for seconds in slept)
    assert len(source.log) <= 2 * (len(slept) + 1)


@pytest.mark.parametrize(
    ("watch", "times"),
    [
        ([290.0], 1),
        ([STABLE_SECONDS + 1, Unreachable("broken", cause=Cause.NETWORK)], 1),
        ([STABLE_SECONDS - 1, Unreachable("broken", cause=Cause.NETWORK)], 0),
        ([STABLE_SECONDS - 1], 0),
        ([Forbidden("watch", status=403)], 0),
    ],
    ids=["silence", "broken later", "broken soon", "ended soon", "refused"],
)
def test_a_watch_is_established_when_accepted_and_stable(watch: list[Step], times: int) -> None:
    """A quiet collection sends nothing for a minute or more: no event is needed."""
    stood: list[float] = []
    source, sink = play(
        [[page(1)]],
        [watch, []],
        established=lambda: stood.append(asyncio.get_running_loop().time()),
    )
    assert [at - source.at[1] for at in stood] == pytest.approx([STABLE_SECONDS] * times)
    assert sink.of("synced") == [("synced", None)]
