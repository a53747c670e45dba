"""One cluster's task: what is left behind of requests that went while they were judged, and what does not fit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, cast
from unittest.mock import AsyncMock, MagicMock

import pytest

from attestors.wire.names import Purpose, SignerName
from signer.controller import pending as pending_module
from signer.controller import workload_cluster as workload_cluster_module
from signer.controller.adjudicator import Adjudication
from signer.controller.room import Together
from signer.controller.workers import Crew
from signer.controller.workload_cluster import WorkloadCluster
from signer.kube.backoff import Backoff
from signer.kube.errors import ApiError, Cause, Conflict, Gone, NotFound, ServerError, Unauthorized, Unreachable
from signer.model.cluster import ClusterKey
from signer.model.decision import Decision, Defer, Deny
from signer.model.reasons import Reason
from signer.model.signing_request import Malformed, parse_signing_request

SIGNER = str(SignerName(Purpose.CLIENT, "keyed-mac"))
DENIAL = Deny("MalformedRequest", "no block")
HANGS = Unreachable("timeout: the server did not answer in time", cause=Cause.TIMEOUT)
DEFERRAL = Defer(Reason.MACHINE_NOT_FOUND, "no Machine has it")


def csr(name: str, uid: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": uid, "resourceVersion": "1"},
        "spec": {"signerName": SIGNER, "request": "cmVx"},
        "status": {},
    }


class Served:
    """A cluster whose adjudicator answers ``decision``, after ``meanwhile`` has happened."""

    def __init__(self) -> None:
        around = MagicMock()
        around.monotonic = lambda: 1000.0
        around.requests_together = Together()
        around.crew = Crew()
        around.configuration.workers_per_cluster = 2
        self.cluster = cast("Any", WorkloadCluster(ClusterKey("team-a", "one"), around))  # its parts are looked at
        self.recorder = around.recorder
        self.publisher = AsyncMock()
        self.client = AsyncMock()
        self.meanwhile: Callable[[], object] = lambda: None
        self.decision: Decision = DEFERRAL
        self.requests = self.cluster._requests
        self.requests._adjudicator = self

    async def adjudicate(self, manifest: dict[str, Any]) -> Adjudication:
        self.meanwhile()
        parsed = parse_signing_request(manifest, frozenset({"keyed-mac"}))
        assert isinstance(parsed, Malformed)
        return Adjudication(parsed, self.decision)

    async def handle(self, name: str) -> None:
        assert await self.requests._queue.get() == name
        await self.requests._handle(self.client, self.publisher, name)
        self.requests._queue.done(name)

    def left_behind(self) -> tuple[int, int, int, dict[str, Any]]:
        queue = self.requests._queue
        return len(self.requests.pending), queue.delayed, queue.failing, self.requests._announcer._said


NOTHING: tuple[int, int, int, dict[str, Any]] = (0, 0, 0, {})


@pytest.fixture
async def served() -> Served:
    return Served()


async def test_a_deferred_request_waits_and_is_told_of(served: Served) -> None:
    served.cluster.applied(csr("csr", "uid-1"))
    await served.handle("csr")
    assert served.left_behind() == (1, 1, 1, {"csr": ("Defer", "MachineNotFound")})
    assert served.recorder.record.call_count == 1
    served.cluster.removed(csr("csr", "uid-1"))
    assert served.left_behind() == NOTHING


async def test_nothing_is_left_of_a_request_that_went_while_it_was_judged(served: Served) -> None:
    served.cluster.applied(csr("csr", "uid-1"))
    served.meanwhile = lambda: served.cluster.removed(csr("csr", "uid-1"))
    await served.handle("csr")
    assert served.left_behind() == NOTHING
    assert served.recorder.record.call_count == 0


async def test_a_decision_that_was_written_is_told_all_the_same(served: Served) -> None:
    served.cluster.applied(csr("csr", "uid-1"))
    served.decision = DENIAL
    served.meanwhile = lambda: served.cluster.removed(csr("csr", "uid-1"))
    await served.handle("csr")
    assert served.publisher.deny.await_count == 1
    assert served.left_behind() == NOTHING
    assert served.recorder.record.call_count == 1


@pytest.mark.parametrize("decision", [DEFERRAL, DENIAL])
async def test_one_that_was_recreated_meanwhile_is_judged_for_itself(served: Served, decision: Decision) -> None:
    served.cluster.applied(csr("csr", "uid-1"))
    served.decision = decision

    def recreate() -> None:
        served.cluster.removed(csr("csr", "uid-1"))
        served.cluster.applied(csr("csr", "uid-2"))

    served.meanwhile = recreate
    await served.handle("csr")
    assert served.left_behind() == (1, 0, 0, {})
    assert served.requests.pending.is_still("csr", csr("csr", "uid-2"))
    assert len(served.requests._queue) == 1


@pytest.mark.parametrize("answer", [csr("csr", "uid-1"), NotFound("gone", status=404), ServerError("etcd", status=500)])
async def test_a_late_answer_brings_nothing_back(served: Served, answer: dict[str, Any] | ApiError) -> None:
    """The write conflicts, and the watch says that it is gone before the answer to the second look arrives."""
    served.cluster.applied(csr("csr", "uid-1"))
    served.decision = DENIAL
    served.publisher.deny.side_effect = Conflict("changed", status=409)

    async def answer_late(path: str) -> Any:
        served.cluster.removed(csr("csr", "uid-1"))
        if isinstance(answer, ApiError):
            raise answer
        return answer

    served.client.get = answer_late
    await served.handle("csr")
    assert served.left_behind() == NOTHING
    assert len(served.requests._queue) == 0


async def test_what_changed_meanwhile_is_judged_again(served: Served) -> None:
    served.cluster.applied(csr("csr", "uid-1"))
    served.decision = DENIAL
    served.publisher.deny.side_effect = Conflict("changed", status=409)
    served.client.get.return_value = csr("csr", "uid-1")
    await served.handle("csr")
    assert len(served.requests._queue) == 1
    served.client.get.side_effect = ServerError("etcd", status=500)
    await served.handle("csr")
    assert served.left_behind() == (1, 1, 1, {})


async def test_what_changes_at_every_look_is_judged_at_once_only_the_first_time(served: Served) -> None:
    """A hostile API server may answer every write with 409."""
    served.cluster.applied(csr("csr", "uid-1"))
    served.decision = DENIAL
    served.publisher.deny.side_effect = Conflict("changed", status=409)
    served.client.get.return_value = csr("csr", "uid-1")
    queue = served.requests._queue
    for ready, delayed, failing in ((1, 0, 0), (0, 1, 1), (0, 1, 1)):
        await served.handle("csr")
        assert (len(queue), queue.delayed, queue.failing) == (ready, delayed, failing)
        if delayed:
            queue.add("csr")  # its time has come
    assert queue._failures == {"csr": 2}, "each pause is longer than the one before"
    served.cluster.removed(csr("csr", "uid-1"))
    assert served.left_behind() == NOTHING
    assert not served.requests._changed_once


async def test_what_does_not_fit_is_left_out_said_once_and_listed_again(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pending_module, "MAXIMUM_REQUESTS", 4)
    cluster = served.cluster
    with caplog.at_level(logging.WARNING):
        for number in range(10):
            cluster.applied(csr(f"csr-{number}", f"uid-{number}"))
        cluster.synced()
    assert len(cluster._requests.pending) == len(cluster._requests._queue) == 4
    assert [record.__dict__["reason"] for record in caplog.records] == ["RequestsLeftOut"]
    assert (cluster._reachable.met, cluster._reachable.reason) == (True, "RequestsLeftOut")
    for number in range(3):
        assert not cluster._left_out_wanted.is_set()
        cluster.removed(csr(f"csr-{number}", f"uid-{number}"))
    assert cluster._left_out_wanted.is_set()
    # The list that follows knows all.
    listing = Listing([csr(f"csr-{number}", f"uid-{number}") for number in range(3, 7)])
    await listed_beside(served, listing)
    assert list(cluster._requests.pending) == ["csr-3", "csr-4", "csr-5", "csr-6"]
    assert (cluster._reachable.met, cluster._reachable.reason) == (True, "Watching")
    assert not cluster._left_out_wanted.is_set()
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
    task = asyncio.create_task(cluster._keep_left_out(listing))
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
    monkeypatch.setattr(workload_cluster_module, "LIST_AGAIN", Backoff(0.001, 0.001, 0))
    cluster = full(served, monkeypatch)
    expired = Gone("the continue token is too old", status=410)
    await listed_beside(served, Listing(expired, HANGS, [csr("d", "uid-d"), csr("e", "uid-e")]), 3)
    assert list(cluster._requests.pending) == ["d", "e"]
    assert cluster._reachable.reason == "Watching"


async def test_lists_of_what_was_left_out_are_pauses_apart(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer ones each time: a hostile server's lists have no end."""
    paused: list[int] = []

    class Noting:
        def delay(self, attempt: int, random: object) -> float:
            paused.append(attempt)
            return 0.0

    monkeypatch.setattr(workload_cluster_module, "LIST_AGAIN", Noting())
    now = 1000.0
    served.cluster._around.monotonic = lambda: now
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
            served.requests.pending.left_out = True  # and again
            served.cluster.list_again()
            return 0.0

    monkeypatch.setattr(workload_cluster_module, "LIST_AGAIN", Noting())
    times = iter(range(1000, 100_000, int(workload_cluster_module.PROVEN_SECONDS)))
    full(served, monkeypatch)
    served.cluster._around.monotonic = lambda: float(next(times))
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
            cluster._look_for_left_out()

    monkeypatch.setattr(pending_module, "MAXIMUM_REQUESTS", 2)
    await listed_beside(served, Appearing([csr(name, f"uid-{name}") for name in "defg"]))
    assert cluster._requests.pending.left_out
    assert not cluster._left_out_wanted.is_set()
    cluster._look_for_left_out()
    assert cluster._left_out_wanted.is_set()


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
    monkeypatch.setattr(workload_cluster_module, "LIST_AGAIN", Backoff(0.001, 0.001, 0))
    await listed_beside(served, listing, 2)
    assert list(cluster._requests.pending) == ["h"]
    assert not cluster._requests.pending.left_out


