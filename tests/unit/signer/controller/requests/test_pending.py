"""Bounds of what is kept of a hostile API server's requests."""

from __future__ import annotations

import logging
import secrets
import tracemalloc
from typing import Any

import pytest

from signer.controller.requests import bounded_request
from signer.controller.requests import pending as module
from signer.controller.requests import request_budget as budget
from signer.controller.requests.bounded_request import PackedRequest
from signer.controller.requests.pending import PendingRequests, Put, is_pending
from signer.controller.requests.request_budget import BOOKKEEPING_BYTES, SharedRequestMemory
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.model.cluster import ClusterKey
from tests.unit.signer.requests import APPROVED, SIGNER, csr


def requests(shared_memory: SharedRequestMemory | None = None) -> PendingRequests:
    return PendingRequests(ClusterKey("team-a", "one"), shared_memory=shared_memory)


def filled(count: int) -> PendingRequests:
    pending = requests()
    for number in range(count):
        assert pending.put(csr(f"csr-{number}", f"uid-{number}")) is Put.KEPT
    return pending


def test_ordinary_csr_is_kept_whole_without_its_managed_fields() -> None:
    pending = requests()
    ordinary = csr(annotations={"a": "b"}, labels={"c": "d"}, status={"conditions": [APPROVED]})
    ordinary["spec"]["username"] = "system:bootstrap:abcdef"
    assert pending.put({**ordinary, "metadata": {**ordinary["metadata"], "managedFields": [{}]}}) is Put.KEPT
    assert pending.get("csr") == ordinary


@pytest.mark.parametrize(
    "unusable",
    [
        csr("back\\slash"),
        csr("line\nfeed"),
        csr("n" * 254),
        csr(".."),
        csr(""),
        csr(5),
        csr(uid=""),
        csr(uid="u" * (bounded_request.MAXIMUM_UID_CHARACTERS + 1)),
        csr(uid={"u": "1"}),
        csr(spec={"username": "u" * bounded_request.MAXIMUM_OBJECT_BYTES}),
        csr(status={"conditions": ["c" * bounded_request.MAXIMUM_OBJECT_BYTES]}),
        {"spec": {"signerName": SIGNER}},
        {"metadata": "text", "spec": {"signerName": SIGNER}},
    ],
    ids=lambda _: "",
)
def test_unusable_requests_are_ignored_and_logged_once(unusable: Any, caplog: pytest.LogCaptureFixture) -> None:
    pending = requests()
    assert is_pending(unusable)
    with caplog.at_level(logging.WARNING):
        assert pending.put(unusable) is Put.UNUSABLE
        assert pending.put(unusable) is Put.UNUSABLE
        assert not pending.add_listed(unusable)
    assert pending.unusable == 3
    assert (len(pending), pending.overflow) == (0, False)
    (record,) = caplog.records
    assert len(record.__dict__["csr"]) <= 1024
    assert record.__dict__["csr"].isprintable()


def test_every_name_that_is_kept_has_a_path() -> None:
    pending = requests()
    for name in ("node-csr-x", "n" * 253, "a b", "system:node:x", "é"):
        assert pending.put(csr(name, name[:9])) is Put.KEPT
    for name in pending:
        assert CERTIFICATE_SIGNING_REQUESTS.object(name)


def test_builtin_serving_requests_are_pending_until_they_have_a_condition() -> None:
    builtin = {"signerName": "kubernetes.io/kubelet-serving"}
    assert is_pending(csr(spec=builtin))
    assert is_pending(csr(status={"conditions": [APPROVED]}))
    assert not is_pending(csr(spec=builtin, status={"conditions": [APPROVED]}))
    assert not is_pending(csr(spec={"signerName": "kubernetes.io/kube-apiserver-client-kubelet"}))


@pytest.mark.parametrize("conditions", [5, True, "Denied", {"type": "Denied"}, [None, "Denied"]])
def test_malformed_conditions_settle_nothing(conditions: Any) -> None:
    assert is_pending(csr(status={"conditions": conditions}))


