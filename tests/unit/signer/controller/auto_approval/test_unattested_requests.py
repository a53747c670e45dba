"""Unattested requesters: bounded memory that expires."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from signer.controller.auto_approval.builtin_approvals import Seen
from signer.controller.auto_approval.unattested_requests import MAXIMUM_REQUESTERS, REMEMBERED, UnattestedRequests
from signer.kube.client import JsonObject
from signer.model.condition import AUTO_APPROVAL_REMOVED, PolicyCondition
from signer.model.decision import MAXIMUM_MESSAGE_CHARACTERS
from signer.model.fields import format_time
from tests.unit.signer.controller.support import NOW

CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
CONDITION = PolicyCondition(AUTO_APPROVAL_REMOVED, True, "Removed", "nothing without attestation")
NODE = "system:node:by-hand"


def asks(requester: str = NODE, *, at: datetime = NOW, signer: str = CLIENT, approved: bool = False) -> JsonObject:
    conditions = [{"type": "Approved", "status": "True"}] if approved else []
    return {
        "metadata": {"name": "csr", "uid": "u", "creationTimestamp": format_time(at)},
        "spec": {"username": requester, "signerName": signer},
        "status": {"conditions": conditions},
    }


def message_of(requests: UnattestedRequests, now: datetime = NOW) -> str:
    return requests.annotated(CONDITION, now).message.removeprefix(CONDITION.message)


def test_without_requests_the_condition_is_unchanged() -> None:
    assert UnattestedRequests().annotated(CONDITION, NOW) == CONDITION


def test_a_requester_is_named_once() -> None:
    requests = UnattestedRequests()
    assert requests.observed(asks(), NOW) is Seen.NOW
    assert requests.observed(asks(), NOW) is Seen.BEFORE
    assert requests.observed(asks("system:bootstrap:abcdef"), NOW) is Seen.NOW
    assert requests.count(NOW) == 2
    assert "and got none: system:node:by-hand, system:bootstrap:abcdef;" in message_of(requests)


@pytest.mark.parametrize(
    "manifest",
    [
        asks("kubernetes-admin"),
        asks("system:node:"),
        asks("system:node:" + "n" * 254),
        asks("system:node:by\nhand"),
        asks("system:bootstrap:abcdefg"),
        asks(signer="kubernetes.io/kubelet-serving"),
        asks(signer="cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm"),
        asks(at=NOW - REMEMBERED - timedelta(seconds=1)),
        {"spec": {"username": NODE, "signerName": CLIENT}, "metadata": {"creationTimestamp": "yesterday"}},
        {"spec": {"username": NODE, "signerName": CLIENT}, "metadata": {"creationTimestamp": 5}},
        {"spec": {"username": [NODE], "signerName": CLIENT}},
        {"spec": "x", "metadata": [], "status": 5},
        {},
    ],
)
def test_irrelevant_requests_are_ignored(manifest: dict[str, Any]) -> None:
    requests = UnattestedRequests()
    assert requests.observed(manifest, NOW) is Seen.BEFORE
    assert requests.count(NOW) == 0


def test_an_approval_removes_the_requester() -> None:
    requests = UnattestedRequests()
    assert requests.observed(asks(approved=True), NOW) is Seen.BEFORE
    requests.observed(asks(), NOW)
    assert requests.observed(asks(approved=True), NOW) is Seen.NOW
    assert message_of(requests) == ""


def test_an_older_approval_does_not_remove_the_requester() -> None:
    """API servers keep approved requests for an hour, and a list may have them after newer ones."""
    requests = UnattestedRequests()
    requests.observed(asks(), NOW)
    assert requests.observed(asks(at=NOW - timedelta(minutes=50), approved=True), NOW) is Seen.BEFORE
    assert requests.count(NOW) == 1


def test_nodes_are_named_before_bootstrap_tokens() -> None:
    requests = UnattestedRequests()
    for number in range(20):
        requests.observed(asks(f"system:bootstrap:tok{number:03}"), NOW)
    requests.observed(asks(), NOW)
    assert f"and got none: {NODE}, system:bootstrap:tok000" in message_of(requests)


def test_requesters_fit_into_a_long_message() -> None:
    requests = UnattestedRequests()
    requests.observed(asks(), NOW)
    condition = replace(CONDITION, message="m" * MAXIMUM_MESSAGE_CHARACTERS)
    message = requests.annotated(condition, NOW).message
    assert len(message) == MAXIMUM_MESSAGE_CHARACTERS
    assert message.startswith("mmm")
    assert message.endswith(f"{NODE}; their nodes need the credential plugin before their certificates expire")
    for number in range(8):
        requests.observed(asks(f"system:node:{number:0>253}"), NOW)
    message = requests.annotated(condition, NOW).message
    assert (len(message), message.count("m") > MAXIMUM_MESSAGE_CHARACTERS // 2) == (MAXIMUM_MESSAGE_CHARACTERS, True)


def test_old_requests_are_forgotten() -> None:
    requests = UnattestedRequests()
    requests.observed(asks(), NOW)
    later = NOW + timedelta(minutes=40)
    requests.observed(asks(at=later), later)
    assert requests.count(NOW + REMEMBERED + timedelta(minutes=39)) == 1
    assert requests.count(NOW + REMEMBERED + timedelta(minutes=41)) == 0


def test_relisting_an_older_request_changes_nothing() -> None:
    requests = UnattestedRequests()
    later = NOW + timedelta(minutes=40)
    requests.observed(asks(at=later), later)
    requests.observed(asks(at=NOW), later)
    assert requests.count(later + REMEMBERED) == 1


def test_a_creation_time_in_the_future_is_not_kept_longer() -> None:
    requests = UnattestedRequests()
    requests.observed(asks(at=NOW + timedelta(days=365)), NOW)
    assert requests.count(NOW + REMEMBERED) == 1
    assert requests.count(NOW + REMEMBERED + timedelta(seconds=1)) == 0


def test_memory_is_bounded() -> None:
    requests = UnattestedRequests()
    observed = [requests.observed(asks(f"system:node:n{number:04}"), NOW) for number in range(1000)]
    assert observed.count(Seen.NOW) == requests.count(NOW) == MAXIMUM_REQUESTERS
    assert "system:node:n0007 and at least 56 more;" in message_of(requests)
    soon = NOW + timedelta(minutes=15)
    requests.observed(asks("system:node:n0000", at=soon), soon)
    later = NOW + REMEMBERED + timedelta(seconds=1)
    assert requests.count(later) == 1, "one of them has asked again"
    assert requests.observed(asks("system:node:late", at=later), later) is Seen.NOW, "there is room again"


def test_nodes_replace_bootstrap_tokens() -> None:
    """Bootstrap tokens lose no certificates, and are easy to obtain."""
    requests = UnattestedRequests()
    for number in range(MAXIMUM_REQUESTERS):
        requests.observed(asks(f"system:bootstrap:{number:06}"), NOW)
    assert requests.observed(asks("system:bootstrap:zzzzzz"), NOW) is Seen.BEFORE
    for number in range(1000):
        observed = requests.observed(asks(f"system:node:n{number:04}"), NOW)
        assert (observed is Seen.NOW, requests.count(NOW)) == (number < MAXIMUM_REQUESTERS, MAXIMUM_REQUESTERS)
    assert "none: system:node:n0000, system:node:n0001," in message_of(requests)