async def test_what_is_left_out_of_a_list_beside_the_watch_does_not_say_that_the_watch_is_well(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = full(served, monkeypatch)
    cluster.failed(HANGS, 0.5)
    await listed_beside(served, Listing([csr(name, f"uid-{name}") for name in "defghij"]))
    assert cluster._requests.pending.left_out
    assert (cluster._reachable.met, cluster._reachable.reason) == (False, "Unreachable")


async def test_what_the_watch_has_listed_itself_is_not_listed_beside_it(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = full(served, monkeypatch)
    assert cluster._left_out_wanted.is_set()
    cluster._requests.pending.list_begins()
    cluster.replaced([one for one in [csr("d", "uid-d")] if cluster._requests.pending.holds_of_list(one)])
    listing = Listing([])
    await listed_beside(served, listing, 0)
    assert listing.asked == 0
    assert not cluster._left_out_wanted.is_set()


async def test_a_list_that_does_not_fit(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_module, "MAXIMUM_REQUESTS", 4)
    cluster = served.cluster
    for names in ("abcde", "fghijk"):
        cluster._requests.pending.list_begins()
        listed = [csr(name, f"uid-{name}") for name in names]
        cluster.replaced([manifest for manifest in listed if cluster._requests.pending.holds_of_list(manifest)])
        cluster.synced()
        assert list(cluster._requests.pending) == list(names[:4])
        assert cluster._reachable.reason == "RequestsLeftOut"
        assert not cluster._reconnect.is_set()


async def test_a_name_that_no_path_can_carry_is_ignored(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for name in ("back\\slash", "a/b", "line\nfeed", "n" * 254):
            served.cluster.applied(csr(name, "uid-1"))
    assert served.left_behind() == NOTHING
    assert len(served.requests._queue) == 0
    assert len(caplog.records) == 1


REFUSES = Unreachable("connection refused: nothing listens there", cause=Cause.REFUSED)


@pytest.mark.parametrize(
    ("error", "seconds_between", "failures"),
    [(Unauthorized("401"), 0.0, 1), (HANGS, 30.0, 2), (REFUSES, 1.0, 5)],
    ids=["its credentials are refused", "it hangs", "it refuses connections"],
)
async def test_the_secret_is_read_again_when_a_server_stays_away(
    served: Served, error: ApiError, seconds_between: float, failures: int
) -> None:
    cluster, now = served.cluster, 0.0
    cluster._around.monotonic = lambda: now
    cluster.synced()
    for _ in range(failures - 1):
        cluster.failed(error, 0.5)
        assert not cluster._reconnect.is_set()
        now += seconds_between
    cluster.failed(error, 0.5)
    assert cluster._reconnect.is_set()


async def test_failures_with_success_in_between_cost_no_connection(served: Served) -> None:
    cluster, now = served.cluster, 0.0
    cluster._around.monotonic = lambda: now
    for _ in range(10):
        cluster.failed(HANGS, 0.5)
        now += 29.0
        cluster.synced()
    assert not cluster._reconnect.is_set()


@pytest.mark.parametrize("stopped", [True, False])
async def test_no_worker_outlives_the_task_of_its_cluster(
    served: Served, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    """Also where it has been told to finish and takes too long: another replica serves the cluster from then on."""

    async def for_ever(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(workload_cluster_module, "list_and_watch", for_ever)
    in_hand: set[str] = set()
    begun = asyncio.Event()

    async def adjudicate(manifest: dict[str, Any]) -> Adjudication:
        name = manifest["metadata"]["name"]
        in_hand.add(name)
        begun.set()
        try:
            await for_ever()
        finally:
            in_hand.remove(name)
        raise AssertionError

    monkeypatch.setattr(served, "adjudicate", adjudicate)
    served.cluster.applied(csr("csr", "uid-1"))
    serving = asyncio.create_task(served.cluster._serve_over(served.client))
    await begun.wait()
    if stopped:
        served.cluster.stop()
        await asyncio.sleep(0.01)
    assert in_hand == {"csr"}
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert not in_hand