def test_number_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAXIMUM_REQUESTS", 4)
    pending = filled(4)
    assert not pending.overflow
    assert pending.put(csr("one-more", "uid-more")) is Put.OVERFLOW
    assert pending.get("one-more") is None
    assert (len(pending), pending.overflow) == (4, True)
    # A newer state of one that is kept takes its own place.
    assert pending.put(csr("csr-0", "uid-0", labels={"newer": "yes"})) is Put.KEPT
    for name in ("csr-0", "csr-1"):
        pending.drop(name)
        assert not pending.can_relist
    pending.drop("csr-2")
    assert pending.can_relist


def test_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    place = PackedRequest.of(csr("csr-0", "uid-0"), "uid-0", compressed=True).size + BOOKKEEPING_BYTES
    # Compressed, one takes a few bytes more or less than another.
    monkeypatch.setattr(module, "MAXIMUM_BYTES", 4 * place + place // 2)
    pending = filled(4)
    assert pending.put(csr("csr-4", "uid-4")) is Put.OVERFLOW
    # A newer state that no longer fits is not kept, nor is the older one, which could not be written to.
    assert pending.put(csr("csr-0", "uid-0", labels={"a": secrets.token_hex(2 * place)})) is Put.OVERFLOW
    assert pending.get("csr-0") is None
    for name in ("csr-1", "csr-2", "csr-3", "csr-3", "never-seen"):
        pending.drop(name)
    assert (len(pending), pending.can_relist) == (0, True)
    assert all(pending.put(csr(f"csr-{number}", f"uid-{number}")) is Put.KEPT for number in range(4))


def test_long_names_of_requesters_take_no_memory_that_is_not_counted() -> None:
    """They are packed well."""
    tracemalloc.start()
    try:
        pending = requests()
        for number in range(200):
            spec = {"username": f"system:node:{number}" + "n" * 200_000}
            pending.put(csr(f"csr-{number}", f"uid-{number}", spec=spec))
        count = len(pending)
        pending._kept.clear()  # what is counted
        memory, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count > 100
    assert memory < 2 * 1024 * 1024


def test_kept_and_listed_requests_share_memory_with_other_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "OWN_BYTES", 0)
    shared_memory = SharedRequestMemory(1 << 20)
    pending = requests(shared_memory=shared_memory)
    assert pending.put(csr("kept", "uid-kept")) is Put.KEPT
    kept = (1 << 20) - shared_memory.bytes_left
    assert kept > 0
    pending.begin_list()
    assert pending.add_listed(csr("listed", "uid-listed"))
    assert shared_memory.bytes_left < (1 << 20) - kept
    pending.begin_list()
    assert shared_memory.bytes_left == (1 << 20) - kept, "nobody holds what was read of a list that failed"
    assert pending.add_listed(csr("listed", "uid-listed"))
    pending.close()
    assert shared_memory.bytes_left == 1 << 20


def test_many_requests_are_compressed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "OWN_BYTES", 0)
    shared_memory = SharedRequestMemory(1 << 30)
    pending = requests(shared_memory=shared_memory)

    def takes(name: str) -> int:
        before = shared_memory.bytes_left
        assert pending.put(csr(name, f"uid-{name}", labels={"a": "x" * 20_000})) is Put.KEPT
        return before - shared_memory.bytes_left

    alone = takes("one")
    assert alone > 20_000
    monkeypatch.setattr(module, "MAXIMUM_BYTES", 8 * alone)
    assert takes("two") < 10_000, "an eighth is taken"
    monkeypatch.setattr(module, "MAXIMUM_BYTES", 16 * alone)
    assert takes("six") > 20_000
    for name in ("one", "two", "six"):
        assert pending.get(name) == csr(name, f"uid-{name}", labels={"a": "x" * 20_000})


def test_requests_are_compressed_when_other_clusters_use_the_shared_memory() -> None:
    """A cluster then has only its reserved memory."""
    pending = requests(shared_memory=SharedRequestMemory(0))
    count = 0
    while pending.put(csr(f"csr-{count}", f"uid-{count}", labels={"a": "x" * 20_000})) is Put.KEPT:
        count += 1
    assert count > budget.OWN_BYTES // 20_000 * 4


