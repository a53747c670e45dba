"""Who asks the stock signer in vain: what is remembered is bounded, and falls out by itself."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from signer.controller.conditions import AUTO_APPROVAL_REMOVED, PolicyCondition
from signer.controller.unattested_requests import MAXIMUM_REQUESTERS, REMEMBERED, Told, UnattestedRequests
from signer.kube.client import JsonObject
from signer.model.kubernetes_time import format_time
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


def said(requests: UnattestedRequests, now: datetime = NOW) -> str:
    return requests.told_in(CONDITION, now).message.removeprefix(CONDITION.message)


def test_nobody_asked() -> None:
    assert UnattestedRequests().told_in(CONDITION, NOW) == CONDITION


def test_who_asks_is_named_once() -> None:
    requests = UnattestedRequests()
    assert requests.saw(asks(), NOW) is Told.NOW
    assert requests.saw(asks(), NOW) is Told.BEFORE
    assert requests.saw(asks("system:bootstrap:abcdef"), NOW) is Told.NOW
    assert requests.count(NOW) == 2
    assert "and got nothing: system:bootstrap:abcdef, system:node:by-hand;" in said(requests)


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
def test_what_says_nothing_of_a_node(manifest: dict[str, Any]) -> None:
    requests = UnattestedRequests()
    assert requests.saw(manifest, NOW) is Told.BEFORE
    assert requests.count(NOW) == 0


def test_who_is_approved_after_all_is_not_named_any_more() -> None:
    requests = UnattestedRequests()
    assert requests.saw(asks(approved=True), NOW) is Told.BEFORE
    requests.saw(asks(), NOW)
    assert requests.saw(asks(approved=True), NOW) is Told.NOW
    assert said(requests) == ""


def test_who_asks_no_more_is_forgotten() -> None:
    requests = UnattestedRequests()
    requests.saw(asks(), NOW)
    later = NOW + timedelta(minutes=40)
    requests.saw(asks(at=later), later)
    assert requests.count(NOW + REMEMBERED + timedelta(minutes=39)) == 1
    assert requests.count(NOW + REMEMBERED + timedelta(minutes=41)) == 0


def test_an_older_request_that_is_listed_again_changes_nothing() -> None:
    requests = UnattestedRequests()
    later = NOW + timedelta(minutes=40)
    requests.saw(asks(at=later), later)
    requests.saw(asks(at=NOW), later)
    assert requests.count(later + REMEMBERED) == 1


def test_a_clock_that_is_ahead_keeps_nobody_longer() -> None:
    requests = UnattestedRequests()
    requests.saw(asks(at=NOW + timedelta(days=365)), NOW)
    assert requests.count(NOW + REMEMBERED) == 1
    assert requests.count(NOW + REMEMBERED + timedelta(seconds=1)) == 0


def test_what_is_remembered_is_bounded() -> None:
    requests = UnattestedRequests()
    told = [requests.saw(asks(f"system:node:n{number:04}"), NOW) for number in range(1000)]
    assert told.count(Told.NOW) == requests.count(NOW) == MAXIMUM_REQUESTERS
    assert "system:node:n0007 and 56 more;" in said(requests)
    later = NOW + REMEMBERED + timedelta(seconds=1)
    assert requests.saw(asks("system:node:late", at=later), later) is Told.NOW, "there is room again"
