"""On which node a Pod runs: what a workload cluster says, and what it may not do to the controller."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from attestors.wire.ssh.container_names import Container, Pod, Workload, WorkloadKind
from signer.access.containers import nodes
from signer.access.containers.nodes import PAUSE_SECONDS, ContainerNodes, NotKnown, RunsOn, hint_of
from signer.kube.client import JsonObject
from signer.kube.errors import Forbidden
from signer.model.cluster import ClusterKey

CLUSTER = ClusterKey("team-a", "production")
CONTAINER = Container("shop", Pod("web-0"), "app")
PATH = "/api/v1/namespaces/shop/pods/web-0"


class Answers:
    """A workload cluster."""

    def __init__(self, answer: JsonObject | Exception | None) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def get(self, path: str) -> JsonObject:
        self.asked.append(path)
        if self.answer is None:
            await asyncio.Event().wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer or {}


@pytest.mark.parametrize(
    ("pod", "hint"),
    [
        ({"spec": {"nodeName": "worker-1"}}, RunsOn("worker-1")),
        ({"spec": {}}, NotKnown()),
        ({}, NotKnown()),
        ({"spec": {"nodeName": "worker-1\nHost *"}}, NotKnown()),
        ({"spec": {"nodeName": "w" * 254}}, NotKnown()),
        ({"spec": {"nodeName": ["worker-1"]}}, NotKnown()),
        ({"spec": "worker-1"}, NotKnown()),
    ],
)
def test_a_pod_says_its_node(pod: Any, hint: object) -> None:
    assert hint_of(pod) == hint


async def test_a_connected_cluster_is_asked_for_that_very_pod() -> None:
    found, client = ContainerNodes(lambda: 0.0), Answers({"spec": {"nodeName": "worker-1"}})
    with found.connected(CLUSTER, client):
        assert await found.of(CLUSTER, CONTAINER) == RunsOn("worker-1")
        assert await found.of(ClusterKey("team-a", "other"), CONTAINER) == NotKnown()
        workload = Container("shop", Workload(WorkloadKind.DEPLOYMENT, "web"), "app")
        assert await found.of(CLUSTER, workload) == NotKnown()
    assert await found.of(CLUSTER, CONTAINER) == NotKnown()
    assert client.asked == [PATH]


async def test_a_cluster_that_refuses_holds_no_grant() -> None:
    found = ContainerNodes(lambda: 0.0)
    with found.connected(CLUSTER, Answers(Forbidden("no"))):
        assert await found.of(CLUSTER, CONTAINER) == NotKnown()


async def test_a_cluster_that_does_not_answer_is_waited_for_once_in_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "ANSWER_SECONDS", 0.01)
    at = [100.0]
    found, client = ContainerNodes(lambda: at[0]), Answers(None)
    with found.connected(CLUSTER, client):
        assert await found.of(CLUSTER, CONTAINER) == NotKnown()
        assert await found.of(CLUSTER, CONTAINER) == NotKnown()
        assert len(client.asked) == 1
        at[0] += PAUSE_SECONDS
        client.answer = {"spec": {"nodeName": "worker-1"}}
        assert await found.of(CLUSTER, CONTAINER) == RunsOn("worker-1")
