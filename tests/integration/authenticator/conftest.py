"""Fixtures of the node's tests: one API server for a file, an administrator at it, and a node of a test's own."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from authenticator.api.server import ApiServer
from signer.testing.api import EmbeddedAPI
from signer.testing.clients import BlockingClient
from tests.integration.authenticator.fixtures import ClusterAdmin, Node, Timepiece
from tests.integration.authenticator.scene import WORKERS, Scene
from tests.integration.fixtures import Harness
from tests.support.kill_points import KillPoints


@pytest.fixture(scope="module")
def shared_api() -> Iterator[EmbeddedAPI]:
    """A workload cluster's API server that no controller watches."""
    with EmbeddedAPI(seed_kubeadm=True) as api:
        yield api


@pytest.fixture(scope="module")
def administrator(shared_api: EmbeddedAPI) -> Iterator[BlockingClient]:
    """A client that may do everything there."""
    with BlockingClient(shared_api.connection()) as client:
        yield client


@pytest.fixture
def api(shared_api: EmbeddedAPI) -> Iterator[EmbeddedAPI]:
    """The same, with a log of requests that holds this test's only; no fault outlives the test."""
    shared_api.requests.clear()
    yield shared_api
    shared_api.faults.clear()
    for item in shared_api.objects("certificatesigningrequests"):
        shared_api.delete("certificatesigningrequests", item["metadata"]["name"])


@pytest.fixture
def admin(api: EmbeddedAPI, administrator: BlockingClient) -> ClusterAdmin:
    """Who decides there."""
    return ClusterAdmin(api, administrator)


@pytest.fixture
def node(tmp_path: Path, api: EmbeddedAPI) -> Node:
    """A node of this test's own."""
    return Node.new(tmp_path, api)


@pytest.fixture
def nobody_decides(monkeypatch: pytest.MonkeyPatch, node: Node) -> Timepiece:
    """Every watch passes without an event, at once; the node's clock shows that it waited."""

    def watch(self: ApiServer, name: str, resource_version: str, *, seconds: float) -> Iterable[Any]:
        node.time.pass_by(seconds)
        return ()

    monkeypatch.setattr(ApiServer, "watch", watch)
    return node.time


@pytest.fixture(scope="module")
def pool() -> Iterator[queue.SimpleQueue[KillPoints]]:
    """Processes that run the node's program up to a step."""
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(KillPoints()) for _ in range(WORKERS)]
        pool: queue.SimpleQueue[KillPoints] = queue.SimpleQueue()
        for one in running:
            pool.put(one)
        yield pool
        print(f"{sum(one.kills for one in running)} kills in {sum(one.runs for one in running)} runs")


@pytest.fixture
def undecided(harness: Harness, pool: queue.SimpleQueue[KillPoints], tmp_path: Path) -> Scene:
    """Without a controller."""
    return Scene(harness.cluster(api={"watch_window": 100_000}), pool, tmp_path)


@pytest.fixture
def scene(harness: Harness, undecided: Scene) -> Scene:
    """With a controller."""
    harness.run()
    return undecided
