"""One cluster's task: requests that change or go during a decision, and lists that do not fit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

import pytest

from attestors.wire.names import BuiltinSigner
from signer.controller.cluster import workload_cluster as workload_cluster_module
from signer.controller.requests import pending as pending_module
from signer.controller.requests.informer import BATCH_SIZE, RECHECK_SPREAD_SECONDS, RECHECKS_PER_SECOND
from signer.decision.decider import DecidedRequest
from signer.kube import supervision
from signer.kube.backoff import Backoff
from signer.kube.errors import ApiError, Conflict, NotFound, ServerError
from signer.kube.watch import Sink
from signer.model.decision import Decision, Defer, Deny
from signer.store.caches import REACHED_AGAIN
from tests.unit.signer.controller.cluster.served_cluster import DEFERRAL, Served, csr
from tests.unit.signer.controller.requests.handling_fixtures import Panic

DENIAL = Deny("MalformedRequest", "no block")


_FAR: Final = "ManagementClusterUnreachable"
NOTHING: tuple[int, int, int, dict[str, Any]] = (0, 0, 0, {})


@pytest.fixture
async def served() -> Served:
    return Served()


async def test_a_deferred_request_waits_and_is_reported(served: Served) -> None:
    served.cluster.applied(csr("csr", "uid-1"))
    await served.handle("csr")
    assert served.state() == (1, 1, 1, {"csr": ("Defer", "MachineNotFound")})
    assert served.recorder.record.call_count == 1
    served.cluster.removed(csr("csr", "uid-1"))
    assert served.state() == NOTHING


async def test_a_request_deleted_during_its_decision_leaves_nothing(served: Served) -> None:
    served.cluster.applied(csr("csr", "uid-1"))
    served.during_decision = lambda: served.cluster.removed(csr("csr", "uid-1"))
    await served.handle("csr")
    assert served.state() == NOTHING
    assert served.recorder.record.call_count == 0


@pytest.mark.parametrize("recreated", [False, True])
async def test_a_request_deleted_during_its_audit_write_leaves_nothing(served: Served, recreated: bool) -> None:
    """A hostile API server may create and remove requests endlessly."""
    auditing = served.handling._auditing
    auditing._line = lambda *_: b"{}"

    async def remove_during_write(line: bytes) -> None:
        served.cluster.removed(csr("csr", "uid-1"))
        if recreated:
            served.cluster.applied(csr("csr", "uid-2"))

    auditing._audit_log.append = remove_during_write
    served.cluster.applied(csr("csr", "uid-1"))
    await served.handle("csr")
    assert served.state() == (int(recreated), 0, 0, {})
    assert auditing._logged == {}


async def test_a_published_decision_is_reported_although_the_request_is_gone(served: Served) -> None:
    served.cluster.applied(csr("csr", "uid-1"))
    served.decision = DENIAL
    served.during_decision = lambda: served.cluster.removed(csr("csr", "uid-1"))
    await served.handle("csr")
    assert served.publisher.deny.await_count == 1
    assert served.state() == NOTHING
    assert served.recorder.record.call_count == 1


@pytest.mark.parametrize("decision", [DEFERRAL, DENIAL])
async def test_a_recreated_request_is_decided_separately(served: Served, decision: Decision) -> None:
    served.cluster.applied(csr("csr", "uid-1"))
    served.decision = decision

    def recreate() -> None:
        served.cluster.removed(csr("csr", "uid-1"))
        served.cluster.applied(csr("csr", "uid-2"))

    served.during_decision = recreate
    await served.handle("csr")
    assert served.state() == (1, 0, 0, {})
    assert served.requests.pending.has_same_uid("csr", csr("csr", "uid-2"))
    assert len(served.requests.queue) == 1


@pytest.mark.parametrize("answer", [csr("csr", "uid-1"), NotFound("gone", status=404), ServerError("etcd", status=500)])
async def test_a_late_response_does_not_restore_a_request(served: Served, answer: dict[str, Any] | ApiError) -> None:
    """The write conflicts, and the watch removes the request before the response to the re-read arrives."""
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
    assert served.state() == NOTHING
    assert len(served.requests.queue) == 0


async def test_a_changed_request_is_decided_again(served: Served) -> None:
    served.cluster.applied(csr("csr", "uid-1"))
    served.decision = DENIAL
    served.publisher.deny.side_effect = Conflict("changed", status=409)
    served.client.get.return_value = csr("csr", "uid-1")
    await served.handle("csr")
    assert len(served.requests.queue) == 1
    served.client.get.side_effect = ServerError("etcd", status=500)
    await served.handle("csr")
    assert served.state() == (1, 1, 1, {})


async def test_repeated_conflicts_back_off(served: Served) -> None:
    """A hostile API server may answer every write with 409."""
    served.cluster.applied(csr("csr", "uid-1"))
    served.decision = DENIAL
    served.publisher.deny.side_effect = Conflict("changed", status=409)
    served.client.get.return_value = csr("csr", "uid-1")
    queue = served.requests.queue
    for ready, delayed, failing in ((1, 0, 0), (0, 1, 1), (0, 1, 1)):
        await served.handle("csr")
        assert (len(queue), queue.delayed, queue.failing) == (ready, delayed, failing)
        if delayed:
            queue.add("csr")  # its time has come
    assert queue._failures == {"csr": 2}, "each pause is longer than the one before"
    served.cluster.removed(csr("csr", "uid-1"))
    assert served.state() == NOTHING
    assert not served.requests._changed_once


async def test_a_reread_that_returns_another_request_changes_nothing(served: Served) -> None:
    served.cluster.applied(csr("csr", "uid-1"))
    served.decision = DENIAL
    served.publisher.deny.side_effect = Conflict("changed", status=409)
    served.client.get.return_value = csr("other", "uid-2")
    await served.handle("csr")
    assert list(served.requests.pending) == ["csr"]
    assert served.requests.queue.delayed == 1


@pytest.mark.parametrize(
    ("reason", "waits"),
    [(_FAR, True), ("WorkloadClusterUnreachable", False), ("MachineNotFound", False)],
)
async def test_requests_that_failed_for_the_management_cluster_wait_for_it(
    served: Served, reason: str, waits: bool
) -> None:
    """A workload cluster that comes back is listed again."""
    served.cluster.applied(csr("csr", "uid-1"))
    served.decision = Defer(reason, "why")
    await served.handle("csr")
    assert served.requests.pending.names_waiting_for(REACHED_AGAIN) == (["csr"] if waits else [])


async def test_requests_are_requeued_once_the_management_cluster_is_back(served: Served) -> None:
    """Requests are requeued one after the other, and no others."""
    queue, now = served.requests.queue, asyncio.get_running_loop().time()
    for name, reason in (("first", _FAR), ("other", "MachineNotFound"), ("second", _FAR)):
        served.cluster.applied(csr(name, f"uid-{name}"))
        served.decision = Defer(reason, "why", timedelta(hours=1))
        await served.handle(name)
    assert min(at for at, _ in queue._due.values()) > now + 3500
    served.cluster._status_changed.clear()
    served.cluster.wake(REACHED_AGAIN)
    due = {name: at - now for name, (at, _) in queue._due.items()}
    assert 0.0 <= due["first"] < RECHECK_SPREAD_SECONDS + 1.0
    assert due["first"] + 1 / RECHECKS_PER_SECOND <= due["second"] < RECHECK_SPREAD_SECONDS + 1.0
    assert due["other"] > 3500
    assert not served.cluster._status_changed.is_set()


async def test_a_list_that_does_not_fit(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_module, "MAXIMUM_REQUESTS", 4)
    cluster = served.cluster
    for names in ("abcde", "fghijk"):
        cluster._requests.pending.begin_list()
        listed = [csr(name, f"uid-{name}") for name in names]
        cluster.replaced([manifest for manifest in listed if cluster._requests.pending.add_listed(manifest)])
        cluster.synced()
        assert list(cluster._requests.pending) == list(names[:4])
        assert cluster._reachability.condition.reason == "RequestsOverflowed"
        assert not cluster._reconnect.is_set()


async def test_the_auto_approval_observes_the_first_list(served: Served) -> None:
    """Approvals between two lists were not observed."""

    def approved(uid: str) -> dict[str, Any]:
        spec = {"signerName": BuiltinSigner.KUBELET_CLIENT.value}
        return {"metadata": {"uid": uid}, "spec": spec, "status": {"conditions": [{"type": "Approved"}]}}

    for listed, counted in ((("a", "b"), 0), (("a", "b", "c"), 1)):
        for uid in listed:
            served.cluster._add_listed(approved(uid))
        served.cluster.replaced([])
        assert served.auto_approval._approvals._count == counted


async def test_a_large_list_is_applied_before_the_watch_begins(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    class Watching(Exception):
        """The watch would begin now."""

    async def list_once(*_: object, sink: Sink, settle: Callable[[], Awaitable[None]], **options: object) -> None:
        sink.replaced([csr(f"csr-{number}", f"uid-{number}") for number in range(2 * BATCH_SIZE)])
        await settle()
        raise Watching

    monkeypatch.setattr(workload_cluster_module, "list_and_watch", list_once)
    with pytest.raises(Watching):
        await served.cluster._serve_over(served.client)
    assert len(served.requests.pending) == 2 * BATCH_SIZE


async def test_a_name_that_is_invalid_in_a_path_is_ignored(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for name in ("back\\slash", "a/b", "line\nfeed", "n" * 254):
            served.cluster.applied(csr(name, "uid-1"))
    assert served.state() == NOTHING
    assert len(served.requests.queue) == 0
    assert len(caplog.records) == 1


@pytest.mark.parametrize("stopped", [True, False])
async def test_no_worker_outlives_the_task_of_its_cluster(
    served: Served, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    """Also if it was stopped and takes too long: another replica serves the cluster from then on."""

    async def for_ever(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(workload_cluster_module, "list_and_watch", for_ever)
    in_hand: set[str] = set()
    begun = asyncio.Event()

    async def decide(manifest: dict[str, Any]) -> DecidedRequest:
        name = manifest["metadata"]["name"]
        in_hand.add(name)
        begun.set()
        try:
            await for_ever()
        finally:
            in_hand.remove(name)
        raise AssertionError

    monkeypatch.setattr(served, "decide", decide)
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


async def test_the_auto_approval_task_restarts_after_a_defect(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a cluster under Enforce would silently lose the removal of auto-approval."""

    async def for_ever(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    runs = 0
    restarted = asyncio.Event()

    async def run(*_: object) -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise Panic
        restarted.set()
        await for_ever()

    monkeypatch.setattr(workload_cluster_module, "list_and_watch", for_ever)
    monkeypatch.setattr(supervision, "RESTART", Backoff(base_seconds=0.001, maximum_seconds=0.001, jitter=0))
    served.auto_approval.run = run
    served.cluster._connected.set()
    serving = asyncio.create_task(served.cluster._serve_over(served.client))
    async with asyncio.timeout(10):
        await restarted.wait()
    served.metrics.task_failed.assert_called_once_with("auto-approval")
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
