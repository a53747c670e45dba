"""What the side door's keeper remembers of requests: bounded, and of tokens only."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest

from signer.controller import door_keeping
from signer.controller.door_keeping import DoorKeeping
from signer.controller.metrics import Metrics
from signer.model.cluster import ClusterKey
from tests.unit.signer.controller.support import NOW

TOKEN = "system:bootstrap:abc123"
KUBEADM = "system:bootstrappers:kubeadm:default-node-token"
CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"


@pytest.fixture
def keeping() -> DoorKeeping:
    around = MagicMock()
    around.now = lambda: NOW
    around.metrics = Metrics()
    return DoorKeeping(ClusterKey("team-a", "one"), around, MagicMock())


def csr(username: str = TOKEN, groups: Any = (KUBEADM,), *, uid: str = "u", approved: bool = False) -> dict[str, Any]:
    conditions = [{"type": "Approved", "status": "True"}] if approved else []
    return {
        "metadata": {"name": "csr", "uid": uid},
        "spec": {"username": username, "groups": list(groups), "signerName": CLIENT},
        "status": {"conditions": conditions},
    }


def known(keeping: DoorKeeping) -> list[frozenset[str]]:
    return list(keeping._group_sets)


def approvals(keeping: DoorKeeping) -> float:
    return keeping._around.metrics.stock_approvals.labels("team-a/one")._value.get()


def test_groups_of_tokens_are_reviewed_too(keeping: DoorKeeping) -> None:
    keeping.saw(csr(groups=["system:authenticated", "system:bootstrappers", KUBEADM, "system:bootstrappers:extra"]))
    assert known(keeping) == [frozenset({"system:bootstrappers", KUBEADM, "system:bootstrappers:extra"})]


@pytest.mark.parametrize(
    "manifest",
    [
        csr("system:node:n1"),
        csr("system:bootstrap:abc1234"),
        csr("somebody"),
        csr(groups=["x" * 1_000_000]),
        csr(groups=["system:bootstrappers:" + "x" * 1_000_000]),
        csr(groups=[f"system:bootstrappers:{number}" for number in range(17)]),
        csr(groups=[5, None, {}]),
        {},
        {"spec": "x", "metadata": [], "status": 5},
    ],
    ids=["node", "no token", "user", "long", "long token group", "many", "ill-typed", "empty", "garbage"],
)
def test_what_no_token_has_is_not_remembered(keeping: DoorKeeping, manifest: dict[str, Any]) -> None:
    keeping.saw(manifest)
    assert known(keeping) == []


def test_what_is_remembered_is_bounded(keeping: DoorKeeping, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_keeping, "_REMEMBERED_APPROVALS", 10)
    for number in range(1000):
        keeping.saw(csr(groups=[f"system:bootstrappers:{number}"], uid="u" * 10_000 + str(number), approved=True))
    assert len(known(keeping)) == door_keeping._MAXIMUM_GROUP_SETS
    assert len(keeping._approvals_seen) <= 10
    assert max(map(len, keeping._approvals_seen)) <= 128


def test_an_approval_is_counted_once(keeping: DoorKeeping) -> None:
    keeping.saw(csr(uid="a"))
    for _ in range(3):
        keeping.saw(csr(uid="a", approved=True))
    keeping.saw(csr(uid="b", approved=True))
    assert approvals(keeping) == 2


def test_what_was_approved_before_we_looked_is_not_counted(keeping: DoorKeeping) -> None:
    keeping.listed(csr(uid="a", approved=True))
    keeping.saw(csr(uid="a", approved=True))
    assert approvals(keeping) == 0
    keeping.listed(csr(uid="b"))
    keeping.saw(csr(uid="b", approved=True))
    assert approvals(keeping) == 1


@pytest.mark.parametrize(
    ("count", "said"),
    [(1, "1"), (9, "9"), (10, "at least 10"), (99, "at least 90"), (123, "at least 100"), (5999, "at least 5000")],
)
def test_counts_change_the_condition_seldom(count: int, said: str) -> None:
    assert door_keeping._at_least(count) == said
