"""Fixtures of the node's tests: one API server for a file, an administrator at it, and a node of a test's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from authenticator.api.server import ApiServer
from signer.testing.api import EmbeddedAPI
from signer.testing.clients import BlockingClient
from tests.integration.authenticator.desk import Desk, Node, Timepiece


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
def desk(api: EmbeddedAPI, administrator: BlockingClient) -> Desk:
    """Who decides there."""
    return Desk(api, administrator)


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
