"""An API server that sends no bookmarks, as Kubernetes 1.20 does for a collection without events.

Its watches are quiet or hang, which the controller cannot see. It lists again, and warns only if that fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from signer.kube import watch
from signer.kube.client import Client, JsonObject
from signer.kube.errors import ApiError
from signer.kube.resources import NODE_ATTESTATION_POLICIES
from signer.kube.watch import list_and_watch
from signer.store.cache import Cache, InTouch, OutOfTouch
from signer.testing.api.embedded import EmbeddedAPI
from signer.testing.api.faults import Request
from tests.support.raw_client import RawClient

DEFINITION: Final = Path(__file__).parents[2] / "deploy/crds/attestation.cluster.x-k8s.io_nodeattestationpolicies.yaml"
COLLECTION: Final = NODE_ATTESTATION_POLICIES.collection("default")
IDLE_SECONDS: Final = 0.1
WARNING: Final = "cannot watch in the management cluster"


@pytest.fixture
def api() -> Iterator[EmbeddedAPI]:
    with EmbeddedAPI(bookmark_seconds=math.inf, server_version="1.20") as embedded:
        embedded.install_crds([DEFINITION])
        yield embedded


def create(api: EmbeddedAPI, name: str) -> None:
    policy = {
        "apiVersion": NODE_ATTESTATION_POLICIES.api_version,
        "kind": "NodeAttestationPolicy",
        "metadata": {"name": name},
        "spec": {"authorizedAttestors": [{"name": "tpm"}]},
    }
    with RawClient(api.connection()) as administrator:
        administrator.post(COLLECTION, policy).expect(201)


def is_list(request: Request) -> bool:
    return request.path == COLLECTION and "watch=" not in request.query


def name_of(policy: Mapping[str, Any]) -> str:
    return str(policy["metadata"]["name"])


class Deaf(Client):
    """A man in the middle: watches are accepted and deliver nothing."""

    async def watch(self, path: str, *arguments: Any, **options: Any) -> AsyncGenerator[JsonObject, None]:
        """The watch of another collection, where nothing changes."""
        events = super().watch("/api/v1/namespaces/kube-public/configmaps", *arguments, **options)
        async with contextlib.aclosing(events):
            async for event in events:
                yield event


class Reporting(Cache[str]):
    """A cache that queues each report of its list and watch."""

    def __init__(self) -> None:
        super().__init__("nodeattestationpolicies", name_of)
        self.reports: asyncio.Queue[str] = asyncio.Queue()

    def applied(self, item: JsonObject) -> None:
        super().applied(item)
        self.reports.put_nowait("applied")

    def synced(self) -> None:
        super().synced()
        self.reports.put_nowait("synced")

    def failed(self, error: ApiError, retry_in_seconds: float) -> None:
        super().failed(error, retry_in_seconds)
        self.reports.put_nowait("failed")

    async def next(self, report: str) -> None:
        """Wait for that report; others may come before it."""
        async with asyncio.timeout(30):
            while await self.reports.get() != report:
                pass


@contextlib.asynccontextmanager
async def watching(api: EmbeddedAPI, kind: type[Client] = Client) -> AsyncIterator[Reporting]:
    cache = Reporting()
    async with kind(api.connection()) as client:
        task = asyncio.create_task(
            list_and_watch(client, COLLECTION, sink=cache, keep=cache.parse_list_item, idle_seconds=IDLE_SECONDS)
        )
        try:
            yield cache
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def test_a_quiet_collection_causes_no_warning(api: EmbeddedAPI, caplog: pytest.LogCaptureFixture) -> None:
    create(api, "first")
    async with watching(api) as cache:
        for _ in range(4):
            await cache.next("synced")
        assert isinstance(cache.touch(), InTouch)
        assert list(cache.values()) == ["first"]
    assert WARNING not in caplog.messages


async def test_an_event_of_a_quiet_collection_arrives(api: EmbeddedAPI) -> None:
    async with watching(api) as cache:
        await cache.next("synced")
        await asyncio.to_thread(create, api, "second")
        async with asyncio.timeout(30):
            while "second" not in cache.values():
                await cache.reports.get()


async def test_what_a_watch_holds_back_is_listed(api: EmbeddedAPI) -> None:
    async with watching(api, Deaf) as cache:
        await cache.next("synced")
        await asyncio.to_thread(create, api, "held-back")
        async with asyncio.timeout(30):
            while "held-back" not in cache.values():
                assert await cache.reports.get() == "synced"


async def test_a_server_that_hangs_is_out_of_touch(
    api: EmbeddedAPI, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LIST_AFTER_SILENCE_SECONDS", 0.2)
    async with watching(api) as cache:
        await cache.next("synced")
        api.faults.inject(is_list, delay_seconds=3600.0, times=None)
        await cache.next("failed")
        assert isinstance(cache.touch(), OutOfTouch)
        api.faults.clear()
    assert WARNING in caplog.messages
