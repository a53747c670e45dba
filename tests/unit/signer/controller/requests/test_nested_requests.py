"""A hostile API server's deeply nested objects: the watch continues without an alert."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from signer.kube.answers import decoded
from signer.kube.client import JsonObject
from signer.kube.resource_limits import ResourceLimits
from signer.kube.watch import list_and_watch
from tests.unit.signer.controller.cluster.served_cluster import Served, csr

DEPTHS = range(900, 1000)
"""Where Python's limit is, less what calls are under way."""
FIELDS = (
    "uid",
    "name",
    "namespace",
    "resourceVersion",
    "signerName",
    "username",
    "request",
    "conditions",
    "annotations",
)


def event_with(field: str, depth: int) -> JsonObject:
    manifest = csr("x", "u")
    if field in ("uid", "name", "namespace", "resourceVersion"):
        manifest["metadata"][field] = "@"
    elif field == "annotations":
        manifest["metadata"]["annotations"] = {"a": "@"}
    elif field == "conditions":
        manifest["status"]["conditions"] = ["@"]
    else:
        manifest["spec"][field] = "@"
    raw = json.dumps({"type": "ADDED", "object": manifest}).replace('"@"', "[" * depth + "]" * depth)
    with ResourceLimits().memory_quota() as budget:
        return decoded(raw.encode(), "no JSON object", budget)


class Source:
    """Objects of every depth, in a list or in a watch."""

    def __init__(self, field: str, *, listed: bool) -> None:
        self._field = field
        self._listed = listed
        self.done = asyncio.Event()

    async def list_pages(self, *args: Any, **options: Any) -> AsyncGenerator[JsonObject, None]:
        for depth in DEPTHS if self._listed else ():
            page = {"metadata": {"resourceVersion": "1"}, "items": [event_with(self._field, depth)["object"]]}
            yield page
        yield {"metadata": {"resourceVersion": "1"}, "items": []}

    async def watch(self, *args: Any, **options: Any) -> AsyncGenerator[JsonObject, None]:
        for depth in () if self._listed or self._field == "resourceVersion" else DEPTHS:
            yield event_with(self._field, depth)
        self.done.set()
        await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "watched"])
@pytest.mark.parametrize("field", FIELDS)
async def test_the_watch_goes_on(field: str, listed: bool) -> None:
    cluster, source = Served().cluster, Source(field, listed=listed)
    watching = asyncio.create_task(
        list_and_watch(source, "/requests", sink=cluster, keep=cluster._add_listed, settle=cluster._requests.settle)
    )
    ended = asyncio.create_task(source.done.wait())
    await asyncio.wait({watching, ended}, return_when=asyncio.FIRST_COMPLETED, timeout=10)
    assert source.done.is_set()
    for name in cluster._requests.pending:
        assert cluster._requests.pending.get(name) is not None
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
