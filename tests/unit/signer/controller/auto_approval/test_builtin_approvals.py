"""Counting of built-in approvals: bounded memory, and a message that changes in steps."""

from __future__ import annotations

import pytest

from signer.controller.auto_approval import builtin_approvals as builtin_approvals
from signer.controller.auto_approval.builtin_approvals import BuiltinApprovals, Seen
from signer.kube.client import JsonObject
from signer.model.condition import AUTO_APPROVAL_REMOVED, PolicyCondition
from tests.unit.signer.controller.support import NOW

CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
CONDITION = PolicyCondition(AUTO_APPROVAL_REMOVED, False, "Observing", "as it is")


def approved(uid: str, signer: str = CLIENT, kind: str = "Approved") -> JsonObject:
    """An approved request."""
    conditions = [{"type": kind, "status": "True"}]
    return {"metadata": {"uid": uid}, "spec": {"signerName": signer}, "status": {"conditions": conditions}}


def count(approvals: BuiltinApprovals, *manifests: JsonObject) -> int:
    """Count the requests."""
    return sum(approvals.count(manifest, lambda: NOW) is Seen.NOW for manifest in manifests)


def test_each_is_counted_once() -> None:
    approvals = BuiltinApprovals()
    assert approvals.annotated(CONDITION) == CONDITION
    assert count(approvals, approved("a"), approved("a"), approved("b")) == 2
    prefix = "as it is; 2 built-in requests were approved without attestation since 2026-"
    assert approvals.annotated(CONDITION).message.startswith(prefix)


@pytest.mark.parametrize("other", [approved("a", "kubernetes.io/kubelet-serving"), approved("a", kind="Denied"), {}])
def test_others_are_not_counted(other: JsonObject) -> None:
    approvals = BuiltinApprovals()
    assert approvals.listed(other) is Seen.BEFORE
    assert count(approvals, other) == 0


def test_approvals_before_the_first_list_are_not_counted() -> None:
    approvals = BuiltinApprovals()
    assert approvals.listed(approved("a")) is Seen.NOW
    assert count(approvals, approved("a")) == 0
    approvals.list_ended()
    assert approvals.listed(approved("b")) is Seen.BEFORE, "it is for the count"
    assert count(approvals, approved("b")) == 1


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtin_approvals, "_REMEMBERED", 10)
    approvals = BuiltinApprovals()
    assert count(approvals, *(approved(str(number) + "u" * 10_000) for number in range(1000))) == 1000
    assert len(approvals._uids) <= 10
    assert max(map(len, approvals._uids)) <= 128


@pytest.mark.parametrize(
    ("count", "text"),
    [(1, "1"), (9, "9"), (10, "at least 10"), (99, "at least 90"), (123, "at least 100"), (5999, "at least 5000")],
)
def test_counts_change_the_condition_in_steps(count: int, text: str) -> None:
    assert builtin_approvals._at_least(count) == text