def test_a_recreated_request_inherits_no_claims() -> None:
    pending = filled(1)
    pending.set_awaited("csr-0", ["test:///old"])
    assert pending.names_waiting_for(["test:///old"]) == ["csr-0"]
    assert pending.put(csr("csr-0", "uid-new")) is Put.KEPT
    assert pending.names_waiting_for(["test:///old"]) == []


def test_no_relist_without_overflow() -> None:
    pending = filled(1)
    pending.drop("csr-0")
    assert not pending.can_relist


def test_a_list_is_bounded_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAXIMUM_REQUESTS", 2)
    pending = requests()
    fat = csr("csr-0", "uid-0", annotations={"a": "x" * bounded_request.MAXIMUM_ANNOTATION_BYTES})
    assert pending.add_listed(fat)
    assert fat == csr("csr-0", "uid-0")
    assert pending.add_listed(csr("csr-1", "uid-1"))
    assert not pending.add_listed({"spec": {"signerName": "kubernetes.io/legacy-unknown"}})
    assert not pending.add_listed(csr("csr-2", "uid-2"))
    assert pending.end_list()
    # The next one starts from nothing, also after one that was never complete.
    for _ in range(2):
        pending.begin_list()
        assert pending.add_listed(csr("csr-2", "uid-2"))
        assert pending.add_listed(csr("csr-3", "uid-3"))
    assert not pending.end_list()


def test_a_complete_list_reports_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAXIMUM_REQUESTS", 1)
    pending = filled(1)
    pending.put(csr("csr-1", "uid-1"))
    assert pending.overflow
    assert not pending.end_list()
    assert not pending.overflow


def test_requests_are_woken_in_order_of_arrival() -> None:
    """Copies of a waiting request come later, and must not be decided before it."""
    pending = PendingRequests(ClusterKey("team-a", "one"))
    names = ["honest", *(f"a-copy-{number}" for number in range(50))]
    for name in names:
        pending.put(csr(name, f"uid-{name}"))
        pending.set_awaited(name, ["test:///m"])
    pending.put(csr("honest", "uid-honest"))  # changed meanwhile, and still the first
    assert pending.names_waiting_for(["test:///m"]) == names
    pending.drop("honest")
    pending.put(csr("honest", "uid-2"))
    pending.set_awaited("honest", ["test:///m"])
    assert pending.names_waiting_for(["test:///m"])[-1] == "honest"


def test_awaited_provider_ids_are_indexed_until_the_request_is_dropped() -> None:
    pending = filled(2)
    pending.set_awaited("csr-0", ["test:///m"])
    pending.set_awaited("csr-1", ["test:///m", "test:///in-its-way"])
    pending.set_awaited("gone", ["test:///m"])
    assert pending.names_waiting_for(["test:///m", "test:///other"]) == ["csr-0", "csr-1"]
    assert pending.names_waiting_for(["test:///in-its-way"]) == ["csr-1"]
    pending.set_awaited("csr-1", ["test:///n"])
    pending.put(csr("csr-0", "uid-0", labels={"newer": "yes"}))
    assert pending.names_waiting_for(["test:///m"]) == ["csr-0"]
    assert pending.names_waiting_for(["test:///in-its-way"]) == []
    pending.drop("csr-0")
    assert pending.names_waiting_for(["test:///m"]) == []
    assert pending.names_waiting_for(["test:///n"]) == ["csr-1"]


def test_settled_and_recreated() -> None:
    pending = filled(1)
    first = csr("csr-0", "uid-0")
    assert pending.has_same_uid("csr-0", first)
    pending.mark_settled(first)
    assert not pending.is_relevant(first)
    second = csr("csr-0", "uid-9")
    assert pending.is_relevant(second)
    pending.put(second)
    assert not pending.has_same_uid("csr-0", first)
    assert not pending.has_same_uid("never-seen", first)
